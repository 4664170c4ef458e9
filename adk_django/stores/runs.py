"""The contract of the run rows, and of what people ask of runs. What `adk_django.stores.base` says first holds here."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from adk_django.concurrency import SyncVerbs, twin
from adk_django.core.effects import Claim
from adk_django.core.record import Approval, RunRecord, RunStatus, Writes, Written


@dataclass(frozen=True)
class Due:
    """Which runs a sweep takes, and how many.

    ``definitions`` maps each agent's name to the revisions that can be carried on; ``format_version`` is the newest
    frontier that can be read.
    """

    limit: int
    definitions: Mapping[str, frozenset[str]]
    format_version: int
    again_seconds: float
    max_live: int | None = None
    max_live_per_tenant: int | None = None

    def carries(self, record: RunRecord) -> bool:
        """Return whether the run can be carried on here, or is to be cancelled, which needs neither agent nor
        frontier."""
        if record.cancel_requested_at is not None:
            return True
        pinned = record.revision is None or record.revision in self.definitions.get(record.agent, ())
        return record.agent in self.definitions and pinned and (record.format_version or 0) <= self.format_version


class RunStore(SyncVerbs, ABC):
    """The run rows and what people ask of them: requests, answers, the ledger and the audit."""

    verbs = (
        *("create", "get", "write", "gate", "ungate", "approvals", "decide", "request", "find"),
        *("request_cancel", "request_release", "wake", "tell", "take_due", "prune", "now"),
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
        """Apply what of ``writes`` concerns the row: ``begins``, status, note, spend, requests, revision and format.

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
    def request_release(self, run_id: str, *, tenant: str, by: str, reason: str) -> RunRecord | None:
        """Ask that a quarantined run be given one more round, and wake it; return its row, None if there is none.

        A run that is not quarantined stays as it is. The next commit of another status answers the
        request.
        """

    @abstractmethod
    def wake(self, run_id: str, *, tenant: str) -> RunRecord | None:
        """Let a run that has not ended be due at once; return its row, None if there is none."""

    @abstractmethod
    def prune(self, *, seconds: float, limit: int) -> tuple[tuple[str, str], ...]:
        """Erase at most ``limit`` runs that ended more than ``seconds`` ago; return tenant and id of each.

        A run that has not ended is never erased, however old it is. The id of one that was cannot be used again.
        """

    @abstractmethod
    def tell(self, run_id: str, *, tenant: str, kind: str, by: str, reason: str, detail: str = "") -> None:
        """Add to the run's audit what somebody did. A store that keeps no audit drops it."""

    @abstractmethod
    def take_due(self, due: Due) -> tuple[tuple[str, str], ...]:
        """Take at most ``due.limit`` runs that a worker is to carry on, longest due first; return tenant and
        id of each.

        Due are runs that have not ended and that no live lease advances: those whose ``wake_at`` has come, and active
        ones without one. Of them those are taken whose agent and pinned revision, if it has one, and whose frontier's
        format ``due`` names; and, whoever carries them, those whose cancel was asked for. Taking moves ``wake_at`` on
        by ``again_seconds`` and up to half as much again: no run is taken twice before, however many take at once. No
        more are taken than leave live leases, with one for each run taken, at ``max_live`` in all and
        ``max_live_per_tenant``; a store that does not see the leases takes without these.
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
    arequest_release = twin(request_release)
    awake = twin(wake)
    atell = twin(tell)
    aprune = twin(prune)
    atake_due = twin(take_due)
    arequest = twin(request)
    afind = twin(find)
    anow = twin(now)
