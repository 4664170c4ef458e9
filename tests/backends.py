"""Where the suite's runs live: memory, or a database; what ages there; and how a run is carried to its end."""

import asyncio
from datetime import timedelta
from typing import Any

from adk_django.core.checkpoint import CheckpointPolicy
from adk_django.core.record import Answer, ApprovalState, RunStatus
from adk_django.exceptions import IndeterminateToolCallError, LeaseLostError
from adk_django.execution.checkpointer import Checkpointer
from adk_django.execution.runner import AgentRunner, RunResult
from adk_django.stores.bundle import Stores
from adk_django.stores.handler import complete
from adk_django.stores.memory import MemoryCheckpointStore, MemorySpace
from adk_django.stores.redis.client import keys_of
from adk_django.testing import Crash, EffectLog, FakeClock
from adk_django.testing.crashes import Crasher
from tests.run_definitions import Scenario
from tests.stores.redis_conformance import age_redis, stores_in_redis

TENANT = "acme"
AGES = 3_600.0  # past every lease and every deadline


class World:
    """One place for runs: "memory", the alias of a database, or "redis" for Redis beside rows in `default`.

    ``asynchronous`` runs are driven on an event loop.
    """

    def __init__(self, place: str, policy: CheckpointPolicy | None = None, *, asynchronous: bool = False) -> None:
        self.place, self.asynchronous = place, asynchronous
        self.using = {"memory": None, "redis": "default"}.get(place, place)
        self.policy = policy or CheckpointPolicy()
        self._clock = FakeClock()
        self._space = MemorySpace(now=self._clock)

    def stores(self) -> Stores:
        """Return a fresh bundle on this place, as a new process would have it."""
        if self.using is None:
            return complete(checkpoints=MemoryCheckpointStore(self._space))
        if self.place == "redis":
            return stores_in_redis(self.using)
        return complete(using=self.using)

    def runner(self, crasher: Crasher | None = None) -> AgentRunner:
        """Return a fresh runner, struck by ``crasher``."""
        stores = self.stores()
        runner = AgentRunner(checkpoints=Checkpointer(stores.checkpoints, self.policy), using=self.using)
        if crasher is not None:
            runner.stores = crasher.stores(runner.stores)
        return runner

    def age(self, run_id: str, seconds: float = AGES) -> None:
        """Let time pass for a run, by moving every instant of it back."""
        if self.using is None:
            self._clock.advance(seconds)
            return
        if self.place == "redis":
            return age_redis(seconds, *keys_of(TENANT, run_id))
        from adk_django.models import IdempotencyKey, RunLease

        past = timedelta(seconds=seconds)
        held = RunLease.objects.using(self.using).filter(run_id=run_id).exclude(expires_at=None)
        for lease in held:
            held.filter(pk=lease.pk).update(expires_at=lease.expires_at - past)
        claims = IdempotencyKey.objects.using(self.using).filter(run_id=run_id).exclude(deadline_at=None)
        for claim in claims:
            claims.filter(pk=claim.pk).update(deadline_at=claim.deadline_at - past)

    def steal(self, run_id: str) -> None:
        """Take the run's lease over and give it back, as a worker does that finds it lapsed."""
        self.age(run_id)
        leases = self.stores().leases
        lease = leases.acquire(run_id, tenant=TENANT, holder="thief", ttl_seconds=60)
        leases.release(lease)


def slice_of(
    world: World, scenario: Scenario, log: EffectLog, run_id: str, crasher: Crasher, *, using: str | None = None
) -> RunResult | None:
    """Drive one slice of a run, started where it is new, struck by ``crasher``; None if it died or lost its lease."""
    agent = crasher.agent(scenario.agent(log, using=using, asynchronous=world.asynchronous))
    runner = world.runner(crasher)
    try:
        runner.create(agent, "go", tenant=TENANT, run_id=run_id, user=None)
        if world.asynchronous:
            return asyncio.run(runner.aresume(agent, run_id, tenant=TENANT))
        return runner.resume(agent, run_id, tenant=TENANT)
    except (Crash, LeaseLostError):
        return None
    finally:
        world.age(run_id)


def finish(
    world: World, scenario: Scenario, log: EffectLog, run_id: str, *, using: str | None = None, slices: int = 20
) -> RunResult:
    """Carry a run to its end as its people would: they decide what it waits for, and settle by what the log shows."""
    for _ in range(slices):
        try:
            result = slice_of(world, scenario, log, run_id, Crasher(), using=using)
        except IndeterminateToolCallError as refusal:
            for item in refusal.calls:
                claim: Any = item.claim
                settle(world, run_id, claim.slot, happened=log.count(f"{claim.tool}/{claim.key}") > 0)
            continue
        if result is not None and result.status is RunStatus.WAITING:
            answer(world, scenario, run_id)
        elif result is not None and result.status.ended:
            return result
    raise AssertionError(f"run {run_id} came to no end in {slices} slices")


def settle(world: World, run_id: str, slot: Any, *, happened: bool) -> None:
    """Settle a call by what is known of it outside."""
    from adk_django.core.effects import Outcome, OutcomeKind

    told = Outcome.of(OutcomeKind.RETURNED, "settled") if happened else None
    world.stores().idempotency.settle(
        run_id,
        slot,
        tenant=TENANT,
        answer=Answer.DONE if happened else Answer.NOT_DONE,
        outcome=told,
        by="the suite",
        reason="the log says so",
    )


def answer(world: World, scenario: Scenario, run_id: str) -> None:
    """Answer the first open request as the scenario says."""
    from adk_django.core.effects import arguments_digest

    runs = world.stores().runs
    request = next(item for item in runs.approvals(run_id, tenant=TENANT) if item.state is ApprovalState.REQUESTED)
    decision = (scenario.decisions or {})[str(request.slot)]
    edited = decision if isinstance(decision, dict) else None
    runs.decide(
        request.request_id,
        tenant=TENANT,
        grant=decision != "deny",
        by="the suite",
        reason="as the scenario says",
        edited=edited,
        digest=None if edited is None else arguments_digest(edited),
    )
