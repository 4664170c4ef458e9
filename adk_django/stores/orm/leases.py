"""Leases in the product's database."""

import contextlib
import copy
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db import connections, transaction

from adk_django import models
from adk_django.core.lease import RunLease
from adk_django.exceptions import (
    CrowdedError,
    FenceLostError,
    ResumeConflictError,
    RunForgottenError,
    StoreUnavailableError,
)
from adk_django.stores.base import LeaseStore
from adk_django.stores.orm.base import OnAlias, lost
from adk_django.stores.orm.connection import mapped, serialized
from adk_django.stores.orm.fenced_write import Scope
from adk_django.stores.orm.rows import lease_of
from adk_django.stores.orm.sql import AT, Clock, Dialect, Sql, both, ready_now

_FREE = (
    f"target.forgotten_at IS NULL AND (target.token IS NULL OR target.expires_at <= {AT.text}) AND target.fence >= %s"
)
_FREED = {"holder": None, "token": None, "acquired_at": None, "expires_at": None, "took_over": False}


# How a transaction is alone in counting leases. SQLite: a write, which one does at a time. PostgreSQL: a lock, and
# whatever the product's isolation a look at what others did while it was waited for.
_ALONE = (
    "DELETE FROM adk_run_leases WHERE false",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SELECT pg_advisory_xact_lock(hashtext('adk_run_leases'))",
)


