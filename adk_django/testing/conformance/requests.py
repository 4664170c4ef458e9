"""The suite of a run store, third part: requests for approval, their answers, and what they hold back."""

# ruff: noqa: S101, S105, S106 (a suite is made of asserts, and its tokens are no secrets)

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from adk_django.core.effects import Claim, Slot
from adk_django.core.lease import RunLease
from adk_django.core.record import Approval, ApprovalState, RunStatus
from adk_django.exceptions import ApprovalConflictError, ApprovalError, ApprovalExpiredError, LeaseLostError
from adk_django.testing.conformance.base import LONG_SECONDS, ONE, THREE, TWO, race, raises, same
from adk_django.testing.conformance.due import DueConformance
from adk_django.testing.conformance.lists import ListConformance
from adk_django.testing.conformance.runs import RowConformance
from adk_django.testing.conformance.values import AWKWARD_TEXTS, VALUES

WINDOW_SECONDS = 600.0


class RunStoreConformance(DueConformance, ListConformance, RowConformance):
    """What a run store promises: of rows, requests and answers."""

    def approval(self, slot: Slot = ONE, digest: str = "d1", **changes: Any) -> Approval:
        """Return a request, whose id follows from slot and digest."""
        request_id = f"req-{self.run_id}-{slot}-{digest}"
        given = {**self.ids, "request_id": request_id, "slot": slot, "tool": "book", "digest": digest, "arguments": {}}
        return Approval(**{**given, **changes})

    def ask(self, lease: RunLease, *requests: Approval) -> tuple[Approval, ...]:
        """Put requests to a person, and return all that the run has."""
        self.write(lease, requests=requests or (self.approval(),))
        return self.asked()

    def asked(self) -> tuple[Approval, ...]:
        """Return the run's requests."""
        return self.stores.runs.approvals(self.run_id, tenant=self.tenant)

    def decide(self, request: Approval, grant: bool = True, *, by: str = "ann", **given: Any) -> Approval:
        """Answer a request."""
        answer = {"tenant": self.tenant, "grant": grant, "by": by, "reason": "fine", **given}
        return self.stores.runs.decide(request.request_id, **answer)

    # Requests

    def test_a_request_comes_back_as_it_was_sent_with_its_instants(self) -> None:
        lease, before = self.lease(), self.stores.runs.now()
        sent = self.approval(arguments={"seat": "12A"}, summary="book 12A", expires_seconds=WINDOW_SECONDS)
        (found,) = self.ask(lease, sent)
        assert found.requested_at is not None
        assert found.expires_at is not None
        assert before <= found.requested_at <= self.stores.runs.now()
        assert abs((found.expires_at - found.requested_at).total_seconds() - WINDOW_SECONDS) < 0.01
        assert found == replace(sent, requested_at=found.requested_at, expires_at=found.expires_at)

    def test_every_value_comes_back_in_a_request_as_it_went_in(self) -> None:
        lease = self.lease()
        requests = [
            self.approval(Slot(1, position), arguments={"value": value}, summary=name)
            for position, (name, value) in enumerate(VALUES.items(), 1)
        ]
        for sent, found in zip(requests, self.ask(lease, *requests), strict=True):
            assert same(found.arguments, sent.arguments), sent.summary

    def test_requests_are_found_by_slot_and_by_id(self) -> None:
        lease, slots = self.lease(), [Slot(10, 1), Slot(2, 10), Slot(2, 9)]
        found = self.ask(lease, *(self.approval(slot) for slot in slots))
        assert [item.slot for item in found] == [(2, 9), (2, 10), (10, 1)]
        for item in found:
            assert self.stores.runs.request(item.request_id, tenant=self.tenant) == item
        assert self.stores.runs.request("req-unknown", tenant=self.tenant) is None
        assert self.stores.runs.request(found[0].request_id, tenant="another") is None
        assert self.stores.runs.approvals(self.run_id, tenant="another") == ()

    def test_the_same_request_again_changes_nothing_whatever_was_answered(self) -> None:
        lease = self.lease()
        requests = [self.approval(Slot(1, position), expires_seconds=WINDOW_SECONDS) for position in (1, 2, 3)]
        asked = self.ask(lease, *requests)
        self.decide(asked[1])
        self.decide(asked[2], grant=False)
        before = self.asked()
        assert self.ask(lease, *requests) == before

    def test_another_request_for_the_slot_replaces_what_is_not_granted_for_its_digest(self) -> None:
        lease, slots = self.lease(), (ONE, TWO, THREE)
        asked = self.ask(lease, *(self.approval(slot, "d1") for slot in slots))
        self.decide(asked[1], grant=False)
        self.decide(asked[2])
        found = self.ask(lease, *(self.approval(slot, "d2") for slot in slots))
        assert [(item.state, item.digest, item.decided_by) for item in found] == [
            (ApprovalState.REQUESTED, "d2", "")
        ] * 3

    def test_another_request_does_not_replace_what_is_granted_for_its_digest(self) -> None:
        lease = self.lease()
        (asked,) = self.ask(lease)
        granted = self.decide(asked, edited={"seat": "1A"}, digest="d2")
        assert self.ask(lease, self.approval(digest="d2")) == (granted,)

    # Answers

    def test_a_grant_and_a_denial_are_kept_with_who_when_and_why(self) -> None:
        lease, slots = self.lease(), (ONE, TWO)
        one, two = self.ask(lease, *(self.approval(slot) for slot in slots))
        before = self.stores.runs.now()
        granted, denied = self.decide(one), self.decide(two, grant=False)
        assert (granted.state, denied.state) == (ApprovalState.GRANTED, ApprovalState.DENIED)
        for answer in (granted, denied):
            assert (answer.decided_by, answer.reason, answer.digest, answer.edited) == ("ann", "fine", "d1", None)
            assert answer.decided_at is not None
            assert before <= answer.decided_at <= self.stores.runs.now()
        assert self.asked() == (granted, denied)

    def test_an_answer_wakes_the_run(self) -> None:
        lease = self.lease()
        self.write(lease, status=RunStatus.WAITING, requests=(self.approval(),))
        (asked,) = self.asked()
        assert self.record_of().wake_at is None
        before = self.stores.runs.now()
        self.decide(asked)
        wake_at = self.record_of().wake_at
        assert wake_at is not None
        assert before <= wake_at <= self.stores.runs.now()

    def test_an_approvers_own_arguments_are_kept_with_their_digest(self) -> None:
        lease = self.lease()
        for position, (name, value) in enumerate(VALUES.items(), 1):
            asked = self.ask(lease, self.approval(Slot(1, position), arguments={"was": value}))[-1]
            answer = self.decide(asked, edited={"is": value}, digest=f"digest of {name}")
            assert answer.digest == f"digest of {name}"
            assert same(answer.edited, {"is": value}), name
            assert same(answer.arguments, {"was": value}), name

    def test_every_text_of_an_answer_comes_back_as_it_went_in(self) -> None:
        lease = self.lease()
        for position, text in enumerate(AWKWARD_TEXTS.values(), 1):
            asked = self.ask(lease, self.approval(Slot(1, position), summary=text))[-1]
            answer = self.decide(asked, by=text, reason=text)
            assert (answer.summary, answer.decided_by, answer.reason) == (text, text, text)

    def test_the_same_answer_again_is_a_quiet_success(self) -> None:
        lease = self.lease()
        (one,) = self.ask(lease)
        first = self.decide(one, edited={"seat": "1A"}, digest="d2")
        assert self.decide(one, by="bob", edited={"seat": "1A"}, digest="d2") == first
        two = self.ask(lease, self.approval(TWO))[-1]
        denied = self.decide(two, grant=False)
        assert self.decide(two, grant=False, by="bob") == denied

    def test_another_answer_is_a_conflict_that_names_who_answered_first_and_when(self) -> None:
        lease = self.lease()
        asked = self.ask(lease, self.approval(), self.approval(TWO))
        for request, grant in zip(asked, (True, False), strict=True):
            first = self.decide(request, grant)
            assert first.decided_at is not None
            with raises(ApprovalConflictError) as caught:
                self.decide(request, not grant, by="bob")
            assert "ann" in str(caught.error)
            assert first.decided_at.isoformat(timespec="seconds")[:19] in str(caught.error)
        with raises(ApprovalConflictError):
            self.decide(asked[0], edited={"seat": "1A"}, digest="d2")
        assert [item.state for item in self.asked()] == [ApprovalState.GRANTED, ApprovalState.DENIED]
        assert {item.decided_by for item in self.asked()} == {"ann"}

    def test_of_opposite_answers_at_once_one_wins(self) -> None:
        (asked,) = self.ask(self.lease())
        answers = [(index % 2 == 0, f"person-{index}") for index in range(6)]
        results = race(*(lambda grant=grant, by=by: self.decide(asked, grant, by=by) for grant, by in answers))
        (stands,) = self.asked()
        assert sum(isinstance(result, ApprovalConflictError) for result in results) == 3
        assert [result for result in results if isinstance(result, Approval)] == [stands] * 3

    def test_a_request_past_its_window_is_not_answered(self) -> None:
        lease = self.lease()
        asked = self.ask(lease, self.approval(expires_seconds=WINDOW_SECONDS), self.approval(TWO))
        self.age(WINDOW_SECONDS + 1)
        before = self.dump()
        for grant in (True, False):
            with raises(ApprovalExpiredError):
                self.decide(asked[0], grant)
        assert self.dump() == before
        assert self.decide(asked[1]).state is ApprovalState.GRANTED

    def test_an_open_request_past_its_window_reads_expired_and_reading_writes_nothing(self) -> None:
        windows = ((ONE, WINDOW_SECONDS), (TWO, WINDOW_SECONDS), (THREE, None))
        asked = self.ask(self.lease(), *(self.approval(slot, expires_seconds=seconds) for slot, seconds in windows))
        self.decide(asked[1])
        self.age(WINDOW_SECONDS + 1)
        states = [ApprovalState.EXPIRED, ApprovalState.GRANTED, ApprovalState.REQUESTED]
        before = self.dump()
        assert [item.state for item in self.asked()] == states
        for request, state in zip(asked, states, strict=True):
            found = self.stores.runs.request(request.request_id, tenant=self.tenant)
            assert found is not None
            assert found.state is state
        assert self.dump() == before

    def test_a_run_that_waits_is_woken_when_the_first_window_of_what_it_asks_ends(self) -> None:
        lease = self.lease()
        windows = ((ONE, 2 * WINDOW_SECONDS), (TWO, WINDOW_SECONDS), (THREE, None))
        requests = tuple(self.approval(slot, expires_seconds=seconds) for slot, seconds in windows)
        self.write(lease, status=RunStatus.WAITING, requests=requests)
        first = self.asked()[1].expires_at
        assert first is not None
        assert self.record_of().wake_at == first
        sooner, later = first - timedelta(seconds=60), first + timedelta(seconds=60)
        for given, stands in ((sooner, sooner), (later, first)):
            again = {"wake_at": given, "wake_seen": self.record_of().wake_at, "requests": requests[1:2]}
            self.write(lease, status=RunStatus.WAITING, **again)
            wake_at = self.record_of().wake_at
            assert wake_at is not None
            assert abs(wake_at - stands) < timedelta(seconds=30)

    def test_the_same_answer_again_is_quiet_past_the_window_too(self) -> None:
        (asked,) = self.ask(self.lease(), self.approval(expires_seconds=WINDOW_SECONDS))
        self.age(WINDOW_SECONDS / 2)
        self.decide(asked)
        self.age(LONG_SECONDS)
        assert self.decide(asked).state is ApprovalState.GRANTED

    def test_a_request_that_is_not_there_is_not_answered(self) -> None:
        (asked,) = self.ask(self.lease())
        with raises(ApprovalError):
            self.decide(replace(asked, request_id="req-unknown"))
        with raises(ApprovalError):
            self.decide(asked, tenant="another")
        assert self.asked() == (asked,)

    # What holds a claim back

    def may(self, lease: RunLease, claim: Claim) -> bool:
        """Ask whether a claim may be made."""
        return self.stores.runs.gate(claim, fence=lease.fence)

    def noted(self) -> dict[str, str]:
        """Return what the row notes of claims."""
        return {str(slot): token for slot, token in self.record_of().claimed.items()}

    def test_a_claim_that_needs_no_approval_may_be_made(self) -> None:
        assert self.may(self.lease(), self.claim()) is True

    def test_a_claim_may_not_be_made_once_a_cancel_is_requested(self) -> None:
        lease = self.lease()
        (asked,) = self.ask(lease)
        self.decide(asked)
        self.stores.runs.request_cancel(self.run_id, tenant=self.tenant, by="ann", reason="")
        assert self.may(lease, self.claim()) is False
        assert self.may(lease, self.claim(request_id=asked.request_id)) is False
        assert self.noted() == {}

    def test_a_claim_that_names_a_request_may_be_made_once_that_is_granted_for_its_digest(self) -> None:
        lease = self.lease()
        asked = self.ask(lease, self.approval(), self.approval(TWO))
        held = [self.claim(item.slot, request_id=item.request_id) for item in asked]
        assert [self.may(lease, claim) for claim in held] == [False, False]
        self.decide(asked[0])
        self.decide(asked[1], grant=False)
        assert [self.may(lease, claim) for claim in held] == [True, False]
        assert self.may(lease, replace(held[0], digest="d2")) is False
        assert self.may(lease, replace(held[0], request_id="req-unknown")) is False
        assert self.may(lease, replace(held[0], tenant="another")) is False
        assert self.noted() == {"1.1": "token-1"}

    def test_the_row_notes_what_is_claimed_in_its_newest_turn(self) -> None:
        lease = self.lease()
        for slot, token in ((ONE, "a"), (TWO, "b"), (ONE, "c")):
            assert self.may(lease, self.claim(slot, token))
        assert self.noted() == {"1.1": "c", "1.2": "b"}
        self.stores.runs.ungate(self.claim(ONE, "c"), fence=lease.fence)
        assert self.noted() == {"1.2": "b"}
        assert self.may(lease, self.claim(Slot(12, 1), "d"))
        assert self.noted() == {"12.1": "d"}

    def test_a_fence_that_was_passed_notes_nothing(self) -> None:
        lease = self.lease()
        second = self.take_over()
        self.write(second, begins=True)
        with raises(LeaseLostError):
            self.may(lease, self.claim())
        with raises(LeaseLostError):
            self.stores.runs.ungate(self.claim(), fence=lease.fence)
        assert self.noted() == {}

    def test_async_twins_of_requests_do_the_same(self) -> None:
        lease = self.lease()
        (asked,) = self.ask(lease)
        runs = self.stores.runs
        where: dict[str, Any] = {"tenant": self.tenant}

        async def walk() -> list[Any]:
            found = await runs.arequest(asked.request_id, **where)
            granted = await runs.adecide(asked.request_id, grant=True, by="ann", reason="", **where)
            gate = await runs.agate(self.claim(), fence=lease.fence)
            await runs.aungate(self.claim(), fence=lease.fence)
            return [found, granted, await runs.aapprovals(self.run_id, **where), gate]

        found, granted, approvals, gate = asyncio.run(walk())
        assert (found, approvals, gate) == (asked, (granted,), True)
