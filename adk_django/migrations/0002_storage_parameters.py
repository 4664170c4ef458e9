"""Room for the rows that change most, on PostgreSQL; elsewhere nothing.

A lease is renewed all its life and locked by every commit; a run's row and its frontier are written again and again.
With free space on its page a new version of such a row stays there and touches no index, and what it leaves behind is
cleaned early.
"""

from typing import Any

from django.db import migrations

HOT = {
    "adk_run_leases": {"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0.01, "autovacuum_vacuum_cost_delay": 0},
    "adk_runs": {"fillfactor": 85, "autovacuum_vacuum_scale_factor": 0.05},
    "adk_checkpoints": {"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.05},
}


class PostgresSQL(migrations.RunSQL):
    """SQL that only PostgreSQL is sent."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)


class Migration(migrations.Migration):
    dependencies = [("adk_django", "0001_initial")]

    operations = [
        PostgresSQL(
            f"ALTER TABLE {table} SET ({', '.join(f'{name} = {value}' for name, value in parameters.items())})",
            f"ALTER TABLE {table} RESET ({', '.join(parameters)})",
        )
        for table, parameters in HOT.items()
    ]
