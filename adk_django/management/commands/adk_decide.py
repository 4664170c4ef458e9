"""adk_decide: answer a request for approval."""

import argparse
import json
from typing import Any

from django.core.management.base import CommandParser

from adk_django import runs
from adk_django.management.base import AdkCommand, add_reason, answerer


class Command(AdkCommand):
    """Answer a request for approval."""

    help = "Grant or deny a request for approval, once and on the record."

    def add_own_arguments(self, parser: CommandParser) -> None:
        """Add the request and the answer. There is no default."""
        parser.add_argument("request", metavar="REQUEST", help="as adk_inspect prints it")
        answer = parser.add_mutually_exclusive_group(required=True)
        answer.add_argument("--grant", action="store_true", help="let the call be made")
        answer.add_argument("--deny", action="store_true", help="let it not be made")
        parser.add_argument("--arguments", metavar="JSON", type=_an_object, help="with --grant: other arguments")
        add_reason(parser)

    def act(self, **options: Any) -> None:
        """Decide."""
        if options["arguments"] is not None and options["deny"]:
            self.parser.error("argument --arguments: not allowed with argument --deny")
        decided = runs.decide(
            options["request"],
            tenant=options["tenant"],
            grant=options["grant"],
            by=answerer(options["by"]),
            reason=options["reason"],
            arguments=options["arguments"],
            using=self.using,
        )
        self.facts |= {"request_id": decided.request_id, "run_id": decided.run_id, "tenant": decided.tenant}
        self.facts |= {"call": str(decided.slot), "tool": decided.tool, "state": decided.state.value}
        self.say(f"request {decided.request_id} for call {decided.slot} ({decided.tool}) is {decided.state}")
        self.say(f"next adk_resume {decided.run_id} --tenant {decided.tenant}")


def _an_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("expected a JSON object of named arguments")
    return found