class OrmLeaseStore(OnAlias, LeaseStore):
    """Leases in ``adk_run_leases``. One upsert decides an acquisition and returns who has the run, won or lost."""

    model = models.RunLease
    _caps: tuple[int | None, int | None] = (None, None)

    def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float, floor: int = 0) -> RunLease:
        alias, token = self.alias, uuid.uuid4().hex
        with mapped(alias), self._room(run_id, tenant):
            row = self._take(run_id, tenant, holder, token, ttl_seconds, floor)
        if row is not None and row.token == token:
            return lease_of(row)
        if row is not None and row.forgotten_at is not None:
            raise RunForgottenError
        if row is not None and row.token is not None and (row.live or row.fence >= floor):
            held = lease_of(row)
            raise ResumeConflictError(run_id=run_id, holder=held.holder, until=held.expires_at, fence=held.fence)
        following = 1 if row is None else row.fence + 1
        raise FenceLostError(f"run {run_id} has seen fence {floor}; the next here is only {following}", fence=floor)

    def _take(self, run_id: str, tenant: str, holder: str, token: str, ttl_seconds: float, floor: int) -> Any:
        """Take the lease if it is free; return the row as it is then, None if a fence was seen and there is none."""
        dialect = Dialect(connections[self.alias])
        taken = {
            "holder": holder,
            "token": token,
            "fence": Sql("target.fence + 1"),
            "acquired_at": AT,
            "expires_at": dialect.later(ttl_seconds),
            "deaths": Sql("target.deaths + CASE WHEN target.token IS NULL THEN 0 ELSE 1 END"),
            "took_over": Sql("target.token IS NOT NULL"),
        }
        changes = {}
        for column, new in taken.items():
            value = dialect.value(models.RunLease, column, new)
            changes[column] = Sql(
                f"CASE WHEN {_FREE} THEN {value.text} ELSE target.{column} END", (floor, *value.params)
            )
        if floor > 0:
            return _changed(dialect, tenant, run_id, dialect.update(models.RunLease, changes))
        first = {**taken, "fence": 1, "deaths": 0, "took_over": False}
        assigned = dialect.assign(models.RunLease, changes)
        conflict = Sql(f"ON CONFLICT (tenant, run_id) DO UPDATE SET {assigned.text}", assigned.params)
        return _changed(dialect, tenant, run_id, dialect.insert(models.RunLease, first, conflict=conflict))

    def renew(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        return self._renewed(lease, ttl_seconds, _held(Dialect(connections[self.alias]), lease))

    def renew_at_once(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        dialect = Dialect(connections[self.alias])
        if not dialect.postgres:  # which locks no rows
            return self.renew(lease, ttl_seconds=ttl_seconds)
        held = _held(dialect, lease)
        free = Sql(
            "free AS MATERIALIZED (SELECT 1 FROM ready JOIN adk_run_leases AS target USING (tenant, run_id) "
            f"WHERE {held.text} FOR NO KEY UPDATE OF target SKIP LOCKED)",
            held.params,
        )
        return self._renewed(lease, ttl_seconds, both(held, dialect.after("free")), free)

    def _renewed(self, lease: RunLease, ttl_seconds: float, where: Sql, *after: Sql) -> RunLease:
        with mapped(self.alias):
            dialect = Dialect(connections[self.alias])
            renewal = dialect.update(models.RunLease, {"expires_at": dialect.later(ttl_seconds)}, where)
            row = _changed(dialect, lease.tenant, lease.run_id, renewal, *after)
            if row is not None and row.token == lease.token:
                return lease_of(row)
            if after and self._stands(lease):
                raise StoreUnavailableError(f"the lease of run {lease.run_id} is locked by a transaction: not now")
            raise lost(self.alias, Scope(lease.tenant, lease.run_id, lease.fence))

    def _stands(self, lease: RunLease) -> bool:
        of_run = {"tenant": lease.tenant, "run_id": lease.run_id}
        return models.RunLease.objects.using(self.alias).filter(**of_run, fence=lease.fence, token=lease.token).exists()

    def release(self, lease: RunLease) -> None:
        self._change(lease, _FREED)

    def progressed(self, lease: RunLease, *, deaths: int = 0) -> None:
        self._change(lease, {"deaths": deaths})

    def revoke(self, run_id: str, *, tenant: str, by: str) -> RunLease | None:
        token = uuid.uuid4().hex
        taken = {
            "holder": by,
            "token": token,
            "fence": Sql("target.fence + 1"),
            "acquired_at": AT,
            "expires_at": AT,
        }
        with mapped(self.alias):
            dialect = Dialect(connections[self.alias])
            change = dialect.update(models.RunLease, taken, "target.token IS NOT NULL")
            row = _changed(dialect, tenant, run_id, change)
        return lease_of(row) if row is not None and row.token == token else None

    def within(self, *, max_live: int | None, max_live_per_tenant: int | None) -> "OrmLeaseStore":
        capped = copy.copy(self)
        capped._caps = (max_live, max_live_per_tenant)
        return capped

    @contextlib.contextmanager
    def _room(self, run_id: str, tenant: str) -> Iterator[None]:
        """Let one at a time count the leases and add one, where they are capped."""
        max_live, max_of_tenant = self._caps
        if max_live is None and max_of_tenant is None:
            yield
            return
        connection = connections[self.alias]
        alone = _ALONE[:1] if connection.vendor == "sqlite" else _ALONE[2 if connection.in_atomic_block else 1 :]
        with transaction.atomic(using=self.alias):
            with connection.cursor() as cursor:
                for statement in alone:
                    cursor.execute(statement)
            others = models.RunLease.objects.using(self.alias).exclude(tenant=tenant, run_id=run_id)
            live = others.filter(token__isnull=False, expires_at__gt=Clock())
            full = max_live is not None and live.count() >= max_live
            if full or (max_of_tenant is not None and live.filter(tenant=tenant).count() >= max_of_tenant):
                raise CrowdedError
            yield

    def held(self, run_id: str, *, tenant: str) -> RunLease | None:
        with mapped(self.alias):
            rows = models.RunLease.objects.using(self.alias).filter(tenant=tenant, run_id=run_id, token__isnull=False)
            row = rows.first()
        return None if row is None else lease_of(row)

    def held_of(self, runs: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], RunLease]:
        wanted = set(runs)
        ids = {"tenant__in": {tenant for tenant, _ in wanted}, "run_id__in": {run_id for _, run_id in wanted}}
        with mapped(self.alias):
            rows = list(models.RunLease.objects.using(self.alias).filter(**ids, token__isnull=False))
        return {run: lease_of(row) for row in rows if (run := (row.tenant, row.run_id)) in wanted}

    def _change(self, lease: RunLease, changes: dict[str, Any]) -> None:
        with mapped(self.alias):
            dialect = Dialect(connections[self.alias])
            ready = ready_now(dialect, lease.tenant, lease.run_id)
            change = dialect.update(models.RunLease, changes, _held(dialect, lease))

            def send() -> None:
                with dialect.connection.cursor() as cursor:
                    cursor.execute(f"WITH {ready.text} {change.text}", ready.params + change.params)

            serialized(dialect.connection, send)


def _held(dialect: Dialect, lease: RunLease) -> Sql:
    return dialect.is_(models.RunLease, fence=lease.fence, token=lease.token)


def _changed(dialect: Dialect, tenant: str, run_id: str, change: Sql, *after: Sql) -> Any:
    """Make a change of the run's lease, after what the CTEs ``after`` do.

    Return its row afterwards, with ``live``, or None if there is none.
    """
    ctes = [ready_now(dialect, tenant, run_id), *after]
    text = f"WITH {', '.join(cte.text for cte in ctes)} {change.text}"
    params = (*(value for cte in ctes for value in cte.params), *change.params)
    live = f"coalesce(target.expires_at > {dialect.clock}, false) AS live"
    rows = models.RunLease.objects.using(dialect.connection.alias)
    if dialect.postgres:
        returning = f"{text} RETURNING target.*, {live}"
        return serialized(dialect.connection, lambda: next(iter(rows.raw(returning, params)), None))
    with transaction.atomic(using=dialect.connection.alias):
        with dialect.connection.cursor() as cursor:
            cursor.execute(text, params)
        found = f"SELECT target.*, {live} FROM adk_run_leases AS target WHERE tenant = %s AND run_id = %s"
        return next(iter(rows.raw(found, (tenant, run_id))), None)
