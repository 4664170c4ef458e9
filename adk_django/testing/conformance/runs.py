"""The suite of a run store, first part: rows, and what a commit writes into them."""

# ruff: noqa: S101, S105, S106 (a suite is made of asserts, and its tokens are no secrets)

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from adk_django.core.lease import RunLease
from adk_django.core.messages import Usage
from adk_django.core.record import Approval, RunStatus, Spend, Writes, Written
from adk_django.exceptions import RunForgottenError
from adk_django.testing.conformance.base import ONE, FencedConformance, race, raises
from adk_django.testing.conformance.values import AWKWARD_TEXTS

STARTS = 20


class RowConformance(FencedConformance):
    """What is promised of run rows."""

    def write(self, lease: RunLease, **writes: Any) -> Written:
        """Write what a commit brings for the row."""
        return self.stores.runs.write(self.run_id, tenant=self.tenant, writes=Writes(**writes), fence=lease.fence)

    def fenced_writes(self, lease: RunLease) -> Mapping[str, Callable[[int], Any]]:
        def write(**writes: Any) -> Callable[[int], Any]:
            sent = Writes(**writes)
            return lambda fence: self.stores.runs.write(self.run_id, tenant=self.tenant, writes=sent, fence=fence)

        return {
            "begins": write(begins=True),
            "note": write(failed_save="too large"),
            "revision": write(revision="2"),
            "spend": write(spend=(Spend(1, 1, Usage(1, 1), 1),)),
            "status": write(status=RunStatus.COMPLETED, output="done"),
        }

    # Rows

    def test_a_created_row_comes_back_as_it_was_sent(self) -> None:
        before = self.stores.runs.now()
        sent = self.row(
            input_digest="d",
            revision="1",
            format_version=1,
            user="u-1",
            scopes=("r", "w"),
            parent="run-0",
            salt="ab" * 32,
        )
        made, created = self.stores.runs.create(sent)
        assert created is True
        assert made.created_at is not None
        assert before <= made.created_at <= self.stores.runs.now()
        assert made == replace(sent, created_at=made.created_at, updated_at=made.updated_at)
        assert self.record_of() == made

    def test_every_text_comes_back_as_it_went_in(self) -> None:
        for name, text in AWKWARD_TEXTS.items():
            run_id = f"{self.run_id}-{name.replace(' ', '-')}"
            self.stores.runs.create(replace(self.row(input=text, user=text), run_id=run_id))
            lease = self.stores.leases.acquire(run_id, tenant=self.tenant, holder="worker-1", ttl_seconds=60)
            writes = Writes(status=RunStatus.COMPLETED, reason=text, output=text, failed_save=text)
            self.stores.runs.write(run_id, tenant=self.tenant, writes=writes, fence=lease.fence)
            row = self.stores.runs.get(run_id, tenant=self.tenant)
            assert row is not None, name
            assert (row.input, row.user, row.reason, row.output, row.failed_save) == (text,) * 5, name

    def test_an_id_that_is_there_is_returned_as_it_stands(self) -> None:
        first, _ = self.stores.runs.create(self.row())
        again, created = self.stores.runs.create(self.row(input="another", agent="other", salt="11" * 32))
        assert (again, created) == (first, False)
        assert self.record_of() == first

    def test_of_starts_at_once_one_creates(self) -> None:
        inputs = [f"input {index}" for index in range(STARTS)]
        results = race(*(lambda text=text: self.stores.runs.create(self.row(input=text)) for text in inputs))
        assert sum(created for _, created in results) == 1
        assert {row.input for row, _ in results} == {self.record_of().input}

    def test_a_forgotten_id_is_not_created_again(self) -> None:
        self.stores.leases.release(self.lease())
        self.forget_run(self.run_id, tenant=self.tenant)
        with raises(RunForgottenError):
            self.stores.runs.create(self.row())

    def test_a_run_that_is_not_there_is_none(self) -> None:
        assert self.stores.runs.get(self.run_id, tenant=self.tenant) is None

    def test_a_row_carries_the_sum_of_its_ledger(self) -> None:
        lease = self.lease()
        self.write(lease, spend=(Spend(1, lease.fence, Usage(10, 5), 100), Spend(2, lease.fence, Usage(1, 2), 7)))
        self.write(lease, spend=(Spend(3, lease.fence - 1, Usage(unknown_calls=1)),))
        row = self.record_of()
        assert (row.usage, row.cost_micros) == (Usage(11, 7, 1), 107)

    def test_the_same_spend_again_counts_once(self) -> None:
        lease = self.lease()
        for _ in range(2):
            self.write(lease, spend=(Spend(1, lease.fence, Usage(10, 5), 100),))
        assert (self.record_of().usage, self.record_of().cost_micros) == (Usage(10, 5), 100)

    def test_reading_changes_nothing(self) -> None:
        self.write(self.lease(), status=RunStatus.UNDECIDED, reason="why")
        before = self.dump()
        runs = self.stores.runs
        runs.get(self.run_id, tenant=self.tenant)
        runs.approvals(self.run_id, tenant=self.tenant)
        runs.request("req-0", tenant=self.tenant)
        runs.find(tenant=self.tenant, stuck=True)
        assert self.dump() == before

    # What a commit writes

    def test_a_run_begins_once(self) -> None:
        lease = self.lease()
        assert self.record_of().begun_at is None
        written = self.write(lease, begins=True)
        begun = self.record_of().begun_at
        assert begun is not None
        assert begun == written.at
        self.age(1)
        before = self.record_of().begun_at
        self.write(lease, begins=True)
        assert self.record_of().begun_at == before

    def test_a_status_brings_reason_output_and_the_fence(self) -> None:
        lease = self.lease()
        self.write(lease, status=RunStatus.UNDECIDED, reason="nobody can say")
        row = self.record_of()
        assert (row.status, row.reason, row.output, row.fence) == (
            RunStatus.UNDECIDED,
            "nobody can say",
            None,
            lease.fence,
        )
        self.write(lease, status=RunStatus.COMPLETED, output="booked")
        row = self.record_of()
        assert (row.status, row.reason, row.output) == (RunStatus.COMPLETED, "", "booked")

    def test_what_a_commit_does_not_bring_stays(self) -> None:
        lease = self.lease()
        self.write(lease, status=RunStatus.UNDECIDED, reason="why", revision="1", format_version=1)
        self.write(lease, failed_save="too large")
        self.write(lease, begins=True)
        row = self.record_of()
        assert (row.status, row.reason) == (RunStatus.UNDECIDED, "why")
        assert (row.revision, row.format_version, row.failed_save) == ("1", 1, "too large")

    def test_a_note_is_cleared_by_the_empty_one(self) -> None:
        lease = self.lease()
        self.write(lease, failed_save="too large")
        self.write(lease, failed_save="")
        assert self.record_of().failed_save == ""

    def test_a_row_that_has_ended_changes_no_more(self) -> None:
        lease = self.lease()
        self.write(lease, status=RunStatus.CANCELLED, reason="by ann")
        ended = self.record_of()
        self.write(
            lease, status=RunStatus.ACTIVE, output="no", wake_at=ended.created_at, failed_save="no", revision="9"
        )
        self.write(lease, begins=True, requests=(self.request(),))
        assert self.record_of() == ended
        assert self.stores.runs.approvals(self.run_id, tenant=self.tenant) == ()

    def request(self) -> Approval:
        """Return a request for approval of call 1.1."""
        return Approval(**self.ids, request_id="req-1", slot=ONE, tool="book", digest="d1", arguments={})

    def test_a_wake_up_is_set_with_a_status(self) -> None:
        lease, at = self.lease(), self.stores.runs.now().replace(microsecond=0) + timedelta(hours=1)
        self.write(lease, status=RunStatus.ACTIVE, wake_at=at)
        assert self.record_of().wake_at == at
        self.write(lease, begins=True)
        assert self.record_of().wake_at == at
        self.write(lease, status=RunStatus.ACTIVE, wake_seen=at)
        assert self.record_of().wake_at is None

    def test_a_wake_up_that_somebody_asked_for_meanwhile_stays(self) -> None:
        lease = self.lease()
        seen = self.record_of().wake_at
        self.stores.runs.request_cancel(self.run_id, tenant=self.tenant, by="ann", reason="")
        asked = self.record_of().wake_at
        assert asked is not None
        later = self.stores.runs.now() + timedelta(hours=1)
        self.write(lease, status=RunStatus.UNDECIDED, wake_at=later, wake_seen=seen)
        assert (self.record_of().wake_at, self.record_of().status) == (asked, RunStatus.UNDECIDED)

    def test_a_write_tells_its_instant_and_whether_a_cancel_is_requested(self) -> None:
        lease, before = self.lease(), self.stores.runs.now()
        written = self.write(lease)
        assert written.at is not None
        assert before <= written.at <= self.stores.runs.now()
        assert written.cancel_requested_at is None
        self.stores.runs.request_cancel(self.run_id, tenant=self.tenant, by="ann", reason="")
        assert self.write(lease).cancel_requested_at == self.record_of().cancel_requested_at

    # Cancelling

    def test_a_cancel_is_requested_and_wakes_the_run(self) -> None:
        self.lease()
        before = self.stores.runs.now()
        row = self.stores.runs.request_cancel(self.run_id, tenant=self.tenant, by="ann", reason="no longer needed")
        assert row == self.record_of()
        assert (row.cancel_requested_by, row.cancel_reason) == ("ann", "no longer needed")
        assert row.status is RunStatus.ACTIVE
        assert row.cancel_requested_at is not None
        assert row.wake_at is not None
        assert before <= row.cancel_requested_at <= self.stores.runs.now()
        assert before <= row.wake_at <= self.stores.runs.now()

    def test_the_first_cancel_stands(self) -> None:
        self.lease()
        for by in ("ann", "bob"):
            self.stores.runs.request_cancel(self.run_id, tenant=self.tenant, by=by, reason=by)
        assert self.record_of().cancel_requested_by == "ann"

    def test_a_run_that_has_ended_is_not_cancelled(self) -> None:
        self.write(self.lease(), status=RunStatus.COMPLETED, output="booked")
        ended = self.record_of()
        assert self.stores.runs.request_cancel(self.run_id, tenant=self.tenant, by="ann", reason="") == ended
        assert self.record_of() == ended

    def test_a_run_that_is_not_there_is_not_cancelled(self) -> None:
        assert self.stores.runs.request_cancel(self.run_id, tenant=self.tenant, by="ann", reason="") is None

    def test_async_twins_of_rows_do_the_same(self) -> None:
        runs = self.stores.runs
        where: dict[str, Any] = {"tenant": self.tenant}

        async def walk() -> list[Any]:
            row, created = await runs.acreate(self.row())
            lease = await self.stores.leases.aacquire(self.run_id, holder="w", ttl_seconds=60, **where)
            await runs.awrite(self.run_id, writes=Writes(begins=True), fence=lease.fence, **where)
            cancelled = await runs.arequest_cancel(self.run_id, by="ann", reason="", **where)
            found = await runs.afind(**where)
            return [created, row, cancelled, await runs.aget(self.run_id, **where), found, await runs.anow()]

        created, row, cancelled, got, found, now = asyncio.run(walk())
        assert created
        assert cancelled == got == found[0]
        assert got.begun_at is not None
        assert row.created_at <= now
