"""What workers and beats do of themselves: carry runs on, find those that are due, erase those that ended long ago.

`adk_django.runs` is the door to it.
"""

from dataclasses import dataclass, replace

from adk_django.agents import get_agent, is_registered, registered
from adk_django.concurrency import sync_only, twin_of
from adk_django.conf import get_settings
from adk_django.core.checkpoint import CHECKPOINT_FORMAT
from adk_django.core.lease import DAY_SECONDS
from adk_django.exceptions import CrowdedError
from adk_django.execution.ports import Leave
from adk_django.execution.revisions import is_newer
from adk_django.execution.runner import AgentRunner, RunResult
from adk_django.operations import wakeups
from adk_django.operations.decisions import apply_requests
from adk_django.stores.runs import Due


@sync_only
def carry_on(
    run_id: str, *, tenant: str, worker: str, leave: Leave | None = None, using: str | None = None
) -> RunResult | None:
    """Carry a run on as a background worker does, until it stands still or ``leave`` says so; return how it stopped.

    Return None where it has ended, where this process cannot carry it on (a cancel is done all the same), and where
    more runs live than ``RESUME`` allows: a sweep finds it again. Raise what `resume` raises.
    """
    runner = AgentRunner(using=using)
    record, caps = runner.find(run_id, tenant=tenant), get_settings().resume
    if record is None or record.status.ended:
        return None
    agent = get_agent(record.agent) if is_registered(record.agent) else None
    if agent is None or is_newer(record) or not agent.carries(record.revision):
        if record.cancel_requested_at is not None:  # which needs no agent and no frontier
            apply_requests(run_id, tenant=tenant, worker=worker, using=using)
        return None
    leases = runner.stores.leases.within(max_live=caps.max_live, max_live_per_tenant=caps.max_live_per_tenant)
    runner.stores = replace(runner.stores, leases=leases)
    try:
        carried = runner.take(record, agent, worker=worker)
    except CrowdedError:
        return None
    return runner.resume(agent, run_id, tenant=tenant, carried=carried, leave=leave)


@dataclass(frozen=True)
class Swept:
    """What a sweep did: the (tenant, run id) of each run it took, and how many wake-ups went out."""

    taken: tuple[tuple[str, str], ...]
    sent: int


@sync_only
def sweep(*, using: str | None = None) -> Swept:
    """Take a batch of the runs that are due and wake a worker for each.

    Due are runs whose worker died, answers not yet carried on and wake-ups whose time has come, of agents, revisions
    and formats that this process can carry on. Any number of sweeps may run at once.
    """
    stores, settings = AgentRunner(using=using).stores, get_settings()
    definitions = {
        name: frozenset((agent.pinned_revision, *agent.accepts))
        for agent in registered()
        for name in (agent.name, *agent.aliases)
    }
    taken = stores.runs.take_due(
        Due(
            limit=settings.resume.batch,
            definitions=definitions,
            format_version=CHECKPOINT_FORMAT,
            again_seconds=settings.leases.ttl_seconds,
            max_live=settings.resume.max_live,
            max_live_per_tenant=settings.resume.max_live_per_tenant,
        )
    )
    sent = wakeups.send(taken) if taken else 0
    if wakeups.configured():
        for tenant, run_id in taken[sent:]:  # the broker is down: the next sweep is to try these again
            stores.runs.wake(run_id, tenant=tenant)
    return Swept(taken, sent)


@sync_only
def prune(*, using: str | None = None) -> tuple[tuple[str, str], ...]:
    """Erase a batch of the runs that ended longer ago than ``RETENTION`` keeps them; return tenant and id of each.

    Runs that have not ended are never erased. The id of one that was cannot be started again.
    """
    settings = get_settings()
    stores = AgentRunner(using=using).stores
    gone = stores.runs.prune(seconds=settings.retention.ended_days * DAY_SECONDS, limit=settings.resume.batch)
    for tenant, run_id in gone:
        stores.erased(tenant, run_id)
    return gone


asweep = twin_of(sweep)
aprune = twin_of(prune)
