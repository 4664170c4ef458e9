"""The suite of an idempotency store, second part: outcomes, and giving claims back."""

# ruff: noqa: S101, S105, S106 (a suite is made of asserts, and its tokens are no secrets)

from dataclasses import replace

from adk_django.core.effects import ClaimState, Outcome, OutcomeKind, Slot
from adk_django.exceptions import LeaseLostError, RunConflictError
from adk_django.testing.conformance.base import ONE, TWO, raises, returned, same
from adk_django.testing.conformance.claims import ClaimConformance
from adk_django.testing.conformance.values import AWKWARD_TEXTS, VALUES


class OutcomeConformance(ClaimConformance):
    """What is promised of outcomes, of errors beside them, and of giving claims back."""

    def test_every_value_comes_back_in_an_outcome_as_it_went_in(self) -> None:
        lease = self.lease()
        for position, (name, value) in enumerate(VALUES.items(), 1):
            slot = Slot(1, position)
            self.record(lease, self.begin(lease, slot, f"token-{position}"), returned(value))
            outcome = self.stands(slot).outcome
            assert outcome is not None, name
            assert outcome.encoded() == returned(value).encoded(), name
            assert same(outcome.value, value), name

    def test_the_same_outcome_again_is_a_quiet_success_whatever_its_value(self) -> None:
        lease = self.lease()
        for position, (name, value) in enumerate(VALUES.items(), 1):
            claim = self.begin(lease, Slot(1, position), f"token-{position}")
            first, again = (self.record(lease, claim, returned(value)) for _ in range(2))
            assert (again.state, again.begun_at, again.evidence) == (first.state, first.begun_at, None), name

    def test_every_kind_of_outcome_comes_back_and_says_whether_it_is_an_error(self) -> None:
        lease = self.lease()
        for position, kind in enumerate(OutcomeKind, 1):
            outcome = Outcome.of(kind, "text") if kind is not OutcomeKind.COPIED else returned().copied(ONE)
            claim = self.record(lease, self.claim(Slot(2, position), None), outcome)
            assert (claim.outcome, claim.state) == (outcome, ClaimState.of(outcome)), kind
            assert self.stands(Slot(2, position)) == claim

    def test_an_outcome_completes_the_claim_in_flight_under_its_token(self) -> None:
        lease = self.lease()
        claim = self.begin(lease)
        done = self.record(lease, claim, returned("A"))
        assert (done.state, done.outcome, done.token) == (ClaimState.DONE, returned("A"), "token-1")
        assert (done.begun_at, done.deadline_at) == (claim.begun_at, claim.deadline_at)
        assert self.stands() == done

    def test_an_outcome_under_another_token_is_refused(self) -> None:
        lease = self.lease()
        claim = self.begin(lease)
        for token in ("token-2", None):
            with raises(RunConflictError):
                self.record(lease, self.claim(token=token), returned("B"))
        assert self.stands() == claim

    def test_an_outcome_without_a_token_is_a_row_done_at_once(self) -> None:
        lease = self.lease()
        done = self.record(lease, self.claim(token=None), returned("A"))
        assert (done.state, done.outcome, done.token) == (ClaimState.DONE, returned("A"), None)
        assert self.stands() == done

    def test_the_same_outcome_again_without_a_token_is_a_quiet_success(self) -> None:
        lease, at_once = self.lease(), self.claim(TWO, None)
        assert self.record(lease, at_once, returned("A")) == self.record(lease, at_once, returned("A"))

    def test_another_outcome_is_refused_and_the_first_stays(self) -> None:
        lease = self.lease()
        for claim in (self.begin(lease), self.claim(TWO, None)):
            self.record(lease, claim, returned(1))
            for other in (returned(1.0), returned("B"), Outcome.of(OutcomeKind.FAILED, 1)):
                with raises(RunConflictError):
                    self.record(lease, claim, other)
            assert self.stands(claim.slot).outcome == returned(1)

    def test_an_outcome_that_comes_after_a_take_over_is_kept_as_evidence(self) -> None:
        lease = self.lease()
        claim = self.begin(lease)
        self.take_over()
        with raises(LeaseLostError):
            self.record(lease, claim, returned("A"))
        stands = self.stands()
        assert (stands.state, stands.outcome, stands.evidence) == (ClaimState.IN_FLIGHT, None, returned("A"))
        assert stands.settles_by_evidence

    def test_an_outcome_without_a_token_that_comes_after_a_take_over_is_not_kept(self) -> None:
        lease = self.lease()
        self.take_over()
        with raises(LeaseLostError):
            self.record(lease, self.claim(token=None), returned("A"))
        assert self.found() is None

    # Giving back

    def test_an_abandoned_claim_reads_never_ran_and_may_be_made_again(self) -> None:
        lease = self.lease()
        self.stores.idempotency.abandon(self.begin(lease), fence=lease.fence)
        found = self.found()
        assert found is None or found.state is ClaimState.NEVER_RAN
        again = self.begin(lease)
        assert (again.state, again.token) == (ClaimState.IN_FLIGHT, "token-1")
        assert self.stands() == again

    def test_an_abandoned_claim_frees_its_key(self) -> None:
        lease = self.lease()
        self.stores.idempotency.abandon(self.begin(lease, key="once"), fence=lease.fence)
        assert self.begin(lease, TWO, "token-2", key="once").token == "token-2"

    def test_only_the_token_abandons(self) -> None:
        lease = self.lease()
        claim = self.begin(lease)
        for token in ("guessed", None):
            self.stores.idempotency.abandon(self.claim(token=token), fence=lease.fence)
        assert self.stands() == claim

    def test_abandoning_what_has_its_outcome_or_is_not_there_changes_nothing(self) -> None:
        lease = self.lease()
        done = self.record(lease, self.begin(lease), returned())
        self.stores.idempotency.abandon(self.claim(), fence=lease.fence)
        self.stores.idempotency.abandon(self.claim(TWO), fence=lease.fence)
        assert self.stands() == done
        assert self.found(TWO) is None

    def test_an_error_is_kept_beside_the_claim_and_decides_nothing(self) -> None:
        lease = self.lease()
        claim = self.begin(lease)
        for text in AWKWARD_TEXTS.values():
            self.stores.idempotency.note_error(replace(claim, error=text), fence=lease.fence)
            assert self.stands() == replace(claim, error=text)
        assert self.record(lease, claim, returned()).state is ClaimState.DONE

    def test_only_the_token_notes_an_error_and_only_in_flight(self) -> None:
        lease = self.lease()
        claim = self.begin(lease)
        self.stores.idempotency.note_error(replace(claim, token="guessed", error="oops"), fence=lease.fence)
        assert self.stands() == claim
        done = self.record(lease, claim, returned())
        self.stores.idempotency.note_error(replace(claim, error="oops"), fence=lease.fence)
        assert self.stands() == done

    def test_forgotten_claims_are_gone(self) -> None:
        lease = self.lease()
        self.begin(lease)
        self.record(lease, self.claim(TWO, None), returned())
        self.stores.idempotency.forget(self.run_id, tenant=self.tenant, fence=lease.fence)
        assert self.stores.idempotency.look_up(self.run_id, tenant=self.tenant) == ()
