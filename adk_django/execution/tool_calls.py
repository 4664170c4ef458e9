"""How the body of a tool is entered, bounded and believed:

What it returned, refused or raised becomes what is recorded.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

from asgiref.sync import async_to_sync
from celery.exceptions import SoftTimeLimitExceeded

from adk_django.agents import Agent
from adk_django.concurrency import Left, in_pool, in_thread
from adk_django.conf import Tools
from adk_django.core.checkpoint import PendingCall
from adk_django.core.codec import EncodeError
from adk_django.core.effects import Claim, EffectClass, Outcome, OutcomeKind
from adk_django.core.observations import Failure, Reply
from adk_django.core.record import Answer, RunRecord
from adk_django.core.state import RunState
from adk_django.exceptions import AdkError
from adk_django.stores.bundle import Stores
from adk_django.tools import CONTEXT, ArgumentsRefusedError, ProbeAnswer, Tool, ToolContext, ToolRefused

logger = logging.getLogger(__name__)

ERROR_CHARACTERS = 2_000

# Raised by Celery into whatever a task's thread is at. It ends the slice, as KeyboardInterrupt does, and says nothing
# of the call that was waited for.
Interrupt = SoftTimeLimitExceeded


class Bodies:
    """Enters bodies and probes of one agent's tools.

    ``inline`` keeps sync ones in this thread, unbounded, as a TestCase needs.
    """

    def __init__(
        self, agent: Agent, stores: Stores, settings: Tools, mask: Callable[[Any], Any], *, inline: bool
    ) -> None:
        self._agent, self._stores, self._settings, self._mask, self._inline = agent, stores, settings, mask, inline

    def limit(self, call: PendingCall) -> float:
        """Return the seconds a body of ``call`` may take."""
        return call.time_limit_seconds or self._settings.time_limit_seconds

    @staticmethod
    def context_of(record: RunRecord, call: PendingCall, claim: Claim | None, fence: int = 0) -> ToolContext:
        """Return what a body or probe is handed."""
        return ToolContext(
            idempotency_key=call.key or "" if claim is None else claim.key,
            attempt=None if claim is None else claim.attempt,
            deadline=None if claim is None else claim.deadline_at,
            fence=fence,
            run_id=record.run_id,
            tenant=record.tenant,
            user=record.user,
        )

    def make(self, run: RunState, call: PendingCall, claim: Claim | None) -> Outcome | Failure:
        """Make one call and return what it came to."""
        try:
            return self.kept(self._run(self._body(run, call, claim), self.limit(call), self._late(claim)))
        except Interrupt:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a body raises is what it came to
            return self.raised(call, error)

    async def amake(self, run: RunState, call: PendingCall, claim: Claim | None) -> Outcome | Failure:
        """Make one call and return what it came to: an async body on this loop, a sync one on a thread."""
        try:
            tool, body = self._agent.by_name[call.tool], self._body(run, call, claim)
            limit = self.limit(call)
            result = body() if tool.is_async else await self._arun(body, limit, self._late(claim))
            if isinstance(result, Coroutine):  # of a wrapper around an async body, too
                result = await asyncio.wait_for(result, limit)
            return self.kept(result)
        except Interrupt:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a body raises is what it came to
            return self.raised(call, error)

    def enter(self, run: RunState, call: PendingCall) -> Any:
        """Enter the body of a transactional call here and now, and return what it returned."""
        result = self._body(run, call, None)()
        if isinstance(result, Coroutine):
            result.close()
            raise TypeError("a transactional tool is a sync function, and this one returned a coroutine")
        return result

    def _body(self, run: RunState, call: PendingCall, claim: Claim | None) -> Callable[[], Any]:
        tool = self._agent.by_name[call.tool]
        arguments = tool.bound(call.arguments)
        if tool.takes_context:
            arguments[CONTEXT] = self.context_of(run.record, call, claim, run.setting.fence)
        return lambda: tool.body(**arguments)

    def _late(self, claim: Claim | None) -> Callable[[Any], None] | None:
        """Return what keeps the result of a body that was left at its limit as evidence."""
        if claim is None:
            return None

        def keep(result: Any) -> None:
            kept = self.kept(result)
            outcome = replace(kept, value=self._mask(kept.value))
            try:
                self._stores.idempotency.evidence(claim, outcome)
            except AdkError as error:
                ids = {"tenant": claim.tenant, "run_id": claim.run_id}
                logger.error("evidence of call %s was lost: %s", claim.slot, error.code, extra=ids)

        return keep

    def _run(self, body: Callable[[], Any], seconds: float, late: Callable[[Any], None] | None) -> Any:
        def here() -> Any:
            result = body()
            # Not by asyncio.run: what it asks of Django has to come back to this thread, whose connection this is.
            return async_to_sync(asyncio.wait_for)(result, seconds) if isinstance(result, Coroutine) else result

        if self._inline:
            return here()
        try:
            return in_thread(here, late).wait(seconds)
        except Left:
            raise TimeoutError(f"no answer within {seconds:g} seconds") from None

    async def _arun(self, body: Callable[[], Any], seconds: float, late: Callable[[Any], None] | None) -> Any:
        if self._inline:
            return await in_pool(body)
        try:
            return await in_thread(body, late).await_(seconds)
        except Left:
            raise TimeoutError(f"no answer within {seconds:g} seconds") from None

    def kept(self, value: Any) -> Outcome:
        """Return what a body returned as an outcome: equal after any save, or, where it cannot be kept, that it was
        made."""
        returned = Outcome.of(OutcomeKind.RETURNED, value)
        try:
            text = returned.encoded()
        except EncodeError as error:
            return self._unkept(f"{error.type_name} at {error.path} cannot be stored")
        cap = self._settings.max_result_bytes
        if len(text) > cap:
            return self._unkept(f"it has {len(text)} bytes, over the cap of {cap}")
        return Outcome.decoded(text)

    @staticmethod
    def _unkept(why: str) -> Outcome:
        return Outcome.of(
            OutcomeKind.UNKEPT, f"the call was made and returned, but its result could not be kept: {why}"
        )

    def raised(self, call: PendingCall, error: Exception) -> Outcome | Failure:
        """Return what an exception out of a body says: that nothing was done, an error outcome, or that nobody can
        say."""
        tool = self._agent.by_name[call.tool]
        if isinstance(error, (ToolRefused, ArgumentsRefusedError, *tool.never_happened)):
            kind = OutcomeKind.INVALID if isinstance(error, ArgumentsRefusedError) else OutcomeKind.REFUSED
            return Outcome.of(kind, self._text(error, named=False))
        if call.effect in (EffectClass.EFFECTFUL, None):
            return Failure(self._text(error))
        return Outcome.of(OutcomeKind.FAILED, self._text(error))

    def _text(self, error: Exception, *, named: bool = True) -> str:
        try:
            text = str(error)
        except Exception:  # noqa: BLE001  # an exception whose str() raises is still an exception
            text = "(its text cannot be read)"
        text = f"{type(error).__name__}: {text}" if named or not text else text
        masked: str = self._mask(text)
        return masked[:ERROR_CHARACTERS]

    # Probes

    def probe(self, context: ToolContext, call: PendingCall, claim: Claim) -> Reply:
        """Ask the tool's own status look-up. Whatever it raises is an answer: unknown."""
        tool = self._agent.by_name[claim.tool]
        early = claim.deadline_at is not None and self._stores.runs.now() < claim.deadline_at
        try:
            answer = self._run(self._probe_body(tool, context, call), self.limit(call), None)
        except Interrupt:
            raise
        except Exception as error:  # noqa: BLE001  # a look-up that fails says nothing
            ids = {"tenant": claim.tenant, "run_id": claim.run_id}
            logger.warning("the probe of call %s failed: %s", claim.slot, self._text(error), extra=ids)
            return Reply(Answer.UNKNOWN, early=early)
        if not isinstance(answer, ProbeAnswer):
            logger.error(
                "the probe of tool %s returned %s: expected done(...), not_done or unknown", tool.name, type(answer)
            )
            return Reply(Answer.UNKNOWN, early=early)
        outcome = self.kept(answer.outcome) if answer.answer is Answer.DONE else None
        return Reply(answer.answer, outcome, early)

    @staticmethod
    def _probe_body(tool: Tool, context: ToolContext, call: PendingCall) -> Callable[[], Any]:
        probe = cast(Callable[..., Any], tool.probe)  # only tools that have one are asked
        arguments = tool.bound(call.arguments)
        return lambda: probe(context, **arguments)
