"""The contracts of the stores, in sentences that a test can fail.

`adk_django.testing` has one test for each sentence below; a store of your own is right when its suite passes. Every
instant is the store's own: no verb takes the caller's time. ``fence`` is always the caller's; where another worker
has acquired the run since, or the lease was released, every verb that takes a fence raises LeaseLostError and changes
nothing. An expired lease that nobody took over or released is still its holder's, in writes as in renewals. Every
verb raises StoreUnavailableError if the store does not answer. Nothing of one tenant is ever found under another. The
async twins, with an ``a`` prefix, come free.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from adk_django.concurrency import SyncVerbs, twin
from adk_django.core.checkpoint import Checkpoint, HistoryHandle
from adk_django.core.codec import DecodeError
from adk_django.core.effects import Claim, Outcome, Slot
from adk_django.core.lease import RunLease
from adk_django.core.messages import Message
from adk_django.core.record import Answer
from adk_django.exceptions import CheckpointDamagedError


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

    verbs = ("acquire", "renew", "renew_at_once", "release", "progressed", "revoke", "held", "held_of")

    @abstractmethod
    def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float, floor: int = 0) -> RunLease:
        """Return a lease of its own token and the next fence, which lasts ``ttl_seconds`` by the store's clock.

        A live lease refuses everyone, the same ``holder`` included, with ResumeConflictError naming holder and until.
        The fence rises with every acquisition and never goes down: not by release, by expiry or by forgetting the
        run. A lease that expired and was not released is a death: ``deaths`` rises by one and ``took_over`` is true.
        A released one is no death. Raise FenceLostError if the new fence would not be above ``floor``, and
        RunForgottenError if the run was forgotten.
        """

    @abstractmethod
    def renew(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        """Return the lease under the same fence, lasting ``ttl_seconds`` from now on. Only the holder's token renews.

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
    def progressed(self, lease: RunLease, *, deaths: int = 0) -> None:
        """Count deaths from ``deaths`` again: the run got somewhere, or is given another round.

        What has moved on is left alone, without an error.
        """

    @abstractmethod
    def revoke(self, run_id: str, *, tenant: str, by: str) -> RunLease | None:
        """Take the lease from whoever holds it; return what now stands, or None if nobody held it.

        Its fence is the next one, its holder ``by``, and it has lapsed: nobody renews it or writes under it, and the
        next acquisition counts a death.
        """

    def within(self, *, max_live: int | None, max_live_per_tenant: int | None) -> "LeaseStore":
        """Return the same store, whose `acquire` raises CrowdedError where so many leases of other runs live already,
        in all or of the tenant. Never do more live than may, however many acquire at once.

        A store that cannot count its leases returns itself.
        """
        return self

    @abstractmethod
    def held(self, run_id: str, *, tenant: str) -> RunLease | None:
        """Return the lease that stands unreleased, expired or not, or None. Write nothing."""

    def held_of(self, runs: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], RunLease]:
        """Return what `held` does for many runs, by (tenant, run id); runs without a lease are left out."""
        found = {(tenant, run_id): self.held(run_id, tenant=tenant) for tenant, run_id in runs}
        return {run: lease for run, lease in found.items() if lease is not None}

    aacquire = twin(acquire)
    arenew = twin(renew)
    arenew_at_once = twin(renew_at_once)
    arelease = twin(release)
    aprogressed = twin(progressed)
    arevoke = twin(revoke)
    aheld = twin(held)
    aheld_of = twin(held_of)


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
        self,
        run_id: str,
        slot: Slot,
        *,
        tenant: str,
        answer: Answer,
        outcome: Outcome | None,
        by: str,
        reason: str,
        attempt: int | None = None,
    ) -> Claim:
        """Answer for a call in flight, once, by compare-and-set and under no fence; return the claim as it stands.

        ``Answer.DONE`` needs an outcome. The same answer again, with the same outcome, is a quiet success. Raise
        SettlementError if there is no such call, if it was answered otherwise or has its outcome, or, for
        ``Answer.NOT_DONE``, before its deadline, naming the instant, and where its late outcome is on record, which
        will settle the call. A contested claim takes one more answer, either. ``attempt`` is the one that was looked
        at: raise SettlementError if the call is at another.
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

    verbs = ("append", "fetch", "newest")

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

    @abstractmethod
    def newest(self, run_id: str, *, tenant: str, limit: int) -> tuple[Message, ...]:
        """Return the last ``limit`` messages that are stored of a run, oldest first, or all where there are fewer. What
        was replaced, and the orphan tail behind it, is none of them.

        For people, who look at a run whose frontier, and with it the handle, is gone. Write nothing. Raise
        HistoryUnavailableError if one of them cannot be read.
        """

    aappend = twin(append)
    afetch = twin(fetch)
    anewest = twin(newest)


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Raise CheckpointDamagedError, naming ``what``, where the block meets a payload that cannot be read."""
    try:
        yield
    except DecodeError as error:
        raise CheckpointDamagedError(f"{what} cannot be read: {error}") from error
