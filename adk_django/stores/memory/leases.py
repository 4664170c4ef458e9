"""Leases in this process's memory."""

import copy
import uuid
from dataclasses import replace
from datetime import timedelta

from adk_django.core.lease import RunLease
from adk_django.exceptions import (
    CrowdedError,
    FenceLostError,
    LeaseLostError,
    ResumeConflictError,
    RunForgottenError,
)
from adk_django.stores.base import LeaseStore
from adk_django.stores.memory.space import InSpace


class MemoryLeaseStore(InSpace, LeaseStore):
    """Leases in memory."""

    _caps: tuple[int | None, int | None] = (None, None)

    def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float, floor: int = 0) -> RunLease:
        with self.space.lock:
            run, now = self.space.read(tenant, run_id), self.space.now()
            self._refuse_crowd(run_id, tenant)
            old, fence = run.lease, run.fence + 1
            if run.forgotten:
                raise RunForgottenError
            died = old is not None and not run.released
            if old is not None and died and old.held_at(now):
                raise ResumeConflictError(run_id=run_id, holder=old.holder, until=old.expires_at, fence=old.fence)
            if fence <= floor:
                raise FenceLostError(f"run {run_id} has seen fence {floor}; the next here is only {fence}", fence=floor)
            deaths = 0 if old is None else old.deaths + died
            until = now + timedelta(seconds=ttl_seconds)
            lease = RunLease(tenant, run_id, holder, uuid.uuid4().hex, fence, now, until, deaths, died)
            run = self.space.written(tenant, run_id)
            run.lease, run.fence, run.released = lease, fence, False
            return lease

    def renew(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        with self.space.lock:
            run = self.space.read(lease.tenant, lease.run_id)
            if run.lease is None or not run.holds(lease):
                raise LeaseLostError(f"the lease of run {lease.run_id} was lost", fence=run.fence)
            run.lease = replace(run.lease, expires_at=self.space.now() + timedelta(seconds=ttl_seconds))
            return run.lease

    def release(self, lease: RunLease) -> None:
        with self.space.lock:
            run = self.space.read(lease.tenant, lease.run_id)
            run.released = run.released or run.holds(lease)

    def progressed(self, lease: RunLease, *, deaths: int = 0) -> None:
        with self.space.lock:
            run = self.space.read(lease.tenant, lease.run_id)
            if run.lease is not None and run.holds(lease):
                run.lease = replace(run.lease, deaths=deaths)

    def revoke(self, run_id: str, *, tenant: str, by: str) -> RunLease | None:
        with self.space.lock:
            run, now = self.space.read(tenant, run_id), self.space.now()
            if run.lease is None or run.released:
                return None
            run.fence += 1
            run.lease = replace(
                run.lease, holder=by, token=uuid.uuid4().hex, fence=run.fence, acquired_at=now, expires_at=now
            )
            return run.lease

    def within(self, *, max_live: int | None, max_live_per_tenant: int | None) -> "MemoryLeaseStore":
        capped = copy.copy(self)
        capped._caps = (max_live, max_live_per_tenant)
        return capped

    def _refuse_crowd(self, run_id: str, tenant: str) -> None:
        now = self.space.now()
        leases = (run.lease for run in self.space.every() if run.advances(now) and run.lease is not None)
        live = [item.tenant for item in leases if (item.tenant, item.run_id) != (tenant, run_id)]
        for found, cap in zip((len(live), live.count(tenant)), self._caps, strict=True):
            if cap is not None and found >= cap:
                raise CrowdedError

    def held(self, run_id: str, *, tenant: str) -> RunLease | None:
        with self.space.lock:
            run = self.space.read(tenant, run_id)
            return None if run.released else run.lease
