"""adk_resume: carry a run on here."""

from typing import Any

from django.core.management.base import CommandParser

from adk_django import runs
from adk_django.exceptions import CheckpointNotFoundError
from adk_django.management import json_output
from adk_django.management.carry_on import DrivingCommand, handed_on, refuse_ended, stands_still
from adk_django.operations.inspection import Inspection, moves
from adk_django.operations.planning import describe, refuse_resume


class Command(DrivingCommand):
    """Carry a run on to its next stop."""

    help = "Carry a run on here to its next stop: print what is known of it, take its lease, show progress."

    def add_own_arguments(self, parser: CommandParser) -> None:
        """Add the run and how to carry it on."""
        parser.add_argument("run", metavar="RUN")
        parser.add_argument("--dry-run", action="store_true", help="say whether it could be carried on; change nothing")
        parser.add_argument("--enqueue", action="store_true", help="hand it to a worker; change nothing here")
        parser.add_argument("--worker", metavar="NAME", help="the name to hold it under; default: host and process")
        parser.add_argument("--accept-revision", metavar="REV", help="carry it on with this process's revision, REV")
        parser.add_argument("--accept-stale", action="store_true", help="carry it on from a frontier that is too old")

    def act(self, **options: Any) -> None:
        """Show, then carry on."""
        run_id, tenant = options["run"], options["tenant"]
        alone = ("dry_run", "worker", "accept_revision", "accept_stale")
        if options["enqueue"] and any(options[name] for name in alone):
            self.parser.error("argument --enqueue: goes alone: the worker carries the run on with what it has")
        accepted = {name: options[name] for name in ("accept_revision", "accept_stale")}
        seen = runs.inspect(run_id, tenant=tenant, using=self.using)
        if seen is None:
            raise CheckpointNotFoundError(f"there is no run {run_id} of tenant {tenant}")
        self.facts["run"] = json_output.of_inspection(seen)
        self.say(*describe(seen).split("\n"))
        refuse_ended(seen.record)
        if options["enqueue"]:
            runs.resume(run_id, tenant=tenant, enqueue=True, using=self.using)
            self.say(handed_on(run_id, tenant))
        elif options["dry_run"]:
            self._would_carry_on(seen, accepted)
        else:
            self.carry_on(run_id, tenant=tenant, worker=options["worker"], **accepted)

    def _would_carry_on(self, seen: Inspection, accepted: dict[str, Any]) -> None:
        refuse_resume(seen, **accepted)
        if seen.first is not None and not moves(seen.first):
            raise stands_still(seen.record.run_id, seen.standing, seen.reason)
        self.say("could be carried on")
