"""adk_sweep: wake a worker for each run that is due."""

import argparse
import math
import threading
from typing import Any

from django.core.management.base import CommandParser

from adk_django import runs
from adk_django.exceptions import AdkError
from adk_django.management.base import AdkCommand


def seconds(text: str) -> float:
    """Return the number of seconds that ``text`` writes, for argparse."""
    try:
        given = float(text)
    except ValueError:
        given = math.nan
    if not 0 < given < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds above 0")
    return given


class Command(AdkCommand):
    """Wake a worker for each run that is due, once or again and again."""

    help = "Take a batch of the runs that are due and wake a worker for each. Any number may sweep at once."
    needs_tenant = False

    def add_own_arguments(self, parser: CommandParser) -> None:
        """Add the loop."""
        parser.add_argument("--loop", type=seconds, metavar="SECONDS", help="sweep again and again, this far apart")

    def act(self, **options: Any) -> None:
        """Sweep; where it is to go on, a sweep that fails is said and the next one tried."""
        pause = options["loop"]
        if pause is None:
            return self._sweep()
        waiting = threading.Event()  # never set: the loop ends by a signal
        while True:
            try:
                self._sweep()
            except AdkError as error:
                self.say(f"sweep failed, tried again in {pause:g} seconds: {error}")
            waiting.wait(pause)

    def _sweep(self) -> None:
        swept = runs.sweep(using=self.using)
        taken = [{"tenant": tenant, "run_id": run_id} for tenant, run_id in swept.taken]
        self.facts |= {"taken": taken, "sent": swept.sent}
        self.say(f"{len(taken)} due, {swept.sent} wake-ups sent")
        self.say(*(f"run {item['run_id']}  tenant {item['tenant']}" for item in taken))
