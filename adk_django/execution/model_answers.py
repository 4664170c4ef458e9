"""Check what a provider answered, and make pending calls of the calls it asks for."""

import json
from dataclasses import replace
from typing import Any

from adk_django.agents import Agent
from adk_django.core.checkpoint import PendingCall
from adk_django.core.codec import EncodeError
from adk_django.core.effects import (
    Outcome,
    OutcomeKind,
    Slot,
    arguments_digest,
    idempotency_key,
)
from adk_django.core.masking.redactor import contains_mask
from adk_django.core.messages import ToolCall
from adk_django.core.state import RunState
from adk_django.tools import ArgumentsRefusedError


def pending_call(agent: Agent, run: RunState, slot: Slot, call: ToolCall) -> PendingCall:
    """Return the call as it will be made: validated, normalised, keyed and held once, from its real values."""
    pending = PendingCall(slot, call.id, call.name, call.arguments)
    tool = agent.by_name.get(call.name)
    if tool is None:
        return _refused(pending, f"unknown tool {call.name!r}")
    try:
        if contains_mask(call.arguments):
            return _refused(pending, "an argument holds a mask in place of its value: ask for it, or do without")
        arguments = tool.normalised(given := _parsed(call.arguments))
    except (ArgumentsRefusedError, EncodeError) as error:
        return _refused(pending, str(error))
    # A default does not say which effect is meant: a key argument that was not given is absent.
    named = {name: arguments[name] for name in arguments if name in given} if tool.key_arguments else arguments
    key, guaranteed = idempotency_key(run.record.salt, tool.name, slot, named, tool.key_arguments)
    return PendingCall(
        slot=slot,
        provider_id=call.id,
        tool=tool.name,
        arguments=arguments,
        key=key,
        guaranteed=guaranteed,
        effect=tool.effect,
        held=tool.must_be_approved(arguments),
        digest=arguments_digest(arguments),
        key_arguments=tool.key_arguments,
        time_limit_seconds=tool.time_limit_seconds,
    )


def _refused(call: PendingCall, why: str) -> PendingCall:
    return replace(call, result=Outcome.of(OutcomeKind.INVALID, why))


def _parsed(arguments: Any) -> Any:
    """Return arguments that came as JSON text, as some providers send them, as data."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        raise ArgumentsRefusedError("expected a JSON object of named arguments") from None
