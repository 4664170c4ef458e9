"""adk_inspect: show a run, or list runs. Takes no lease and writes nothing."""

import argparse
from collections.abc import Mapping
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
LIMIT = 100
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
        parser.add_argument("--limit", type=_positive, help="how many runs or messages at most; default: 100")
        parser.add_argument("--messages", action="store_true", help="the conversation of RUN, masked, newest last")

    def act(self, **options: Any) -> None:
        """Show one, or many."""
        if options["run"] is None:
            if options["messages"]:
                self.parser.error("--messages is of one run: name RUN")
            self._list(**{name: options[name] for name in ("tenant", *_FILTERS)})
            return
        if options["tenant"] is None:
            self.parser.error("the following arguments are required: --tenant")
        of_list = set(_FILTERS) - ({"limit"} if options["messages"] else set())
        if given := [f"--{name}" for name in _FILTERS if name in of_list and options[name]]:
            self.parser.error(f"{', '.join(given)} is for the list: leave out RUN")
        self._show(options["run"], options["tenant"])
        if options["messages"]:
            self._show_messages(options["run"], options["tenant"], options["limit"] or LIMIT)

    def _show(self, run_id: str, tenant: str) -> None:
        seen = runs.inspect(run_id, tenant=tenant, using=self.using)
        if seen is None:
            raise CheckpointNotFoundError(f"there is no run {run_id} of tenant {tenant}")
        self.facts |= json_output.of_inspection(seen)
        self.say(*describe(seen).split("\n"))
        for error in seen.refusals:
            if isinstance(error, _UNREADABLE):
                raise error

    def _show_messages(self, run_id: str, tenant: str, limit: int) -> None:
        found = runs.messages(run_id, tenant=tenant, limit=limit, using=self.using)
        self.facts["messages"] = [json_output.of_message(message) for message in found]
        for message in self.facts["messages"]:
            for part in message["parts"]:
                self.say(f"{message['role']}: {_line_of(part)}")

    def _list(self, *, limit: int | None, **filters: Any) -> None:
        found = runs.list_runs(limit=limit or LIMIT, using=self.using, **filters)
        standings = runs.standings(found, using=self.using)
        rows = list(zip(found, standings, strict=True))
        self.facts["runs"] = [json_output.of_record(record, standing) for record, standing in rows]
        for record, standing in rows:
            reason = f": {record.reason}" if record.reason else ""
            at = record.created_at.isoformat(timespec="seconds") if record.created_at else "-"
            self.say(
                f"run {record.run_id}  tenant {record.tenant}  agent {record.agent}  created {at}  {standing}{reason}"
            )


def _line_of(part: Mapping[str, Any]) -> str:
    match part["type"]:
        case "text":
            return str(part["text"])
        case "binary":
            return f"{part['bytes']} bytes of {part['media_type']}"
        case "tool_call":
            return f"call {part['name']} {part['value']}"
        case "tool_result":
            return f"{'error' if part['is_error'] else 'result'} of {part['name']} {part['value']}"
    return "what only its provider understands"


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)
