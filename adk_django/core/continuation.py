"""Starting an execution again without losing its run: for engines with a history of their own, and for long slices.

What crosses is the run: the transcript as a handle, the ledger and the count of turns as numbers, what is pending, and
what the run acts under. The journal does not: what it holds is folded into the state already.
"""

from collections.abc import Sized
from dataclasses import dataclass, field
from typing import Final

from adk_django.core.checkpoint import HistoryHandle, PendingCall
from adk_django.core.effects import Slot
from adk_django.core.messages import Usage
from adk_django.core.state import RunState


@dataclass(frozen=True)
class ContinuationPolicy:
    """When an execution has run long enough to be started again: after ``max_steps`` of its journal, or once its
    engine's history has ``max_history_bytes`` (None: whatever its size). Raise ValueError for numbers below 1."""

    max_steps: int = 50
    max_history_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_history_bytes"):
            value = getattr(self, name)
            if value is None and name == "max_history_bytes":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"ContinuationPolicy.{name} is {value!r}: expected a whole number above 0")

    def due(self, journal: int | Sized, *, history_bytes: int | None = None) -> bool:
        """Return whether it is time: ``journal`` is what the execution observed, or how much."""
        steps = journal if isinstance(journal, int) else len(journal)
        if self.max_history_bytes is not None and history_bytes is not None:
            return steps >= self.max_steps or history_bytes >= self.max_history_bytes
        return steps >= self.max_steps


DEFAULT_CONTINUATION: Final = ContinuationPolicy()


@dataclass(frozen=True)
class Continuation:
    """What crosses over from one execution of a run to the next.

    Raise ConfigurationError where the approval or grant that a held call is waiting for, or was given, was dropped,
    and where turns were answered and the handle is empty.
    """

    tenant: str
    run_id: str
    agent: str
    history_handle: HistoryHandle | None
    revision: str | None = None
    prompt_version: str | None = None
    model: str = ""
    iterations: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_micros: int = 0
    pending: tuple[PendingCall, ...] = ()
    approvals: tuple[tuple[Slot, str], ...] = ()
    grants: tuple[tuple[Slot, str], ...] = ()
    scopes: tuple[str, ...] = ()
    user: str | None = None
    parent: str | None = None
    guards: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # A core that imports no Django cannot import this error before it is needed: it is Django's own, too.
        from adk_django.exceptions import ConfigurationError

        kept = {slot for slot, _ in (*self.approvals, *self.grants)}
        dropped = [str(call.slot) for call in self.pending if call.held and call.slot not in kept]
        if dropped:
            raise ConfigurationError(
                f"the continuation of run {self.run_id} dropped the approval of call {', '.join(dropped)}: the new "
                f"execution would make it unapproved; pass approvals and grants on as they are"
            )
        if self.iterations and (self.history_handle is None or not self.history_handle.length):
            raise ConfigurationError(
                f"the continuation of run {self.run_id} has {self.iterations} turns and an empty transcript: save a "
                f"frontier first, whose handle it takes along"
            )


def continued(state: RunState, *, tenant: str, agent_name: str) -> Continuation:
    """Return what crosses over from ``state``.

    Raise ConfigurationError if it is another tenant's or agent's, or if what it acts under would not cross.
    """
    from adk_django.exceptions import ConfigurationError  # as above

    record = state.record
    if (record.tenant, record.agent) != (tenant, agent_name):
        raise ConfigurationError(
            f"run {record.run_id} is of tenant {record.tenant} and agent {record.agent}, "
            f"not of {tenant} and {agent_name}"
        )
    held = {call.slot: state.approvals[call.slot] for call in state.calls() if call.slot in state.approvals}
    granted = {call.slot for call in state.calls() if state.granted(call)}
    return Continuation(
        tenant=tenant,
        run_id=record.run_id,
        agent=agent_name,
        history_handle=state.handle,
        revision=state.setting.revision,
        prompt_version=state.setting.prompt_version,
        model=state.setting.model,
        iterations=state.turn,
        usage=state.usage,
        cost_micros=state.cost_micros,
        pending=state.pending,
        approvals=tuple((slot, item.request_id) for slot, item in held.items() if slot not in granted),
        grants=tuple((slot, item.request_id) for slot, item in held.items() if slot in granted),
        scopes=record.scopes,
        user=record.user,
        parent=record.parent,
        guards=state.setting.guards,
    )
