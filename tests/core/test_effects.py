"""Keys and outcomes: one key for one effect, no key for two, and every outcome comes back as it was."""

from itertools import combinations, product
from typing import Any

import pytest

from adk_django.core.codec import DecodeError, EncodeError
from adk_django.core.effects import (
    Claim,
    ClaimState,
    EffectClass,
    Outcome,
    OutcomeKind,
    Slot,
    arguments_digest,
    derive,
    idempotency_key,
)

SALT, OTHER = "01" * 32, "02" * 32
SLOT = Slot(1, 1)


def test_a_key_differs_with_run_tool_slot_and_every_argument_and_its_type() -> None:
    keys = [
        idempotency_key(SALT, "book", SLOT, {"a": 1})[0],
        idempotency_key(OTHER, "book", SLOT, {"a": 1})[0],
        idempotency_key(SALT, "cook", SLOT, {"a": 1})[0],
        idempotency_key(SALT, "book", Slot(1, 2), {"a": 1})[0],
        idempotency_key(SALT, "book", Slot(11, 1), {"a": 1})[0],
        *(idempotency_key(SALT, "book", SLOT, {"a": value})[0] for value in (1.5, True, "1", None, [1], {"a": 1})),
        idempotency_key(SALT, "book", SLOT, {})[0],
    ]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 64 for key in keys)
    assert idempotency_key(SALT, "book", SLOT, {"a": 1, "b": 2}) == idempotency_key(
        SALT, "book", SLOT, {"b": 2, "a": 1}
    )


def test_key_arguments_alone_identify_the_effect_wherever_it_is_asked_for() -> None:
    key = idempotency_key(SALT, "book", SLOT, {"seat": 1, "note": "x"}, ("seat",))
    assert idempotency_key(SALT, "book", Slot(3, 2), {"seat": 1, "note": "y"}, ("seat",)) == key
    assert idempotency_key(SALT, "cook", SLOT, {"seat": 1}, ("seat",)) != key
    assert idempotency_key(SALT, "book", SLOT, {"seat": 2}, ("seat",)) != key
    assert key[1]


def test_an_absent_key_argument_gives_the_slots_own_key_and_no_guarantee() -> None:
    first, second = (idempotency_key(SALT, "book", Slot(1, place), {}, ("seat",)) for place in (1, 2))
    assert (first[1], second[1]) == (False, False)
    assert first[0] != second[0]


def test_no_arguments_break_a_key() -> None:
    key, guaranteed = idempotency_key(SALT, "book", SLOT, {"lock": object()})
    assert (len(key), guaranteed) == (64, False)


def test_a_key_cannot_be_made_without_the_salt_nor_one_part_be_mistaken_for_two() -> None:
    assert derive(SALT, "a", "b") != derive(SALT, "ab") != derive(SALT, "a,b")
    assert derive(SALT, "a") != derive(OTHER, "a")


def test_a_digest_binds_exact_arguments() -> None:
    samples: list[Any] = [{"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": None}, {}, {"a": [1]}]
    assert all(arguments_digest(one) != arguments_digest(two) for one, two in combinations(samples, 2))
    assert arguments_digest({"a": 1, "b": 2}) == arguments_digest({"b": 2, "a": 1})
    with pytest.raises(EncodeError):
        arguments_digest({"a": object()})


@pytest.mark.parametrize("kind", OutcomeKind)
@pytest.mark.parametrize("value", [None, "a\u0000\ud83d", 1e100, -0.0, {"a": (b"\xff", float("nan"))}])
def test_an_outcome_comes_back_as_it_was(kind: OutcomeKind, value: Any) -> None:
    outcome = Outcome.of(kind, value).copied(SLOT) if kind is OutcomeKind.COPIED else Outcome.of(kind, value)
    again = Outcome.decoded(outcome.encoded())
    assert repr(again) == repr(outcome)
    assert ClaimState.of(again) is ClaimState.of(outcome)


def test_what_was_made_holds_its_key_and_what_was_not_frees_it() -> None:
    states = {kind: ClaimState.of(Outcome.of(kind, None)) for kind in OutcomeKind}
    assert {kind for kind, state in states.items() if state is ClaimState.DONE} == {
        OutcomeKind.RETURNED,
        OutcomeKind.UNKEPT,
    }
    assert states[OutcomeKind.COPIED] is ClaimState.COPIED


def test_a_copy_of_an_error_is_an_error_and_names_its_owner() -> None:
    copy = Outcome.of(OutcomeKind.REFUSED, "no").copied(SLOT)
    assert (copy.kind, copy.is_error, copy.twin_of) == (OutcomeKind.COPIED, True, SLOT)


@pytest.mark.parametrize(
    "text", ["null", "{}", "[]", '{"kind":"x","value":1,"is_error":false,"twin_of":null}', "{", ""]
)
def test_a_damaged_outcome_is_called_so(text: str) -> None:
    with pytest.raises(DecodeError):
        Outcome.decoded(text)


@pytest.mark.parametrize(
    "text", ["", "1", "1.", ".1", "1.1.1", "a.b", "-1.1", "1.+1", " 1.1", "1.1\n", "1,1", "\u0661.1"]
)
def test_a_slot_that_is_not_written_as_one_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"TURN\.POSITION"):
        Slot.parse(text)


def test_a_slot_is_written_and_read_back_and_sorts_by_number() -> None:
    assert Slot.parse(str(Slot(10, 2))) == Slot(10, 2) > Slot(9, 11)


def test_a_class_promises_no_more_than_either_of_two() -> None:
    for one, two in product(EffectClass, EffectClass):
        worse = one.at_least(two)
        assert worse is two.at_least(one)
        assert worse in {one, two, EffectClass.EFFECTFUL}
        if EffectClass.EFFECTFUL in (one, two):
            assert worse is EffectClass.EFFECTFUL
    assert EffectClass.TRANSACTIONAL.at_least(EffectClass.READ_ONLY) is EffectClass.EFFECTFUL


def test_only_uncontested_evidence_of_a_call_in_flight_settles_it() -> None:
    late = Outcome.of(OutcomeKind.RETURNED, 1)
    for state, contested in product(ClaimState, (False, True)):
        claim = Claim(
            "t", "r", SLOT, "k", "book", EffectClass.EFFECTFUL, state=state, evidence=late, contested=contested
        )
        assert claim.settles_by_evidence is (state is ClaimState.IN_FLIGHT and not contested)
