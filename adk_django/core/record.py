"""What is recorded of a run besides its frontier and claims, and what one commit brings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from urllib.parse import quote, unquote

from adk_django.core.checkpoint import Checkpoint, HistoryHandle
from adk_django.core.effects import Claim, ClaimState, Outcome, Slot
from adk_django.core.messages import Message, Usage


class RunStatus(StrEnum):
    """What is stored of where a run stands. Running and interrupted are derived from the lease, never stored."""

    ACTIVE = "active"
    WAITING = "waiting"  # on an approval
    UNDECIDED = "undecided"  # a person must answer
    QUARANTINED = "quarantined"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether a run never leaves this status."""
        return self in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)


class ApprovalState(StrEnum):
    """Where a request for approval stands."""

    REQUESTED = "requested"
    GRANTED = "granted"
    DENIED = "denied"
    EXPIRED = "expired"


@dataclass(frozen=True)
class Approval:
    """A person's decision on one call with exactly these arguments.

    ``digest`` is that of the arguments as they may be made. ``edited`` holds the approver's own arguments where they
    changed them, None otherwise.
    """

    tenant: str
    run_id: str
    request_id: str
    slot: Slot
    tool: str
    digest: str
    arguments: Any
    summary: str = ""
    state: ApprovalState = ApprovalState.REQUESTED
    edited: Any = None
    expires_seconds: float | None = None
    expires_at: datetime | None = None
    requested_at: datetime | None = None
    decided_at: datetime | None = None
    decided_by: str = ""
    reason: str = ""

    def asked_at(self, at: datetime) -> "Approval":
        """Return the request as it stands once it was put to a person, at ``at``."""
        seconds = self.expires_seconds
        return replace(self, requested_at=at, expires_at=None if seconds is None else at + timedelta(seconds=seconds))

    def read_at(self, at: datetime) -> "Approval":
        """Return the request as it reads at ``at``: one that is open past its window has expired."""
        expired = self.state is ApprovalState.REQUESTED and self.expires_at is not None and self.expires_at <= at
        return replace(self, state=ApprovalState.EXPIRED) if expired else self


@dataclass(frozen=True)
class Spend:
    """What one model call of ``turn`` cost, asked under ``fence``: a row of the ledger."""

    turn: int
    fence: int
    usage: Usage = field(default_factory=Usage)
    cost_micros: int = 0


@dataclass(frozen=True)
class RunRecord:
    """The run row. ``fence`` is the highest it has seen; ``salt`` is hex and secret; ``input`` is what the run was
    asked.

    ``damaged`` says what of the row cannot be read, empty where all can. ``failed_save`` notes the newest save that
    failed and has not been made good: the frontier is then one that the run has passed. ``begun_at`` is set by the
    first commit after a model answer. ``claimed`` are the tokens of the claims of its newest turn that were about to
    be made, noted where the claims are in another place than the row: one that is not found there was lost.
    ``format_version`` is the format of its frontier, None before the first; it and ``revision`` are read before the
    lease is asked for. ``usage``, ``cost_micros`` and ``iterations`` (turns answered) are what its ledger comes to.
    """

    tenant: str
    run_id: str
    agent: str
    input: str
    salt: str
    input_digest: str = ""
    revision: str | None = None
    format_version: int | None = None
    status: RunStatus = RunStatus.ACTIVE
    reason: str = ""
    output: str | None = None
    user: str | None = None
    scopes: tuple[str, ...] = ()
    parent: str | None = None
    fence: int = 0
    begun_at: datetime | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    wake_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    cancel_requested_by: str = ""
    cancel_reason: str = ""
    release_requested_at: datetime | None = None
    failed_save: str = ""
    claimed: Mapping[Slot, str] = field(default_factory=dict)
    damaged: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_micros: int = 0
    iterations: int = 0

    @property
    def cancellation(self) -> str:
        """Why a run whose cancel was requested has ended, in one line."""
        by = f" by {self.cancel_requested_by}" if self.cancel_requested_by else ""
        return f"cancelled{by}: {self.cancel_reason}" if self.cancel_reason else f"cancelled{by}"

    def lost(self, slot: Slot, claim: Claim | None) -> bool:
        """Return whether ``claim``, what is on record of a slot, is not the claim that was made there last."""
        token = self.claimed.get(slot)
        if token is None:
            return False
        return claim is None or (claim.state is ClaimState.NEVER_RAN and claim.token != token)


def mark(slot: Slot, token: str | None) -> str:
    """Return how the row notes that a slot is being claimed under ``token``; None: that it is not."""
    return f"{slot}={quote(token or '', safe='')}"


