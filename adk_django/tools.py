"""Tools: a function, what repeating it would do, and what a person or a probe may say of it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cached_property
from typing import Any, Final, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError

from adk_django.core import codec
from adk_django.core.effects import EffectClass
from adk_django.core.record import Answer
from adk_django.exceptions import ConfigurationError
from adk_django.providers.base import ToolSchema

CONTEXT: Final = "context"


class ToolRefused(Exception):  # noqa: N818  # a refusal, not an error of the tool
    """Raised by a tool that did nothing: the model is told the message."""


@dataclass(frozen=True)
class ToolContext:
    """What a body is handed if it names ``context``.

    ``idempotency_key`` is the same for every attempt at the call: pass it on to targets that honour one. ``attempt``
    counts from 1 and ``deadline`` is the store's instant after which the call may be settled as never made; both are
    None where the call has no claim.
    """

    idempotency_key: str
    attempt: int | None
    deadline: datetime | None
    fence: int
    run_id: str
    tenant: str
    user: str | None


@dataclass(frozen=True)
class ProbeAnswer:
    """What a tool's own status look-up says: built by `done`, or one of `not_done` and `unknown`."""

    answer: Answer
    outcome: Any = None


def done(outcome: Any) -> ProbeAnswer:
    """Say that the call happened and came to ``outcome``."""
    return ProbeAnswer(Answer.DONE, outcome)


not_done: Final = ProbeAnswer(Answer.NOT_DONE)
unknown: Final = ProbeAnswer(Answer.UNKNOWN)


class ArgumentsRefusedError(ValueError):
    """The arguments do not fit the tool. Its text names fields and faults and holds none of the values."""


