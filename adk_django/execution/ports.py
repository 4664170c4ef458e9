"""What a run does to the outside: the model, the tools and their probes, and the stores."""

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from django.db import DataError, IntegrityError, InternalError, connections, transaction
from django.db import Error as DatabaseError

from adk_django import signals
from adk_django.agents import Agent
from adk_django.concurrency import gather_limited, in_pool, off_loop
from adk_django.conf import Tools
from adk_django.core.checkpoint import PendingCall
from adk_django.core.codec import EncodeError
from adk_django.core.decide import Commit, Decision, Stop, decide
from adk_django.core.effects import (
    Claim,
    Outcome,
    Slot,
)
from adk_django.core.messages import Message
from adk_django.core.observations import Answered, Attempted, Failure, NotEntered, Probed
from adk_django.core.record import Spend, Writes, Written
from adk_django.core.state import RunState
from adk_django.exceptions import CheckpointError, ProviderError, StoreUnavailableError
from adk_django.execution.checkpointer import Checkpointer
from adk_django.execution.leaseholder import RETRY_SECONDS, Leaseholder
from adk_django.execution.model_answers import cost_of, pending_call, refuse_misfit
from adk_django.execution.tool_calls import Bodies, Interrupt
from adk_django.providers.base import ModelProvider, ModelRequest, ModelResponse
from adk_django.stores.bundle import Stores

Watch = Callable[[RunState, Decision], None]
Leave = Callable[[RunState], bool]

# Errors with which a database says that a transaction did not happen.
_REFUSALS = (DataError, IntegrityError, InternalError, transaction.TransactionManagementError)


