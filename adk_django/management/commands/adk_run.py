"""adk_run: start a run and carry it on here."""

from typing import Any

from django.core.management.base import CommandParser

from adk_django import agents, runs
from adk_django.management.carry_on import DrivingCommand, handed_on, refuse_ended


class Command(DrivingCommand):
    """Start a run, or find the one under its id, and carry it on to its next stop."""

    help = "Start a run of an agent and carry it on here to its next stop, showing progress."

    def add_own_arguments(self, parser: CommandParser) -> None:
        """Add agent, prompt, id and user."""
        parser.add_argument("agent", metavar="AGENT", help="the name the agent is registered under")
        parser.add_argument("prompt", metavar="PROMPT", help="what it is asked")
        parser.add_argument("--run-id", metavar="ID", help="default: a new one; the same id and input is the same run")
        parser.add_argument("--enqueue", action="store_true", help="let a worker carry it on")
        parser.add_argument("--user", help="for whom")

    def act(self, **options: Any) -> None:
        """Start and carry on."""
        agent, tenant = options["agent"], options["tenant"]
        if not agents.is_registered(agent):
            known = ", ".join(sorted(item.name for item in agents.registered())) or "none"
            self.parser.error(f"argument AGENT: no agent is registered as {agent!r}; registered: {known}")
        started = runs.start(
            agent,
            options["prompt"],
            tenant=tenant,
            run_id=options["run_id"],
            user=options["user"],
            enqueue=options["enqueue"],
            using=self.using,
        )
        self.facts |= {"run_id": started.run_id, "tenant": tenant, "created": started.created}
        self.say(f"run {started.run_id}  tenant {tenant}  agent {agent}  {'new' if started.created else 'known'}")
        refuse_ended(started.record)
        if options["enqueue"]:
            if not started.created:
                runs.resume(started.run_id, tenant=tenant, enqueue=True, using=self.using)
            self.say(handed_on(started.run_id, tenant))
            return
        self.carry_on(started.run_id, tenant=tenant)
