"""Leases in the product's database."""

import uuid
from typing import Any

from django.db import connections, transaction

from adk_django import models
from adk_django.core.lease import RunLease
from adk_django.exceptions import FenceLostError, ResumeConflictError, RunForgottenError
from adk_django.stores.base import LeaseStore
from adk_django.stores.orm_base import OnAlias, lost
from adk_django.stores.orm_parts import Scope, of_run
from adk_django.stores.orm_rows import lease_of
from adk_django.stores.sql import Dialect, Sql, mapped, refresh

_FREED = {"holder": None, "token": None, "acquired_at": None, "expires_at": None, "took_over": False}


class OrmLeaseStore(OnAlias, LeaseStore):
    """Leases in ``adk_run_leases``. One upsert decides an acquisition and returns who has the run, won or lost."""

    model = models.RunLease

    def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float, floor: int = 0) -> RunLease:
        alias, token = self.alias, uuid.uuid4().hex
        with mapped(alias):
            refresh(connections[alias])
            row = self._take(Scope(tenant, run_id, floor), holder, token, ttl_seconds)
        if row is not None and row.token == token:
            return lease_of(row)
        if row is not None and row.forgotten_at is not None:
            raise RunForgottenError
        if row is not None and row.token is not None and (row.live or row.fence >= floor):
            held = lease_of(row)
            raise ResumeConflictError(run_id=run_id, holder=held.holder, until=held.expires_at, fence=held.fence)
        following = 1 if row is None else row.fence + 1
        raise FenceLostError(f"run {run_id} has seen fence {floor}; the next here is only {following}", fence=floor)

    def _take(self, scope: Scope, holder: str, token: str, ttl_seconds: float) -> Any:
        """Take the lease if it is free; return the row as it is then, None if a fence was seen and there is none."""
        dialect = _at_one_instant(self.alias)
        floor = scope.fence
        taken = {
            "holder": holder,
            "token": token,
            "fence": Sql("target.fence + 1"),
            "acquired_at": Sql(dialect.at),
            "expires_at": dialect.later(ttl_seconds),
            "deaths": Sql("target.deaths + CASE WHEN target.token IS NULL THEN 0 ELSE 1 END"),
            "took_over": Sql("target.token IS NOT NULL"),
        }
        free = (
            f"target.forgotten_at IS NULL AND (target.token IS NULL OR target.expires_at <= {dialect.at}) "
            "AND target.fence >= %s"
        )
        changes = {}
        for column, new in taken.items():
            value = dialect.value(models.RunLease, column, new)
            case = f"CASE WHEN {free} THEN {value.text} ELSE target.{column} END"
            changes[column] = Sql(case, (floor, *value.params))
        if floor > 0:
            return _changed(
                dialect, dialect.update(models.RunLease, changes, where=of_run(dialect, scope, self.model)), scope
            )
        first = {"tenant": scope.tenant, "run_id": scope.run_id, **taken, "fence": 1, "deaths": 0, "took_over": False}
        assigned = dialect.assign(models.RunLease, changes)
        conflict = Sql(f"ON CONFLICT (tenant, run_id) DO UPDATE SET {assigned.text}", assigned.params)
        upsert = dialect.insert(models.RunLease, first, where=Sql("1 = 1"), conflict=conflict)
        return _changed(dialect, upsert, scope)

    def renew(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        with mapped(self.alias):
            refresh(connections[self.alias])
            dialect, scope = _at_one_instant(self.alias), _scope(lease)
            changes = {"expires_at": dialect.later(ttl_seconds)}
            renewal = dialect.update(models.RunLease, changes, where=_held(dialect, lease))
            row = _changed(dialect, renewal, scope)
            if row is None or row.token != lease.token:
                raise lost(self.alias, scope)
        return lease_of(row)

    def release(self, lease: RunLease) -> None:
        self._change(lease, _FREED)

    def progressed(self, lease: RunLease) -> None:
        self._change(lease, {"deaths": 0})

    def held(self, run_id: str, *, tenant: str) -> RunLease | None:
        with mapped(self.alias):
            rows = models.RunLease.objects.using(self.alias).filter(tenant=tenant, run_id=run_id, token__isnull=False)
            row = rows.first()
        return None if row is None else lease_of(row)

    def _change(self, lease: RunLease, changes: dict[str, Any]) -> None:
        with mapped(self.alias):
            dialect = Dialect(connections[self.alias])
            update = dialect.update(models.RunLease, changes, where=_held(dialect, lease))
            with dialect.connection.cursor() as cursor:
                cursor.execute(update.text, update.params)


def _scope(lease: RunLease) -> Scope:
    return Scope(lease.tenant, lease.run_id, lease.fence)


def _held(dialect: Dialect, lease: RunLease) -> Sql:
    return of_run(dialect, _scope(lease), models.RunLease, fence=lease.fence, token=lease.token)


def _at_one_instant(alias: str) -> Dialect:
    """Return a dialect whose ``at`` is the same all over the statement; on SQLite the clock is that by itself."""
    connection = connections[alias]
    return Dialect(connection, at="(SELECT at FROM moment)" if connection.vendor == "postgresql" else None)


def _changed(dialect: Dialect, change: Sql, scope: Scope) -> Any:
    """Make a change of the run's lease; return its row afterwards, with ``live``, or None if there is none."""
    live = f"coalesce(target.expires_at > {dialect.clock}, false) AS live"
    rows = models.RunLease.objects.using(dialect.connection.alias)
    if dialect.postgres:
        text = f"WITH moment AS MATERIALIZED (SELECT {dialect.clock} AS at) {change.text} RETURNING target.*, {live}"
        return next(iter(rows.raw(text, change.params)), None)
    with transaction.atomic(using=dialect.connection.alias):
        with dialect.connection.cursor() as cursor:
            cursor.execute(change.text, change.params)
        where = of_run(dialect, scope, models.RunLease)
        text = f"SELECT target.*, {live} FROM adk_run_leases AS target WHERE {where.text}"
        return next(iter(rows.raw(text, where.params)), None)
