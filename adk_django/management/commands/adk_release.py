"""adk_release: give a quarantined run one more round."""

from typing import Any

from django.core.management.base import CommandParser

from adk_django import runs
from adk_django.core.record import RunStatus
from adk_django.exceptions import RunLeaseError
from adk_django.management.base import AdkCommand, Refusal, add_reason, answerer
from adk_django.management.carry_on import refuse_ended


class Command(AdkCommand):
    """Free a quarantined run, or take the lease from a holder that will never lapse."""

    help = "Give a quarantined run one more round; with --lease, take the lease from whoever holds the run."

    def add_own_arguments(self, parser: CommandParser) -> None:
        """Add the run, why, and whose lease."""
        parser.add_argument("run", metavar="RUN")
        parser.add_argument("--lease", action="store_true", help="take the lease away, too: raises the fence")
        add_reason(parser)

    def act(self, **options: Any) -> None:
        """Ask for it, then do it where nobody holds the run."""
        run_id, tenant, lease = options["run"], options["tenant"], options["lease"]
        where = {"tenant": tenant, "using": self.using}
        before = runs.inspect(run_id, **where)
        if before is not None:
            refuse_ended(before.record)
        record = runs.release(run_id, by=answerer(options["by"]), reason=options["reason"], lease=lease, **where)
        self.facts |= {"run_id": run_id, "tenant": tenant, "status": record.status.value}
        if lease:
            held = None if before is None else before.lease
            self.say(f"the lease of {held.holder} is taken away" if held else f"nobody holds run {run_id}")
        if record.release_requested_at is None:
            if not lease:
                message = f"run {run_id} is {record.status}, not quarantined: there is nothing to release"
                raise Refusal(message, exit_code=4, code="not-quarantined")
            return
        try:
            record = runs.apply_requests(run_id, **where)
        except RunLeaseError as error:
            self.facts |= {"holder": error.holder, "until": error.until and error.until.isoformat()}
            self.say(f"release of run {run_id} is requested: {error.holder} holds it")
            return
        self.facts["status"] = record.status.value
        if record.status is RunStatus.ACTIVE:
            self.say(f"run {run_id} is released: one more round")
