"""Agents and their registry: what carries a run, under a name and a revision."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

from django.utils.module_loading import autodiscover_modules

from adk_django.core import codec
from adk_django.core.ids import require_ids
from adk_django.exceptions import ConfigurationError
from adk_django.providers.base import ModelProvider
from adk_django.tools import Tool


@dataclass(frozen=True, eq=False)
class Agent:
    """A definition that carries runs.

    ``revision`` is set by hand or computed from instructions, model and the tools' schemas and classes. ``accepts``
    lists older revisions that this definition can carry on; ``aliases`` older names. ``max_turns`` is how often a run
    may ask its model, over resumes; None is that of ``ADK["LIMITS"]``. Raise ConfigurationError if two tools have one
    name.
    """

    name: str
    _: KW_ONLY
    instructions: str = ""
    tools: Sequence[Tool] = ()
    provider: ModelProvider | None = None
    revision: str | None = None
    accepts: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    prompt_version: str | None = None
    max_turns: int | None = None
    by_name: dict[str, Tool] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        name: Any = self.name
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"an agent is named {name!r}: expected a text that is not empty")
        require_ids(agent=name)
        for alias in self.aliases:
            require_ids(alias=alias)
        if not isinstance(self.tools, Sequence):
            raise ConfigurationError(f"agent {self.name}: tools is {self.tools!r}: expected a list of tools")
        for tool in self.tools:
            if not isinstance(tool, Tool):
                raise ConfigurationError(f"agent {self.name} has the tool {tool!r}: decorate it with @tool")
        if self.provider is not None and not isinstance(self.provider, ModelProvider):
            raise ConfigurationError(
                f"agent {self.name} has the provider {self.provider!r}: expected an instance of a ModelProvider"
            )
        if self.max_turns is not None and (type(self.max_turns) is not int or self.max_turns < 1):
            raise ConfigurationError(
                f"agent {self.name} has max_turns {self.max_turns!r}: expected a whole number of at least 1, or None"
            )
        by_name = {tool.name: tool for tool in self.tools}
        if len(by_name) < len(self.tools):
            raise ConfigurationError(
                f"agent {self.name} has two tools of one name: {sorted(t.name for t in self.tools)}"
            )
        object.__setattr__(self, "by_name", by_name)

    @cached_property
    def pinned_revision(self) -> str:
        """The revision a run is pinned to: set by hand, or the digest of the definition."""
        if self.revision is not None:
            return self.revision
        tools = [
            [tool.name, tool.effect.value, tool.using, list(tool.key_arguments), dict(tool.schema.parameters)]
            for tool in sorted(self.tools, key=lambda tool: tool.name)
        ]
        model = self.provider.model if self.provider else ""
        return codec.digest(codec.canonical([self.instructions, model, tools]))[:16]

    def carries(self, revision: str | None) -> bool:
        """Return whether this definition can carry on a run pinned to ``revision`` (None: not pinned yet)."""
        return revision is None or revision == self.pinned_revision or revision in self.accepts

    def answers_to(self, name: str) -> bool:
        """Return whether ``name`` is this agent's name or one of its aliases."""
        return name == self.name or name in self.aliases


_registry: dict[str, Agent] = {}


def register(agent: Agent) -> Agent:
    """Make ``agent`` known by its name and aliases. Raise ConfigurationError if another agent has one of them."""
    for name in (agent.name, *agent.aliases):
        if _registry.setdefault(name, agent) is not agent:
            raise ConfigurationError(f"two agents are named {name!r}: rename one, or drop the alias")
    return agent


def get_agent(name: str) -> Agent:
    """Return the agent registered under ``name``. Raise ConfigurationError, listing the names, if there is none."""
    try:
        return _registry[name]
    except KeyError:
        known = ", ".join(sorted(_registry)) or "none"
        raise ConfigurationError(
            f"no agent is registered as {name!r}; registered: {known}. Agents are found in the agents.py of each app "
            f"in INSTALLED_APPS, 'adk_django' among them"
        ) from None


def is_registered(name: str) -> bool:
    """Return whether an agent answers to ``name``."""
    return name in _registry


def registered() -> tuple[Agent, ...]:
    """Return every registered agent, once."""
    return tuple(dict.fromkeys(_registry.values()))


def autodiscover() -> None:
    """Import the ``agents`` module of every installed app, so that what it registers is known."""
    autodiscover_modules("agents")
