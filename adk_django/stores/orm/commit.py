"""The commit of runs whose stores share one database."""

from dataclasses import replace

from django.db import DatabaseError, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from adk_django import models
from adk_django.core.codec import EncodeError
from adk_django.core.effects import Claim, ClaimState
from adk_django.core.lease import RunLease
from adk_django.core.record import Writes, Written
from adk_django.exceptions import HistoryUnavailableError, RunConflictError, StoreUnavailableError
from adk_django.stores.orm.base import lost
from adk_django.stores.orm.claims import OrmIdempotencyStore
from adk_django.stores.orm.connection import mapped, refuse_transaction
from adk_django.stores.orm.fenced_write import Applied, Scope, apply
from adk_django.stores.orm.rows import later
from adk_django.stores.orm.runs import OrmRunStore
from adk_django.stores.transcripts import unavailable

ATTEMPTS = 3


def commit(alias: str, writes: Writes, lease: RunLease, *, joined: bool) -> Written:
    """Make ``writes`` under the lease's fence and return what stands.

    Where the transcript or the frontier refuses, the same goes out without its progress and with a note. Where the
    fence is another's, outcomes of claims are kept as evidence before LeaseLostError is raised. ``joined`` runs in the
    transaction that is open, once, and raises RunConflictError where an outcome is not the first of its call: the
    effect must not be committed twice.
    """
    connection, scope = connections[alias], Scope(lease.tenant, lease.run_id, lease.fence)
    with mapped(alias):
        if not joined:
            refuse_transaction(alias)
        if writes.frontier is not None:
            writes = replace(writes, failed_save="")
        writes, applied, refusal = _split(connection, scope, writes, once=joined)
        if applied is None:
            if not joined:
                _keep_evidence(alias, writes)
            raise lost(alias, scope)
        return _written(alias, writes, applied, lease, refusal, joined=joined)


def _split(
    connection: BaseDatabaseWrapper, scope: Scope, writes: Writes, *, once: bool
) -> tuple[Writes, Applied | None, Exception | None]:
    """Send ``writes``; where their progress is refused send them without it.

    Return what was sent, what came of it, and the refusal.
    """
    applied: Applied | None = None
    refusal: Exception
    try:
        applied = _send(connection, scope, writes, once=once)
        if applied is None or (applied.written and applied.saved(connection.alias, scope, writes.frontier)):
            return writes, applied, None
        refusal = RunConflictError(scope.run_id, "frontier")
        if not applied.stands and writes.extends is not None:
            refusal = unavailable(writes.extends)
    except (EncodeError, DatabaseError) as error:
        progress = writes.frontier is not None or writes.delta or writes.requests
        if isinstance(error, OperationalError) or not progress or connection.in_atomic_block:
            raise
        refusal = error
    note = f"{writes.boundary_name or 'end'}: {type(refusal).__name__}: {refusal}"
    asks, writes = bool(writes.requests), writes.without_progress(note)
    if asks and isinstance(refusal, HistoryUnavailableError):
        # No frontier was passed: the question was not asked. The next slice finds the transcript as this one did.
        _send(connection, scope, replace(writes, failed_save=None), once=once)
        raise StoreUnavailableError(f"nobody could be asked: {refusal}") from refusal
    if applied is not None and applied.written:  # the frontier alone was refused: another thread of ours was first
        _send(connection, scope, Writes(failed_save=note), once=once)
        return writes, applied, refusal
    return writes, _send(connection, scope, writes, once=once), refusal


def _send(connection: BaseDatabaseWrapper, scope: Scope, writes: Writes, *, once: bool) -> Applied | None:
    """Send ``writes`` until they are answered, a bounded number of times.

    Every part compares with what is there, so where the first answer was lost on its way, sending again finds what the
    first left and changes nothing.
    """
    attempts = 1 if once or connection.in_atomic_block else ATTEMPTS
    for left in reversed(range(attempts)):
        try:
            return apply(connection, scope, writes, gated=True, forgets=(models.Checkpoint,) if writes.ends else ())
        except (OperationalError, InterfaceError):
            if broken := _broken(connection):
                connection.close()
            if not (left and broken):
                raise
    raise AssertionError("a last attempt returns or raises")


def _broken(connection: BaseDatabaseWrapper) -> bool:
    return connection.vendor == "postgresql" and not (connection.connection and connection.is_usable())


def _keep_evidence(alias: str, writes: Writes) -> None:
    claims = OrmIdempotencyStore(using=alias)
    for claim in writes.outcomes:
        if claim.outcome is not None:
            claims.evidence(claim, claim.outcome)


def _written(
    alias: str, writes: Writes, applied: Applied, lease: RunLease, refusal: Exception | None, *, joined: bool
) -> Written:
    counts = applied.counts
    claims = [_begun(claim, applied, lease) for number, claim in enumerate(writes.claims) if counts[f"claim_{number}"]]
    late = [claim for number, claim in enumerate(writes.outcomes) if not counts.get(f"outcome_{number}", 1)]
    second = any(not counts[f"settlement_{number}"] for number in range(len(writes.settlements)))
    written = Written(
        claims=tuple(claims),
        handle=writes.extends.extended(writes.delta) if writes.delta and writes.extends is not None else None,
        cancel_requested_at=applied.cancel_requested_at,
        at=applied.at,
        failed_save=writes.failed_save or "",
        refusal=refusal,
    )
    if not (second or late or len(claims) < len(writes.claims)):
        return written
    if joined:
        raise RunConflictError(lease.run_id, "outcome")
    store = OrmIdempotencyStore(using=alias)
    for claim in late:
        if claim.outcome is not None:
            store.evidence(claim, claim.outcome)
    standing = {found.slot: found for found in store.look_up(lease.run_id, tenant=lease.tenant)}
    ours = tuple(standing[claim.slot] for claim in writes.claims if _ours(claim, standing.get(claim.slot)))
    approvals = OrmRunStore(using=alias).approvals(lease.run_id, tenant=lease.tenant)
    return replace(written, claims=ours, standing=standing, approvals={item.slot: item for item in approvals})


def _begun(claim: Claim, applied: Applied, lease: RunLease) -> Claim:
    return replace(
        claim,
        state=ClaimState.IN_FLIGHT,
        fence=lease.fence,
        begun_at=applied.at,
        deadline_at=later(applied.at, claim.limit_seconds),
        holder=claim.holder or lease.holder,
    )


def _ours(sent: Claim, found: Claim | None) -> bool:
    """Return whether a claim that was not written now stands all the same: the first answer was lost on its way."""
    return found is not None and found.token == sent.token and found.state is ClaimState.IN_FLIGHT
