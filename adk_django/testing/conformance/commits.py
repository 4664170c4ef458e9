"""The suite of a bundle of stores: what one commit is to bring, whole, in part or not at all."""

# ruff: noqa: S101, S105, S106 (a suite is made of asserts, and its tokens are no secrets)

from dataclasses import replace
from typing import Any

from adk_django.core.checkpoint import HistoryHandle
from adk_django.core.effects import Claim, ClaimState, Outcome, Slot
from adk_django.core.lease import RunLease
from adk_django.core.messages import Usage
from adk_django.core.record import Answer, Approval, ApprovalState, RunStatus, Settlement, Spend, Writes
from adk_django.exceptions import LeaseLostError
from adk_django.testing.conformance.base import (
    AFTER,
    LONG_SECONDS,
    ONE,
    THREE,
    TWO,
    StoreConformance,
    raises,
    returned,
    said,
)


class CommitConformance(StoreConformance):
    """What a commit promises."""

    def claimed(self, lease: RunLease, *claims: Claim) -> tuple[Claim, ...]:
        """Make claims by a commit."""
        return self.commit(lease, claims=claims or (self.claim(),)).claims

    def request(self, slot: Slot = ONE) -> Approval:
        """Return a request."""
        request_id = f"req-{self.run_id}-{slot}"
        return Approval(**self.ids, request_id=request_id, slot=slot, tool="book", digest="d1", arguments={})

    def done(self, slot: Slot, outcome: Outcome, token: str | None = None) -> Claim:
        """Return a claim with its outcome set, as a commit brings it."""
        return replace(self.claim(slot, token), outcome=outcome, state=ClaimState.of(outcome))

    def everything(self, lease: RunLease) -> dict[str, Any]:
        """Return what a commit of every kind brings; call 1.1 is in flight before it."""
        self.claimed(lease)
        empty, delta = HistoryHandle(self.tenant, self.run_id), said("hello", "there")
        return {
            "frontier": self.frontier(history_handle=empty.extended(delta)),
            "delta": delta,
            "extends": empty,
            "outcomes": (self.done(ONE, returned("A"), "token-1"), self.done(TWO, returned("B"))),
            "claims": (self.claim(THREE, "token-3"),),
            "spend": (Spend(1, lease.fence, Usage(10, 5), 100),),
            "begins": True,
            "revision": "1",
            "format_version": 1,
        }

    def test_all_of_a_commit_stands(self) -> None:
        lease = self.lease()
        writes = self.everything(lease)
        written = self.commit(lease, **writes)
        latest = self.latest()
        assert latest is not None
        assert latest.encoded == writes["frontier"].encoded
        assert written.handle == latest.history_handle
        assert written.handle is not None
        assert self.stores.history.fetch(written.handle, tenant=self.tenant) == writes["delta"]
        assert [claim.outcome for claim in self.found_all()] == [returned("A"), returned("B"), None]
        (claim,) = written.claims
        stands = self.found(THREE)
        assert stands is not None
        assert (claim.token, claim.begun_at, claim.deadline_at) == ("token-3", stands.begun_at, stands.deadline_at)
        row = self.record_of()
        assert (row.usage, row.cost_micros, row.fence) == (Usage(10, 5), 100, lease.fence)
        assert (row.revision, row.format_version) == ("1", 1)
        assert row.begun_at == written.at
        assert (written.failed_save, written.refusal, written.standing) == ("", None, None)

    def found_all(self) -> tuple[Claim, ...]:
        """Return all claims of the run."""
        return self.stores.idempotency.look_up(self.run_id, tenant=self.tenant)

    def test_the_same_commit_again_finds_what_the_first_left_and_changes_nothing(self) -> None:
        lease = self.lease()
        writes = self.everything(lease)
        first = self.commit(lease, **writes)
        self.handle = first.handle
        before = self.dump()
        again = self.commit(lease, **writes)
        assert [claim.token for claim in again.claims] == ["token-3"]
        assert (again.handle, again.failed_save) == (first.handle, "")
        after = self.dump()
        assert {**after, "row": None} == {**before, "row": None}
        assert self.record_of().usage == Usage(10, 5)

    def test_a_superseded_holder_commits_nothing_but_the_evidence_of_the_call_it_made(self) -> None:
        lease = self.lease()
        writes = self.everything(lease)
        self.take_over()
        before = self.dump()
        with raises(LeaseLostError):
            self.commit(lease, **writes, status=RunStatus.COMPLETED, output="no", requests=(self.request(TWO),))
        after = self.dump()
        assert {**after, "claims": None, "row": None} == {**before, "claims": None, "row": None}
        (claim,) = after["claims"]
        assert (claim.state, claim.outcome, claim.evidence) == (ClaimState.IN_FLIGHT, None, returned("A"))
        row = replace(after["row"], wake_at=before["row"].wake_at)  # evidence may wake the run
        assert row == before["row"]

    def test_a_released_lease_commits_nothing(self) -> None:
        lease = self.lease()
        self.stores.leases.release(lease)
        before = self.dump()
        with raises(LeaseLostError):
            self.commit(lease, frontier=self.frontier(), status=RunStatus.COMPLETED)
        assert self.dump() == before

    def test_a_requested_cancel_holds_back_claims_and_nothing_else(self) -> None:
        lease = self.lease()
        writes = self.everything(lease)
        self.stores.runs.request_cancel(self.run_id, tenant=self.tenant, by="ann", reason="")
        written = self.commit(lease, **writes)
        assert written.claims == ()
        assert written.cancel_requested_at == self.record_of().cancel_requested_at
        assert written.cancel_requested_at is not None
        assert self.found(THREE) is None
        assert [claim.outcome for claim in self.found_all()] == [returned("A"), returned("B")]
        assert self.latest() is not None
        assert written.standing == {claim.slot: claim for claim in self.found_all()}

    def test_an_approval_that_is_not_granted_for_its_digest_holds_back_its_claim(self) -> None:
        lease = self.lease()
        slots = (ONE, TWO, THREE)
        self.commit(lease, requests=tuple(self.request(slot) for slot in slots), frontier=self.frontier())
        for slot, grant in ((ONE, True), (TWO, True), (THREE, False)):
            decided = {"grant": grant, "by": "ann", "reason": "", "tenant": self.tenant}
            self.stores.runs.decide(self.request(slot).request_id, **decided)  # type: ignore[arg-type]  # as named
        claims = [self.claim(slot, f"token-{slot}", request_id=self.request(slot).request_id) for slot in slots]
        claims[1] = replace(claims[1], digest="d2")
        began = {claim.slot: self.claimed(lease, claim) for claim in claims}
        assert [len(began[slot]) for slot in slots] == [1, 0, 0]
        assert [claim.slot for claim in self.found_all()] == [ONE]
        written = self.commit(lease, claims=(claims[1],))
        assert written.approvals is not None
        assert written.approvals[THREE].state is ApprovalState.DENIED

    def test_a_claim_whose_slot_is_no_longer_as_it_was_read_is_held_back(self) -> None:
        lease = self.lease()
        self.claimed(lease)
        written = self.commit(lease, claims=(self.claim(token="token-2"), self.claim(TWO, "token-3")))
        assert [claim.token for claim in written.claims] == ["token-3"]
        assert written.standing is not None
        assert written.standing[ONE].token == "token-1"

    def test_an_outcome_that_came_second_is_told_and_stops_nothing_else(self) -> None:
        lease = self.lease()
        claim, other = self.claimed(lease, self.claim(), self.claim(TWO, "token-2"))
        self.age(LONG_SECONDS)
        self.answer(claim, Answer.DONE, returned("told"))
        self.answer(other, Answer.NOT_DONE)
        outcomes = (self.done(ONE, returned("A"), "token-1"), self.done(TWO, returned("B"), "token-2"))
        written = self.commit(lease, outcomes=outcomes, frontier=self.frontier())
        assert written.standing is not None
        assert (written.standing[ONE].outcome, written.standing[ONE].evidence) == (returned("told"), returned("A"))
        assert (written.standing[TWO].contested, written.standing[TWO].evidence) == (True, returned("B"))
        assert self.latest() is not None

    def answer(self, claim: Claim, answer: Answer, outcome: Outcome | None = None) -> None:
        """Settle a call as a person does."""
        settled = {"tenant": self.tenant, "answer": answer, "outcome": outcome, "by": "ann", "reason": ""}
        self.stores.idempotency.settle(self.run_id, claim.slot, **settled)  # type: ignore[arg-type]  # as named

    def test_a_settlement_settles_and_one_that_came_second_is_told(self) -> None:
        lease = self.lease()
        claims = self.claimed(lease, self.claim(), self.claim(TWO, "token-2"))
        items = tuple(Settlement(claim, Answer.DONE, returned("probed"), "probe", "asked") for claim in claims)
        assert self.commit(lease, settlements=items[:1]).standing is None
        settled = self.found()
        assert settled is not None
        assert (settled.outcome, settled.settled_by) == (returned("probed"), "probe")
        self.answer(claims[1], Answer.DONE, returned("told"))
        written = self.commit(lease, settlements=items[1:])
        assert written.standing is not None
        assert written.standing[TWO].outcome == returned("told")

    def test_a_settlement_as_not_done_against_a_late_outcome_is_told_and_settles_nothing(self) -> None:
        lease = self.lease()
        (claim,) = self.claimed(lease)
        self.age(LONG_SECONDS)
        self.stores.idempotency.evidence(claim, returned("late"))
        written = self.commit(lease, settlements=(Settlement(claim, Answer.NOT_DONE, None, "probe", "asked"),))
        assert written.standing is not None
        assert written.standing[ONE] == self.found()
        assert written.standing[ONE].settles_by_evidence

    def test_a_settlement_of_an_earlier_attempt_settles_nothing(self) -> None:
        lease = self.lease()
        (asked,) = self.claimed(lease)
        self.age(LONG_SECONDS)
        self.answer(asked, Answer.NOT_DONE)
        again = replace(self.claim(ONE, "token-2"), attempt=2, replaces="token-1", replaces_state=ClaimState.NEVER_RAN)
        self.claimed(lease, again)
        written = self.commit(lease, settlements=(Settlement(asked, Answer.DONE, returned("A"), "probe", "asked"),))
        assert written.standing is not None
        stands = written.standing[ONE]
        assert (stands.state, stands.attempt, stands.outcome) == (ClaimState.IN_FLIGHT, 2, None)

    def test_errors_are_noted_and_claims_given_back(self) -> None:
        lease = self.lease()
        one, two = self.claimed(lease, self.claim(), self.claim(TWO, "token-2"))
        self.commit(lease, failures=(replace(one, error="ConnectionError"),), abandoned=(two,))
        stands, gone = self.found(), self.found(TWO)
        assert stands is not None
        assert (stands.state, stands.error) == (ClaimState.IN_FLIGHT, "ConnectionError")
        assert gone is None or gone.state is ClaimState.NEVER_RAN

    def test_a_frontier_that_is_refused_is_left_out_with_its_requests_and_noted(self) -> None:
        lease = self.lease()
        self.commit(lease, frontier=self.frontier(model="first"))
        writes = {**self.everything(lease), "frontier": self.frontier(model="second")}
        written = self.commit(
            lease, **writes, requests=(self.request(TWO),), status=RunStatus.WAITING, reason="waiting on req"
        )
        assert "after_model_call" in written.failed_save
        assert written.refusal is not None
        latest, row = self.latest(), self.record_of()
        assert latest is not None
        assert latest.model == "first"
        assert (row.failed_save, row.status, row.reason) == (written.failed_save, RunStatus.ACTIVE, "")
        assert self.stores.runs.approvals(self.run_id, tenant=self.tenant) == ()
        assert [claim.outcome for claim in self.found_all()] == [returned("A"), returned("B"), None]
        assert (row.usage, row.begun_at) == (Usage(10, 5), written.at)
        assert written.handle is None

    def test_a_delta_that_is_refused_is_left_out_with_its_frontier(self) -> None:
        lease = self.lease()
        writes = self.everything(lease)
        nowhere = writes["extends"].extended(said("never stored"))
        written = self.commit(lease, **{**writes, "extends": nowhere})
        assert written.failed_save
        assert (self.latest(), written.handle) == (None, None)
        assert [claim.outcome for claim in self.found_all()] == [returned("A"), returned("B"), None]

    def test_a_frontier_that_is_stored_makes_a_failed_save_good(self) -> None:
        lease = self.lease()
        self.commit(lease, failed_save="after_model_call: too large")
        assert self.record_of().failed_save
        written = self.commit(lease, frontier=self.frontier())
        assert (self.record_of().failed_save, written.failed_save) == ("", "")

    def test_requests_and_their_frontier_stand_together(self) -> None:
        lease = self.lease()
        self.commit(
            lease, frontier=self.frontier(), requests=(self.request(),), status=RunStatus.WAITING, reason="asked"
        )
        (asked,) = self.stores.runs.approvals(self.run_id, tenant=self.tenant)
        assert (asked.state, self.record_of().status) == (ApprovalState.REQUESTED, RunStatus.WAITING)
        assert self.latest() is not None

    def test_the_end_of_a_run_forgets_its_frontier_and_keeps_its_claims(self) -> None:
        lease = self.lease()
        self.commit(lease, **self.everything(lease))
        self.commit(lease, status=RunStatus.COMPLETED, output="booked", frontier=self.frontier(2, AFTER))
        assert self.latest() is None
        assert (self.record_of().status, self.record_of().output) == (RunStatus.COMPLETED, "booked")
        assert len(self.found_all()) == 3

    def test_progress_counts_deaths_from_zero_again_and_a_commit_without_it_does_not(self) -> None:
        self.lease()
        lease = self.take_over()
        assert lease.deaths == 1
        self.commit(lease, status=RunStatus.ACTIVE, reason="nothing yet")
        assert self.deaths() == 1
        self.commit(lease, frontier=self.frontier(), deaths=0)
        assert self.deaths() == 0

    def deaths(self) -> int:
        """Return the deaths that stand."""
        held = self.stores.leases.held(self.run_id, tenant=self.tenant)
        assert held is not None
        return held.deaths

    def test_another_tenants_run_is_not_touched(self) -> None:
        lease = self.lease()
        self.commit(lease, **self.everything(lease))
        before, other = self.dump(), f"{self.tenant}-other"
        self.stores.runs.create(replace(self.row(), tenant=other))
        theirs = self.stores.leases.acquire(self.run_id, tenant=other, holder="w", ttl_seconds=60)
        self.stores.commit(
            Writes(
                frontier=replace(self.frontier(9), tenant=other),
                outcomes=(replace(self.done(ONE, returned("B")), tenant=other),),
                status=RunStatus.FAILED,
            ),
            lease=theirs,
        )
        assert self.dump() == before
