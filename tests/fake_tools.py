"""What a stage is set with: tools that keep their effects, stores that fail, and deaths at a named effect."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from adk_django.core.lease import RunLease
from adk_django.core.record import Writes, Written
from adk_django.stores.bundle import Stores
from adk_django.testing import Crasher
from adk_django.tools import Tool, ToolContext, tool


class DiesAt(Crasher):
    """Dies before or after the ``nth`` effect whose name begins with ``effect``."""

    def __init__(
        self, effect: str, when: str = "before", nth: int = 1, strike: Callable[[], None] | None = None
    ) -> None:
        super().__init__(**({} if strike is None else {"strike": strike, "fatal": False}))
        self._at = (effect, when, nth)

    def _hit(self, index: int, when: Any) -> None:
        effect, at, nth = self._at
        if when != at or not self.effects[index].startswith(effect):
            return
        if sum(name.startswith(effect) for name in self.effects[: index + 1]) == nth:
            self.dead = self._fatal
            self._strike()


def kept(stores: Stores, commits: list[tuple[Writes, Written]]) -> Stores:
    """Return the same stores; what each commit brought and what stood is added to ``commits``."""
    kind = type(stores)

    class Kept(kind):  # type: ignore[misc, valid-type]  # the same stores, watched
        def commit(self, writes: Writes, *, lease: RunLease, joined: bool = False) -> Written:
            written: Written = kind.commit(self, writes, lease=lease, joined=joined)
            commits.append((writes, written))
            return written

    return Kept(**vars(stores))


def in_turn(stores: Stores) -> Stores:
    """Return the same stores, whose commit goes store by store."""
    return Stores(**vars(stores))


def broken(kind: str, **verbs: Callable[..., Any]) -> Callable[[Stores], Stores]:
    """Return what puts ``verbs`` in place of those of one store; each is handed the real one first."""

    def wrap(stores: Stores) -> Stores:
        whole = getattr(stores, kind)
        methods = {
            name: (
                lambda self, *args, _verb=verb, _name=name, **kwargs: _verb(
                    functools.partial(getattr(type(whole), _name), self), *args, **kwargs
                )
            )
            for name, verb in verbs.items()
        }
        store = object.__new__(type("Broken", (type(whole),), methods))
        store.__dict__.update(vars(whole))
        return replace(in_turn(stores), **{kind: store})

    return wrap


def calls(*asked: tuple[str, dict[str, Any]] | str) -> Sequence[tuple[str, dict[str, Any]]]:
    """Return a turn that asks for these tools; a bare name is asked with its own name as ``what``."""
    return [(item, {"what": item}) if isinstance(item, str) else item for item in asked]


def effect(
    log: list[str], name: str, kind: str = "effectful", then: Callable[..., Any] | None = None, **options: Any
) -> Tool:
    """Return a tool that appends ``name what`` to ``log`` and returns it, or whatever ``then(context)`` comes to."""

    def body(context: ToolContext, what: str = "") -> Any:
        log.append(f"{name} {what}")
        return f"{name} {what}" if then is None else then(context)

    body.__name__ = name
    return tool(kind, **options)(body)


def usual(log: list[str]) -> list[Tool]:
    """Return one tool of each class, and one that a person must approve."""
    return [
        effect(log, "search", "read_only"),
        effect(log, "touch", "idempotent"),
        effect(log, "book"),
        effect(log, "mail"),
        effect(log, "wire", requires_approval=True),
    ]


def raises(error: BaseException) -> Callable[..., Any]:
    """Return a callable that raises ``error``."""

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fail
