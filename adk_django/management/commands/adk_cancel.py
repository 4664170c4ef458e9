"""adk_cancel: cancel a run."""

from typing import Any

from django.core.management.base import CommandParser

from adk_django import runs
from adk_django.core.record import RunRecord, RunStatus
from adk_django.exceptions import RunLeaseError
from adk_django.management.base import AdkCommand, Refusal, add_reason, answerer


class Command(AdkCommand):
    """Cancel a run: at once where nobody holds it, else by its holder."""

    help = "Cancel a run: at once where no worker holds it; else its worker ends it before the next call."

    def add_own_arguments(self, parser: CommandParser) -> None:
        """Add the run, and why."""
        parser.add_argument("run", metavar="RUN")
        add_reason(parser)

    def act(self, **options: Any) -> None:
        """Ask for it, then end the run where nobody holds it."""
        run_id, tenant = options["run"], options["tenant"]
        record = runs.cancel(
            run_id, tenant=tenant, by=answerer(options["by"]), reason=options["reason"], using=self.using
        )
        try:
            record = runs.apply_requests(run_id, tenant=tenant, using=self.using)
        except RunLeaseError as error:
            self._note(record)
            self.facts |= {"holder": error.holder, "until": error.until and error.until.isoformat()}
            self.say(f"cancel of run {run_id} is requested: {error.holder} holds it and ends it")
            return
        self._note(record)
        if record.status is not RunStatus.CANCELLED:
            message = f"run {run_id} has ended as {record.status}: there is nothing to cancel"
            raise Refusal(message, exit_code=4, code="run-ended")
        self.say(f"run {run_id} is {record.reason or record.status}")

    def _note(self, record: RunRecord) -> None:
        self.facts |= {"run_id": record.run_id, "tenant": record.tenant, "status": record.status.value}
        self.facts |= {"reason": record.reason}
