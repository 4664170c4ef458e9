"""adk_inspect: show a run, or list runs. Takes no lease and writes nothing."""

import argparse
from typing import Any

from django.core.management.base import CommandParser

from adk_django import runs
from adk_django.core.record import RunStatus
from adk_django.exceptions import (
    CheckpointDamagedError,
    CheckpointFormatError,
    CheckpointNotFoundError,
    HistoryUnavailableError,
)
from adk_django.management import json_output
from adk_django.management.base import AdkCommand
from adk_django.operations.planning import describe

_UNREADABLE = (CheckpointDamagedError, CheckpointFormatError, HistoryUnavailableError)
_FILTERS = ("status", "agent", "stuck", "limit")


class Command(AdkCommand):
    """Show a run, or list runs."""

    help = "Show all that is known of a run, or list runs, newest first. Changes nothing and asks nobody."
    needs_tenant = False

    def add_own_arguments(self, parser: CommandParser) -> None:
        """Add the run, and the filters of the list."""
        parser.add_argument("run", metavar="RUN", nargs="?", help="needs --tenant; without it: the list")
        parser.add_argument("--status", choices=[status.value for status in RunStatus])
        parser.add_argument("--agent", help="runs of this agent")
        parser.add_argument("--stuck", action="store_true", help="runs that have not ended and that no worker holds")
        parser.add_argument("--limit", type=_positive, help="how many at most; default: 100")

    def act(self, **options: Any) -> None:
        """Show one, or many."""
        if options["run"] is None:
            self._list(**{name: options[name] for name in ("tenant", *_FILTERS)})
            return
        if options["tenant"] is None:
            self.parser.error("the following arguments are required: --tenant")
        if given := [f"--{name}" for name in _FILTERS if options[name]]:
            self.parser.error(f"{', '.join(given)} is for the list: leave out RUN")
        self._show(options["run"], options["tenant"])

    def _show(self, run_id: str, tenant: str) -> None:
        seen = runs.inspect(run_id, tenant=tenant, using=self.using)
        if seen is None:
            raise CheckpointNotFoundError(f"there is no run {run_id} of tenant {tenant}")
        self.facts |= json_output.of_inspection(seen)
        self.say(*describe(seen).split("\n"))
        for error in seen.refusals:
            if isinstance(error, _UNREADABLE):
                raise error

    def _list(self, *, limit: int | None, **filters: Any) -> None:
        found = runs.list_runs(limit=limit or 100, using=self.using, **filters)
        self.facts["runs"] = [json_output.of_record(record) for record in found]
        for record in found:
            reason = f": {record.reason}" if record.reason else ""
            at = record.created_at.isoformat(timespec="seconds") if record.created_at else "-"
            self.say(
                f"run {record.run_id}  tenant {record.tenant}  agent {record.agent}  created {at}  "
                f"{record.status}{reason}"
            )


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)
