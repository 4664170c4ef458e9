"""Run rows and requests in this process's memory."""

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from adk_django.core import codec
from adk_django.core.effects import Claim
from adk_django.core.messages import Usage
from adk_django.core.record import Approval, ApprovalState, RunRecord, RunStatus, Writes, Written
from adk_django.exceptions import (
    ApprovalConflictError,
    ApprovalExpiredError,
    RequestNotFoundError,
    RunForgottenError,
)
from adk_django.stores.memory.space import ApprovalRow, InSpace, RunRows
from adk_django.stores.runs import Due, RunStore


class MemoryRunStore(InSpace, RunStore):
    """Run rows in memory."""

    def create(self, record: RunRecord) -> tuple[RunRecord, bool]:
        with self.space.lock:
            run, now = self.space.read(record.tenant, record.run_id), self.space.now()
            if run.forgotten:
                raise RunForgottenError
            if run.record is not None:
                return _summed(run, run.record), False
            made = replace(record, created_at=now, updated_at=now, usage=Usage(), cost_micros=0)
            self.space.written(record.tenant, record.run_id).record = made
            return made, True

    def get(self, run_id: str, *, tenant: str) -> RunRecord | None:
        with self.space.lock:
            run = self.space.read(tenant, run_id)
            return None if run.record is None else _summed(run, run.record)

    def write(self, run_id: str, *, tenant: str, writes: Writes, fence: int) -> Written:
        with self.space.lock:
            run, now = self.space.check(tenant, run_id, fence), self.space.now()
            row = run.record
            for spend in writes.spend:
                run.spends.setdefault((spend.turn, spend.fence), spend)
            if row is not None and not row.status.ended:
                for request in writes.requests:
                    _ask(run, request, now)
                run.record = _changed(row, writes, fence, now)
            return Written(cancel_requested_at=None if row is None else row.cancel_requested_at, at=now)

    def gate(self, claim: Claim, *, fence: int) -> bool:
        with self.space.lock:
            run = self.space.check(claim.tenant, claim.run_id, fence)
            if run.record is None or run.record.cancel_requested_at is not None:
                return False
            asked = [row.approval for row in run.approvals.values() if row.approval.request_id == claim.request_id]
            granted = any(item.state is ApprovalState.GRANTED and item.digest == claim.digest for item in asked)
            if claim.request_id is not None and not granted:
                return False
            noted = {slot: token for slot, token in run.record.claimed.items() if slot.turn == claim.slot.turn}
            run.record = replace(run.record, claimed={**noted, claim.slot: claim.token or ""})
            return True

    def ungate(self, claim: Claim, *, fence: int) -> None:
        with self.space.lock:
            run = self.space.check(claim.tenant, claim.run_id, fence)
            if run.record is not None:
                noted = {slot: token for slot, token in run.record.claimed.items() if slot != claim.slot}
                run.record = replace(run.record, claimed=noted)

    def approvals(self, run_id: str, *, tenant: str) -> tuple[Approval, ...]:
        with self.space.lock:
            rows, now = self.space.read(tenant, run_id).approvals, self.space.now()
            return tuple(row.read().read_at(now) for _, row in sorted(rows.items()))

    def decide(
        self,
        request_id: str,
        *,
        tenant: str,
        grant: bool,
        by: str,
        reason: str,
        edited: Any = None,
        digest: str | None = None,
    ) -> Approval:
        state = ApprovalState.GRANTED if grant else ApprovalState.DENIED
        text = codec.encode(edited)
        with self.space.lock:
            run, row = self._request(request_id, tenant)
            now = self.space.now()
            if run is None or row is None:
                raise RequestNotFoundError(f"there is no request {request_id} of tenant {tenant}")
            asked = row.approval.read_at(now)
            if asked.state in (ApprovalState.GRANTED, ApprovalState.DENIED):
                stands = row.read()
                if asked.state is state and codec.canonical(stands.edited) == codec.canonical(edited):
                    return stands
                at = "" if asked.decided_at is None else asked.decided_at.isoformat()
                raise ApprovalConflictError(f"{request_id} was {asked.state.value} by {asked.decided_by} at {at}")
            if asked.state is ApprovalState.EXPIRED:
                raise ApprovalExpiredError(f"request {request_id} expired at {asked.expires_at}")
            asked = replace(asked, state=state, decided_at=now, decided_by=by, reason=reason)
            asked = replace(asked, digest=asked.digest if digest is None else digest)
            run.approvals[asked.slot] = row = ApprovalRow(asked, row.arguments, text)
            run.wake(now)
            return row.read()

    def request(self, request_id: str, *, tenant: str) -> Approval | None:
        with self.space.lock:
            _, row = self._request(request_id, tenant)
            return None if row is None else row.read().read_at(self.space.now())

    def _request(self, request_id: str, tenant: str) -> tuple[RunRows | None, ApprovalRow | None]:
        for run in self.space.every():
            for row in run.approvals.values():
                if (row.approval.tenant, row.approval.request_id) == (tenant, request_id):
                    return run, row
        return None, None

    def request_cancel(self, run_id: str, *, tenant: str, by: str, reason: str) -> RunRecord | None:
        with self.space.lock:
            run, now = self.space.read(tenant, run_id), self.space.now()
            if run.record is None:
                return None
            if not run.record.status.ended and run.record.cancel_requested_at is None:
                asked = {"cancel_requested_at": now, "cancel_requested_by": by, "cancel_reason": reason}
                run.record = replace(run.record, **asked)  # type: ignore[arg-type]  # the fields of a row
            run.wake(now)
            return _summed(run, run.record)

    def request_release(self, run_id: str, *, tenant: str, by: str, reason: str) -> RunRecord | None:
        with self.space.lock:
            run, now = self.space.read(tenant, run_id), self.space.now()
            if run.record is None:
                return None
            if run.record.status is RunStatus.QUARANTINED:
                run.record = replace(run.record, release_requested_at=now)
                run.wake(now)
            return _summed(run, run.record)

    def wake(self, run_id: str, *, tenant: str) -> RunRecord | None:
        with self.space.lock:
            run = self.space.read(tenant, run_id)
            run.wake(self.space.now())
            return None if run.record is None else _summed(run, run.record)

    def prune(self, *, seconds: float, limit: int) -> tuple[tuple[str, str], ...]:
        with self.space.lock:
            before = self.space.now() - timedelta(seconds=seconds)
            rows = [run.record for run in self.space.every() if run.record is not None and run.record.status.ended]
            old = [row for row in rows if row.updated_at is not None and row.updated_at < before][:limit]
            for row in old:
                self.space.forget(row.tenant, row.run_id)
            return tuple((row.tenant, row.run_id) for row in old)

    def tell(self, run_id: str, *, tenant: str, kind: str, by: str, reason: str, detail: str = "") -> None:
        """Drop it: memory keeps no audit."""

    def take_due(self, due: Due) -> tuple[tuple[str, str], ...]:
        with self.space.lock:
            now = self.space.now()
            live = Counter(run.lease.tenant for run in self.space.every() if run.lease and run.advances(now))
            room = due.limit if due.max_live is None else min(due.limit, due.max_live - live.total())
            taken: list[tuple[str, str]] = []
            for run in sorted(self.space.every(), key=_due_since):
                row = run.record
                if row is None or not _due(run, now) or not due.carries(row):
                    continue
                if len(taken) >= room:
                    break
                if due.max_live_per_tenant is not None and live[row.tenant] >= due.max_live_per_tenant:
                    continue
                live[row.tenant] += 1
                again = due.again_seconds * (1 + random.random() / 2)  # noqa: S311  # jitter, no secret
                run.record = replace(row, wake_at=now + timedelta(seconds=again))
                taken.append((row.tenant, row.run_id))
            return tuple(taken)

    def find(
        self,
        *,
        tenant: str | None = None,
        status: RunStatus | None = None,
        agent: str | None = None,
        stuck: bool = False,
        limit: int = 100,
        before: RunRecord | None = None,
    ) -> tuple[RunRecord, ...]:
        with self.space.lock:
            now = self.space.now()
            rows = [
                _summed(run, row)
                for run in self.space.every()
                if (row := run.record) is not None
                and tenant in (None, row.tenant)
                and status in (None, row.status)
                and agent in (None, row.agent)
                and not (stuck and (row.status.ended or run.advances(now)))
                and (before is None or _place(row) < _place(before))
            ]
        return tuple(sorted(rows, key=_place, reverse=True)[:limit])

    def now(self) -> datetime:
        return self.space.now()


