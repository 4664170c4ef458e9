"""Leases in Redis, and what the run row is told of them."""

import uuid

from adk_django import models
from adk_django.core import codec
from adk_django.core.lease import RunLease
from adk_django.exceptions import FenceLostError, ResumeConflictError, RunForgottenError, kept_error
from adk_django.stores.base import LeaseStore
from adk_django.stores.orm import connection
from adk_django.stores.redis import scripts
from adk_django.stores.redis.client import InCache, instant, lost, milliseconds, named


class RedisLeaseStore(InCache, LeaseStore):
    """Leases in Redis. The highest fence is kept in the run row as well: a server that forgot it is found out."""

    def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float, floor: int = 0) -> RunLease:
        token = uuid.uuid4().hex
        ids = codec.encode(tenant), codec.encode(run_id)
        asked = (codec.encode(holder), token, milliseconds(ttl_seconds), floor, *ids)
        said = self.call(scripts.ACQUIRE, tenant, run_id, *asked)
        match said:
            case ["held", fence, by, until]:
                raise ResumeConflictError(run_id=run_id, holder=named(by), until=instant(until), fence=int(fence))
            case ["floor", fence]:
                raise _behind(tenant, run_id, int(fence), floor)
        _, fence, at, until, deaths, took_over = said
        lease = RunLease(
            tenant, run_id, holder, token, int(fence), instant(at), instant(until), int(deaths), took_over == "1"
        )
        try:
            self._tell_row(lease)
        except BaseException as error:
            with kept_error(error, "releasing the lease"):
                self.release(lease)
            raise
        return lease

    def _tell_row(self, lease: RunLease) -> None:
        """Raise the fence of the run's row, so that from here on nothing is written there under a lower one.

        Raise FenceLostError if it has seen this one or a higher, RunForgottenError if the run was forgotten.
        """
        alias, of_run = connection.alias_for(models.Run, self.using), {"tenant": lease.tenant, "run_id": lease.run_id}
        with connection.mapped(alias):
            rows = models.Run.objects.using(alias).filter(**of_run)
            if rows.filter(fence__lt=lease.fence).update(fence=lease.fence):
                return
            seen = rows.values_list("fence", flat=True).first()
            if seen is not None:
                self.stands(lease)  # or somebody took it over while the row was locked
                raise _behind(lease.tenant, lease.run_id, lease.fence, seen)
            gone = models.RunLease.objects.using(alias).filter(**of_run, forgotten_at__isnull=False)
            if gone.exists():
                raise RunForgottenError

    def renew(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        asked = lease.token, lease.fence, milliseconds(ttl_seconds)
        said = self.call(scripts.RENEW, lease.tenant, lease.run_id, *asked)
        if said[0] == "lost":
            raise lost(lease.run_id, lease.fence, said)
        return RunLease(**{**vars(lease), "expires_at": instant(said[1]), "deaths": int(said[2])})

    def release(self, lease: RunLease) -> None:
        self.call(scripts.RELEASE, lease.tenant, lease.run_id, lease.token, lease.fence)

    def progressed(self, lease: RunLease, *, deaths: int = 0) -> None:
        self.call(scripts.PROGRESSED, lease.tenant, lease.run_id, lease.token, lease.fence, deaths)

    def revoke(self, run_id: str, *, tenant: str, by: str) -> RunLease | None:
        token = uuid.uuid4().hex
        said = self.call(scripts.REVOKE, tenant, run_id, codec.encode(by), token)
        if said[0] == "none":
            return None
        _, fence, at, deaths, took_over = said
        lease = RunLease(tenant, run_id, by, token, int(fence), instant(at), instant(at), int(deaths), took_over == "1")
        self._tell_row(lease)
        return lease

    def held(self, run_id: str, *, tenant: str) -> RunLease | None:
        said = self.call(scripts.HELD, tenant, run_id)
        if said[0] == "none":
            return None
        _, fence, token, holder, acquired_at, expires_at, deaths, took_over = said
        return RunLease(
            tenant,
            run_id,
            named(holder),
            token,
            int(fence),
            instant(acquired_at),
            instant(expires_at),
            int(deaths),
            took_over == "1",
        )

    def stands(self, lease: RunLease) -> None:
        """Raise LeaseLostError if ``lease`` is no longer the one that stands."""
        self.under(scripts.STANDS, lease.tenant, lease.run_id, lease.fence)

    def stamp(self, tenant: str, run_id: str, fence: int) -> None:
        """Refuse fences lower than ``fence`` for this run from now on, and free its lease where that raises it.

        What an operator does where the server forgot the fence: the next acquisition is above what the run has seen.
        """
        self.call(scripts.STAMP, tenant, run_id, fence)


def _behind(tenant: str, run_id: str, following: int, seen: int) -> FenceLostError:
    message = (
        f"run {run_id} has seen fence {seen}; the next in Redis is only {following}: what it kept is lost or old; "
        f"adk_release {run_id} --tenant {tenant} --reason TEXT --lease lets it go on above that"
    )
    return FenceLostError(message, fence=seen)
