"""Every error of this package, by who must act.

::

    AdkError
    ├── ConfigurationError (also ImproperlyConfigured)   the product's settings or code
    ├── RunError
    │   ├── RunConflictError          the caller: this id is another run
    │   ├── RunForgottenError         the caller: this id was erased
    │   ├── SettlementError           whoever settles: refused, and why
    │   │   └── CallNotFoundError     whoever settles: no such call
    │   └── ProviderError             nobody yet: retried with back-off
    ├── CheckpointError
    │   ├── CheckpointTooLargeError   whoever sizes payloads
    │   ├── CheckpointFormatError     a worker on the newer version
    │   ├── CheckpointPassedError     a person: settle, then cancel
    │   ├── CheckpointNotFoundError   the caller
    │   └── CheckpointDamagedError    a person: cancel
    ├── ResumeError
    │   ├── IndeterminateToolCallError   a person or the tool's status: settle
    │   ├── ResumeConflictError (also RunLeaseError)   nobody: another worker has it
    │   ├── AgentRevisionError        a worker of that revision, or an operator
    │   ├── MaskedArgumentsError      a person
    │   ├── HistoryUnavailableError   a person
    │   └── StaleFrontierError        an operator
    ├── RunLeaseError
    │   ├── CrowdedError              nobody: as many runs live as may
    │   ├── LeaseLostError            nobody: another worker has it
    │   └── FenceLostError            an operator: the lease store forgot
    ├── ApprovalError
    │   ├── RequestNotFoundError      whoever answers: no such request
    │   ├── ApprovalConflictError     whoever answered second
    │   └── ApprovalExpiredError      whoever answered late
    ├── BudgetExceededError           whoever sets the limit
    └── StoreUnavailableError         nobody yet: the store is down

The first line of a class's docstring is its default message. ``code`` is stable and is what JSON output, logs and the
admin show. ``retryable`` says whether asking again, unchanged, can help.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, ClassVar

from django.core.exceptions import ImproperlyConfigured

logger = logging.getLogger(__name__)


class AdkError(Exception):
    """Something went wrong in adk_django."""

    code: ClassVar[str] = "adk-error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])


class ConfigurationError(AdkError, ImproperlyConfigured):
    """The settings or the definition of an agent or tool cannot work."""

    code = "configuration"


class RunError(AdkError):
    """The run cannot be had."""

    code = "run-error"


class RunConflictError(RunError):
    """This run id is taken by a different run. ``field`` names what differs; no text of either is shown."""

    code = "run-conflict"

    def __init__(self, run_id: str, field: str) -> None:
        super().__init__(f"run {run_id} already has another {field}: use another run id, or the same {field}")
        self.run_id, self.field = run_id, field


class RunForgottenError(RunError):
    """This run id was forgotten and cannot be used again."""

    code = "run-forgotten"


class SettlementError(RunError):
    """The call cannot be settled so."""

    code = "settlement-refused"


class CallNotFoundError(SettlementError):
    """There is no such call on record."""

    code = "call-not-found"


class ProviderError(RunError):
    """The model provider failed; the run stays active and is tried again."""

    code = "provider-failed"
    retryable = True


class CheckpointError(AdkError):
    """The frontier cannot be used."""

    code = "checkpoint-error"


class CheckpointTooLargeError(CheckpointError):
    """A payload is over the cap. ``size`` and ``cap`` are bytes."""

    code = "checkpoint-too-large"

    def __init__(self, size: int, cap: int, what: str = "the frontier") -> None:
        super().__init__(f"{what} has {size} bytes, over the cap of {cap}: nothing of it was stored")
        self.size, self.cap = size, cap


class CheckpointFormatError(CheckpointError):
    """The frontier was written by a newer version. ``found`` and ``supported`` are format numbers."""

    code = "checkpoint-format"

    def __init__(self, found: int, supported: int) -> None:
        super().__init__(f"written by a newer version: format {found}, this one reads up to {supported}; left as it is")
        self.found, self.supported = found, supported


class CheckpointPassedError(CheckpointError):
    """The run is known to have gone on past its frontier."""

    code = "checkpoint-passed"


class CheckpointNotFoundError(CheckpointError):
    """There is no such run."""

    code = "checkpoint-not-found"


class CheckpointDamagedError(CheckpointError):
    """The frontier is damaged or lost."""

    code = "checkpoint-damaged"


class ResumeError(AdkError):
    """The run must not be carried on."""

    code = "resume-refused"


class IndeterminateToolCallError(ResumeError):
    """Nobody can say whether a call happened. ``calls`` holds the `core.plan.Resumption` of each."""

    code = "indeterminate-call"

    def __init__(self, calls: Sequence[Any]) -> None:
        super().__init__(
            "nobody can say whether these calls happened: " + "; ".join(item.description for item in calls)
        )
        self.calls = tuple(calls)


class RunLeaseError(AdkError):
    """The lease of the run is another's. ``holder`` is a name for show, ``until`` an instant of the store."""

    code = "lease-error"

    def __init__(
        self, message: str | None = None, *, holder: str | None = None, until: datetime | None = None, fence: int = 0
    ) -> None:
        super().__init__(message)
        self.holder, self.until, self.fence = holder, until, fence


