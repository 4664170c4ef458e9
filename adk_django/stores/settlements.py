"""What every store of claims does alike where a call was settled, or is at another attempt by now."""

from adk_django import signals
from adk_django.core.effects import Claim, EffectClass
from adk_django.exceptions import SettlementError
from adk_django.stores.base import IdempotencyStore


def was_settled_before(claim: Claim) -> bool:
    """Return whether a claim whose slot was claimed again had been settled never-ran: others are simply repeated."""
    return claim.effect is EffectClass.EFFECTFUL


def moved_on(claim: Claim) -> SettlementError:
    """Return the error of an answer to an attempt that is no longer the call's."""
    return SettlementError(f"call {claim.slot} is at attempt {claim.attempt} now, not the one answered: look again")


def tell_contradiction(claim: Claim) -> None:
    """Signal that evidence contradicts what a call was settled as."""
    signals.evidence_contradicts.send_robust(
        sender=IdempotencyStore, tenant=claim.tenant, run_id=claim.run_id, call=str(claim.slot)
    )
