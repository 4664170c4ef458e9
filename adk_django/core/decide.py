"""What a run does next: a pure function over what is recorded and what this slice observed.

Laws
----
1.  Intent before effect. A body that is not read-only is entered only after its key is durable: in its claim, or, for
an
    idempotent call, in the saved frontier of its own turn.
2.  Nothing is guessed. A call in flight that this slice did not itself just claim is indeterminate, on a take-over
and
    in the slice whose own body raised. Its evidence settles it, then its probe, asked once a slice; then the run
    stops.
3.  An outcome that came out of a claim is committed before anything else happens to the outside: another body, a
probe,
    a model call, a wait. A claim that is about to be committed takes it along.

A turn
------
::

    ask the model -> [after_model_call] -> make the calls in the order asked -> [after_tool_result] -> ask the model
                           |                         |
                           | no call asked for       | a held call is undecided
                           v                         v
                       completed              [before_approval] -> waiting

Each call has, in this order of precedence: an outcome (recorded, observed, or following from a decision); a claim of
this slice that is not entered (it is entered now, whatever else is asked for); a claim in flight (law 2); or neither,
and then it is made when its turn comes. Calls before the first undecided held one are made; behind it only read-only
ones. After a denial or an edit, what stands behind it and was not granted itself is answered ``not made``.

Neighbouring calls that may be repeated and need no claim are made together; every other call alone.

There is no resume branch: a first run folds its input, a resumed run what the store holds, and both come here. What
is not liked about it: the precedence above is spread over `RunState.outcome_of` and the order of the ``if`` below,
and must be read together.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from adk_django.core.checkpoint import CheckpointBoundary, PendingCall
from adk_django.core.effects import Claim, EffectClass, Outcome, OutcomeKind
from adk_django.core.messages import Message, Usage
from adk_django.core.observations import Reply
from adk_django.core.plan import Resumption, ToolDisposition, resumption
from adk_django.core.record import Answer, ApprovalState, RunStatus, Settlement, Spend, Writes
from adk_django.core.state import RunState

AFTER_MODEL = CheckpointBoundary.AFTER_MODEL_CALL
BEFORE_APPROVAL = CheckpointBoundary.BEFORE_APPROVAL
AFTER_TOOL = CheckpointBoundary.AFTER_TOOL_RESULT


@dataclass(frozen=True)
class AskModel:
    """Put the conversation to the model."""

    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Dispatch:
    """Make these calls; where there are several, they may be in progress together."""

    calls: tuple[PendingCall, ...]


@dataclass(frozen=True)
class Transact:
    """Make this call and what is committed next in one transaction of the product's database."""

    call: PendingCall


@dataclass(frozen=True)
class Probe:
    """Ask these calls' own probes whether they happened."""

    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Commit:
    """Write this."""

    writes: Writes


@dataclass(frozen=True)
class Stop:
    """End the slice; all there is to say is committed."""

    status: RunStatus
    reason: str


Decision = AskModel | Dispatch | Transact | Probe | Commit | Stop


def decide(run: RunState) -> Decision:
    """Return what ``run`` does next."""
    if run.record.status.ended:
        return Stop(run.record.status, run.record.reason)
    if run.abandoned:
        return Commit(run.writes())
    if run.fresh:
        return Dispatch(tuple(call for call in run.calls() if call.slot in run.fresh))
    if run.record.cancel_requested_at is not None:
        return Commit(run.writes(status=RunStatus.CANCELLED, reason=run.record.cancellation))
    if not run.open:
        return _ask(run)
    if not run.pending:
        return _complete(run)
    if _answer_unsaved(run):
        return Commit(run.writes(AFTER_MODEL))
    if unknown := _unknown(run):
        return _resolve(run, unknown)
    if calls := _next(run):
        return _make(run, calls)
    if any(run.outcome_of(call) is None for call in run.calls()):
        return _wait(run)
    return _close(run)


