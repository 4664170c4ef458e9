"""ScriptedProvider: a model that answers from a script, the same in every process."""

from collections.abc import Mapping, Sequence
from typing import Any

from adk_django.core.messages import Message, TextPart, ToolCall, Usage
from adk_django.providers.base import ModelProvider, ModelRequest, ModelResponse

Script = Sequence[str | Sequence[tuple[str, Mapping[str, Any]]]]


class ScriptedProvider(ModelProvider):
    """Answers the n-th turn with the n-th entry of ``script``: a final text, or calls as (tool, arguments).

    The turn is counted from the conversation it is given, so any process continues the same script. ``requests`` keeps
    what it was asked; ``usage`` and ``cost_micros`` are what each answer costs. Raise IndexError past the script's end.
    """

    def __init__(
        self, script: Script, *, usage: Usage | None = None, cost_micros: int = 100, model: str = "scripted"
    ) -> None:
        self.script, self.model, self.cost_micros = script, model, cost_micros
        self.usage = usage or Usage(input_tokens=10, output_tokens=5)
        self.requests: list[ModelRequest] = []

    def request(self, request: ModelRequest) -> ModelResponse:
        """Return the answer of the turn that the conversation has reached."""
        self.requests.append(request)
        turn = sum(message.role == "assistant" for message in request.messages)
        entry = self.script[turn]
        if isinstance(entry, str):
            message = Message("assistant", (TextPart(entry),))
        else:
            calls = (ToolCall(f"call_{index}", name, dict(given)) for index, (name, given) in enumerate(entry, 1))
            message = Message("assistant", tuple(calls))
        return ModelResponse(message, self.usage, self.cost_micros)
