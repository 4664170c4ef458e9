"""The contracts of the stores, in sentences that a test can fail.

`adk_django.testing` has one test for each sentence below; a store of your own is right when its suite passes. Every
instant is the store's own: no verb takes the caller's time. ``fence`` is always the caller's; where another worker
has acquired the run since, or the lease was released, every verb that takes a fence raises LeaseLostError and changes
nothing. An expired lease that nobody took over or released is still its holder's, in writes as in renewals. Every
verb raises StoreUnavailableError if the store does not answer. Nothing of one tenant is ever found under another. The
async twins, with an ``a`` prefix, come free.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from adk_django import signals
from adk_django.asynchronous import Left, SyncVerbs, in_testcase, in_thread, twin
from adk_django.core.checkpoint import Checkpoint, HistoryHandle
from adk_django.core.codec import DecodeError
from adk_django.core.effects import Claim, EffectClass, Outcome, Slot
from adk_django.core.lease import RunLease
from adk_django.core.messages import Message
from adk_django.core.record import Answer, Approval, RunRecord, RunStatus, Writes, Written
from adk_django.exceptions import (
    CheckpointDamagedError,
    CheckpointError,
    RunConflictError,
    RunLeaseError,
    SettlementError,
    StoreUnavailableError,
)


class CheckpointStore(SyncVerbs, ABC):
    """One frontier per run, the newest."""

    verbs = ("put", "latest", "forget")

    @abstractmethod
    def put(self, checkpoint: Checkpoint, *, fence: int) -> None:
        """Store ``checkpoint`` in place of the run's frontier.

        A higher fence, or under the same fence a higher sequence, replaces. The same fence, sequence and digest is a
        quiet success. The same or a lower sequence with another digest, under the same fence, raises
        RunConflictError.
        """

    @abstractmethod
    def latest(self, run_id: str, *, tenant: str) -> Checkpoint | None:
        """Return the run's frontier with ``fence`` and ``created_at`` filled in, or None. Write nothing.

        Raise CheckpointFormatError if a newer version wrote it and CheckpointDamagedError if it cannot be read;
        either way it stays as it is.
        """

    @abstractmethod
    def forget(self, run_id: str, *, tenant: str, fence: int) -> None:
        """Delete the run's frontier. It is no error if there is none."""

    aput = twin(put)
    alatest = twin(latest)
    aforget = twin(forget)


