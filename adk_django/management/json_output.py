"""What commands say of runs in JSON: plain data, the same facts as the text."""

from datetime import datetime
from typing import Any, Final

from adk_django.core import codec
from adk_django.core.effects import Claim, Outcome
from adk_django.core.messages import BinaryPart, Message, Part, TextPart, ToolCall, ToolResult, Usage
from adk_django.core.plan import Resumption
from adk_django.core.record import RunRecord
from adk_django.operations.display import masked
from adk_django.operations.inspection import Inspection
from adk_django.operations.planning import CALLS

SHOWN_CHARACTERS: Final = 2_000  # of an outcome, of arguments, of a part of a message


def of_usage(usage: Usage) -> dict[str, Any]:
    """Return tokens as data."""
    return dict(vars(usage))


def of_record(record: RunRecord, standing: str) -> dict[str, Any]:
    """Return what a list says of a run: its stored status, and where it stands by its lease."""
    return {
        "run_id": record.run_id,
        "tenant": record.tenant,
        "agent": record.agent,
        "user": record.user,
        "status": record.status.value,
        "standing": standing,
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
        **of_record(record, seen.standing),
        "reason": seen.reason,
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
        "calls": [_of_call(item, seen) for item in seen.plan.resumptions] or _of_made(seen),
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
        "arguments": _of_value(call.arguments)["value"],
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
        said["claim"] = _of_claim(claim)
    return said


def _of_claim(claim: Claim) -> dict[str, Any]:
    return {
        "state": claim.state.value,
        "attempt": claim.attempt,
        "holder": claim.holder,
        "fence": claim.fence,
        "begun_at": _at(claim.begun_at),
        "deadline_at": _at(claim.deadline_at),
        "outcome": claim.outcome and _of_outcome(claim.outcome),
        "error": claim.error,
        "settled_by": claim.settled_by,
        "settled_at": _at(claim.settled_at),
        "reason": claim.reason,
        "contested": claim.contested,
        "evidence": claim.evidence and {"at": _at(claim.evidence_at), **_of_outcome(claim.evidence)},
    }


def _of_made(seen: Inspection) -> list[dict[str, Any]]:
    """Return what an ended run did, its newest calls."""
    made = seen.claims[-CALLS:] if seen.record.status.ended else ()
    return [
        {
            "call": str(claim.slot),
            "tool": claim.tool,
            "disposition": None,
            "effect": claim.effect.value,
            "key": claim.key,
            "claim": _of_claim(claim),
        }
        for claim in made
    ]


def _of_outcome(outcome: Outcome) -> dict[str, Any]:
    return {"kind": outcome.kind.value, "is_error": outcome.is_error, **_of_value(outcome.value)}


def _of_value(value: Any) -> dict[str, Any]:
    """Return a value as people are shown it: masked, as the codec writes it, and whether that is all of it."""
    text = codec.encode(masked(value))
    return {"value": text[:SHOWN_CHARACTERS], "whole": len(text) <= SHOWN_CHARACTERS}


def of_message(message: Message) -> dict[str, Any]:
    """Return one message: its role and parts, without what only its provider understands."""
    return {"role": message.role, "parts": [_of_part(part) for part in message.parts]}


def _of_part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case BinaryPart(data, media_type):
            return {"type": "binary", "media_type": media_type, "bytes": len(data)}
        case ToolCall(_, name, arguments):
            return {"type": "tool_call", "name": name, **_of_value(arguments)}
        case ToolResult(_, name, content, is_error):
            return {"type": "tool_result", "name": name, "is_error": is_error, **_of_value(content)}
    return {"type": "opaque"}


def _at(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()
