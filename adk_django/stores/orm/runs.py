"""The run rows, the ledger and the audit in the product's database."""

from datetime import datetime, timedelta
from typing import cast

from django.db import connections
from django.db.models import Case, Exists, F, Max, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce, Concat

from adk_django import models
from adk_django.core.effects import Claim
from adk_django.core.record import ApprovalState, RunRecord, RunStatus, Writes, Written, mark
from adk_django.exceptions import (
    LeaseLostError,
    RunForgottenError,
)
from adk_django.fields import instant
from adk_django.stores.base import LeaseStore
from adk_django.stores.orm.approvals import OrmApprovals
from adk_django.stores.orm.base import lost
from adk_django.stores.orm.call_parts import ENDED, told
from adk_django.stores.orm.connection import mapped
from adk_django.stores.orm.due import take_due
from adk_django.stores.orm.fenced_write import Scope, apply
from adk_django.stores.orm.prune import prune
from adk_django.stores.orm.rows import record_of, record_row
from adk_django.stores.orm.sql import AT, Clock, Dialect, Part, Sql, run_joined
from adk_django.stores.runs import Due, RunStore

_SPENT = ("input_tokens", "output_tokens", "unknown_calls", "cost_micros")
_NOT_FORGOTTEN = (
    "NOT EXISTS (SELECT 1 FROM adk_run_leases AS lease WHERE lease.tenant = ready.tenant "
    "AND lease.run_id = ready.run_id AND lease.forgotten_at IS NOT NULL)"
)


