"""RunState: the fold of what is recorded of a run and of what this slice observed. Holds no rule; `decide` does."""

from dataclasses import dataclass, replace
from typing import Any

from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, PendingCall
from adk_django.core.effects import Claim, ClaimState, Outcome, Slot
from adk_django.core.messages import Message, ToolResult, Usage
from adk_django.core.observations import Answered, Attempted, Failure, NotEntered, Probed
from adk_django.core.record import Approval, ApprovalState, RunStatus, Spend, Writes, Written
from adk_django.core.run_facts import Known


@dataclass(frozen=True)
class RunState(Known):
    """What is known of a run, what a commit would bring of it, and what it becomes by what happens."""

    # What a commit would bring

    def conversation(self) -> tuple[Message, ...]:
        """Return the messages for the model; a turn whose calls are all answered is closed by their results."""
        if not (self.open and self.pending):
            return self.messages
        results = []
        for call in self.calls():
            outcome = self.outcome_of(call)
            if outcome is None:
                return self.messages
            content = outcome.value
            if self.edited(call):
                content = {"arguments_changed_by_approver": call.arguments, "result": outcome.value}
            extra = {} if outcome.twin_of is None else {"copy_of_call": str(outcome.twin_of)}
            results.append(ToolResult(call.provider_id, call.tool, content, outcome.is_error, extra))
        return (*self.messages, Message("tool", tuple(results)))

    def facts(self) -> dict[Slot, Claim]:
        """Return the outcomes that no commit has brought yet."""
        facts = dict(self.outcomes)
        for call in self.calls():
            if call.slot not in self.claims and call.slot not in facts:
                outcome = self.outcome_of(call)
                if outcome is not None:
                    facts[call.slot] = self._unclaimed(call, outcome)
        return facts

    def _unclaimed(self, call: PendingCall, outcome: Outcome) -> Claim:
        claim = self.claim_of(replace(call, held=False))
        return replace(claim, token=None, outcome=outcome, state=ClaimState.of(outcome), limit_seconds=0.0)

    def frontier(self, boundary: CheckpointBoundary, requests: tuple[Approval, ...]) -> Checkpoint:
        """Return the frontier at ``boundary``; its handle is set when its delta is encoded."""
        closed = boundary is CheckpointBoundary.AFTER_TOOL_RESULT
        waiting = boundary is CheckpointBoundary.BEFORE_APPROVAL
        grants = [item.request_id for item in self.approvals.values() if item.state is ApprovalState.GRANTED]
        return Checkpoint(
            run_id=self.record.run_id,
            tenant=self.record.tenant,
            agent=self.record.agent,
            boundary=boundary,
            turn=self.turn,
            model=self.setting.model,
            history_handle=self.handle,
            pending=() if closed else self.pending,
            usage=self.usage,
            cost_micros=self.cost_micros,
            iterations=self.turn,
            revision=self.setting.revision,
            prompt_version=self.setting.prompt_version,
            pending_approval=requests[0].request_id if waiting and requests else None,
            grant_id=grants[-1] if grants else None,
            scopes=self.record.scopes,
            user=self.record.user,
            parent=self.record.parent,
            guards=self.setting.guards,
        )

    def writes(self, boundary: CheckpointBoundary | None = None, **brings: Any) -> Writes:
        """Return a commit of every fact not yet committed, of the frontier at ``boundary``, and of what else it
        ``brings``."""
        sent = Writes(**brings)
        frontier: Checkpoint | None = None
        delta: tuple[Message, ...] = ()
        if boundary is not None and (self.turn, boundary.rank) > self.saved:
            frontier = self.frontier(boundary, sent.requests)
        if frontier is not None or sent.ends:
            closed = boundary is CheckpointBoundary.AFTER_TOOL_RESULT
            delta = (self.conversation() if closed or sent.ends else self.messages)[self.handle.length :]
        facts = self.facts()
        moved = bool(frontier or facts or self.failures or sent.claims or sent.settlements)
        new = bool(frontier or facts or any(claim.replaces is None for claim in sent.claims))
        stood_still = self.record.status is not RunStatus.ACTIVE or bool(self.record.reason)
        if moved and sent.status is None and stood_still:
            sent = replace(sent, status=RunStatus.ACTIVE)
        return replace(
            sent,
            frontier=frontier,
            delta=delta,
            extends=self.handle if delta else None,
            outcomes=tuple(facts[slot] for slot in sorted(facts)),
            failures=tuple(self.failures[slot] for slot in sorted(self.failures)),
            abandoned=tuple(self.claims[slot] for slot in sorted(self.abandoned)),
            spend=self.spend + sent.spend,
            begins=self.turn > 0 and self.record.begun_at is None,
            revision=self.setting.revision,
            format_version=None if frontier is None else frontier.format_version,
            wake_seen=self.record.wake_at,
            deaths=0 if self.died and new else None,
        )

    # What happened

    def observe(self, seen: Answered | Attempted | Probed) -> "RunState":
        """Return the state after ``seen``, nothing of which is committed yet."""
        state = replace(self, journal=self.journal + 1, took_over=False)
        match seen:
            case Answered():
                return state._answered(seen)
            case Probed():
                return replace(state, replies={**self.replies, **seen.replies})
            case Attempted():
                return state._attempted(seen)

    def _attempted(self, seen: Attempted) -> "RunState":
        outcomes, failures, abandoned = dict(self.outcomes), dict(self.failures), set(self.abandoned)
        calls = {call.slot: call for call in self.calls()}
        for slot, result in seen.results.items():
            claim = self.claims.get(slot)
            match result:
                case Outcome() if claim is None:
                    outcomes[slot] = self._unclaimed(calls[slot], result)
                case Outcome() if claim is not None:
                    outcomes[slot] = replace(claim, outcome=result, state=ClaimState.of(result))
                case Failure() if claim is not None:
                    failures[slot] = replace(claim, error=result.error)
                case NotEntered():
                    abandoned.update({slot} if claim else ())
        return replace(
            self,
            outcomes=outcomes,
            failures=failures,
            abandoned=frozenset(abandoned),
            fresh=self.fresh - seen.results.keys(),
        )

    def _answered(self, seen: Answered) -> "RunState":
        return replace(
            self,
            messages=(*self.conversation(), seen.message),
            outcomes=self.facts(),
            turn=self.turn + 1,
            open=True,
            pending=seen.pending,
            usage=self.usage + seen.usage,
            cost_micros=self.cost_micros + seen.cost_micros,
            spend=(*self.spend, Spend(self.turn + 1, self.setting.fence, seen.usage, seen.cost_micros)),
            unaskable="",
            finish_reason=seen.finish_reason,
        )

    def committed(self, writes: Writes, written: Written) -> "RunState":
        """Return the state after a commit. Where its frontier was refused the facts stand all the same."""
        claims, approvals = dict(self.claims), dict(self.approvals)
        claims.update({claim.slot: claim for claim in (*writes.outcomes, *writes.failures)})
        for item in writes.settlements:
            now = ClaimState.NEVER_RAN if item.outcome is None else ClaimState.of(item.outcome)
            claims[item.claim.slot] = replace(item.claim, state=now, outcome=item.outcome, settled_by=item.by)
        given_back = dict(self.given_back)
        for claim in writes.abandoned:
            claims.pop(claim.slot, None)
            given_back[claim.slot] = claim.attempt
        if written.standing is not None:
            claims = dict(written.standing)
        claims.update({claim.slot: claim for claim in written.claims})
        if not written.failed_save:
            asked = (request if written.at is None else request.asked_at(written.at) for request in writes.requests)
            approvals.update({request.slot: request for request in asked})
        record = replace(
            self.record,
            begun_at=self.record.begun_at or (written.at if writes.begins else None),
            cancel_requested_at=written.cancel_requested_at,
        )
        if written.cancelled is not None:
            record = replace(
                record,
                cancel_requested_by=written.cancelled.cancel_requested_by,
                cancel_reason=written.cancelled.cancel_reason,
            )
        if writes.status is not None and not (written.failed_save and writes.status is RunStatus.WAITING):
            record = replace(record, status=writes.status, reason=writes.reason, output=writes.output)
            record = replace(record, wake_at=writes.wake_at if written.at is None else writes.wakes_at(written.at))
        made = {claim.slot for claim in written.claims}
        state = replace(
            self,
            record=record,
            pending=tuple(replace(call, doubted=False) if call.slot in made else call for call in self.pending),
            claims=claims,
            approvals=approvals if written.approvals is None else dict(written.approvals),
            handle=written.handle or self.handle,
            outcomes={},
            failures={},
            abandoned=frozenset(),
            given_back=given_back,
            fresh=self.fresh | (made - self._entered_by_others()),
            replies={slot: reply for slot, reply in self.replies.items() if slot not in _settled(writes)},
            spend=(),
            usage=self.usage + Usage(unknown_calls=sum(item.usage.unknown_calls for item in writes.spend)),
            took_over=False,
            died=self.died and writes.deaths is None,
        )
        if writes.frontier is None:
            return replace(state, unaskable=written.failed_save if writes.requests else self.unaskable)
        return state._passed(writes.frontier, writes, written)

    def _passed(self, frontier: Checkpoint, writes: Writes, written: Written) -> "RunState":
        state = replace(self, tried=self.tried | {frontier.sequence})
        if not written.failed_save:
            state = replace(state, saved=frontier.sequence)
        elif frontier.boundary is CheckpointBoundary.BEFORE_APPROVAL:
            state = replace(state, unaskable=written.failed_save)
        if frontier.boundary is CheckpointBoundary.AFTER_TOOL_RESULT:
            state = replace(state, messages=state.conversation(), open=False, pending=())
        return state


def _settled(writes: Writes) -> set[Slot]:
    return {item.claim.slot for item in writes.settlements}
