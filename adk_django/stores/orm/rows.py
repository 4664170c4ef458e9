"""Rows as the values that the rest of the package works with, and back."""

from datetime import datetime, timedelta
from typing import Any, cast

from adk_django import models
from adk_django.core import codec
from adk_django.core.checkpoint import (
    CHECKPOINT_FORMAT,
    Checkpoint,
    CheckpointBoundary,
    NewerFormatError,
)
from adk_django.core.codec import DecodeError
from adk_django.core.effects import Claim, ClaimState, EffectClass, Outcome, Slot
from adk_django.core.lease import RunLease
from adk_django.core.messages import Usage
from adk_django.core.record import Approval, ApprovalState, RunRecord, RunStatus, mark, marks
from adk_django.exceptions import CheckpointDamagedError, CheckpointFormatError
from adk_django.stores.base import readable


def later(at: datetime, seconds: float) -> datetime:
    """Return the instant that many seconds after ``at``."""
    return at + timedelta(seconds=seconds)


def lease_of(row: models.RunLease) -> RunLease:
    """Return the lease that a row holds; the row is not a released one."""
    return RunLease(
        tenant=row.tenant,
        run_id=row.run_id,
        holder=cast("str", row.holder),  # one constraint holds all four together
        token=cast("str", row.token),
        fence=row.fence,
        acquired_at=cast("datetime", row.acquired_at),
        expires_at=cast("datetime", row.expires_at),
        deaths=row.deaths,
        took_over=row.took_over,
    )


def checkpoint_of(row: models.Checkpoint) -> Checkpoint:
    """Return the frontier that a row holds; its payload is looked at only if its format is one of ours."""
    if row.format_version > CHECKPOINT_FORMAT:
        raise CheckpointFormatError(row.format_version, CHECKPOINT_FORMAT)
    where = f"the frontier of run {row.run_id}"
    if codec.digest(row.payload) != row.digest:
        raise CheckpointDamagedError(f"{where} is not what was written: its digest is another")
    try:
        found = Checkpoint.decoded(row.payload, fence=row.fence, created_at=row.created_at)
    except NewerFormatError as error:
        raise CheckpointFormatError(error.found, error.supported) from error
    except DecodeError as error:
        raise CheckpointDamagedError(f"{where} cannot be read: {error}") from error
    if (found.tenant, found.run_id, *found.sequence) != (row.tenant, row.run_id, *sequence_of(row)):
        raise CheckpointDamagedError(f"{where} belongs to another run or place")
    return found


def sequence_of(row: models.Checkpoint) -> tuple[int, int]:
    """Return the sequence of a stored frontier."""
    return row.turn, CheckpointBoundary(row.boundary).rank


def claim_of(row: models.IdempotencyKey) -> Claim:
    """Return the claim that a row holds."""
    return Claim(
        tenant=row.tenant,
        run_id=row.run_id,
        slot=Slot(row.turn, row.position),
        key=row.key,
        tool=row.tool,
        effect=EffectClass(row.effect),
        guaranteed=row.guaranteed,
        digest=row.digest,
        token=row.token,
        request_id=row.request_id,
        fence=row.fence,
        attempt=row.attempt,
        limit_seconds=row.limit_seconds,
        state=ClaimState(row.state),
        begun_at=row.begun_at,
        deadline_at=row.deadline_at,
        outcome=_outcome(row, row.outcome),
        error=row.error,
        holder=row.holder,
        settled_at=row.settled_at,
        settled_by=row.settled_by,
        reason=row.reason,
        evidence=_outcome(row, row.late_outcome),
        evidence_at=row.late_at,
        contested=row.contested,
    )


def _outcome(row: models.IdempotencyKey, text: str | None) -> Outcome | None:
    with readable(f"an outcome of call {row.turn}.{row.position} of run {row.run_id}"):
        return None if text is None else Outcome.decoded(text)  # not readable is unknown, not "never ran"


def same(one: Outcome | None, other: Outcome | None) -> bool:
    """Return whether two outcomes are the same as they are stored: 1 and 1.0 are not."""
    texts = (None if item is None else item.encoded() for item in (one, other))
    return len(set(texts)) == 1


