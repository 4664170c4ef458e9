"""What commands say of runs in JSON: plain data, the same facts as the text."""

from datetime import datetime
from typing import Any, Final

from adk_django.core import codec
from adk_django.core.effects import Outcome
from adk_django.core.messages import Usage
from adk_django.core.plan import Resumption
from adk_django.core.record import RunRecord
from adk_django.operations.inspection import Inspection

EVIDENCE_CHARACTERS: Final = 2_000  # shown of an outcome that came too late


def of_usage(usage: Usage) -> dict[str, Any]:
    """Return tokens as data."""
    return dict(vars(usage))


def of_record(record: RunRecord) -> dict[str, Any]:
    """Return what a list says of a run: its stored status."""
    return {
        "run_id": record.run_id,
        "tenant": record.tenant,
        "agent": record.agent,
        "user": record.user,
        "status": record.status.value,
        "reason": record.reason,
        "created_at": _at(record.created_at),
        "updated_at": _at(record.updated_at),
        "wake_at": _at(record.wake_at),
    }


def of_inspection(seen: Inspection) -> dict[str, Any]:
    """Return all that is known of one run."""
    record, frontier, lease = seen.record, seen.checkpoint, seen.lease
    age = None if frontier is None or frontier.created_at is None else (seen.now - frontier.created_at).total_seconds()
    return {
        **of_record(record),
        "reason": seen.reason,
        "standing": seen.standing,
        "next_step": seen.next_step,
        "safe": seen.plan.safe,
        "obstacles": [{"code": error.code, "message": str(error)} for error in seen.refusals],
        "iterations": seen.iterations,
        "usage": of_usage(seen.usage),
        "cost_micros": record.cost_micros,
        "waiting_on": [
            {
                "request_id": item.request_id,
                "call": str(item.slot),
                "tool": item.tool,
                "expires_at": _at(item.expires_at),
            }
            for item in seen.waiting_on
        ],
        "boundary": frontier.boundary.value if frontier else None,
        "turn": frontier.turn if frontier else None,
        "age_seconds": age,
        "lease": lease
        and {
            "holder": lease.holder,
            "fence": lease.fence,
            "until": _at(lease.expires_at),
            "live": seen.live,
            "deaths": lease.deaths,
        },
        "calls": [_of_call(item, seen) for item in seen.plan.resumptions],
        "format": frontier.format_version if frontier else None,
        "revision": record.revision,
        "failed_save": record.failed_save,
        "output": record.output,
        "cancel_requested_at": _at(record.cancel_requested_at),
        "release_requested_at": _at(record.release_requested_at),
    }


def _of_call(item: Resumption, seen: Inspection) -> dict[str, Any]:
    call, claim, request = item.call, item.claim, seen.approval_of(item)
    said: dict[str, Any] = {
        "call": str(call.slot),
        "tool": call.tool,
        "disposition": item.disposition.value,
        "arguments": codec.encode(call.arguments)[:EVIDENCE_CHARACTERS],
        "held": call.held,
        "approval": request
        and {"request_id": request.request_id, "state": request.state.value, "by": request.decided_by},
        "effect": call.effect and call.effect.value,
        "key": call.key,
        "twin_of": item.twin_of and str(item.twin_of),
        "probe": call.tool in seen.probes,
        "claim": None,
    }
    if claim is not None:
        said["claim"] = {
            "state": claim.state.value,
            "attempt": claim.attempt,
            "holder": claim.holder,
            "fence": claim.fence,
            "begun_at": _at(claim.begun_at),
            "deadline_at": _at(claim.deadline_at),
            "error": claim.error,
            "settled_by": claim.settled_by,
            "settled_at": _at(claim.settled_at),
            "reason": claim.reason,
            "contested": claim.contested,
            "evidence": claim.evidence and {"at": _at(claim.evidence_at), **_of_outcome(claim.evidence)},
        }
    return said


def _of_outcome(outcome: Outcome) -> dict[str, Any]:
    text = codec.encode(outcome.value)
    return {"kind": outcome.kind.value, "value": text[:EVIDENCE_CHARACTERS], "whole": len(text) <= EVIDENCE_CHARACTERS}


def _at(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()
