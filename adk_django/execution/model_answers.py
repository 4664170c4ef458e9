"""Check what a provider answered, and make pending calls of the calls it asks for."""

import inspect
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
from adk_django.core.messages import (
    ROLES,
    BinaryPart,
    Message,
    OpaquePart,
    TextPart,
    ToolCall,
    Usage,
    require_texts,
)
from adk_django.core.state import RunState
from adk_django.exceptions import ProviderError
from adk_django.providers.base import ModelResponse
from adk_django.tools import ArgumentsRefusedError

_ANSWERS = (TextPart, BinaryPart, ToolCall, OpaquePart)


def cost_of(response: object) -> tuple[Usage, int]:
    """Return the usage and the cost of whatever a provider returned; of one call of unknown cost where it says none."""
    usage, cost_micros = getattr(response, "usage", None), getattr(response, "cost_micros", None)
    if isinstance(usage, Usage) and type(cost_micros) is int:
        return usage, cost_micros
    return Usage(unknown_calls=1), 0


def refuse_misfit(response: object) -> None:
    """Raise ProviderError, saying what was returned and what was expected, for what is no answer of a model."""
    if inspect.iscoroutine(response):
        response.close()
    if not isinstance(response, ModelResponse):
        raise _misfit(_type_name(response), "a ModelResponse")
    message: object = response.message
    if not isinstance(message, Message):
        raise _misfit(f"a message that is {_type_name(message)}", "a Message")
    if message.role != "assistant":
        role = message.role if message.role in ROLES else _type_name(message.role)
        raise _misfit(f"a message of role {role}", "one of role assistant")
    parts: object = message.parts
    if not isinstance(parts, tuple) or not parts:
        found = "no parts" if isinstance(parts, tuple) else f"parts that are {_type_name(parts)}"
        raise _misfit(f"a message of {found}", "a tuple of text, calls or what only the provider understands")
    for part in parts:
        if not isinstance(part, _ANSWERS):
            raise _misfit(f"a part that is {_type_name(part)}", "TextPart, BinaryPart, ToolCall or OpaquePart")
        try:
            require_texts(part)
        except TypeError as error:
            raise _misfit(f"a {_type_name(part)} whose {error}", "str") from None
    if cost_of(response) != (response.usage, response.cost_micros):
        raise _misfit("a usage or cost that is none", "a Usage, and cost_micros that are an int")
    if not isinstance(response.finish_reason, str | None):
        raise _misfit(f"a finish_reason that is {_type_name(response.finish_reason)}", "a text or None")


def _misfit(found: str, expected: str) -> ProviderError:
    return ProviderError(f"the provider returned {found}: expected {expected}")


def _type_name(value: object) -> str:
    return "None" if value is None else type(value).__name__


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