def claim_row(claim: Claim) -> dict[str, Any]:
    """Return the columns of a claim that are its caller's."""
    return {
        "turn": claim.slot.turn,
        "position": claim.slot.position,
        "key": claim.key,
        "guaranteed": claim.guaranteed,
        "tool": claim.tool,
        "effect": claim.effect.value,
        "digest": claim.digest,
        "token": claim.token,
        "request_id": claim.request_id,
        "attempt": claim.attempt,
        "limit_seconds": claim.limit_seconds,
    }


def approval_of(row: Any) -> Approval:
    """Return the request that a row holds, which carries as ``reads`` the state that it has by now."""
    with readable(f"request {row.request_id} of run {row.run_id}"):
        arguments = codec.decode(row.arguments)
        edited = None if row.edited is None else codec.decode(row.edited)
    return Approval(
        tenant=row.tenant,
        run_id=row.run_id,
        request_id=row.request_id,
        slot=Slot(row.turn, row.position),
        tool=row.tool,
        digest=row.digest,
        arguments=arguments,
        summary=row.summary,
        state=ApprovalState(row.reads),
        edited=edited,
        expires_seconds=row.expires_seconds,
        expires_at=row.expires_at,
        requested_at=row.requested_at,
        decided_at=row.decided_at,
        decided_by=row.decided_by,
        reason=row.reason,
    )


def record_of(row: Any) -> RunRecord:
    """Return the record of a run row that carries the sums of its ledger as ``spent_*``."""
    scopes, damaged = _scopes(row)
    return RunRecord(
        tenant=row.tenant,
        run_id=row.run_id,
        agent=row.agent,
        input=row.input,
        salt=row.salt,
        input_digest=row.input_digest,
        revision=row.revision,
        format_version=row.format_version,
        status=RunStatus(row.status),
        reason=row.reason,
        output=row.output,
        user=row.user,
        scopes=scopes,
        parent=row.parent,
        fence=row.fence,
        begun_at=row.begun_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
        wake_at=row.wake_at,
        cancel_requested_at=row.cancel_requested_at,
        cancel_requested_by=row.cancel_requested_by,
        cancel_reason=row.cancel_reason,
        release_requested_at=row.release_requested_at,
        failed_save=row.failed_save,
        claimed=marks(row.claimed),
        damaged=damaged,
        usage=Usage(row.spent_input_tokens, row.spent_output_tokens, row.spent_unknown_calls),
        cost_micros=row.spent_cost_micros,
        iterations=row.spent_turns,
    )


def _scopes(row: Any) -> tuple[tuple[str, ...], str]:
    """Return a run's scopes, and why they cannot be read where they cannot: none are granted then."""
    try:
        scopes = codec.decode(row.scopes)
    except DecodeError as error:
        return (), f"the scopes of run {row.run_id} cannot be read: {error}"
    if isinstance(scopes, list) and all(isinstance(item, str) for item in scopes):
        return tuple(scopes), ""
    return (), f"the scopes of run {row.run_id} are no list of texts"


def record_row(record: RunRecord) -> dict[str, Any]:
    """Return the columns of a new run that are its caller's."""
    return {
        "agent": record.agent,
        "revision": record.revision,
        "format_version": record.format_version,
        "status": record.status.value,
        "reason": record.reason,
        "input": record.input,
        "input_digest": record.input_digest,
        "salt": record.salt,
        "output": record.output,
        "user": record.user,
        "scopes": codec.encode(list(record.scopes)),
        "parent": record.parent,
        "fence": record.fence,
        "failed_save": record.failed_save,
        "claimed": " ".join(mark(slot, token) for slot, token in record.claimed.items()),
        "cancel_requested_by": record.cancel_requested_by,
        "cancel_reason": record.cancel_reason,
        "begun_at": record.begun_at,
        "wake_at": record.wake_at,
        "cancel_requested_at": record.cancel_requested_at,
        "release_requested_at": record.release_requested_at,
    }
