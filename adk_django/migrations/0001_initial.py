"""The tables of a run, with every constraint and index named by hand."""

from typing import Any

from django.db import migrations, models
from django.db.models import Q

OPEN = ["active", "waiting", "undecided", "quarantined"]
ENDED = ["completed", "failed", "cancelled"]
OPEN_CALL = ["in_flight", "never_ran"]


def of_a_run() -> "list[tuple[str, models.Field[Any, Any]]]":
    """Return the columns that the rows of every table begin with."""
    return [
        ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
        ("tenant", models.CharField(max_length=255)),
        ("run_id", models.CharField(max_length=255)),
    ]


class Migration(migrations.Migration):
    initial = True

    operations = [
        migrations.CreateModel(
            name="Run",
            fields=[
                *of_a_run(),
                ("agent", models.TextField()),
                ("revision", models.TextField(null=True)),
                ("format_version", models.IntegerField(null=True)),
                ("status", models.CharField(default="active", max_length=16)),
                ("reason", models.TextField(default="")),
                ("input", models.TextField()),
                ("input_digest", models.TextField(default="")),
                ("salt", models.TextField()),
                ("output", models.TextField(null=True)),
                ("user", models.TextField(null=True)),
                ("scopes", models.TextField(default="[]")),
                ("parent", models.TextField(null=True)),
                ("fence", models.BigIntegerField(default=0)),
                ("begun_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
                ("wake_at", models.DateTimeField(null=True)),
                ("cancel_requested_at", models.DateTimeField(null=True)),
                ("cancel_requested_by", models.TextField(default="")),
                ("cancel_reason", models.TextField(default="")),
                ("release_requested_at", models.DateTimeField(null=True)),
                ("failed_save", models.TextField(default="")),
                ("claimed", models.TextField(default="")),
            ],
            options={
                "db_table": "adk_runs",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "run_id"), name="adk_runs_one_per_id"),
                    models.CheckConstraint(
                        condition=Q(status__in=[*OPEN, *ENDED]),
                        name="adk_runs_status_known",
                    ),
                ],
                "indexes": [
                    models.Index(
                        condition=Q(status__in=OPEN, wake_at__isnull=False),
                        fields=["wake_at"],
                        name="adk_runs_due",
                    ),
                    models.Index(fields=["-created_at", "-tenant", "-run_id"], name="adk_runs_newest"),
                    models.Index(fields=["tenant", "-created_at", "-run_id"], name="adk_runs_newest_of_tenant"),
                    models.Index(
                        condition=Q(status__in=OPEN),
                        fields=["status", "-created_at"],
                        name="adk_runs_open",
                    ),
                    models.Index(condition=Q(status__in=ENDED), fields=["updated_at"], name="adk_runs_ended"),
                    models.Index(
                        condition=Q(status="active", wake_at__isnull=True),
                        fields=["updated_at"],
                        name="adk_runs_unwoken",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Checkpoint",
            fields=[
                *of_a_run(),
                ("format_version", models.IntegerField()),
                ("boundary", models.CharField(max_length=32)),
                ("turn", models.IntegerField()),
                ("fence", models.BigIntegerField()),
                ("size", models.IntegerField()),
                ("digest", models.TextField()),
                ("payload", models.TextField()),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "db_table": "adk_checkpoints",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "run_id"), name="adk_checkpoints_one_per_run"),
                    models.CheckConstraint(
                        condition=Q(boundary__in=["after_model_call", "before_approval", "after_tool_result"]),
                        name="adk_checkpoints_boundary_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RunLease",
            fields=[
                *of_a_run(),
                ("holder", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
                ("fence", models.BigIntegerField()),
                ("acquired_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
                ("deaths", models.IntegerField(default=0)),
                ("took_over", models.BooleanField(default=False)),
                ("forgotten_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "adk_run_leases",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "run_id"), name="adk_run_leases_one_per_run"),
                    models.CheckConstraint(
                        condition=Q(
                            holder__isnull=True, token__isnull=True, acquired_at__isnull=True, expires_at__isnull=True
                        )
                        | Q(
                            holder__isnull=False,
                            token__isnull=False,
                            acquired_at__isnull=False,
                            expires_at__isnull=False,
                        ),
                        name="adk_run_leases_held_or_not",
                    ),
                ],
                "indexes": [
                    models.Index(
                        condition=Q(token__isnull=False), fields=["expires_at"], name="adk_run_leases_lapsing"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                *of_a_run(),
                ("turn", models.IntegerField()),
                ("position", models.IntegerField()),
                ("key", models.TextField()),
                ("guaranteed", models.BooleanField(default=True)),
                ("tool", models.TextField()),
                ("effect", models.CharField(max_length=16)),
                ("digest", models.TextField(default="")),
                ("state", models.CharField(max_length=16)),
                ("outcome", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
                ("request_id", models.TextField(null=True)),
                ("fence", models.BigIntegerField()),
                ("attempt", models.IntegerField(default=1)),
                ("limit_seconds", models.FloatField(default=0)),
                ("begun_at", models.DateTimeField(null=True)),
                ("deadline_at", models.DateTimeField(null=True)),
                ("holder", models.TextField(default="")),
                ("error", models.TextField(default="")),
                ("settled_at", models.DateTimeField(null=True)),
                ("settled_by", models.TextField(default="")),
                ("reason", models.TextField(default="")),
                ("late_outcome", models.TextField(null=True)),
                ("late_at", models.DateTimeField(null=True)),
                ("contested", models.BooleanField(default=False)),
            ],
            options={
                "db_table": "adk_idempotency_keys",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant", "run_id", "turn", "position"), name="adk_idempotency_keys_one_per_slot"
                    ),
                    models.UniqueConstraint(
                        condition=Q(state__in=["in_flight", "done", "never_ran"]),
                        fields=("tenant", "run_id", "key"),
                        name="adk_idempotency_keys_one_holder",
                    ),
                    models.CheckConstraint(
                        condition=Q(state__in=["in_flight", "done", "never_ran", "failed", "copied"]),
                        name="adk_idempotency_keys_state_known",
                    ),
                    models.CheckConstraint(
                        condition=Q(effect__in=["read_only", "idempotent", "effectful", "transactional"]),
                        name="adk_idempotency_keys_effect_known",
                    ),
                    models.CheckConstraint(
                        condition=Q(state__in=OPEN_CALL, outcome__isnull=True)
                        | (~Q(state__in=OPEN_CALL) & Q(outcome__isnull=False)),
                        name="adk_idempotency_keys_outcome_if_done",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TranscriptMessage",
            fields=[
                *of_a_run(),
                ("generation", models.IntegerField(default=1)),
                ("position", models.IntegerField()),
                ("fence", models.BigIntegerField()),
                ("payload", models.TextField()),
                ("digest", models.TextField()),
            ],
            options={
                "db_table": "adk_transcript_messages",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant", "run_id", "generation", "position"),
                        name="adk_transcript_messages_one_per_place",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Approval",
            fields=[
                *of_a_run(),
                ("request_id", models.TextField()),
                ("turn", models.IntegerField()),
                ("position", models.IntegerField()),
                ("tool", models.TextField()),
                ("digest", models.TextField()),
                ("arguments", models.TextField()),
                ("summary", models.TextField(default="")),
                ("state", models.CharField(default="requested", max_length=16)),
                ("edited", models.TextField(null=True)),
                ("expires_seconds", models.FloatField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
                ("requested_at", models.DateTimeField()),
                ("decided_at", models.DateTimeField(null=True)),
                ("decided_by", models.TextField(default="")),
                ("reason", models.TextField(default="")),
            ],
            options={
                "db_table": "adk_approvals",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "request_id"), name="adk_approvals_one_per_request"),
                    models.UniqueConstraint(
                        fields=("tenant", "run_id", "turn", "position"), name="adk_approvals_one_per_slot"
                    ),
                    models.CheckConstraint(
                        condition=Q(state__in=["requested", "granted", "denied", "expired"]),
                        name="adk_approvals_state_known",
                    ),
                ],
                "indexes": [
                    models.Index(condition=Q(state="requested"), fields=["expires_at"], name="adk_approvals_open"),
                ],
            },
        ),
        migrations.CreateModel(
            name="RunEvent",
            fields=[
                *of_a_run(),
                ("at", models.DateTimeField()),
                ("kind", models.CharField(max_length=32)),
                ("by", models.TextField(default="")),
                ("reason", models.TextField(default="")),
                ("turn", models.IntegerField(null=True)),
                ("position", models.IntegerField(null=True)),
                ("detail", models.TextField(default="")),
            ],
            options={
                "db_table": "adk_run_events",
                "indexes": [
                    models.Index(fields=["tenant", "run_id", "at"], name="adk_run_events_of_run"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Spend",
            fields=[
                *of_a_run(),
                ("turn", models.IntegerField()),
                ("fence", models.BigIntegerField()),
                ("input_tokens", models.BigIntegerField(default=0)),
                ("output_tokens", models.BigIntegerField(default=0)),
                ("unknown_calls", models.IntegerField(default=0)),
                ("cost_micros", models.BigIntegerField(default=0)),
                ("spent_at", models.DateTimeField()),
            ],
            options={
                "db_table": "adk_spend",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant", "run_id", "turn", "fence"), name="adk_spend_one_per_call"
                    ),
                ],
            },
        ),
    ]