def _due(run: RunRows, now: datetime) -> bool:
    row = run.record
    if row is None or row.status.ended or run.advances(now):
        return False
    return row.status is RunStatus.ACTIVE if row.wake_at is None else row.wake_at <= now


def _due_since(run: RunRows) -> datetime:
    row = run.record
    return (
        datetime.max.replace(tzinfo=UTC)
        if row is None
        else row.wake_at or row.updated_at or datetime.max.replace(tzinfo=UTC)
    )


def _place(row: RunRecord) -> tuple[datetime | None, str, str]:
    return row.created_at, row.tenant, row.run_id


def _summed(run: RunRows, row: RunRecord) -> RunRecord:
    usage, cost = Usage(), 0
    for spend in run.spends.values():
        usage, cost = usage + spend.usage, cost + spend.cost_micros
    answered = (spend.turn for spend in run.spends.values() if not spend.usage.unknown_calls)
    return replace(row, usage=usage, cost_micros=cost, iterations=max(answered, default=0))


def _changed(row: RunRecord, writes: Writes, fence: int, now: datetime) -> RunRecord:
    row = replace(row, fence=fence, updated_at=now)
    if writes.begins and row.begun_at is None:
        row = replace(row, begun_at=now)
    if writes.failed_save is not None:
        row = replace(row, failed_save=writes.failed_save)
    if writes.revision is not None:
        row = replace(row, revision=writes.revision)
    if writes.format_version is not None:
        row = replace(row, format_version=writes.format_version)
    if writes.status is not None:
        row = replace(row, status=writes.status, reason=writes.reason, output=writes.output)
        if writes.status is not RunStatus.QUARANTINED:
            row = replace(row, release_requested_at=None)
        if row.wake_at == writes.wake_seen:
            row = replace(row, wake_at=writes.wakes_at(now))
    return row


def _ask(run: RunRows, request: Approval, now: datetime) -> None:
    old = run.approvals.get(request.slot)
    if old is not None:
        same = old.approval.digest == request.digest
        asked_so = old.approval.request_id == request.request_id and (same or old.edited != codec.encode(None))
        if asked_so or (same and old.approval.state is ApprovalState.GRANTED):
            return
    asked = replace(request.asked_at(now), arguments=None, edited=None)
    texts = codec.encode(request.arguments), codec.encode(request.edited)
    run.approvals[request.slot] = ApprovalRow(asked, *texts)
