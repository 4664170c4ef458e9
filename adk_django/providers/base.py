"""What a model provider is asked and answers."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import async_to_sync

from adk_django.concurrency import off_loop
from adk_django.core.messages import Message, Usage


@dataclass(frozen=True)
class ToolSchema:
    """A tool as the model is told of it; ``parameters`` is JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class ModelRequest:
    """One question: instructions, the whole conversation, and the tools that may be asked for."""

    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()


@dataclass(frozen=True)
class ModelResponse:
    """One answer: an assistant message, its usage in tokens and its cost in millionths of the ledger's currency.

    ``finish_reason`` is why the model stopped, in the provider's own word, such as "length"; None where it gives none.
    It is told where an answer has neither text nor calls.
    """

    message: Message
    usage: Usage = field(default_factory=Usage)
    cost_micros: int = 0
    finish_reason: str | None = None


class ModelProvider:
    """Asks a model. Implement ``request``, ``arequest`` or both; each stands in for the other.

    ``model`` names the model and is part of an agent's computed revision. Whatever is raised stops the slice: the run
    stays active and is tried again with back-off, so a provider does its own short retries.
    """

    model: str = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.request is ModelProvider.request and cls.arequest is ModelProvider.arequest:
            raise TypeError(f"{cls.__name__} implements neither request nor arequest: expected at least one")

    def request(self, request: ModelRequest) -> ModelResponse:
        """Return the model's answer."""
        return async_to_sync(self.arequest)(request)

    async def arequest(self, request: ModelRequest) -> ModelResponse:
        """Return the model's answer, on a running event loop."""
        return await off_loop(functools.partial(self.request, request))