class RunPorts:
    """The ports of one slice, sync and async.

    ``inline`` keeps everything in this thread, as a TestCase needs. ``moved`` says whether the slice took one step;
    ``owed`` is what its model calls cost that no commit has brought to the ledger.
    """

    def __init__(
        self,
        *,
        agent: Agent,
        provider: ModelProvider,
        stores: Stores,
        holder: Leaseholder,
        checkpointer: Checkpointer,
        settings: Tools,
        inline: bool,
        watch: Watch | None = None,
        leave: Leave | None = None,
    ) -> None:
        self._agent, self._provider = agent, provider
        self._stores, self._holder, self._checkpointer = stores, holder, checkpointer
        self._settings, self._inline, self._watch, self._leave = settings, inline, watch, leave
        self._bodies = Bodies(agent, stores, settings, checkpointer.mask, inline=inline)
        self._run = {"tenant": holder.lease.tenant, "run_id": holder.lease.run_id}
        self._sent: dict[Slot, float] = {}
        self.moved = False
        self.owed: tuple[Spend, ...] = ()

    def show(self, run: RunState, decision: Decision) -> None:
        """Tell whoever watches what is next."""
        if self._watch is not None:
            self._watch(run, decision)

    def leaves(self, run: RunState) -> bool:
        """Return whether the slice ends here for a fresh one to go on: never with a body claimed and not entered, nor
        with anything that no commit has brought, nor where the run stands still by itself."""
        kept = not (run.fresh or run.outcomes or run.failures or run.abandoned)
        return kept and self._leaving(run) and not isinstance(decide(run), Stop)

    def _leaving(self, run: RunState) -> bool:
        return self._leave is not None and self._leave(run)

    # The model

    def model(self, run: RunState, messages: tuple[Message, ...]) -> Answered:
        """Ask the model. Raise ProviderError if it fails or answers what cannot be kept."""
        self._holder.check()
        try:
            response = self._provider.request(self._request(messages))
        except Interrupt:
            raise
        except Exception as error:
            raise self._provider_failed(error) from error
        return self._answered(run, response)

    async def amodel(self, run: RunState, messages: tuple[Message, ...]) -> Answered:
        """Async twin of `model`."""
        await in_pool(self._holder.check)
        try:
            response = await self._provider.arequest(self._request(messages))
        except Interrupt:
            raise
        except Exception as error:
            raise self._provider_failed(error) from error
        return self._answered(run, response)

    def _request(self, messages: tuple[Message, ...]) -> ModelRequest:
        return ModelRequest(self._agent.instructions, messages, tuple(tool.schema for tool in self._agent.tools))

    def _provider_failed(self, error: Exception) -> ProviderError:
        said = str(error) if isinstance(error, ProviderError) else f"{type(error).__name__}: {error}"
        return ProviderError(self._checkpointer.mask(said))

    def _answered(self, run: RunState, response: ModelResponse) -> Answered:
        """Return what was answered. Raise ProviderError if it is no answer; what it cost is owed all the same."""
        self.moved = True
        usage, cost_micros = cost_of(response)
        self.owed = (*self.owed, Spend(run.turn + 1, run.setting.fence, usage, cost_micros))
        refuse_misfit(response)
        try:
            _ = response.message.encoded  # what cannot be kept exactly never enters the conversation
        except EncodeError as error:
            raise ProviderError(f"the model answered what cannot be kept: {error}") from error
        calls = enumerate(response.message.tool_calls, 1)
        pending = tuple(pending_call(self._agent, run, Slot(run.turn + 1, position), call) for position, call in calls)
        return Answered(response.message, pending, usage, cost_micros, response.finish_reason)

    # The tools

    def tools(self, run: RunState, calls: tuple[PendingCall, ...]) -> Attempted:
        """Make calls, one after another."""
        self.moved = True
        results: dict[Slot, Outcome | Failure | NotEntered] = {}
        for call in calls:
            self._holder.check()
            claim = run.claims.get(call.slot)
            left = claim is not None and (self._too_late(claim) or self._leaving(run))
            results[call.slot] = NotEntered() if left else self._bodies.make(run, call, claim)
        return Attempted(results)

    async def atools(self, run: RunState, calls: tuple[PendingCall, ...]) -> Attempted:
        """Make calls, several in progress together."""
        self.moved = True

        async def one(call: PendingCall) -> Outcome | Failure | NotEntered:
            await in_pool(self._holder.check)
            claim = run.claims.get(call.slot)
            if claim is not None and (self._too_late(claim) or self._leaving(run)):
                return NotEntered()
            return await self._bodies.amake(run, call, claim)

        work = [functools.partial(one, call) for call in calls]
        results = await gather_limited(self._settings.max_concurrent, work)
        return Attempted({call.slot: result for call, result in zip(calls, results, strict=True)})

    def _too_late(self, claim: Claim) -> bool:
        return time.monotonic() - self._sent.get(claim.slot, float("-inf")) >= claim.limit_seconds

    def transact(self, run: RunState, call: PendingCall) -> RunState:
        """Make a call and what is committed next in one transaction; the fence is compared last, before COMMIT.

        Raise StoreUnavailableError if the connection died, before COMMIT or before its answer: the next slice finds the
        row, or not.
        """
        self._holder.check()
        self.moved = True
        tool = self._agent.by_name[call.tool]
        database = connections[cast(str, tool.using)]  # a tool of this class names one
        try:
            with transaction.atomic(using=tool.using, durable=True):
                link = database.connection
                try:
                    value = self._bodies.enter(run, call)
                except Interrupt:
                    raise
                except Exception as error:
                    raise _BodyRaisedError(error) from error
                seen = run.observe(Attempted({call.slot: self._bodies.kept(value)}))
                decision = cast(Commit, decide(seen))  # an outcome of this class is committed next, by its rule
                prepared = self._checkpointer.prepare(decision.writes, **self._run)
                sent = time.monotonic()
                written = self._stores.commit(prepared, lease=self._holder.lease, joined=True)
        except _BodyRaisedError as error:
            if database.connection is not link:  # it died, and the rows with it: nobody refused anything
                raise StoreUnavailableError(
                    f"the transaction of call {call.slot} was lost: {error.raised}"
                ) from error.raised
            return run.observe(Attempted({call.slot: self._bodies.raised(call, error.raised)}))
        except _REFUSALS as error:  # the database said no: nothing of it stands
            return run.observe(Attempted({call.slot: self._bodies.raised(call, error)}))
        except DatabaseError as error:
            raise StoreUnavailableError(
                f"the transaction of call {call.slot} ended without an answer: {error}"
            ) from error
        return seen.committed(decision.writes, self._told(decision.writes, written, sent))

    async def atransact(self, run: RunState, call: PendingCall) -> RunState:
        """Async twin of `transact`."""
        return await off_loop(functools.partial(self.transact, run, call))

    # The probes

    def probes(self, run: RunState, claims: tuple[Claim, ...]) -> Probed:
        """Ask the probes of calls, one after another."""
        calls = {call.slot: call for call in run.calls()}
        replies = {}
        for claim in claims:
            self._holder.check()
            call = calls[claim.slot]
            context = self._bodies.context_of(run.record, call, claim, run.setting.fence)
            replies[claim.slot] = self._bodies.probe(context, call, claim)
        return Probed(replies)

    async def aprobes(self, run: RunState, claims: tuple[Claim, ...]) -> Probed:
        """Async twin of `probes`."""
        return await off_loop(functools.partial(self.probes, run, claims))

    # The stores

    def commit(self, writes: Writes) -> Written:
        """Write, and make a save that failed known. An outcome of a claim is tried again until the lease's end."""
        self._holder.keep()
        prepared = self._checkpointer.prepare(writes, **self._run)
        sent = time.monotonic()
        while True:
            try:
                written = self._stores.commit(prepared, lease=self._holder.lease)
            except StoreUnavailableError:
                if not any(claim.token for claim in writes.outcomes) or self._holder.late:
                    raise
                time.sleep(RETRY_SECONDS)
            else:
                return self._told(writes, written, sent)

    async def acommit(self, writes: Writes) -> Written:
        """Async twin of `commit`."""
        written: Written = await in_pool(self.commit, writes)
        return written

    def _told(self, writes: Writes, written: Written, sent: float) -> Written:
        self.owed = ()
        self._sent.update({claim.slot: sent for claim in written.claims})
        if written.cancel_requested_at is not None:
            written = replace(written, cancelled=self._stores.runs.get(self._run["run_id"], tenant=self._run["tenant"]))
        if writes.outcomes or writes.settlements or (writes.frontier and not written.failed_save):
            self.moved = True
        if written.refusal is not None:
            error = CheckpointError(f"{type(written.refusal).__name__}: {written.refusal}")
            boundary = writes.boundary_name or "end"
            self._checkpointer.report(written.failed_save, error, boundary=boundary, **self._run)
        if writes.status is not None:
            signals.run_stopped.send_robust(
                sender=type(self), status=writes.status.value, reason=writes.reason, **self._run
            )
        return written


class _BodyRaisedError(Exception):
    """Carries what a body raised out of the transaction that it rolls back."""

    def __init__(self, raised: Exception) -> None:
        super().__init__(raised)
        self.raised = raised
