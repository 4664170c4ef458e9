"""The commit of runs that live in Redis, and whose rows live in the product's database."""

from contextlib import suppress

from adk_django import models
from adk_django.core.checkpoint import HistoryHandle
from adk_django.core.lease import RunLease
from adk_django.core.record import Writes, Written
from adk_django.exceptions import RunLeaseError, StoreUnavailableError
from adk_django.stores.bundle import Stores
from adk_django.stores.orm.connection import alias_for, refuse_transaction
from adk_django.stores.redis.client import keys_of, mapped, transcript_key
from adk_django.stores.redis.leases import RedisLeaseStore


class RedisStores(Stores):
    """Redis for leases, frontiers, claims and history, beside run rows in the database: a commit goes store by
    store."""

    leases: RedisLeaseStore

    def refuse_transaction(self) -> None:
        refuse_transaction(alias_for(models.Run, getattr(self.runs, "using", None)))

    def erased(self, tenant: str, run_id: str) -> None:
        _, *keys = keys_of(tenant, run_id)  # all but the lease, whose fence outlives its run
        with mapped(self.leases.cache):
            self.leases.client.delete(*keys, transcript_key(tenant, run_id, HistoryHandle.generation))

    def commit(self, writes: Writes, *, lease: RunLease, joined: bool = False) -> Written:
        """Write all of ``writes`` under the lease's fence, as `Stores.commit` does; return what stands.

        The lease is asked for first: the row alone does not know that it was released, or that the server restarted.
        Where it is lost, outcomes of claims are kept as evidence.
        """
        self.refuse_transaction()
        try:
            self.leases.stands(lease)
            return super().commit(writes, lease=lease, joined=joined)
        except RunLeaseError:
            for claim in writes.outcomes:
                if claim.token is not None and claim.outcome is not None:
                    with suppress(StoreUnavailableError):
                        self.idempotency.evidence(claim, claim.outcome)
            raise
