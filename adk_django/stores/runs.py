"""The contract of the run rows, and of what people ask of runs. What `adk_django.stores.base` says first holds here."""

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any

from adk_django.asynchronous import SyncVerbs, twin
from adk_django.core.effects import Claim
from adk_django.core.record import Approval, RunRecord, RunStatus, Writes, Written


class RunStore(SyncVerbs, ABC):
    """The run rows and what people ask of them: requests, answers, the ledger and the audit."""

    verbs = (
        "create",
        "get",
        "write",
        "gate",
        "ungate",
        "approvals",
        "decide",
        "request",
        "find",
        "request_cancel",
        "now",
    )

    @abstractmethod
    def create(self, record: RunRecord) -> tuple[RunRecord, bool]:
        """Insert the row unless its (tenant, run id) is there; return what stands and whether it is new.

        Joins the caller's transaction and breaks nothing in it. Raise RunForgottenError for an id that was forgotten.
        """

    @abstractmethod
    def get(self, run_id: str, *, tenant: str) -> RunRecord | None:
        """Return the row with the sum of its ledger, or None. Write nothing.

        What of it cannot be read is left out and named in `RunRecord.damaged`, here as in `find`.
        """

    @abstractmethod
    def write(self, run_id: str, *, tenant: str, writes: Writes, fence: int) -> Written:
        """Apply what of ``writes`` concerns the row: ``begins``, status, note, spend, requests, revision.

        A row that has ended changes no more, and nobody is asked for it. A spend that is there counts once. The same
        request again leaves it as it stands, unless nobody edited its arguments and its digest is another all the
        same; another one for its slot replaces it unless it is granted for this digest. With a status the row's
        ``wake_at`` is the end of the first window of the requests, where that is before ``writes.wake_at``.
        ``Written.cancel_requested_at`` and ``Written.at`` are filled in.
        """

    @abstractmethod
    def gate(self, claim: Claim, *, fence: int) -> bool:
        """Note that ``claim`` is about to be made, and return whether it may be; it is noted only then.

        No cancel is requested, and where it names a request, that is granted for exactly its digest. Notes of earlier
        turns go. What is noted and not found later was lost: `RunRecord.lost`.
        """

    @abstractmethod
    def ungate(self, claim: Claim, *, fence: int) -> None:
        """Take the note of ``claim`` back: it is not made, or was given back before its body was entered."""

    @abstractmethod
    def approvals(self, run_id: str, *, tenant: str) -> tuple[Approval, ...]:
        """Return the run's requests by slot. Write nothing.

        An open one past its ``expires_at`` by the store's clock reads `ApprovalState.EXPIRED`. Raise
        CheckpointDamagedError if one cannot be read.
        """

    @abstractmethod
    def decide(
        self,
        request_id: str,
        *,
        tenant: str,
        grant: bool,
        by: str,
        reason: str,
        edited: Any = None,
        digest: str | None = None,
    ) -> Approval:
        """Answer a request, once, by compare-and-set; wake the run; return the request as it stands.

        ``edited`` and its ``digest`` are the approver's own arguments. The same answer again is a quiet success,
        another one raises ApprovalConflictError naming who answered first and when. Past ``expires_at`` raise
        ApprovalExpiredError. Raise ApprovalError if there is no such request.
        """

    @abstractmethod
    def request_cancel(self, run_id: str, *, tenant: str, by: str, reason: str) -> RunRecord | None:
        """Ask that the run be cancelled, and wake it;

        None if there is no such run. A run that has ended stays as it is.
        """

    @abstractmethod
    def request(self, request_id: str, *, tenant: str) -> Approval | None:
        """Return one request, as `approvals` does, or None. Write nothing."""

    @abstractmethod
    def find(
        self,
        *,
        tenant: str | None = None,
        status: RunStatus | None = None,
        agent: str | None = None,
        stuck: bool = False,
        limit: int = 100,
        before: RunRecord | None = None,
    ) -> tuple[RunRecord, ...]:
        """Return rows, newest first, at most ``limit``, those that come after ``before`` in this order. Write
        nothing.

        ``stuck`` are those that have not ended and that no live lease advances. Every row is on exactly one page.
        """

    @abstractmethod
    def now(self) -> datetime:
        """Return the store's clock."""

    acreate = twin(create)
    aget = twin(get)
    awrite = twin(write)
    agate = twin(gate)
    aungate = twin(ungate)
    aapprovals = twin(approvals)
    adecide = twin(decide)
    arequest_cancel = twin(request_cancel)
    arequest = twin(request)
    afind = twin(find)
    anow = twin(now)