class OrmRunStore(OrmApprovals, RunStore):
    """Run rows in ``adk_runs``, the ledger in ``adk_spend``, the audit in ``adk_run_events``, and the requests."""

    model = models.Run

    def __init__(self, *, using: str | None = None, leases: LeaseStore | None = None) -> None:
        """Keep run rows on ``using``. ``leases`` is a lease store in another place, whose holder writes here as long
        as the row has seen no higher fence; None means the leases of the same database."""
        super().__init__(using=using)
        self.leases = leases

    def create(self, record: RunRecord) -> tuple[RunRecord, bool]:
        with mapped(self.alias):
            dialect = Dialect(connections[self.alias])
            row = {**record_row(record), "created_at": Sql("at"), "updated_at": Sql("at")}
            insert = dialect.insert(models.Run, row, _NOT_FORGOTTEN, conflict="ON CONFLICT (tenant, run_id) DO NOTHING")
            created = run_joined(dialect, record.tenant, record.run_id, [Part("created", insert, counted=True)])
            found = self.get(record.run_id, tenant=record.tenant)
        if found is None:
            raise RunForgottenError
        return found, bool(created)

    def get(self, run_id: str, *, tenant: str) -> RunRecord | None:
        with mapped(self.alias):
            row = self._rows().filter(tenant=tenant, run_id=run_id).first()
        return None if row is None else record_of(row)

    def write(self, run_id: str, *, tenant: str, writes: Writes, fence: int) -> Written:
        mine = Writes(
            requests=writes.requests,
            spend=writes.spend,
            begins=writes.begins,
            status=writes.status,
            reason=writes.reason,
            wake_at=writes.wake_at,
            wake_seen=writes.wake_seen,
            output=writes.output,
            revision=writes.revision,
            format_version=writes.format_version,
            failed_save=writes.failed_save,
        )
        scope = self._scope(tenant, run_id, fence)
        with mapped(self.alias):
            applied = apply(connections[self.alias], scope, mine)
            if applied is None:
                raise self._lost(scope)
        return Written(cancel_requested_at=applied.cancel_requested_at, at=applied.at)

    def gate(self, claim: Claim, *, fence: int) -> bool:
        may = Q(cancel_requested_at__isnull=True)
        if claim.request_id is not None:
            of_run = {"tenant": OuterRef("tenant"), "run_id": OuterRef("run_id"), "request_id": claim.request_id}
            asked = models.Approval.objects.filter(**of_run, state=ApprovalState.GRANTED.value, digest=claim.digest)
            may &= Q(Exists(asked))
        return self._note(claim, fence, claim.token, may)

    def ungate(self, claim: Claim, *, fence: int) -> None:
        self._note(claim, fence, None, Q())

    def _note(self, claim: Claim, fence: int, token: str | None, may: Q) -> bool:
        """Note, where the fence and ``may`` allow it, in one statement, that a slot is claimed under ``token``."""
        scope, note = self._scope(claim.tenant, claim.run_id, fence), mark(claim.slot, token)
        turn = Q(claimed__startswith=f"{claim.slot.turn}.")
        text = models.Run._meta.get_field("claimed")
        more = Concat(F("claimed"), Value(f" {note}", output_field=text), output_field=text)
        added = Case(When(turn, then=more), default=Value(note), output_field=text)
        with mapped(self.alias):
            rows = models.Run.objects.using(self.alias).filter(tenant=claim.tenant, run_id=claim.run_id)
            if rows.filter(may, fence__lte=fence).update(claimed=added, fence=fence):
                return True
            if rows.filter(fence__gt=fence).exists():
                raise self._lost(scope)
            return False

    def _scope(self, tenant: str, run_id: str, fence: int) -> Scope:
        return Scope(tenant, run_id, fence, by_row=self.leases is not None)

    def _lost(self, scope: Scope) -> LeaseLostError:
        if self.leases is None:
            return lost(self.alias, scope)
        held = self.leases.held(scope.run_id, tenant=scope.tenant)
        message = f"fence {scope.fence} of run {scope.run_id} does not stand: its row has seen a higher one"
        if held is None:
            return LeaseLostError(message)
        return LeaseLostError(message, holder=held.holder, until=held.expires_at, fence=held.fence)

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
        given = {"tenant": tenant, "status": None if status is None else status.value, "agent": agent}
        with mapped(self.alias):
            rows = self._rows().filter(**{column: value for column, value in given.items() if value is not None})
            if stuck:
                rows = rows.filter(status__in=models.OPEN).exclude(Exists(_live_leases()))
            ordered = rows.order_by("-created_at", "-tenant", "-run_id")
            if stuck and self.leases is not None:
                return self._lapsed(ordered, self.leases, limit, before)
            page = ordered if before is None else ordered.filter(_after(before))
            return tuple(record_of(row) for row in page[:limit])

    def _lapsed(
        self, ordered: QuerySet[models.Run], leases: LeaseStore, limit: int, before: RunRecord | None
    ) -> tuple[RunRecord, ...]:
        """Return those of the rows that no live lease of another place advances, page by page."""
        found: list[RunRecord] = []
        while len(found) < limit:
            now = self.now()
            rows = ordered if before is None else ordered.filter(_after(before))
            page = [record_of(row) for row in rows[:limit]]
            for record in page:
                held = leases.held(record.run_id, tenant=record.tenant)
                if held is None or not held.held_at(now):
                    found.append(record)
            if len(page) < limit:
                break
            before = page[-1]
        return tuple(found[:limit])

    def request_cancel(self, run_id: str, *, tenant: str, by: str, reason: str) -> RunRecord | None:
        with mapped(self.alias):
            dialect = Dialect(connections[self.alias])
            changes = {
                "cancel_requested_at": AT,
                "cancel_requested_by": by,
                "cancel_reason": reason,
                "wake_at": AT,
            }
            where = (f"NOT target.{ENDED}", "target.cancel_requested_at IS NULL")
            parts = [
                Part("asked_now", dialect.update(models.Run, changes, *where), counted=True),
                told(dialect, "cancel_requested", after="asked_now", by=by, reason=reason),
            ]
            run_joined(dialect, tenant, run_id, parts)
            return self.get(run_id, tenant=tenant)

    def request_release(self, run_id: str, *, tenant: str, by: str, reason: str) -> RunRecord | None:
        with mapped(self.alias):
            dialect = Dialect(connections[self.alias])
            changes = {"release_requested_at": AT, "wake_at": AT}
            where = f"target.status = '{RunStatus.QUARANTINED.value}'"
            parts = [
                Part("asked_now", dialect.update(models.Run, changes, where), counted=True),
                told(dialect, "release_requested", after="asked_now", by=by, reason=reason),
            ]
            run_joined(dialect, tenant, run_id, parts)
            return self.get(run_id, tenant=tenant)

    def wake(self, run_id: str, *, tenant: str) -> RunRecord | None:
        with mapped(self.alias):
            dialect = Dialect(connections[self.alias])
            woken_now = dialect.update(models.Run, {"wake_at": AT}, f"NOT target.{ENDED}")
            run_joined(dialect, tenant, run_id, [Part("woken", woken_now, counted=True)])
            return self.get(run_id, tenant=tenant)

    def prune(self, *, seconds: float, limit: int) -> tuple[tuple[str, str], ...]:
        with mapped(self.alias):
            return tuple(prune(self.alias, self.now() - timedelta(seconds=seconds), limit))

    def tell(self, run_id: str, *, tenant: str, kind: str, by: str, reason: str, detail: str = "") -> None:
        row = {"kind": kind, "at": AT, "by": by, "reason": reason, "detail": detail}
        with mapped(self.alias):
            dialect = Dialect(connections[self.alias])
            insert = dialect.insert(models.RunEvent, row | {"turn": None, "position": None})
            run_joined(dialect, tenant, run_id, [Part("told", insert, counted=True)])

    def take_due(self, due: Due) -> tuple[tuple[str, str], ...]:
        with mapped(self.alias):
            taken = take_due(connections[self.alias], due)
        if self.leases is None:
            return tuple(taken)
        now = self.now()  # another clock than that of the leases: who is woken in vain finds the run held
        held = (self.leases.held(run_id, tenant=tenant) for tenant, run_id in taken)
        return tuple(run for run, lease in zip(taken, held, strict=True) if lease is None or not lease.held_at(now))

    def now(self) -> datetime:
        connection = connections[self.alias]
        with mapped(self.alias), connection.cursor() as cursor:
            cursor.execute(f"SELECT {Dialect(connection).clock}", [])
            return cast("datetime", instant(cursor.fetchone()[0], connection))

    def _rows(self) -> QuerySet[models.Run]:
        """Return the run rows with the sums of their ledger."""
        spent = models.Spend.objects.filter(tenant=OuterRef("tenant"), run_id=OuterRef("run_id")).order_by()
        sums = {
            f"spent_{column}": Coalesce(
                Subquery(spent.values("tenant", "run_id").annotate(total=Sum(column)).values("total")), 0
            )
            for column in _SPENT
        }
        answered = spent.filter(unknown_calls=0).values("tenant", "run_id").annotate(last=Max("turn"))
        turns = Coalesce(Subquery(answered.values("last")), 0)
        return models.Run.objects.using(self.alias).annotate(**sums, spent_turns=turns)


def _live_leases() -> QuerySet[models.RunLease]:
    return models.RunLease.objects.filter(
        tenant=OuterRef("tenant"), run_id=OuterRef("run_id"), token__isnull=False, expires_at__gt=Clock()
    )


def _after(row: RunRecord) -> Q:
    """Return the condition of coming after ``row``, newest first."""
    older = Q(created_at__lt=row.created_at)
    other = Q(created_at=row.created_at, tenant__lt=row.tenant)
    return older | other | Q(created_at=row.created_at, tenant=row.tenant, run_id__lt=row.run_id)
