"""The only loops. Each asks `decide` what is next, has a port do it, and folds what came of it into the state.

Neither has a ``finally``: a kill runs none, so nothing may depend on one.
"""

from typing import Final, Protocol

from adk_django.core.checkpoint import PendingCall
from adk_django.core.decide import AskModel, Commit, Decision, Dispatch, Probe, Stop, Transact, decide
from adk_django.core.effects import Claim
from adk_django.core.messages import Message
from adk_django.core.observations import Answered, Attempted, Probed
from adk_django.core.record import RunStatus, Writes, Written
from adk_django.core.state import RunState

HANDED_OVER: Final = Stop(RunStatus.ACTIVE, "handed over to a fresh worker")


class Ports(Protocol):
    """Everything a run does to the outside. Wrapped by tests to fail at every point."""

    def model(self, run: RunState, messages: tuple[Message, ...]) -> Answered:
        """Ask the model."""

    def tools(self, run: RunState, calls: tuple[PendingCall, ...]) -> Attempted:
        """Make calls."""

    def transact(self, run: RunState, call: PendingCall) -> RunState:
        """Make a call and what is committed next in one transaction."""

    def probes(self, run: RunState, claims: tuple[Claim, ...]) -> Probed:
        """Ask the probes of calls."""

    def commit(self, writes: Writes) -> Written:
        """Write."""

    def show(self, run: RunState, decision: Decision) -> None:
        """Tell whoever watches what is next."""

    def leaves(self, run: RunState) -> bool:
        """Return whether the slice ends here, for a fresh one to go on."""


class AsyncPorts(Protocol):
    """The same for a running event loop."""

    async def amodel(self, run: RunState, messages: tuple[Message, ...]) -> Answered:
        """Ask the model."""

    async def atools(self, run: RunState, calls: tuple[PendingCall, ...]) -> Attempted:
        """Make calls; several may be in progress together."""

    async def atransact(self, run: RunState, call: PendingCall) -> RunState:
        """Make a call and what is committed next in one transaction."""

    async def aprobes(self, run: RunState, claims: tuple[Claim, ...]) -> Probed:
        """Ask the probes of calls."""

    async def acommit(self, writes: Writes) -> Written:
        """Write."""

    def show(self, run: RunState, decision: Decision) -> None:
        """Tell whoever watches what is next."""

    def leaves(self, run: RunState) -> bool:
        """Return whether the slice ends here, for a fresh one to go on."""


def drive(run: RunState, ports: Ports) -> tuple[RunState, Stop]:
    """Carry ``run`` on to its next stop."""
    while True:
        decision = decide(run)
        ports.show(run, decision)
        match decision:
            case AskModel(messages):
                run = run.observe(ports.model(run, messages))
            case Dispatch(calls):
                run = run.observe(ports.tools(run, calls))
            case Transact(call):
                run = ports.transact(run, call)
                if ports.leaves(run):
                    return run, HANDED_OVER
            case Probe(claims):
                run = run.observe(ports.probes(run, claims))
            case Commit(writes):
                run = run.committed(writes, ports.commit(writes))
                if ports.leaves(run):
                    return run, HANDED_OVER
            case Stop():
                return run, decision


async def adrive(run: RunState, ports: AsyncPorts) -> tuple[RunState, Stop]:
    """Carry ``run`` on to its next stop: `drive` with awaits."""
    while True:
        decision = decide(run)
        ports.show(run, decision)
        match decision:
            case AskModel(messages):
                run = run.observe(await ports.amodel(run, messages))
            case Dispatch(calls):
                run = run.observe(await ports.atools(run, calls))
            case Transact(call):
                run = await ports.atransact(run, call)
                if ports.leaves(run):
                    return run, HANDED_OVER
            case Probe(claims):
                run = run.observe(await ports.aprobes(run, claims))
            case Commit(writes):
                run = run.committed(writes, await ports.acommit(writes))
                if ports.leaves(run):
                    return run, HANDED_OVER
            case Stop():
                return run, decision
