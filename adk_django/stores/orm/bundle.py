"""The stores of a run that share one database, as one."""

from adk_django import models
from adk_django.core.lease import RunLease
from adk_django.core.record import Writes, Written
from adk_django.stores.bundle import Stores
from adk_django.stores.orm.commit import commit
from adk_django.stores.orm.connection import alias_for, refuse_transaction


class OrmStores(Stores):
    """ORM stores on one alias: a commit is one statement on PostgreSQL, one transaction on SQLite."""

    @property
    def alias(self) -> str:
        """The alias that all five are on."""
        return alias_for(models.Run, getattr(self.runs, "using", None))

    @property
    def joins(self) -> frozenset[str]:
        return frozenset((self.alias,))

    def refuse_transaction(self) -> None:
        refuse_transaction(self.alias)

    def commit(self, writes: Writes, *, lease: RunLease, joined: bool = False) -> Written:
        """Write all of ``writes`` under the lease's fence; return what stands.

        ``joined`` makes it the last statement of the transaction that is open on this alias.
        """
        return commit(self.alias, writes, lease, joined=joined)