def marks(text: str) -> dict[Slot, str]:
    """Return the tokens that a row notes, the last of each slot."""
    pairs = (item.partition("=") for item in text.split())
    noted = {Slot.parse(slot): unquote(token) for slot, _, token in pairs}
    return {slot: token for slot, token in noted.items() if token}


class Answer(StrEnum):
    """What a probe, or whoever settles a call, says."""

    DONE = "done"
    NOT_DONE = "not_done"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Settlement:
    """An indeterminate call's answer, brought by its evidence or its probe. People settle through their own door."""

    claim: Claim
    answer: Answer
    outcome: Outcome | None
    by: str
    reason: str


@dataclass(frozen=True)
class Writes:
    """What one commit brings, all of it under the current fence.

    The facts (``outcomes``, ``failures``, ``settlements``, ``abandoned``, ``spend``, ``claims``) are never refused
    because of what describes progress (``frontier``, ``delta``, ``requests``). ``outcomes`` are claims with their
    outcome set; with a token they complete that claim, without one they are rows done at once. ``failures`` are
    claims with their error set: they stay in flight. ``delta`` is the messages that ``frontier`` has beyond what the
    transcript holds at ``extends``. ``status`` None leaves it. With a status goes ``wake_at``, or the end of the first
    window of ``requests`` where that is sooner, unless the row's is no longer ``wake_seen``: then somebody asked for
    another wake-up meanwhile, and it stays. A status other than quarantined also answers a requested release.
    ``failed_save`` None leaves the note, ``deaths`` None their number. ``ends`` forgets the frontier as well.
    """

    frontier: Checkpoint | None = None
    delta: tuple[Message, ...] = ()
    extends: HistoryHandle | None = None
    claims: tuple[Claim, ...] = ()
    outcomes: tuple[Claim, ...] = ()
    failures: tuple[Claim, ...] = ()
    settlements: tuple[Settlement, ...] = ()
    abandoned: tuple[Claim, ...] = ()
    requests: tuple[Approval, ...] = ()
    spend: tuple[Spend, ...] = ()
    begins: bool = False
    status: RunStatus | None = None
    reason: str = ""
    wake_at: datetime | None = None
    wake_seen: datetime | None = None
    output: str | None = None
    revision: str | None = None
    format_version: int | None = None
    failed_save: str | None = None
    deaths: int | None = None

    @property
    def ends(self) -> bool:
        """Whether the run reaches a terminal status."""
        return self.status is not None and self.status.ended

    @property
    def window_seconds(self) -> float | None:
        """The shortest window of its requests, None where none of them expires."""
        return min((item.expires_seconds for item in self.requests if item.expires_seconds is not None), default=None)

    def wakes_at(self, at: datetime) -> datetime | None:
        """Return when the run is to be carried on by itself, where this is committed at ``at``; None for not."""
        seconds = self.window_seconds
        instants = [self.wake_at, None if seconds is None else at + timedelta(seconds=seconds)]
        return min((instant for instant in instants if instant is not None), default=None)

    def without_progress(self, note: str) -> "Writes":
        """Return this commit as it goes out where its frontier or delta was refused: facts and ``note``, nobody
        asked."""
        waits = self.status is RunStatus.WAITING
        return replace(
            self,
            frontier=None,
            delta=(),
            requests=(),
            status=RunStatus.ACTIVE if waits else self.status,
            reason="" if waits else self.reason,
            wake_at=None if waits else self.wake_at,
            failed_save=note,
        )

    @property
    def boundary_name(self) -> str:
        """The boundary of the frontier in it, or the empty text."""
        return "" if self.frontier is None else self.frontier.boundary.value


@dataclass(frozen=True)
class Written:
    """What the store answered: what of a commit stands, and what people asked for meanwhile.

    ``claims`` are those of the commit that now stand, with token and instants. One that is missing was held back by
    its own gate (a cancel was requested, its approval is not granted for this digest, or its slot is no longer as it
    was read). Where that happened, or a settlement came second, ``standing`` and ``approvals`` are the run's claims
    and approvals, read again. ``at`` is the store's instant of the commit. ``handle`` is that of the transcript as it
    now is, None where nothing was added. ``failed_save`` says why frontier, delta and requests were left out, empty
    where they were not; ``refusal`` is the error, where a store raised one.
    """

    claims: tuple[Claim, ...] = ()
    handle: HistoryHandle | None = None
    cancel_requested_at: datetime | None = None
    cancelled: RunRecord | None = None
    standing: Mapping[Slot, Claim] | None = None
    approvals: Mapping[Slot, Approval] | None = None
    at: datetime | None = None
    failed_save: str = ""
    refusal: Exception | None = None