class LeaseStore(SyncVerbs, ABC):
    """Who may advance a run."""

    verbs = ("acquire", "renew", "renew_at_once", "release", "progressed", "held")

    @abstractmethod
    def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float, floor: int = 0) -> RunLease:
        """Return a lease of its own token and the next fence.

        A live lease refuses everyone, the same ``holder`` included, with ResumeConflictError naming holder and until.
        The fence rises with every acquisition and never goes down: not by release, by expiry or by forgetting the
        run. A lease that expired and was not released is a death: ``deaths`` rises by one and ``took_over`` is true.
        A released one is no death. Raise FenceLostError if the new fence would not be above ``floor``, and
        RunForgottenError if the run was forgotten.
        """

    @abstractmethod
    def renew(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        """Return the lease with a later expiry and the same fence. Only the holder's token renews.

        Raise LeaseLostError if another acquired or it was released; expired alone is no reason.
        """

    def renew_at_once(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        """Renew as `renew` does, without waiting for whoever has the lease's row locked.

        Raise StoreUnavailableError if somebody has: not now, which is no loss. A store whose rows nobody can lock for
        long need not override it.
        """
        return self.renew(lease, ttl_seconds=ttl_seconds)

    @abstractmethod
    def release(self, lease: RunLease) -> None:
        """Give the lease back, so that the next acquires at once.

        What has moved on is left alone, without an error.
        """

    @abstractmethod
    def progressed(self, lease: RunLease) -> None:
        """Count deaths from zero again: the run got somewhere. What has moved on is left alone, without an error."""

    @abstractmethod
    def held(self, run_id: str, *, tenant: str) -> RunLease | None:
        """Return the lease that stands unreleased, expired or not, or None. Write nothing."""

    aacquire = twin(acquire)
    arenew = twin(renew)
    arenew_at_once = twin(renew_at_once)
    arelease = twin(release)
    aprogressed = twin(progressed)
    aheld = twin(held)


class IdempotencyStore(SyncVerbs, ABC):
    """The claims of a run: what is about to be made, and what came of it."""

    verbs = ("begin", "look_up", "record", "abandon", "note_error", "evidence", "settle", "forget")

    @abstractmethod
    def begin(self, claim: Claim, *, fence: int) -> Claim:
        """Write ``claim`` in flight and return what now stands: the caller's own if its token is the same.

        ``begun_at`` and ``deadline_at`` are filled in. Where the slot has a claim already, it is taken over only if
        its token is ``claim.replaces``, its state still ``claim.replaces_state`` (settled never-ran, or, where
        ``claim`` is not effectful, in flight), and no evidence came since that was read: none that contests a
        settlement, none of a call in flight. The same token again is a quiet success. Where another slot holds the
        key, that claim is returned. Nothing else ever frees a claim: neither age nor expiry. Taking over clears what
        was settled, the evidence and the error.
        """

    @abstractmethod
    def look_up(self, run_id: str, *, tenant: str, keys: Sequence[str] | None = None) -> tuple[Claim, ...]:
        """Return the claims of the run by slot, or those with one of ``keys``. Write nothing.

        Raise CheckpointDamagedError if one of them cannot be read: nobody knows then what it says.
        """

    @abstractmethod
    def record(self, claim: Claim, outcome: Outcome, *, fence: int) -> Claim:
        """Write the outcome of ``claim`` and return the claim as it stands.

        With a token it completes the claim in flight under that token. Without one it is a row done at once. An
        outcome is write-once: the same again is a quiet success, another one raises RunConflictError and the first
        stays. Where the call was settled meanwhile, an outcome under its token is kept as evidence first, then
        RunConflictError is raised. Where the fence has moved on it is kept as evidence first, then LeaseLostError is
        raised.
        """

    @abstractmethod
    def abandon(self, claim: Claim, *, fence: int) -> None:
        """Take back a claim whose body was not entered:

        It reads never ran. Only its token can; others change nothing.
        """

    @abstractmethod
    def note_error(self, claim: Claim, *, fence: int) -> None:
        """Keep ``claim.error`` beside the claim in flight under its token. It decides nothing."""

    @abstractmethod
    def evidence(self, claim: Claim, outcome: Outcome) -> Claim | None:
        """Keep an outcome that came too late, under the claim's token and no fence; return the claim as it stands.

        In flight: kept, and it will settle the call. Settled never-ran and not claimed again: the settlement is void,
        the claim is in flight and ``contested``. Settled completed: kept, changes nothing. Claimed again under
        another token: nothing is changed, None is returned. An outcome already recorded stays, and so does the first
        evidence: the same again voids no answer that was given knowing it.
        """

    @abstractmethod
    def settle(
        self, run_id: str, slot: Slot, *, tenant: str, answer: Answer, outcome: Outcome | None, by: str, reason: str
    ) -> Claim:
        """Answer for a call in flight, once, by compare-and-set and under no fence; return the claim as it stands.

        ``Answer.DONE`` needs an outcome. The same answer again, with the same outcome, is a quiet success. Raise
        SettlementError if there is no such call, if it was answered otherwise or has its outcome, or, for
        ``Answer.NOT_DONE``, before its deadline, naming the instant, and where its late outcome is on record, which
        will settle the call. A contested claim takes one more answer, either.
        """

    @abstractmethod
    def forget(self, run_id: str, *, tenant: str, fence: int) -> None:
        """Delete the run's claims."""

    abegin = twin(begin)
    alook_up = twin(look_up)
    arecord = twin(record)
    aabandon = twin(abandon)
    anote_error = twin(note_error)
    aevidence = twin(evidence)
    asettle = twin(settle)
    aforget = twin(forget)


class HistoryStore(SyncVerbs, ABC):
    """Conversations, append only."""

    verbs = ("append", "fetch")

    @abstractmethod
    def append(self, handle: HistoryHandle, messages: Sequence[Message], *, fence: int) -> HistoryHandle:
        """Add ``messages`` behind ``handle`` and return ``handle.extended(messages)``.

        What lies behind the handle's length under this or a lower fence is an orphan tail and is replaced. Raise
        HistoryUnavailableError if what the handle points at is not there.
        """

    @abstractmethod
    def fetch(self, handle: HistoryHandle, *, tenant: str) -> tuple[Message, ...]:
        """Return exactly ``handle.length`` messages whose rolling digest is the handle's. Write nothing.

        Raise HistoryUnavailableError if there are fewer, one is missing or was changed, or the tenant is another.
        """

    aappend = twin(append)
    afetch = twin(fetch)


class RunStore(SyncVerbs, ABC):
    """The run rows and what people ask of them: requests, answers, the ledger and the audit."""

    verbs = ("create", "get", "write", "gate", "approvals", "decide", "request", "find", "request_cancel", "now")

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
    def gate(self, claim: Claim) -> bool:
        """Return whether ``claim`` may be made:

        No cancel is requested, and where it names a request, that is granted for exactly its digest.
        """

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
    aapprovals = twin(approvals)
    adecide = twin(decide)
    arequest_cancel = twin(request_cancel)
    arequest = twin(request)
    afind = twin(find)
    anow = twin(now)


@dataclass(frozen=True)
class Stores:
    """The stores a run lives in, and its commit.

    This commit goes store by store, in an order each prefix of which a resume understands; stores that share a
    database override it with one statement.
    """

    checkpoints: CheckpointStore
    leases: LeaseStore
    idempotency: IdempotencyStore
    history: HistoryStore
    runs: RunStore
    save_timeout_seconds: float | None = None

    @property
    def joins(self) -> frozenset[str]:
        """The database aliases in whose transactions this commit can take part: where transactional tools may
        write."""
        return frozenset()

    def refuse_transaction(self) -> None:
        """Raise ConfigurationError inside a caller's transaction on the run's database:

        A roll-back would undo what is recorded of effects that stay.
        """

    def commit(self, writes: Writes, *, lease: RunLease, joined: bool = False) -> Written:
        """Write all of ``writes`` under the lease's fence; return what stands.

        ``writes`` comes masked and sized. Facts first, progress next, claims last: a body is entered only after
        everything before it is durable. A frontier or delta that its store refuses is left out, with its requests,
        and noted. ``joined`` is for stores that share the database of a transactional tool, whose transaction it then
        ends in. Raise StoreUnavailableError where a store that is down keeps people from being asked.
        """
        fence, tenant, run_id = lease.fence, lease.tenant, lease.run_id
        second = self._facts(writes, fence)
        asks, (writes, handle, refusal) = bool(writes.requests), self._progress(writes, fence)
        if asks and refusal is not None and not isinstance(refusal, CheckpointError | RunConflictError):
            facts = replace(writes, failed_save=None)  # the frontier that stands is not passed: nothing was asked
            self.runs.write(run_id, tenant=tenant, writes=facts, fence=fence)
            raise StoreUnavailableError(f"nobody could be asked: {refusal}") from refusal
        row = self.runs.write(run_id, tenant=tenant, writes=writes, fence=fence)
        begun = (
            (claim, self.idempotency.begin(claim, fence=fence)) for claim in writes.claims if self.runs.gate(claim)
        )
        ours = tuple(found for claim, found in begun if found.token == claim.token)
        if writes.resets_deaths:
            self.leases.progressed(lease)
        if writes.ends:
            self.checkpoints.forget(run_id, tenant=tenant, fence=fence)
        if second or len(ours) < len(writes.claims):
            found = {claim.slot: claim for claim in self.idempotency.look_up(run_id, tenant=tenant)}
            asked = {item.slot: item for item in self.runs.approvals(run_id, tenant=tenant)}
            row = replace(row, standing=found, approvals=asked)
        return replace(row, claims=ours, handle=handle, failed_save=writes.failed_save or "", refusal=refusal)

    def _facts(self, writes: Writes, fence: int) -> bool:
        """Write what is known of calls; return whether somebody else's answer came first."""
        second = False
        for claim in writes.outcomes:
            if claim.outcome is None:
                continue
            try:
                self.idempotency.record(claim, claim.outcome, fence=fence)
            except RunConflictError:
                second = True
        for claim in writes.failures:
            self.idempotency.note_error(claim, fence=fence)
        for item in writes.settlements:
            claim = item.claim
            try:
                self.idempotency.settle(
                    claim.run_id,
                    claim.slot,
                    tenant=claim.tenant,
                    answer=item.answer,
                    outcome=item.outcome,
                    by=item.by,
                    reason=item.reason,
                )
            except SettlementError:
                second = True
        for claim in writes.abandoned:
            self.idempotency.abandon(claim, fence=fence)
        return second

    def _progress(self, writes: Writes, fence: int) -> tuple[Writes, HistoryHandle | None, Exception | None]:
        """Write transcript and frontier;

        Where a store refuses, return the commit without them, noted, and the refusal.
        """

        def save() -> HistoryHandle | None:
            handle = None
            if writes.delta and writes.extends is not None:
                handle = self.history.append(writes.extends, writes.delta, fence=fence)
            if writes.frontier is not None:
                self.checkpoints.put(writes.frontier, fence=fence)
            return handle

        if not writes.delta and writes.frontier is None:
            return writes, None, None
        try:
            here = self.save_timeout_seconds is None or in_testcase()
            handle = save() if here else in_thread(save).wait(self.save_timeout_seconds)
        except RunLeaseError:
            raise
        except Left:
            refusal: Exception = StoreUnavailableError(f"the save took longer than {self.save_timeout_seconds} seconds")
        except Exception as error:  # noqa: BLE001  # whatever a store raises, a failed save never fails the run
            refusal = error
        else:
            return (writes if writes.frontier is None else replace(writes, failed_save="")), handle, None
        note = f"{writes.boundary_name or 'end'}: {type(refusal).__name__}: {refusal}"
        return writes.without_progress(note), None, refusal


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Raise CheckpointDamagedError, naming ``what``, where the block meets a payload that cannot be read."""
    try:
        yield
    except DecodeError as error:
        raise CheckpointDamagedError(f"{what} cannot be read: {error}") from error


def was_settled_before(claim: Claim) -> bool:
    """Return whether a claim whose slot was claimed again had been settled never-ran: others are simply repeated."""
    return claim.effect is EffectClass.EFFECTFUL


def tell_contradiction(claim: Claim) -> None:
    """Signal that evidence contradicts what a call was settled as."""
    signals.evidence_contradicts.send_robust(
        sender=IdempotencyStore, tenant=claim.tenant, run_id=claim.run_id, call=str(claim.slot)
    )