def _complete(run: RunState) -> Decision:
    text, reason = run.messages[-1].text, ""
    if not text.strip():
        because = "" if run.finish_reason is None else f" (finish reason: {run.finish_reason})"
        reason = f"the model's last answer has no text and asks for no call{because}"
    return Commit(run.writes(status=RunStatus.COMPLETED, output=text, reason=reason))


def _ask(run: RunState) -> Decision:
    if run.over_budget:
        return _stop(run, RunStatus.UNDECIDED, over_budget(run))
    if run.took_over:  # the dead worker may have asked already: its answer is lost, its cost is not nothing
        lost = Spend(run.turn + 1, run.setting.fence - 1, Usage(unknown_calls=1))
        return Commit(run.writes(spend=(lost,)))
    return AskModel(run.conversation())


def _answer_unsaved(run: RunState) -> bool:
    sequence = (run.turn, AFTER_MODEL.rank)
    if run.saved >= sequence or sequence in run.tried:
        return False
    repeatable = all(call.effect is EffectClass.READ_ONLY for call in run.pending) and not run.setting.strict
    return AFTER_MODEL in run.setting.boundaries or not repeatable


def over_budget(run: RunState) -> str:
    """Return why a run that has had its turns stops, and what lets it go on."""
    return (
        f"it has had {run.turn} turns and may have {run.setting.max_turns}: raise ADK['LIMITS']['max_turns'] or its "
        f"Agent(max_turns=...), then adk_resume"
    )


# A call of which nobody can say whether it happened


def _unknown(run: RunState) -> tuple[Resumption, ...]:
    unknown = []
    for call in run.calls():
        if run.outcome_of(call) is not None:
            continue
        found = resumption(call, {**run.claims, **run.failures}, strict=run.setting.strict)
        settles = found.claim is not None and found.claim.settles_by_evidence
        if found.disposition is ToolDisposition.INDETERMINATE or settles:
            unknown.append(found)
    return tuple(unknown)


def _resolve(run: RunState, unknown: tuple[Resumption, ...]) -> Decision:
    if unclaimed := tuple(item.call for item in unknown if item.claim is None):
        # Dispatched by others, without a key: from here on there is a claim in flight, which can be settled.
        return Commit(run.writes(claims=tuple(run.claim_of(replace(call, held=False)) for call in unclaimed)))
    claims = {item.claim.slot: item.claim for item in unknown if item.claim is not None}
    answers = tuple(answer for claim in claims.values() if (answer := _answer(claim, run.replies.get(claim.slot))))
    if answers:
        return Commit(run.writes(settlements=answers))
    askable = tuple(claim for claim in claims.values() if _askable(run, claim))
    if askable:
        return Commit(run.writes()) if _must_commit(run) else Probe(askable)
    early = [run.replies[slot].early for slot in claims if slot in run.replies]
    calls = ", ".join(f"{item.call.slot} ({item.call.tool})" for item in unknown)
    deadlines = [claim.deadline_at for claim in claims.values() if claim.deadline_at is not None]
    if all(early) and len(early) == len(claims) == len(deadlines) > 0:
        again = max(deadlines)
        reason = f"probe again at {again.isoformat(timespec='seconds')}: call {calls}"
        return _stop(run, RunStatus.ACTIVE, reason, wake_at=again)
    return _stop(run, RunStatus.UNDECIDED, f"nobody can say whether call {calls} happened: adk_settle")


def _askable(run: RunState, claim: Claim) -> bool:
    return claim.tool in run.setting.probes and not claim.contested and claim.slot not in run.replies


def _answer(claim: Claim, reply: Reply | None) -> Settlement | None:
    if claim.settles_by_evidence:
        return Settlement(claim, Answer.DONE, claim.evidence, "evidence", "its outcome arrived late")
    if reply is None or reply.answer is Answer.UNKNOWN or (reply.answer is Answer.NOT_DONE and reply.early):
        return None
    return Settlement(
        claim, reply.answer, reply.outcome, "probe", f"the probe of {claim.tool} said {reply.answer.value}"
    )


# A call whose turn it is