class ResumeConflictError(ResumeError, RunLeaseError):
    """Another worker holds the run."""

    code = "resume-conflict"
    retryable = True

    def __init__(self, *, run_id: str, holder: str, until: datetime, fence: int) -> None:
        message = f"run {run_id} is held by {holder} until {until.isoformat()} (fence {fence})"
        RunLeaseError.__init__(self, message, holder=holder, until=until, fence=fence)
        self.run_id = run_id


class CrowdedError(RunLeaseError):
    """As many runs live as ``ADK["RESUME"]`` allows."""

    code = "crowded"
    retryable = True


class AgentRevisionError(ResumeError):
    """The run was pinned to another revision of its agent. ``pinned`` and ``found`` are both revisions."""

    code = "agent-revision"

    def __init__(self, message: str, *, pinned: str | None, found: str | None) -> None:
        super().__init__(message)
        self.pinned, self.found = pinned, found


class MaskedArgumentsError(ResumeError):
    """The arguments of an outstanding call were masked when they were saved, so it cannot be made."""

    code = "masked-arguments"


class HistoryUnavailableError(ResumeError):
    """The conversation behind a handle is not there whole. ``handle`` is the handle."""

    code = "history-unavailable"

    def __init__(self, message: str, *, handle: Any) -> None:
        super().__init__(message)
        self.handle = handle


class StaleFrontierError(ResumeError):
    """The frontier is older than the policy allows."""

    code = "stale-frontier"


class LeaseLostError(RunLeaseError):
    """The lease was lost: another worker took the run over, or it was released."""

    code = "lease-lost"


class FenceLostError(RunLeaseError):
    """The lease store no longer knows the fence the run has seen."""

    code = "fence-lost"


class ApprovalError(AdkError):
    """The request cannot be decided so."""

    code = "approval-error"


class RequestNotFoundError(ApprovalError):
    """There is no such request."""

    code = "request-not-found"


class ApprovalConflictError(ApprovalError):
    """The request was decided otherwise before."""

    code = "approval-conflict"


class ApprovalExpiredError(ApprovalError):
    """The request expired before it was decided."""

    code = "approval-expired"


class BudgetExceededError(AdkError):
    """The run has used up what it may spend."""

    code = "budget-exceeded"


class StoreUnavailableError(AdkError):
    """The store did not answer."""

    code = "store-unavailable"
    retryable = True


@contextmanager
def kept_error(error: BaseException | None, doing: str) -> Iterator[None]:
    """Let ``error`` come out of a block that cleans up behind it, and not what fails while ``doing`` that.

    What the block raises becomes a note on ``error`` and a line in the log. Without an ``error`` it comes out itself.
    """
    try:
        yield
    except Exception as other:
        if error is None:
            raise
        error.add_note(f"{doing} failed, too: {type(other).__name__}: {other}")
        logger.warning("%s failed behind another error: %s", doing, type(other).__name__)
