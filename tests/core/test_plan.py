"""What the record says of an outstanding call: one answer for every combination, and never a guess."""

from dataclasses import replace
from itertools import product

import pytest

from adk_django.core.checkpoint import PendingCall
from adk_django.core.effects import Claim, ClaimState, EffectClass, Outcome, OutcomeKind, Slot
from adk_django.core.plan import ToolDisposition, owner_of, plan, resumption

ONE, TWO, LATER = Slot(1, 1), Slot(1, 2), Slot(2, 1)
DONE = Outcome.of(OutcomeKind.RETURNED, "seat")
ERROR = Outcome.of(OutcomeKind.REFUSED, "none left")
REPEATABLE = (EffectClass.READ_ONLY, EffectClass.IDEMPOTENT)


def call(slot: Slot = ONE, key: str | None = "k", effect: EffectClass | None = EffectClass.EFFECTFUL) -> PendingCall:
    return PendingCall(slot, "id", "book", {}, key=key, effect=effect)


def claim(slot: Slot = ONE, state: ClaimState = ClaimState.IN_FLIGHT, outcome: Outcome | None = None) -> Claim:
    return Claim("t", "r", slot, "k", "book", EffectClass.EFFECTFUL, token="x", state=state, outcome=outcome)


@pytest.mark.parametrize(("effect", "strict", "guaranteed"), list(product(EffectClass, [False, True], [False, True])))
def test_in_flight_is_in_doubt_unless_its_class_may_be_repeated(
    effect: EffectClass, strict: bool, guaranteed: bool
) -> None:
    flying = replace(claim(), effect=effect, guaranteed=guaranteed)
    found = resumption(call(effect=effect), {ONE: flying}, strict=strict)
    may = effect in REPEATABLE and guaranteed and not strict
    assert found.disposition is (ToolDisposition.REPEATABLE if may else ToolDisposition.INDETERMINATE)


@pytest.mark.parametrize(("recorded", "now"), list(product(EffectClass, EffectClass)))
def test_a_call_is_repeated_only_where_both_its_record_and_its_tool_allow_it(
    recorded: EffectClass, now: EffectClass
) -> None:
    found = resumption(call(effect=now), {ONE: replace(claim(), effect=recorded)}, strict=False)
    assert (found.disposition is ToolDisposition.REPEATABLE) is (recorded in REPEATABLE and now in REPEATABLE)


@pytest.mark.parametrize("outcome", [DONE, ERROR, Outcome.of(OutcomeKind.UNKEPT, "x")])
@pytest.mark.parametrize("dispatched", [False, True])
def test_an_outcome_is_replayed_whatever_the_mark(outcome: Outcome, dispatched: bool) -> None:
    done = claim(state=ClaimState.of(outcome), outcome=outcome)
    found = resumption(replace(call(), dispatched=dispatched), {ONE: done}, strict=True)
    assert (found.disposition, found.outcome) == (ToolDisposition.COMPLETED, outcome)


@pytest.mark.parametrize("effect", EffectClass)
@pytest.mark.parametrize("dispatched", [False, True])
def test_nothing_on_record_under_a_key_never_ran(effect: EffectClass, dispatched: bool) -> None:
    found = resumption(replace(call(effect=effect), dispatched=dispatched), {}, strict=True)
    assert found.disposition is ToolDisposition.NEVER_RAN


@pytest.mark.parametrize(("key", "effect"), [(None, EffectClass.READ_ONLY), ("k", None), (None, None)])
def test_the_absence_of_a_key_is_no_permission(key: str | None, effect: EffectClass | None) -> None:
    foreign = call(key=key, effect=effect)
    assert resumption(foreign, {}, strict=False).disposition is ToolDisposition.NEVER_RAN
    dispatched = replace(foreign, dispatched=True)
    assert resumption(dispatched, {}, strict=False).disposition is ToolDisposition.INDETERMINATE
    done = {ONE: claim(state=ClaimState.DONE, outcome=DONE)}
    assert resumption(dispatched, done, strict=False).disposition is ToolDisposition.COMPLETED


def test_a_settlement_as_never_ran_lets_the_call_be_made() -> None:
    found = resumption(call(), {ONE: claim(state=ClaimState.NEVER_RAN)}, strict=True)
    assert found.disposition is ToolDisposition.NEVER_RAN


def test_late_outcomes_answer_where_they_are_not_contested() -> None:
    late = replace(claim(), evidence=DONE)
    assert resumption(call(), {ONE: late}, strict=False).outcome == DONE
    contested = resumption(call(), {ONE: replace(late, contested=True)}, strict=False)
    assert contested.disposition is ToolDisposition.INDETERMINATE


def test_a_refused_call_has_its_result_before_it_is_looked_up() -> None:
    refused = replace(call(key=None, effect=None), result=ERROR)
    assert resumption(refused, {}, strict=False).outcome == ERROR


@pytest.mark.parametrize("state", ClaimState)
def test_who_owns_a_key(state: ClaimState) -> None:
    first = claim(ONE, state)
    twin, later = call(TWO), call(LATER)
    holds = state in (ClaimState.IN_FLIGHT, ClaimState.DONE, ClaimState.NEVER_RAN)
    assert owner_of(twin, {ONE: first}) == (first if holds or state is ClaimState.FAILED else None)
    assert owner_of(later, {ONE: first}) == (first if holds else None)
    assert owner_of(replace(twin, guaranteed=False), {ONE: first}) is None
    assert owner_of(call(ONE), {ONE: first}) is None
    assert owner_of(call(ONE), {TWO: claim(TWO, ClaimState.FAILED)}) is None
    assert owner_of(call(TWO, key="other"), {ONE: first}) is None


@pytest.mark.parametrize("outcome", [DONE, ERROR])
def test_a_twin_is_shown_a_copy_that_names_its_owner(outcome: Outcome) -> None:
    found = resumption(call(TWO), {ONE: claim(state=ClaimState.of(outcome), outcome=outcome)}, strict=False)
    assert (found.outcome, found.twin_of) == (outcome.copied(ONE), ONE)


def test_a_plan_is_safe_only_without_any_doubt_and_any_obstacle() -> None:
    safe = plan([call()], {}, strict=False)
    assert (safe.safe, safe.reasons) == (True, ())
    assert plan([call()], {}, strict=False, obstacles=("gone",)).reasons == ("gone",)
    doubted = plan([call()], {ONE: claim()}, strict=False, obstacles=("gone",))
    assert (doubted.safe, doubted.reasons) == (False, ("call 1.1 (book) is indeterminate", "gone"))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("effect", EffectClass)
def test_a_call_whose_claim_may_be_lost_is_made_only_where_it_may_be_repeated(
    effect: EffectClass, strict: bool
) -> None:
    doubted = replace(call(effect=effect), doubted=True)
    repeatable = effect in (EffectClass.READ_ONLY, EffectClass.IDEMPOTENT) and not strict
    wanted = ToolDisposition.NEVER_RAN if repeatable else ToolDisposition.INDETERMINATE
    assert resumption(doubted, {}, strict=strict).disposition is wanted
    assert PendingCall.from_data(doubted.to_data()).doubted is False  # it is never stored
