"""Which agent carries a run on, and whether this process can: by the name, revision and format in the run's row."""

from adk_django.agents import Agent, get_agent, is_registered
from adk_django.core.checkpoint import CHECKPOINT_FORMAT
from adk_django.core.record import RunRecord
from adk_django.exceptions import AgentRevisionError, CheckpointFormatError


def agent_of(record: RunRecord) -> Agent:
    """Return the agent registered under the run's name. Raise AgentRevisionError if this process has none."""
    if not is_registered(record.agent):
        raise not_registered(record)
    return get_agent(record.agent)


def refuse_format(record: RunRecord) -> None:
    """Raise CheckpointFormatError if a newer version wrote the run's frontier."""
    if is_newer(record):
        raise CheckpointFormatError(record.format_version or 0, CHECKPOINT_FORMAT)


def is_newer(record: RunRecord) -> bool:
    """Return whether a newer version wrote the run's frontier."""
    return record.format_version is not None and record.format_version > CHECKPOINT_FORMAT


def refuse_revision(record: RunRecord, agent: Agent | None, accept: str | None = None) -> None:
    """Raise AgentRevisionError if ``agent``, or the one registered under the run's name, cannot carry the run on.

    ``accept`` names the revision this process has, on an operator's word; any other is refused.
    """
    if record.status.ended:
        return
    if agent is None:
        if not is_registered(record.agent):
            return
        agent = get_agent(record.agent)
    pinned, found = record.revision, agent.pinned_revision
    if not agent.answers_to(record.agent):
        message = f"run {record.run_id} is agent {record.agent!r}'s; this is {agent.name!r}"
        raise AgentRevisionError(message, pinned=pinned, found=found)
    if accept is not None and accept != found:
        message = f"this process has revision {found!r} of agent {agent.name}, not {accept!r}"
        raise AgentRevisionError(message, pinned=pinned, found=found)
    if accept is None and not agent.carries(pinned):
        message = (
            f"run {record.run_id} is pinned to revision {pinned!r} of agent {agent.name}; this process has {found!r}: "
            f"adk_resume --accept-revision {found}"
        )
        raise AgentRevisionError(message, pinned=pinned, found=found)


def not_registered(record: RunRecord) -> AgentRevisionError:
    """Return the refusal of a run whose agent this process does not have."""
    message = f"agent {record.agent!r} of run {record.run_id} is not registered: no worker here can carry it on"
    return AgentRevisionError(message, pinned=record.revision, found=None)
