"""What the stores in the product's database share."""

from django.db.models import Model

from adk_django import models
from adk_django.exceptions import LeaseLostError
from adk_django.stores.orm_parts import NOT_ENDED, Scope, event, of_run
from adk_django.stores.sql import Dialect, Part, Sql, alias_for


class OnAlias:
    """A store on one database alias. Without ``using`` it is the one that the router writes the store's model to."""

    model: type[Model]

    def __init__(self, *, using: str | None = None) -> None:
        self.using = using

    @property
    def alias(self) -> str:
        """The alias of this call: the router is asked each time."""
        return alias_for(self.model, self.using)


def lost(alias: str, scope: Scope) -> LeaseLostError:
    """Return the error of a writer whose fence is no longer the one that stands, saying who has the run."""
    row = models.RunLease.objects.using(alias).filter(tenant=scope.tenant, run_id=scope.run_id).first()
    if row is None:
        return LeaseLostError(f"run {scope.run_id} has no lease")
    by = "nobody: it was released" if row.holder is None else row.holder
    message = f"fence {scope.fence} of run {scope.run_id} does not stand: fence {row.fence} is held by {by}"
    return LeaseLostError(message, holder=row.holder, until=row.expires_at, fence=row.fence)


# What people write: an answer on its own row, by compare-and-set, and a wake-up. The run's row is locked first, as in a
# commit, or the two could wait for each other.


def lock_run(dialect: Dialect, where: Sql) -> list[Sql]:
    """Return the CTE that locks the run's row; `after_lock` holds once that is done, whether there is a row or not."""
    return [Sql(f"run AS (SELECT 1 FROM adk_runs AS target WHERE {where.text} FOR NO KEY UPDATE)", where.params)]


def after_lock(dialect: Dialect) -> str:
    """Return the condition that makes a part wait for `lock_run`."""
    return "(SELECT count(*) FROM run) >= 0" if dialect.postgres else "1 = 1"


def wake(dialect: Dialect, where: Sql, *, after: str) -> Part:
    """Return the part that lets the run be due at once, unless it has ended."""
    text = f"{where.text} AND {NOT_ENDED} AND {dialect.after(after)}"
    changes = {"wake_at": Sql(dialect.at)}
    return Part("woken", dialect.update(models.Run, changes, where=Sql(text, where.params)), after=after)


def told(dialect: Dialect, kind: str, scope: Scope, *, after: str, **columns: object) -> Part:
    """Return the part that adds to the audit what somebody did to a run."""
    where = dialect.after(after)
    return event(
        dialect, kind, name="told", where=where, after=after, tenant=scope.tenant, run_id=scope.run_id, **columns
    )


def run_row(dialect: Dialect, scope: Scope) -> Sql:
    """Return the condition that holds for the run's row."""
    return of_run(dialect, scope, models.Run)