@dataclass(frozen=True, eq=False)
class Tool:
    """A callable the model may ask for. Made by `tool`, which says what the fields mean."""

    body: Callable[..., Any]
    effect: EffectClass = EffectClass.EFFECTFUL
    using: str | None = None
    key_arguments: tuple[str, ...] = ()
    requires_approval: bool | Callable[..., bool] = False
    expires_seconds: float | None = None
    probe: Callable[..., Any] | None = None
    time_limit_seconds: float | None = None
    never_happened: tuple[type[Exception], ...] = ()

    @property
    def name(self) -> str:
        """The name the model asks for it by: that of its body."""
        return self.body.__name__

    @property
    def is_async(self) -> bool:
        """Whether the body is a coroutine function."""
        return inspect.iscoroutinefunction(self.body)

    @property
    def takes_context(self) -> bool:
        """Whether the body names ``context``."""
        return CONTEXT in inspect.signature(self.body).parameters

    @cached_property
    def schema(self) -> ToolSchema:
        """The tool as the model is told of it."""
        return ToolSchema(self.name, inspect.getdoc(self.body) or "", self._arguments.model_json_schema())

    @cached_property
    def _arguments(self) -> type[BaseModel]:
        hints = get_type_hints(self.body, include_extras=True)
        fields: dict[str, Any] = {}
        for name, parameter in inspect.signature(self.body).parameters.items():
            if name == CONTEXT:
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise ConfigurationError(
                    f"tool {self.name}: parameter {name} cannot be passed by name: name each argument"
                )
            default = ... if parameter.default is parameter.empty else parameter.default
            # The alias keeps names such as "copy" or "json" from hiding what a model itself has.
            fields[f"argument_{name}"] = (hints.get(name, Any), Field(default, alias=name))
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
        return create_model(f"{self.name}_arguments", __config__=config, **fields)

    def bound(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments for the body. Raise ArgumentsRefusedError if ``arguments`` do not fit."""
        model = self._validated(arguments)
        return {field.alias or name: getattr(model, name) for name, field in type(model).model_fields.items()}

    def normalised(self, arguments: Any) -> dict[str, Any]:
        """Return ``arguments`` as they are stored, hashed and shown. Raise ArgumentsRefusedError if they do not fit.

        Plain data that the codec keeps exactly and from which `bound` makes the body's own types again.
        """
        if not isinstance(arguments, Mapping):
            raise ArgumentsRefusedError(f"expected an object of named arguments, found {type(arguments).__name__}")
        model = self._validated(arguments)
        data: dict[str, Any] = model.model_dump(mode="python", by_alias=True)
        try:
            codec.encode(data)
        except codec.EncodeError:
            try:
                data = model.model_dump(mode="json", by_alias=True)
                codec.encode(data)
            except ValueError as error:
                raise ArgumentsRefusedError(f"a value cannot be kept: {type(error).__name__}") from None
        return data

    def _validated(self, arguments: Mapping[str, Any]) -> BaseModel:
        try:
            return self._arguments.model_validate(dict(arguments), by_alias=True)
        except ValidationError as error:
            faults = (
                f"{'.'.join(str(part) for part in item['loc']) or 'arguments'}: {item['type'].replace('_', ' ')}"
                for item in error.errors(include_input=False, include_url=False, include_context=False)
            )
            raise ArgumentsRefusedError("; ".join(faults)) from None

    def must_be_approved(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a person must approve the call. A rule that raises holds it."""
        if isinstance(self.requires_approval, bool):
            return self.requires_approval
        try:
            return bool(self.requires_approval(**self.bound(arguments)))
        except Exception:  # noqa: BLE001  # a rule that cannot answer must not let the call through
            return True


@overload
def tool(effect: Callable[..., Any]) -> Tool: ...
@overload
def tool(
    effect: str | EffectClass = EffectClass.EFFECTFUL,
    *,
    using: str | None = None,
    key_arguments: tuple[str, ...] = (),
    requires_approval: bool | Callable[..., bool] = False,
    expires_seconds: float | None = None,
    probe: Callable[..., Any] | None = None,
    time_limit_seconds: float | None = None,
    never_happened: tuple[type[Exception], ...] = (),
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    effect: str | EffectClass | Callable[..., Any] = EffectClass.EFFECTFUL, **options: Any
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Declare a function, sync or async, as a tool. Works bare too.

    ``effect`` says what repeating the call would do (`EffectClass`). ``using`` names the database alias of a
    transactional tool. ``key_arguments`` are the arguments that identify the effect: once per run for these values.
    ``requires_approval`` is True or a rule called with the validated arguments. ``expires_seconds`` bounds how long
    an approval may be waited for. ``probe(context, **arguments)`` is the tool's own read-only status look-up.
    ``time_limit_seconds`` bounds the body. ``never_happened`` lists exceptions that say that nothing was done.

    Raise ConfigurationError if these do not fit together or with the function's signature.
    """
    if callable(effect) and not isinstance(effect, str):
        return _checked(Tool(effect))
    try:
        effect_class = EffectClass(effect)
    except ValueError:
        expected = ", ".join(item.value for item in EffectClass)
        raise ConfigurationError(f"@tool(effect={effect!r}): expected one of {expected}") from None
    if unknown_options := sorted(options.keys() - _OPTIONS):
        raise ConfigurationError(f"@tool has no option {unknown_options}: expected some of {sorted(_OPTIONS)}")
    for name in ("key_arguments", "never_happened"):
        given = options.get(name, ())
        if not isinstance(given, tuple | list):
            raise ConfigurationError(f"@tool({name}={given!r}): expected a tuple, such as {name}=({given!r},)")
        options[name] = tuple(given)
    return lambda body: _checked(Tool(body, effect_class, **options))


_OPTIONS: Final = {field.name for field in fields(Tool)} - {"body", "effect"}


def _checked(made: Tool) -> Tool:
    listed: tuple[Any, ...] = made.never_happened
    for raised in listed:
        if not (isinstance(raised, type) and issubclass(raised, Exception)):
            raise ConfigurationError(f"tool {made.name}: never_happened has {raised!r}: expected classes of exceptions")
    rule: Any = made.requires_approval
    if not (isinstance(rule, bool) or callable(rule)):
        raise ConfigurationError(f"tool {made.name}: requires_approval is {rule!r}: expected True, False or a rule")
    if made.effect is EffectClass.TRANSACTIONAL and (made.using is None or made.is_async):
        raise ConfigurationError(f"tool {made.name} is transactional: expected a sync function and using='an alias'")
    if made.effect is not EffectClass.TRANSACTIONAL and made.using is not None:
        raise ConfigurationError(f"tool {made.name}: using= is for transactional tools, and it is {made.effect.value}")
    if made.effect in (EffectClass.TRANSACTIONAL, EffectClass.READ_ONLY) and made.probe is not None:
        raise ConfigurationError(f"tool {made.name} is {made.effect.value} and is never in doubt: it takes no probe")
    for seconds in (made.expires_seconds, made.time_limit_seconds):
        if seconds is not None and not seconds > 0:
            raise ConfigurationError(f"tool {made.name}: {seconds!r} is no time limit: expected seconds above 0")
    try:
        parameters = made._arguments.model_fields
    except (PydanticSchemaGenerationError, NameError, TypeError) as error:
        raise ConfigurationError(f"tool {made.name}: its type hints make no schema: {error}") from error
    names = {field.alias for field in parameters.values()}
    if missing := [name for name in made.key_arguments if name not in names]:
        raise ConfigurationError(
            f"tool {made.name}: key_arguments {missing} are none of its parameters {sorted(map(str, names))}"
        )
    wanted = {str(name): None for name in names}
    _refuse_signature(made, "probe", made.probe, (None,), wanted)
    if callable(made.requires_approval):
        _refuse_signature(made, "requires_approval", made.requires_approval, (), wanted)
    return made


def _refuse_signature(made: Tool, what: str, rule: Any, first: tuple[None, ...], named: dict[str, None]) -> None:
    """Raise ConfigurationError where ``rule`` could not be called as it will be: it is needed when it is too late."""
    if rule is None:
        return
    expected = ", ".join([*("context" for _ in first), *named])
    if not callable(rule):
        raise ConfigurationError(f"tool {made.name}: {what} is {rule!r}: expected a function of ({expected})")
    try:
        inspect.signature(rule).bind(*first, **named)
    except TypeError as error:
        raise ConfigurationError(f"tool {made.name}: {what} cannot be called with ({expected}): {error}") from error
    except ValueError:  # a callable that tells no signature
        return
