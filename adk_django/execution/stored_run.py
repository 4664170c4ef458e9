"""What the stores hold of a run, read and weighed. Reading changes nothing and asks nobody."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from adk_django.agents import Agent
from adk_django.conf import get_settings
from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, HistoryHandle, PendingCall
from adk_django.core.codec import EncodeError
from adk_django.core.effects import Claim, EffectClass, Slot, arguments_digest
from adk_django.core.lease import RunLease
from adk_django.core.masking.redactor import contains_mask
from adk_django.core.messages import Message, Usage
from adk_django.core.plan import ResumePlan, plan
from adk_django.core.record import Approval, ApprovalState, RunRecord, RunStatus
from adk_django.core.run_facts import Setting
from adk_django.core.state import RunState
from adk_django.exceptions import (
    AdkError,
    CheckpointDamagedError,
    CheckpointError,
    CheckpointPassedError,
    HistoryUnavailableError,
    MaskedArgumentsError,
    StaleFrontierError,
)
from adk_django.execution.checkpointer import Checkpointer
from adk_django.stores.bundle import Stores


class StoredRun:
    """What the stores hold of a run, and every reason not to carry it on. Reading it changes nothing."""

    def __init__(self, stores: Stores, record: RunRecord, checkpointer: Checkpointer, *, strict: bool) -> None:
        run_id, tenant = record.run_id, record.tenant
        self.record, self._policy = record, checkpointer.policy
        self.refusals: list[AdkError] = []
        self.messages: tuple[Message, ...] = ()
        self.checkpoint: Checkpoint | None = None
        self.claims: dict[Slot, Claim] = {}
        self.approvals: dict[Slot, Approval] = {}
        if record.damaged:
            self.refusals.append(CheckpointDamagedError(record.damaged))
        with self._refused():
            self.claims = {claim.slot: claim for claim in stores.idempotency.look_up(run_id, tenant=tenant)}
        with self._refused():
            self.approvals = {item.slot: item for item in stores.runs.approvals(run_id, tenant=tenant)}
        known = not self.refusals
        with self._refused():
            self.checkpoint = self._weighed(stores.checkpoints.latest(run_id, tenant=tenant))
            self.messages = self._conversation(stores)
        # Of a call whose claim cannot be read there is nothing to say, least of all that it never ran.
        calls = self.checkpoint.pending if self.checkpoint is not None and known else ()
        outstanding = plan(calls, self.claims, strict=strict)
        if not record.status.ended and not self.refusals:
            self.refusals += self._passed()
            self.refusals += self._stale(stores)
            self.refusals += self._masked(outstanding)
        self.plan: ResumePlan = replace(outstanding, obstacles=tuple(str(error) for error in self.refusals))

    @contextmanager
    def _refused(self) -> Iterator[None]:
        """Let what cannot be read speak against carrying the run on, so that the rest of it can still be shown."""
        try:
            yield
        except (CheckpointError, HistoryUnavailableError) as error:
            self.refusals.append(error)

    def _weighed(self, frontier: Checkpoint | None) -> Checkpoint | None:
        """Return the frontier with those calls ``doubted`` whose claims may have been made and lost.

        What the row notes of a slot is certain. Without a note, where the store itself may have forgotten, a call is
        doubted that has no claim; a held one is not: its approval is used in the statement that notes it.
        """
        if frontier is None:
            return None
        calls = []
        for call in frontier.pending:
            claim, forgetful = self.claims.get(call.slot), call.doubted and not call.held
            lost = self.record.lost(call.slot, claim) or (forgetful and claim is None)
            calls.append(call if call.doubted is lost else replace(call, doubted=lost))
        return frontier if tuple(calls) == frontier.pending else replace(frontier, pending=tuple(calls))

    def _conversation(self, stores: Stores) -> tuple[Message, ...]:
        frontier, record = self.checkpoint, self.record
        if frontier is None:
            return (Message.of("user", record.input),)
        if frontier.history_handle is None:
            return frontier.messages
        return stores.history.fetch(frontier.history_handle, tenant=record.tenant)

    def _passed(self) -> Iterable[AdkError]:
        record, turn = self.record, 0 if self.checkpoint is None else self.checkpoint.turn
        beyond = sorted(str(slot) for slot in {*self.claims, *record.claimed} if slot.turn > turn)
        if record.failed_save:
            yield CheckpointPassedError(
                f"the run went on past its frontier: a later save failed ({record.failed_save})"
            )
        elif self.checkpoint is None and record.begun_at is not None:
            yield CheckpointDamagedError("the frontier is lost: the run had begun and nothing of it is there")
        elif beyond:
            yield CheckpointPassedError(
                f"the run went on past its frontier: there are records of calls {', '.join(beyond)}"
            )

    def _stale(self, stores: Stores) -> Iterable[AdkError]:
        ttl, frontier = self._policy.ttl_seconds, self.checkpoint
        if ttl is None or frontier is None or frontier.created_at is None or self.record.status is RunStatus.WAITING:
            return
        age = stores.runs.now() - frontier.created_at
        if age > timedelta(seconds=ttl):
            yield StaleFrontierError(
                f"the frontier is {age.total_seconds():.0f} seconds old, over the limit of {ttl:g}"
            )

    def _masked(self, outstanding: ResumePlan) -> Iterable[AdkError]:
        masked = [
            f"{item.call.slot} ({item.call.tool})"
            for item in outstanding.to_dispatch
            if contains_mask(self._made_with(item.call))
        ]
        if masked:
            yield MaskedArgumentsError(f"the arguments of call {', '.join(masked)} were masked when they were saved")

    def _made_with(self, call: PendingCall) -> Any:
        """Return the arguments a call would be made with, None where it waits for a person or was denied."""
        approval = self.approvals.get(call.slot)
        if not call.held:
            return call.arguments
        if approval is None or approval.state is not ApprovalState.GRANTED:
            return None
        return call.arguments if approval.edited is None else approval.edited

    def state(self, agent: Agent, lease: RunLease) -> RunState:
        """Return the state that a slice of ``agent`` under ``lease`` starts from."""
        setting = self._setting(agent, lease)
        frontier, record = self.checkpoint, self.record
        start = RunState(
            record=record,
            setting=setting,
            messages=self.messages,
            handle=HistoryHandle(record.tenant, record.run_id),
            claims=self.claims,
            approvals=self.approvals,
            usage=record.usage,
            cost_micros=record.cost_micros,
            took_over=lease.took_over,
            died=lease.deaths > 0,
        )
        if frontier is None:
            return start
        return replace(
            start,
            handle=frontier.history_handle or start.handle,
            saved=frontier.sequence,
            turn=frontier.turn,
            open=frontier.boundary is not CheckpointBoundary.AFTER_TOOL_RESULT,
            pending=tuple(_bound(call, setting.tools.get(call.tool)) for call in frontier.pending),
            usage=frontier.usage if record.usage == Usage() else record.usage,
            cost_micros=record.cost_micros or frontier.cost_micros,
        )

    def _setting(self, agent: Agent, lease: RunLease) -> Setting:
        """Return what is fixed for a slice of ``agent`` under ``lease``."""
        settings = get_settings()
        return Setting(
            fence=lease.fence,
            boundaries=self._policy.boundaries,
            tools={tool.name: tool.effect for tool in agent.tools},
            expires={tool.name: tool.expires_seconds for tool in agent.tools},
            probes=frozenset(tool.name for tool in agent.tools if tool.probe is not None),
            strict=settings.resume.strict,
            fails_on_unkept=settings.tools.on_unkept_result == "fail_run",
            grace_seconds=settings.tools.grace_seconds,
            time_limit_seconds=settings.tools.time_limit_seconds,
            revision=agent.pinned_revision,
            model=agent.provider.model if agent.provider else "",
            prompt_version=agent.prompt_version,
            max_turns=agent.max_turns or settings.limits.max_turns,
        )


def _bound(call: PendingCall, effect: EffectClass | None) -> PendingCall:
    """Return ``call`` with the digest of the arguments it really has, by which an approval holds or is void, and of a
    class that promises no more than its tool, now of class ``effect``, still does."""
    if effect is not None and call.effect is not None:
        call = replace(call, effect=call.effect.at_least(effect))
    if contains_mask(call.arguments):
        return call
    try:
        return replace(call, digest=arguments_digest(call.arguments))
    except EncodeError:  # a frontier that was read has no such value
        return replace(call, digest="")
