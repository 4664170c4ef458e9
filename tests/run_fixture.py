"""A stage: one agent on one place, whose every commit, question and effect is kept for a test to look at."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.apps import apps

from adk_django import models
from adk_django.agents import Agent
from adk_django.core.checkpoint import Checkpoint, CheckpointPolicy
from adk_django.core.codec import digest
from adk_django.core.effects import Claim, Outcome, OutcomeKind, Slot
from adk_django.core.lease import RunLease
from adk_django.core.messages import ToolResult
from adk_django.core.record import Answer, Approval, RunRecord, Writes, Written
from adk_django.core.state import RunState
from adk_django.execution.checkpointer import Checkpointer
from adk_django.execution.runner import AgentRunner, RunResult
from adk_django.execution.stored_run import StoredRun
from adk_django.stores.bundle import Stores
from adk_django.stores.memory.space import FrontierRow
from adk_django.testing import Crash, Crasher, ScriptedProvider
from adk_django.testing.scripted import Script
from adk_django.tools import Tool
from tests.backends import AGES, TENANT, World
from tests.fake_tools import DiesAt, kept
from tests.stores.orm_conformance import age

numbers = itertools.count(1)


class Stage:
    """Runs of one agent. ``effects`` is what its tools appended, ``commits`` what each commit brought and what stood.

    ``requests`` is what its model was asked.
    """

    def __init__(
        self,
        place: str,
        script: Script,
        *tools: Tool,
        policy: CheckpointPolicy | None = None,
        wrap: Callable[[Stores], Stores] = lambda stores: stores,
        revision: str | None = "1",
        **options: Any,
    ) -> None:
        self.world = World(place, policy)
        self.provider = ScriptedProvider(script)
        self.agent = Agent("booking", tools=tools, provider=self.provider, revision=revision, **options)
        self.run_id = f"run_{next(numbers)}"
        self.commits: list[tuple[Writes, Written]] = []
        self.wrap = wrap
        self.redact = True

    # Driving

    def runner(self, crasher: Crasher | None = None) -> AgentRunner:
        """Return a fresh runner, as a new process would have it, whose commits are kept."""
        stores = self.world.stores()
        checkpointer = Checkpointer(stores.checkpoints, self.world.policy, redact=self.redact)
        runner = AgentRunner(checkpoints=checkpointer, using=self.world.using)
        runner.stores = kept(self.wrap(runner.stores), self.commits)
        if crasher is not None:
            runner.stores = crasher.stores(runner.stores)
        return runner

    def run(self, **options: Any) -> RunResult:
        """Create the run and carry it to its first stop."""
        return self.runner().run(self.agent, "go", tenant=TENANT, run_id=self.run_id, **options)

    def arun(self) -> RunResult:
        """Do the same on an event loop."""
        return asyncio.run(self.runner().arun(self.agent, "go", tenant=TENANT, run_id=self.run_id))

    def resume(self, agent: Agent | None = None, **options: Any) -> RunResult:
        """Carry the run on, as another process would."""
        return self.runner().resume(agent or self.agent, self.run_id, tenant=TENANT, **options)

    def disturbed(self, effect: str, disturb: Callable[[], Any], when: str = "before", nth: int = 1) -> RunResult:
        """Carry the run on, created where it is new; something else happens at one of its effects."""
        crasher = DiesAt(effect, when, nth, disturb)
        runner = self.runner(crasher)
        runner.create(self.agent, "go", tenant=TENANT, run_id=self.run_id, user=None)
        return runner.resume(crasher.agent(self.agent), self.run_id, tenant=TENANT)

    def aresume(self) -> RunResult:
        """Do the same on an event loop."""
        return asyncio.run(self.runner().aresume(self.agent, self.run_id, tenant=TENANT))

    def die(self, effect: str, when: str = "before", nth: int = 1, *, ages: bool = True) -> None:
        """Carry the run on, created where it is new, until it dies at an effect; then let time pass."""
        crasher = DiesAt(effect, when, nth)
        runner = self.runner(crasher)
        with contextlib.suppress(Crash):
            runner.create(self.agent, "go", tenant=TENANT, run_id=self.run_id, user=None)
            runner.resume(crasher.agent(self.agent), self.run_id, tenant=TENANT)
        assert crasher.dead, f"nothing of {crasher.effects} is {when} {nth} {effect}"
        if ages:
            self.age()

    def age(self, seconds: float = AGES) -> None:
        """Let time pass."""
        if self.world.using is None or self.world.place == "redis":
            self.world.age(self.run_id, seconds)
        else:
            age(self.world.using, seconds)

    def agent_with(self, *tools: Tool, **changes: Any) -> Agent:
        """Return the agent with other tools."""
        return replace(self.agent, tools=tools, **changes)

    def acquired(self, holder: str = "other") -> RunLease:
        """Take the run's lease, as another worker does."""
        return self.stores.leases.acquire(self.run_id, tenant=TENANT, holder=holder, ttl_seconds=60)

    def state(self, lease: RunLease) -> RunState:
        """Return the state that a slice under ``lease`` starts from."""
        runner = self.runner()
        recorded = StoredRun(runner.stores, self.record, runner.checkpointer, strict=False)
        return recorded.state(self.agent, lease)

    # What people do

    def settle(self, call: str, outcome: Any = None, *, happened: bool = True) -> Claim:
        """Answer for a call in doubt."""
        told = Outcome.of(OutcomeKind.RETURNED, outcome) if happened else None
        answer = Answer.DONE if happened else Answer.NOT_DONE
        claims = self.stores.idempotency
        return claims.settle(
            self.run_id, Slot.parse(call), tenant=TENANT, answer=answer, outcome=told, by="ann", reason="looked it up"
        )

    def decide(self, call: str, *, grant: bool = True, **edited: Any) -> Approval:
        """Answer the request for a call."""
        request = self.request(call)
        return self.stores.runs.decide(
            request.request_id, tenant=TENANT, grant=grant, by="ann", reason="because", **edited
        )

    def cancel(self) -> None:
        """Ask that the run be cancelled."""
        self.stores.runs.request_cancel(self.run_id, tenant=TENANT, by="ann", reason="enough")

    # What nobody should do

    def edit_frontier(self, old: str, new: str) -> None:
        """Change the stored payload by hand."""
        if self.world.using is None:
            run = self.world._space.written(TENANT, self.run_id)
            assert run.frontier is not None and old in run.frontier.text
            run.frontier = replace(run.frontier, text=run.frontier.text.replace(old, new))
            return
        rows = models.Checkpoint.objects.using(self.world.using).filter(run_id=self.run_id)
        payload = rows.get().payload
        assert old in payload
        changed = payload.replace(old, new)
        rows.update(payload=changed, digest=digest(changed))

    def edit_approval(self, call: str, **changes: Any) -> None:
        """Change the row of a request by hand."""
        slot = Slot.parse(call)
        if self.world.using is None:
            approvals = self.world._space.written(TENANT, self.run_id).approvals
            approvals[slot] = replace(approvals[slot], approval=replace(approvals[slot].approval, **changes))
            return
        rows = models.Approval.objects.using(self.world.using).filter(run_id=self.run_id)
        rows.filter(turn=slot.turn, position=slot.position).update(**changes)

    def forge_frontier(self, frontier: Checkpoint) -> None:
        """Put a frontier in place of the stored one, whatever is newer."""
        text = frontier.encoded
        if self.world.using is None:
            run = self.world._space.written(TENANT, self.run_id)
            run.frontier = FrontierRow(run.fence, frontier.sequence, text, self.world._space.now())
            return
        rows = models.Checkpoint.objects.using(self.world.using).filter(run_id=self.run_id)
        changed = {"boundary": frontier.boundary.value, "turn": frontier.turn, "payload": text}
        rows.update(**changed, digest=digest(text), format_version=frontier.format_version)

    # What is there

    @property
    def stores(self) -> Stores:
        """A fresh bundle on the place."""
        return self.world.stores()

    @property
    def record(self) -> RunRecord:
        """The run's row."""
        found = self.stores.runs.get(self.run_id, tenant=TENANT)
        assert found is not None
        return found

    @property
    def frontier(self) -> Checkpoint:
        """The run's frontier."""
        found = self.stores.checkpoints.latest(self.run_id, tenant=TENANT)
        assert found is not None
        return found

    @property
    def lease(self) -> RunLease | None:
        """The lease that stands."""
        return self.stores.leases.held(self.run_id, tenant=TENANT)

    def claim(self, call: str) -> Claim:
        """Return the record of one call."""
        return self.claims[call]

    @property
    def claims(self) -> dict[str, Claim]:
        """The records of the run's calls, by slot."""
        return {str(item.slot): item for item in self.stores.idempotency.look_up(self.run_id, tenant=TENANT)}

    def request(self, call: str) -> Approval:
        """Return the request for a call."""
        return next(item for item in self.stores.runs.approvals(self.run_id, tenant=TENANT) if str(item.slot) == call)

    def everything(self) -> str:
        """Return all that is stored anywhere, as text."""
        if self.world.using is None:
            return repr(vars(self.world._space))
        tables = apps.get_app_config("adk_django").get_models()
        return repr([list(table._base_manager.using(self.world.using).values()) for table in tables])

    @property
    def brought(self) -> list[str]:
        """What each commit brought, in short: its boundary, ``claim 1.1``, ``outcome 1.1``, its status."""
        return [_short(writes, written) for writes, written in self.commits]

    @property
    def results(self) -> list[Any]:
        """The contents of the results that the model was shown last."""
        parts = self.provider.requests[-1].messages[-1].parts
        return [part.content for part in parts if isinstance(part, ToolResult)]


def _short(writes: Writes, written: Written) -> str:
    boundary = writes.boundary_name and (writes.boundary_name if not written.failed_save else "failed")
    words = [boundary] if boundary else []
    words += [f"request {item.slot}" for item in writes.requests]
    for name, claims in (("outcome", writes.outcomes), ("error", writes.failures), ("abandoned", writes.abandoned)):
        words += [f"{name} {claim.slot}" for claim in claims]
    words += [f"settled {item.claim.slot} by {item.by}" for item in writes.settlements]
    words += [f"claim {claim.slot}" for claim in writes.claims]
    words += [writes.status] if writes.status is not None and writes.status != "active" else []
    return ", ".join(words) or "nothing"