def _next(run: RunState) -> tuple[PendingCall, ...]:
    """Return the call, or the neighbouring calls that may be in progress together, to be made now."""
    together: list[PendingCall] = []
    behind_held = False
    for call in run.calls():
        if run.outcome_of(call) is not None:
            continue
        behind_held = behind_held or run.undecided(call)
        if run.undecided(call) or (behind_held and call.effect is not EffectClass.READ_ONLY):
            continue
        if _alone(run, call):
            return tuple(together) or (call,)
        if any(call.key == other.key for other in together):  # a twin: it gets a copy
            break
        together.append(call)
    return tuple(together)


def _alone(run: RunState, call: PendingCall) -> bool:
    return call.effect is EffectClass.TRANSACTIONAL or _needs_claim(run, call)


def _needs_claim(run: RunState, call: PendingCall) -> bool:
    if call.effect is EffectClass.TRANSACTIONAL:
        return False
    if run.setting.strict or call.slot in run.claims:
        return True
    if call.effect is EffectClass.READ_ONLY:
        return False
    if call.effect is EffectClass.IDEMPOTENT:
        return call.key is None or not call.guaranteed or call.held or run.saved[0] != run.turn
    return True


def _make(run: RunState, calls: tuple[PendingCall, ...]) -> Decision:
    first = calls[0]
    if _needs_claim(run, first):
        return Commit(run.writes(claims=(run.claim_of(first),)))
    if _must_commit(run):
        return Commit(run.writes())
    return Transact(first) if first.effect is EffectClass.TRANSACTIONAL else Dispatch(calls)


def _must_commit(run: RunState) -> bool:
    """Return whether something was observed that must not be kept in memory across what comes next."""
    transacted = (claim.effect is EffectClass.TRANSACTIONAL for claim in run.outcomes.values())
    return bool(run.failures) or any(claim.token for claim in run.outcomes.values()) or any(transacted)


# The ways a turn ends


def _wait(run: RunState) -> Decision:
    undecided = [call for call in run.calls() if run.undecided(call)]
    requests = tuple(run.request_of(call) for call in undecided if not _asked(run, call))
    ids = ", ".join(f"{run.request_of(call).request_id} for call {call.slot} ({call.tool})" for call in undecided)
    reason = f"waiting on approval {ids}: adk_decide"
    windows = [run.approvals[call.slot].expires_at for call in undecided if _asked(run, call)]
    wake_at = min((until for until in windows if until is not None), default=None)  # then it is denied by itself
    if requests or run.saved < (run.turn, BEFORE_APPROVAL.rank):
        waits = {"status": RunStatus.WAITING, "reason": reason, "wake_at": wake_at}
        return Commit(run.writes(BEFORE_APPROVAL, requests=requests, **waits))
    return _stop(run, RunStatus.WAITING, reason, wake_at=wake_at)


def _asked(run: RunState, call: PendingCall) -> bool:
    approval = run.approvals.get(call.slot)
    return approval is not None and approval.state is ApprovalState.REQUESTED and approval.digest == call.digest


def _close(run: RunState) -> Decision:
    unkept = [str(call.slot) for call in run.calls() if _is_unkept(run.outcome_of(call))]
    if unkept and run.setting.fails_on_unkept:
        return Commit(
            run.writes(status=RunStatus.FAILED, reason=f"the result of call {', '.join(unkept)} was not kept")
        )
    if AFTER_TOOL in run.setting.boundaries:
        return Commit(run.writes(AFTER_TOOL))
    return Commit(run.writes()) if _must_commit(run) else _ask(run)


def _is_unkept(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.kind is OutcomeKind.UNKEPT


def _stop(run: RunState, status: RunStatus, reason: str, wake_at: datetime | None = None) -> Decision:
    record = run.record
    if (record.status, record.reason, record.wake_at) != (status, reason, wake_at) or run.facts() or run.failures:
        return Commit(run.writes(status=status, reason=reason, wake_at=wake_at))
    return Stop(status, reason)
