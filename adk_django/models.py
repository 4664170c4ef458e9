"""The tables. The stores read and write them in SQL of their own; people look at them through these models.

A run is referred to by plain columns (tenant, run id), people are text: nothing cascades and no foreign key leaves the
app.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from adk_django import fields
from adk_django.core.checkpoint import CheckpointBoundary
from adk_django.core.effects import HELD_STATES, ClaimState, EffectClass
from adk_django.core.record import ApprovalState, RunStatus

M = TypeVar("M", bound=type[models.Model])

OPEN = [status.value for status in RunStatus if not status.ended]
ENDED = [status.value for status in RunStatus if status.ended]


def named(one: Any, many: Any) -> Callable[[M], M]:
    """Name a model for people. Not in its Meta: what it is called is no part of the schema."""

    def name(model: M) -> M:
        model._meta.verbose_name, model._meta.verbose_name_plural = one, many
        return model

    return name


def _values(members: Any) -> list[str]:
    return [member.value for member in members]


class OfRun(models.Model):
    """A row of one run."""

    tenant = fields.CharField(_("tenant"), max_length=255)
    run_id = fields.CharField(_("run"), max_length=255)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.tenant}/{self.run_id}"


@named(_("run"), _("runs"))
class Run(OfRun):
    """One execution of one agent. ``fence`` is the highest that committed."""

    agent = fields.TextField(_("agent"))
    revision = fields.TextField(_("pinned revision"), null=True)  # noqa: DJ001  # none is not the empty revision
    format_version = fields.IntegerField(_("format"), null=True)
    status = fields.CharField(_("status"), max_length=16, default=RunStatus.ACTIVE.value)
    reason = fields.TextField(_("why it is not moving"), default="")
    input = fields.TextField(_("input"))
    input_digest = fields.TextField(_("digest of the input"), default="")
    salt = fields.TextField(_("salt"))
    output = fields.TextField(_("output"), null=True)  # noqa: DJ001  # none yet is not the empty answer
    user = fields.TextField(_("user"), null=True)  # noqa: DJ001  # nobody is not the empty name
    scopes = fields.PayloadField(_("scopes"), default="[]")
    parent = fields.TextField(_("parent run"), null=True)  # noqa: DJ001  # no parent
    fence = fields.BigIntegerField(_("fence"), default=0)
    begun_at = fields.InstantField(_("begun at"), null=True)
    created_at = fields.InstantField(_("created at"))
    updated_at = fields.InstantField(_("updated at"))
    wake_at = fields.InstantField(_("wake at"), null=True)
    cancel_requested_at = fields.InstantField(_("cancel requested at"), null=True)
    cancel_requested_by = fields.TextField(_("cancel requested by"), default="")
    cancel_reason = fields.TextField(_("why cancelled"), default="")
    release_requested_at = fields.InstantField(_("release requested at"), null=True)
    failed_save = fields.TextField(_("last failed save"), default="")
    claimed = fields.TextField(_("calls being claimed"), default="")

    class Meta:
        db_table = "adk_runs"
        constraints = [
            models.UniqueConstraint(fields=["tenant", "run_id"], name="adk_runs_one_per_id"),
            models.CheckConstraint(condition=Q(status__in=_values(RunStatus)), name="adk_runs_status_known"),
        ]
        indexes = [
            models.Index(fields=["wake_at"], condition=Q(wake_at__isnull=False, status__in=OPEN), name="adk_runs_due"),
            models.Index(fields=["-created_at", "-tenant", "-run_id"], name="adk_runs_newest"),
            models.Index(fields=["tenant", "-created_at", "-run_id"], name="adk_runs_newest_of_tenant"),
            models.Index(fields=["status", "-created_at"], condition=Q(status__in=OPEN), name="adk_runs_open"),
            models.Index(fields=["updated_at"], condition=Q(status__in=ENDED), name="adk_runs_ended"),
            models.Index(
                fields=["updated_at"], condition=Q(status="active", wake_at__isnull=True), name="adk_runs_unwoken"
            ),
        ]


@named(_("checkpoint"), _("checkpoints"))
class Checkpoint(OfRun):
    """The newest frontier of a run. ``format_version`` is read before ``payload`` is looked at."""

    format_version = fields.IntegerField(_("format"))
    boundary = fields.CharField(_("boundary"), max_length=32)
    turn = fields.IntegerField(_("turn"))
    fence = fields.BigIntegerField(_("fence"))
    size = fields.IntegerField(_("size in bytes"))
    digest = fields.TextField(_("digest"))
    payload = fields.PayloadField(_("payload"))
    created_at = fields.InstantField(_("written at"))

    class Meta:
        db_table = "adk_checkpoints"
        constraints = [
            models.UniqueConstraint(fields=["tenant", "run_id"], name="adk_checkpoints_one_per_run"),
            models.CheckConstraint(
                condition=Q(boundary__in=_values(CheckpointBoundary)), name="adk_checkpoints_boundary_known"
            ),
        ]


@named(_("lease"), _("leases"))
class RunLease(OfRun):
    """Who may advance a run. The row outlives its run, so that the fence never goes down and no id comes back."""

    holder = fields.TextField(_("holder"), null=True)  # noqa: DJ001  # nobody
    token = fields.TextField(_("token"), null=True)  # noqa: DJ001  # released
    fence = fields.BigIntegerField(_("fence"))
    acquired_at = fields.InstantField(_("acquired at"), null=True)
    expires_at = fields.InstantField(_("expires at"), null=True)
    deaths = fields.IntegerField(_("deaths"), default=0)
    took_over = fields.BooleanField(_("took over"), default=False)
    forgotten_at = fields.InstantField(_("forgotten at"), null=True)

    class Meta:
        db_table = "adk_run_leases"
        constraints = [
            models.UniqueConstraint(fields=["tenant", "run_id"], name="adk_run_leases_one_per_run"),
            models.CheckConstraint(
                condition=Q(holder__isnull=True, token__isnull=True, acquired_at__isnull=True, expires_at__isnull=True)
                | Q(holder__isnull=False, token__isnull=False, acquired_at__isnull=False, expires_at__isnull=False),
                name="adk_run_leases_held_or_not",
            ),
        ]
        indexes = [
            models.Index(fields=["expires_at"], condition=Q(token__isnull=False), name="adk_run_leases_lapsing"),
        ]


@named(_("idempotency key"), _("idempotency keys"))
class IdempotencyKey(OfRun):
    """The claim of one call: in flight, and then what came of it."""

    turn = fields.IntegerField(_("turn"))
    position = fields.IntegerField(_("position"))
    key = fields.TextField(_("key"))
    guaranteed = fields.BooleanField(_("key guaranteed"), default=True)
    tool = fields.TextField(_("tool"))
    effect = fields.CharField(_("class"), max_length=16)
    digest = fields.TextField(_("digest of the arguments"), default="")
    state = fields.CharField(_("state"), max_length=16)
    outcome = fields.PayloadField(_("outcome"), null=True)  # noqa: DJ001  # none yet
    token = fields.TextField(_("token"), null=True)  # noqa: DJ001  # done at once, without a claim
    request_id = fields.TextField(_("approval"), null=True)  # noqa: DJ001  # needed none
    fence = fields.BigIntegerField(_("fence"))
    attempt = fields.IntegerField(_("attempt"), default=1)
    limit_seconds = fields.FloatField(_("limit in seconds"), default=0)
    begun_at = fields.InstantField(_("begun at"), null=True)
    deadline_at = fields.InstantField(_("deadline"), null=True)
    holder = fields.TextField(_("by"), default="")
    error = fields.TextField(_("error"), default="")
    settled_at = fields.InstantField(_("settled at"), null=True)
    settled_by = fields.TextField(_("settled by"), default="")
    reason = fields.TextField(_("why settled so"), default="")
    late_outcome = fields.PayloadField(_("evidence"), null=True)  # noqa: DJ001  # none came
    late_at = fields.InstantField(_("evidence came at"), null=True)
    contested = fields.BooleanField(_("contested"), default=False)

    class Meta:
        db_table = "adk_idempotency_keys"
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "run_id", "turn", "position"], name="adk_idempotency_keys_one_per_slot"
            ),
            models.UniqueConstraint(
                fields=["tenant", "run_id", "key"],
                condition=Q(state__in=_values(HELD_STATES)),
                name="adk_idempotency_keys_one_holder",
            ),
            models.CheckConstraint(condition=Q(state__in=_values(ClaimState)), name="adk_idempotency_keys_state_known"),
            models.CheckConstraint(
                condition=Q(effect__in=_values(EffectClass)), name="adk_idempotency_keys_effect_known"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["in_flight", "never_ran"], outcome__isnull=True)
                | (~Q(state__in=["in_flight", "never_ran"]) & Q(outcome__isnull=False)),
                name="adk_idempotency_keys_outcome_if_done",
            ),
        ]


@named(_("transcript message"), _("transcript messages"))
class TranscriptMessage(OfRun):
    """One message of a conversation; ``position`` counts from 0, ``digest`` rolls over all up to it."""

    generation = fields.IntegerField(_("generation"), default=1)
    position = fields.IntegerField(_("position"))
    fence = fields.BigIntegerField(_("fence"))
    payload = fields.PayloadField(_("payload"))
    digest = fields.TextField(_("rolling digest"))

    class Meta:
        db_table = "adk_transcript_messages"
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "run_id", "generation", "position"], name="adk_transcript_messages_one_per_place"
            ),
        ]


@named(_("approval"), _("approvals"))
class Approval(OfRun):
    """A person's decision on one call with exactly these arguments."""

    request_id = fields.TextField(_("request"))
    turn = fields.IntegerField(_("turn"))
    position = fields.IntegerField(_("position"))
    tool = fields.TextField(_("tool"))
    digest = fields.TextField(_("digest of the arguments"))
    arguments = fields.PayloadField(_("arguments"))
    summary = fields.TextField(_("summary"), default="")
    state = fields.CharField(_("state"), max_length=16, default=ApprovalState.REQUESTED.value)
    edited = fields.PayloadField(_("approver's arguments"), null=True)  # noqa: DJ001  # as asked
    expires_seconds = fields.FloatField(_("open for seconds"), null=True)
    expires_at = fields.InstantField(_("expires at"), null=True)
    requested_at = fields.InstantField(_("requested at"))
    decided_at = fields.InstantField(_("decided at"), null=True)
    decided_by = fields.TextField(_("decided by"), default="")
    reason = fields.TextField(_("reason"), default="")

    class Meta:
        db_table = "adk_approvals"
        constraints = [
            models.UniqueConstraint(fields=["tenant", "request_id"], name="adk_approvals_one_per_request"),
            models.UniqueConstraint(fields=["tenant", "run_id", "turn", "position"], name="adk_approvals_one_per_slot"),
            models.CheckConstraint(condition=Q(state__in=_values(ApprovalState)), name="adk_approvals_state_known"),
        ]
        indexes = [
            models.Index(fields=["expires_at"], condition=Q(state="requested"), name="adk_approvals_open"),
        ]


