"""The suite of a run store, second part: finding runs, page by page."""

# ruff: noqa: S101, S105, S106 (a suite is made of asserts, and its tokens are no secrets)

from dataclasses import replace

from adk_django.core.lease import RunLease
from adk_django.core.record import RunRecord, RunStatus, Writes
from adk_django.testing.conformance.base import LONG_SECONDS, FencedConformance


class ListConformance(FencedConformance):
    """What is promised of lists of run rows."""

    def many(self, count: int) -> list[RunRecord]:
        """Create runs, oldest first; two of three share their instant where the store's clock stands."""
        rows = []
        for index in range(count):
            if index % 3 == 0:
                self.age(1)
            row = replace(self.row(), run_id=f"{self.run_id}-{index}", agent=f"agent-{index % 2}")
            rows.append(self.stores.runs.create(row)[0])
        return rows

    def test_runs_are_found_newest_first_each_on_one_page(self) -> None:
        ids = {row.run_id for row in self.many(7)}
        found: list[RunRecord] = []
        while page := self.stores.runs.find(tenant=self.tenant, limit=3, before=found[-1] if found else None):
            assert len(page) <= 3
            found += page
        assert len(found) == len(ids)
        assert {row.run_id for row in found} == ids
        instants = [row.created_at for row in found if row.created_at is not None]
        assert instants == sorted(instants, reverse=True)

    def test_runs_are_found_by_tenant_agent_and_status(self) -> None:
        rows = self.many(4)
        lease = self.stores.leases.acquire(rows[0].run_id, tenant=self.tenant, holder="w", ttl_seconds=60)
        writes = Writes(status=RunStatus.UNDECIDED)
        self.stores.runs.write(rows[0].run_id, tenant=self.tenant, writes=writes, fence=lease.fence)
        find = self.stores.runs.find
        assert {row.run_id for row in find(tenant=self.tenant, agent="agent-1")} == {rows[1].run_id, rows[3].run_id}
        assert [row.run_id for row in find(tenant=self.tenant, status=RunStatus.UNDECIDED)] == [rows[0].run_id]
        assert find(tenant=f"{self.tenant}-other") == ()

    def test_stuck_are_those_that_have_not_ended_and_that_no_live_lease_advances(self) -> None:
        fresh, released, dead, live, ended = rows = self.many(5)
        leases = {row.run_id: self.acquired(row) for row in (released, dead, ended)}
        self.age(LONG_SECONDS)
        self.stores.leases.release(leases[released.run_id])
        writes, fence = Writes(status=RunStatus.FAILED), leases[ended.run_id].fence
        self.stores.runs.write(ended.run_id, tenant=self.tenant, writes=writes, fence=fence)
        self.acquired(live)
        stuck = {row.run_id for row in self.stores.runs.find(tenant=self.tenant, stuck=True)}
        assert stuck == {row.run_id for row in (fresh, released, dead)}
        assert len(self.stores.runs.find(tenant=self.tenant)) == len(rows)

    def acquired(self, row: RunRecord) -> RunLease:
        """Acquire a run."""
        return self.stores.leases.acquire(row.run_id, tenant=self.tenant, holder="worker-1", ttl_seconds=60)

    def test_another_tenants_row_is_never_found(self) -> None:
        self.lease()
        mine, other = self.record_of(), f"{self.tenant}-other"
        assert self.stores.runs.get(self.run_id, tenant=other) is None
        assert self.stores.runs.request_cancel(self.run_id, tenant=other, by="eve", reason="") is None
        theirs, created = self.stores.runs.create(replace(self.row(), tenant=other))
        assert created
        assert theirs.tenant == other
        assert self.record_of() == mine
