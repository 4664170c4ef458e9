"""Requests for approval in the product's database, and their answers."""

from typing import Any

from django.db import connections
from django.db.models import Case, CharField, F, QuerySet, Value, When

from adk_django import models
from adk_django.core import codec
from adk_django.core.record import Approval, ApprovalState
from adk_django.exceptions import (
    ApprovalConflictError,
    ApprovalError,
    ApprovalExpiredError,
)
from adk_django.stores.orm.base import OnAlias
from adk_django.stores.orm.call_parts import told, woken
from adk_django.stores.orm.connection import mapped
from adk_django.stores.orm.rows import approval_of
from adk_django.stores.orm.sql import AT, Clock, Dialect, Part, Sql, run_joined

_OPEN = f"target.state = 'requested' AND (target.expires_at IS NULL OR target.expires_at > {AT.text})"


class OrmApprovals(OnAlias):
    """The part of `OrmRunStore` that keeps requests for approval, in ``adk_approvals``."""

    def approvals(self, run_id: str, *, tenant: str) -> tuple[Approval, ...]:
        with mapped(self.alias):
            rows = self._requests().filter(tenant=tenant, run_id=run_id)
            return tuple(approval_of(row) for row in rows.order_by("turn", "position"))

    def request(self, request_id: str, *, tenant: str) -> Approval | None:
        with mapped(self.alias):
            row = self._requests().filter(tenant=tenant, request_id=request_id).first()
        return None if row is None else approval_of(row)

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
        changes: dict[str, Any] = {"state": state.value, "decided_by": by, "reason": reason}
        changes["edited"] = None if edited is None else codec.encode(edited)
        if digest is not None:
            changes["digest"] = digest
        with mapped(self.alias):
            won = self._decide(request_id, tenant, changes)
            found = self.request(request_id, tenant=tenant)
        if found is None:
            raise ApprovalError(f"there is no request {request_id} of tenant {tenant}")
        if won or (found.state is state and codec.canonical(found.edited) == codec.canonical(edited)):
            return found
        if found.state in (ApprovalState.REQUESTED, ApprovalState.EXPIRED):
            raise ApprovalExpiredError(f"request {request_id} expired at {found.expires_at}")
        at = "" if found.decided_at is None else found.decided_at.isoformat()
        raise ApprovalConflictError(f"{request_id} was {found.state.value} by {found.decided_by} at {at}")

    def _decide(self, request_id: str, tenant: str, changes: dict[str, Any]) -> bool:
        dialect = Dialect(connections[self.alias])
        asked = Sql("target.tenant = %s AND target.request_id = %s", (tenant, request_id))

        def of_request(column: str) -> Sql:
            text = f"(SELECT target.{column} FROM adk_approvals AS target WHERE {asked.text})"
            return Sql(text, asked.params)

        decided = dialect.update(models.Approval, {**changes, "decided_at": AT}, asked, _OPEN)
        told_by = {"by": changes["decided_by"], "reason": changes["reason"], "detail": changes["state"]}
        slot = {column: of_request(column) for column in ("turn", "position")}
        parts = [
            Part("answered", decided, counted=True),
            woken(dialect, after="answered"),
            told(dialect, "decided", after="answered", **slot, **told_by),
        ]
        return bool(run_joined(dialect, tenant, of_request("run_id"), parts))

    def _requests(self) -> QuerySet[models.Approval]:
        """Return the requests with the state that each has by now."""
        expired = When(state=ApprovalState.REQUESTED.value, expires_at__lte=Clock(), then=Value("expired"))
        reads = Case(expired, default=F("state"), output_field=CharField())
        return models.Approval.objects.using(self.alias).annotate(reads=reads)