@named(_("run event"), _("run events"))
class RunEvent(OfRun):
    """What people, probes and sweeps did to a run. Append only."""

    at = fields.InstantField(_("at"))
    kind = fields.CharField(_("kind"), max_length=32)
    by = fields.TextField(_("by"), default="")
    reason = fields.TextField(_("reason"), default="")
    turn = fields.IntegerField(_("turn"), null=True)
    position = fields.IntegerField(_("position"), null=True)
    detail = fields.TextField(_("detail"), default="")

    class Meta:
        db_table = "adk_run_events"
        indexes = [models.Index(fields=["tenant", "run_id", "at"], name="adk_run_events_of_run")]


@named(_("spend"), _("spend"))
class Spend(OfRun):
    """One row of the ledger: a model call of ``turn`` asked under ``fence``."""

    turn = fields.IntegerField(_("turn"))
    fence = fields.BigIntegerField(_("fence"))
    input_tokens = fields.BigIntegerField(_("input tokens"), default=0)
    output_tokens = fields.BigIntegerField(_("output tokens"), default=0)
    unknown_calls = fields.IntegerField(_("calls of unknown cost"), default=0)
    cost_micros = fields.BigIntegerField(_("cost in micros"), default=0)
    spent_at = fields.InstantField(_("spent at"))

    class Meta:
        db_table = "adk_spend"
        constraints = [
            models.UniqueConstraint(fields=["tenant", "run_id", "turn", "fence"], name="adk_spend_one_per_call"),
        ]
