"""Whether the database has what this version expects."""

from django.apps import apps
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from adk_django.exceptions import ConfigurationError


def require_schema(alias: str) -> None:
    """Raise ConfigurationError, naming what is missing, unless every table, column, constraint and index is there."""
    missing = _unapplied(alias) + _lacking(alias)
    if missing:
        raise ConfigurationError(
            f"database {alias!r} lacks what this version expects ({'; '.join(missing)}): "
            f"python manage.py migrate --database={alias}"
        )


def _unapplied(alias: str) -> list[str]:
    loader = MigrationLoader(connections[alias])
    names = [name for app, name in loader.graph.nodes if app == "adk_django"]
    return [f"migration {name}" for name in sorted(names) if ("adk_django", name) not in loader.applied_migrations]


def _lacking(alias: str) -> list[str]:
    connection, missing = connections[alias], []
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor))
        for model in apps.get_app_config("adk_django").get_models():
            meta = model._meta
            if meta.db_table not in tables:
                missing.append(f"table {meta.db_table}")
                continue
            columns = {item.name for item in connection.introspection.get_table_description(cursor, meta.db_table)}
            there = set(connection.introspection.get_constraints(cursor, meta.db_table))
            named = [item.name for item in (*meta.constraints, *meta.indexes)]
            missing += [
                f"column {meta.db_table}.{field.column}" for field in meta.local_fields if field.column not in columns
            ]
            missing += [f"constraint {name}" for name in named if name not in there]
    return missing
