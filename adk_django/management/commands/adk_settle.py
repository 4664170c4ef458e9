"""adk_settle: answer for a call of which nobody can say whether it happened."""

from typing import Any

from django.core.management.base import CommandParser

from adk_django import runs
from adk_django.core.effects import Claim
from adk_django.management.base import AdkCommand, Refusal, a_call, add_reason, answerer


class Command(AdkCommand):
    """Answer for an indeterminate call, by a person or by its probe."""

    help = "Answer, once and on the record, whether a call happened of which nobody can say; or ask its probe."

    def add_own_arguments(self, parser: CommandParser) -> None:
        """Add the call and the answer. There is no default: a guess is no answer."""
        parser.add_argument("run", metavar="RUN")
        parser.add_argument("call", metavar="CALL", type=a_call, help="TURN.POSITION, as adk_inspect prints it")
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument("--as", dest="answer", choices=("completed", "never-ran"), help="what is known of it")
        how.add_argument("--probe", action="store_true", help="ask the tool's own probe")
        parser.add_argument(
            "--attempt", metavar="N", type=int, help="with --as: refuse if the call is at another attempt by now"
        )
        parser.add_argument("--outcome", metavar="TEXT", help="with --as completed: what the model is told it returned")
        add_reason(parser, required=False)

    def act(self, **options: Any) -> None:
        """Settle, or probe."""
        answer, reason = options["answer"], options["reason"]
        if answer is not None and not reason:
            self.parser.error("the following arguments are required: --reason")
        if options["outcome"] is not None and answer != "completed":
            self.parser.error("argument --outcome: only with --as completed")
        if options["attempt"] is not None and answer is None:
            self.parser.error("argument --attempt: only with --as")
        where = {"tenant": options["tenant"], "using": self.using}
        by = answerer(options["by"])
        if answer is None:
            claim = self._probe(options["run"], options["call"], by=by, reason=reason, **where)
        else:
            claim = runs.settle(
                options["run"],
                options["call"],
                answer=answer,
                outcome=options["outcome"],
                by=by,
                reason=reason,
                attempt=options["attempt"],
                **where,
            )
        self.facts |= {"run_id": claim.run_id, "tenant": claim.tenant, "call": str(claim.slot), "tool": claim.tool}
        self.facts |= {"state": claim.state.value, "settled_by": claim.settled_by, "reason": claim.reason}
        self.say(f"call {claim.slot} ({claim.tool}) of run {claim.run_id} is settled as {claim.state}")
        seen = runs.inspect(options["run"], tenant=options["tenant"], using=self.using)
        if seen is not None and seen.lease is not None and seen.live and seen.lease.fence == claim.fence:
            until = seen.lease.expires_at.isoformat()
            self.facts |= {"holder": seen.lease.holder, "until": until}
            making = "if it is alive and making this call, what it returns is what the model is told"
            self.say(f"note: {seen.lease.holder} holds the run until {until}; {making}")

    def _probe(self, run_id: str, call: Any, **options: Any) -> Claim:
        reply, claim = runs.probe(run_id, call, **options)
        self.facts["probe"] = reply.answer.value
        self.say(f"the probe of {claim.tool} said {reply.answer}")
        if not claim.settled_by:
            until = f" before {claim.deadline_at.isoformat()}" if reply.early and claim.deadline_at else ""
            message = f"the probe of {claim.tool} said {reply.answer}{until}, which settles nothing"
            raise Refusal(message, exit_code=4, code="probe-undecided")
        return claim
