"""The suite of an idempotency store, third part: what settles a call of which nobody can say whether it happened."""

# ruff: noqa: S101, S105, S106 (a suite is made of asserts, and its tokens are no secrets)

import asyncio
from typing import Any

from adk_django.core.effects import Claim, ClaimState, EffectClass, Outcome, OutcomeKind, Slot
from adk_django.core.record import Answer
from adk_django.exceptions import LeaseLostError, RunConflictError, SettlementError
from adk_django.testing.conformance.base import LIMIT_SECONDS, LONG_SECONDS, TWO, race, raises, returned
from adk_django.testing.conformance.outcomes import OutcomeConformance
from adk_django.testing.conformance.values import AWKWARD_TEXTS


class IdempotencyStoreConformance(OutcomeConformance):
    """What an idempotency store promises: of claims, outcomes, evidence and settlements."""

    def evidence(self, claim: Claim, outcome: Outcome) -> Claim | None:
        """Send an outcome that came too late."""
        return self.stores.idempotency.evidence(claim, outcome)

    def unsettled(self, *args: Any, **settlement: Any) -> SettlementError:
        """Fail unless a settlement is refused and changes nothing."""
        before = self.dump()
        with raises(SettlementError) as caught:
            self.settle(*args, **settlement)
        assert self.dump() == before
        return caught.error

    # Evidence

    def test_evidence_of_a_call_in_flight_is_kept_and_will_settle_it(self) -> None:
        claim = self.begin(self.lease())
        self.take_over()
        before = self.stores.runs.now()
        found = self.evidence(claim, returned("A"))
        assert found is not None
        assert (found.state, found.evidence, found.outcome) == (ClaimState.IN_FLIGHT, returned("A"), None)
        assert found.evidence_at is not None
        assert before <= found.evidence_at <= self.stores.runs.now()
        assert found.settles_by_evidence
        assert self.stands() == found

    def test_evidence_needs_no_lease(self) -> None:
        lease = self.lease()
        claim = self.begin(lease)
        self.stores.leases.release(lease)
        assert self.evidence(claim, returned("A")) == self.stands()
        assert self.stands().evidence == returned("A")

    def test_evidence_voids_a_settlement_as_never_ran_and_settles_nothing_by_itself(self) -> None:
        claim = self.begin(self.lease())
        self.age(LONG_SECONDS)
        self.settle(Answer.NOT_DONE)
        found = self.evidence(claim, returned("A"))
        assert found is not None
        assert (found.state, found.contested, found.evidence) == (ClaimState.IN_FLIGHT, True, returned("A"))
        assert not found.settles_by_evidence
        assert self.stands() == found

    def test_evidence_beside_a_settlement_as_completed_is_kept_and_changes_nothing(self) -> None:
        claim = self.begin(self.lease())
        settled = self.settle(Answer.DONE, returned("told"))
        found = self.evidence(claim, returned("A"))
        assert found is not None
        assert found.evidence == returned("A")
        assert (found.state, found.outcome, found.contested) == (ClaimState.DONE, returned("told"), False)
        assert (found.settled_at, found.settled_by) == (settled.settled_at, "ann")

    def test_evidence_of_an_earlier_attempt_changes_nothing(self) -> None:
        first = self.begin(self.lease(), effect=EffectClass.IDEMPOTENT)
        claim = self.reclaim(self.take_over(), ClaimState.IN_FLIGHT, effect=EffectClass.IDEMPOTENT)
        assert self.evidence(first, returned("A")) is None
        assert self.stands() == claim

    def test_evidence_of_what_is_not_there_or_has_no_token_is_nothing(self) -> None:
        self.lease()
        assert self.evidence(self.claim(), returned("A")) is None
        assert self.evidence(self.claim(token=None), returned("A")) is None
        assert self.found() is None

    def test_evidence_of_a_row_that_was_done_at_once_is_nothing(self) -> None:
        done = self.record(self.lease(), self.claim(token=None), returned("A"))
        assert self.evidence(self.claim(token=None), returned("B")) is None
        assert self.stands() == done

    def test_an_outcome_already_recorded_stays_whatever_evidence_comes(self) -> None:
        lease = self.lease()
        claim = self.begin(lease)
        done = self.record(lease, claim, returned("A"))
        for outcome in (returned("A"), returned("B")):
            self.evidence(claim, outcome)
            assert self.stands() == done

    def test_the_first_evidence_stays(self) -> None:
        claim = self.begin(self.lease())
        self.evidence(claim, returned("A"))
        before = self.stands()
        self.evidence(claim, returned("B"))
        assert self.stands() == before

    def test_the_same_evidence_again_does_not_void_the_answer_that_was_given_knowing_it(self) -> None:
        claim = self.begin(self.lease())
        self.age(LONG_SECONDS)
        self.settle(Answer.NOT_DONE)
        self.evidence(claim, returned("A"))
        settled = self.settle(Answer.NOT_DONE, by="bob")
        assert settled.state is ClaimState.NEVER_RAN
        self.evidence(claim, returned("A"))
        assert self.stands() == settled

    def test_an_outcome_that_comes_after_its_call_was_settled_is_kept_as_evidence_and_refused(self) -> None:
        lease = self.lease()
        claims = [self.begin(lease), self.begin(lease, TWO, "token-2")]
        self.age(LONG_SECONDS)
        self.settle(Answer.NOT_DONE)
        self.settle(Answer.DONE, returned("told"), slot=TWO)
        for claim in claims:
            with raises(RunConflictError):
                self.record(lease, claim, returned("A"))
        assert (self.stands().state, self.stands().contested) == (ClaimState.IN_FLIGHT, True)
        assert self.stands(TWO).outcome == returned("told")
        assert {self.stands().evidence, self.stands(TWO).evidence} == {returned("A")}

    def test_an_outcome_of_a_settled_call_that_comes_after_a_take_over_is_evidence_too(self) -> None:
        lease = self.lease()
        claim = self.begin(lease)
        self.take_over()
        self.settle(Answer.NOT_DONE)
        with raises(LeaseLostError):
            self.record(lease, claim, returned("A"))
        assert (self.stands().state, self.stands().contested) == (ClaimState.IN_FLIGHT, True)

    # Settlements

    def test_a_call_settled_done_has_its_outcome_and_says_who_settled_it(self) -> None:
        self.begin(self.lease())
        before = self.stores.runs.now()
        settled = self.settle(Answer.DONE, returned("A"))
        assert (settled.state, settled.outcome) == (ClaimState.DONE, returned("A"))
        assert (settled.settled_by, settled.reason) == ("ann", "looked it up")
        assert settled.settled_at is not None
        assert before <= settled.settled_at <= self.stores.runs.now()
        assert self.stands() == settled

    def test_a_call_settled_not_done_never_ran(self) -> None:
        self.begin(self.lease())
        self.age(LONG_SECONDS)
        settled = self.settle(Answer.NOT_DONE)
        assert (settled.state, settled.outcome, settled.settled_by) == (ClaimState.NEVER_RAN, None, "ann")
        assert self.stands() == settled

    def test_a_call_is_settled_under_no_lease_and_under_anybodys(self) -> None:
        lease = self.lease()
        self.begin(lease)
        self.begin(lease, TWO, "token-2")
        assert self.settle(Answer.DONE, returned("A")).state is ClaimState.DONE
        self.stores.leases.release(lease)
        assert self.settle(Answer.DONE, returned("A"), slot=TWO).state is ClaimState.DONE

    def test_who_settled_and_why_come_back_as_they_went_in(self) -> None:
        lease = self.lease()
        for position, text in enumerate(AWKWARD_TEXTS.values(), 1):
            self.begin(lease, Slot(1, position), f"token-{position}")
            given = {
                "tenant": self.tenant,
                "answer": Answer.DONE,
                "outcome": returned(text),
                "by": text,
                "reason": text,
            }
            self.stores.idempotency.settle(self.run_id, Slot(1, position), **given)  # type: ignore[arg-type]  # as named
            stands = self.stands(Slot(1, position))
            assert (stands.settled_by, stands.reason, stands.outcome) == (text, text, returned(text))

    def test_done_needs_an_outcome_and_not_done_takes_none(self) -> None:
        self.begin(self.lease())
        self.age(LONG_SECONDS)
        self.unsettled(Answer.DONE)
        self.unsettled(Answer.NOT_DONE, returned("A"))
        self.unsettled(Answer.UNKNOWN)

    def test_the_same_answer_again_is_a_quiet_success(self) -> None:
        lease = self.lease()
        self.begin(lease)
        self.begin(lease, TWO, "token-2")
        self.age(LONG_SECONDS)
        done, never = self.settle(Answer.DONE, returned("A")), self.settle(Answer.NOT_DONE, slot=TWO)
        assert self.settle(Answer.DONE, returned("A"), by="bob") == done
        assert self.settle(Answer.NOT_DONE, by="bob", slot=TWO) == never

    def test_another_answer_is_refused_and_says_who_answered_first(self) -> None:
        lease = self.lease()
        self.begin(lease)
        self.begin(lease, TWO, "token-2")
        self.age(LONG_SECONDS)
        self.settle(Answer.DONE, returned("A"))
        self.settle(Answer.NOT_DONE, slot=TWO)
        for error in (
            self.unsettled(Answer.NOT_DONE, by="bob"),
            self.unsettled(Answer.DONE, returned("B"), by="bob"),
            self.unsettled(Answer.DONE, returned("A"), by="bob", slot=TWO),
        ):
            assert "ann" in str(error)

    def test_a_call_that_is_not_there_is_not_settled(self) -> None:
        self.begin(self.lease())
        self.unsettled(Answer.DONE, returned("A"), slot=TWO)
        assert self.found(TWO) is None

    def test_a_call_that_has_its_outcome_is_not_settled(self) -> None:
        lease = self.lease()
        self.record(lease, self.begin(lease), returned("A"))
        self.record(lease, self.claim(TWO, None), Outcome.of(OutcomeKind.FAILED, "no"))
        self.age(LONG_SECONDS)
        self.unsettled(Answer.NOT_DONE)
        self.unsettled(Answer.DONE, returned("B"))
        self.unsettled(Answer.DONE, returned("B"), slot=TWO)

    def test_not_done_is_refused_before_the_deadline_naming_the_instant(self) -> None:
        self.begin(self.lease())
        self.age(LIMIT_SECONDS / 2)
        deadline = self.stands().deadline_at
        assert deadline is not None
        assert deadline.isoformat(timespec="seconds")[:19] in str(self.unsettled(Answer.NOT_DONE))
        self.age(LIMIT_SECONDS)
        assert self.settle(Answer.NOT_DONE).state is ClaimState.NEVER_RAN

    def test_not_done_is_refused_where_a_late_outcome_says_otherwise(self) -> None:
        claim = self.begin(self.lease())
        self.age(LONG_SECONDS)
        self.evidence(claim, returned("A"))
        assert "late outcome" in str(self.unsettled(Answer.NOT_DONE))
        assert self.stands().settles_by_evidence
        assert self.settle(Answer.DONE, returned("A")).outcome == returned("A")

    def test_a_contested_call_takes_one_more_answer(self) -> None:
        lease = self.lease()
        claims = [self.begin(lease), self.begin(lease, TWO, "token-2")]
        self.age(LONG_SECONDS)
        for claim in claims:
            self.settle(Answer.NOT_DONE, slot=claim.slot)
            self.evidence(claim, returned("A"))
        done = self.settle(Answer.DONE, returned("A"), by="bob")
        never = self.settle(Answer.NOT_DONE, by="bob", slot=TWO)
        assert (done.state, done.settled_by) == (ClaimState.DONE, "bob")
        assert (never.state, never.settled_by) == (ClaimState.NEVER_RAN, "bob")
        self.unsettled(Answer.NOT_DONE)
        self.unsettled(Answer.DONE, returned("A"), slot=TWO)

    def test_an_answer_to_another_attempt_than_the_calls_own_changes_nothing(self) -> None:
        lease = self.lease()
        self.never_ran(lease)
        self.reclaim(lease, ClaimState.NEVER_RAN)
        self.age(LONG_SECONDS)
        assert "attempt 2" in str(self.unsettled(Answer.NOT_DONE, attempt=1))
        self.unsettled(Answer.DONE, returned("A"), attempt=3)
        assert self.settle(Answer.NOT_DONE, attempt=2).state is ClaimState.NEVER_RAN

    def test_of_opposite_answers_at_once_one_wins_and_the_other_is_refused(self) -> None:
        self.begin(self.lease())
        self.age(LONG_SECONDS)
        results = race(
            lambda: self.settle(Answer.DONE, returned("A"), by="ann"), lambda: self.settle(Answer.NOT_DONE, by="bob")
        )
        (winner,) = (result for result in results if isinstance(result, Claim))
        assert sum(isinstance(result, SettlementError) for result in results) == 1
        assert self.stands() == winner

    def test_another_tenants_call_is_not_settled(self) -> None:
        claim, other = self.begin(self.lease()), f"{self.tenant}-other"
        with raises(SettlementError):
            self.stores.idempotency.settle(
                self.run_id, claim.slot, tenant=other, answer=Answer.DONE, outcome=returned(), by="eve", reason=""
            )
        assert self.stands() == claim

    def test_async_twins_of_answers_do_the_same(self) -> None:
        claim, store = self.begin(self.lease()), self.stores.idempotency
        self.age(LONG_SECONDS)

        async def walk() -> list[Claim | None]:
            given: dict[str, Any] = {"tenant": self.tenant, "by": "ann", "reason": ""}
            settled = await store.asettle(self.run_id, claim.slot, answer=Answer.NOT_DONE, outcome=None, **given)
            return [settled, await store.aevidence(claim, returned("A"))]

        settled, contested = asyncio.run(walk())
        assert settled is not None
        assert contested is not None
        assert (settled.state, contested.contested) == (ClaimState.NEVER_RAN, True)
