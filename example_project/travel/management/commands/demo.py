"""Show that a killed run is carried on and that no seat is bought twice."""

from __future__ import annotations

import signal
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from example_project.travel.demo_kills import table, tell
from example_project.travel.demo_processes import DemoError, staged


class Command(BaseCommand):
    """Tell the story, and end with code 1 if a seat too many or too few was sold."""

    help = "Kill five runs with SIGKILL, carry each on, and count the seats the airline sold. Offline, under a minute."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        # A terminated demo clears away its processes and files as an interrupted one does.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            with staged(self._write) as stage:
                rows = tell(stage)
        except DemoError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            raise CommandError("interrupted; everything is cleared away", returncode=128 + signal.SIGINT) from None
        self._write("\n" + "\n".join(table(rows)) + "\n")
        if wrong := [row.scenario for row in rows if not row.right]:
            raise CommandError(f"not as it must be: {'; '.join(wrong)}")
        self._write(f"{len(rows)} runs killed, {len(rows)} carried on, one seat each.")

    def _write(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
