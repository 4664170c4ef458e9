"""For suites of products and of stores: a scripted model, a clock, an effect log, crash points, conformance."""

from adk_django.testing.clock import FakeClock
from adk_django.testing.conformance.base import StoreConformance
from adk_django.testing.conformance.checkpoints import CheckpointStoreConformance
from adk_django.testing.conformance.commits import CommitConformance
from adk_django.testing.conformance.history import HistoryStoreConformance
from adk_django.testing.conformance.leases import LeaseStoreConformance
from adk_django.testing.conformance.requests import RunStoreConformance
from adk_django.testing.conformance.settlements import IdempotencyStoreConformance
from adk_django.testing.crashes import Crash, Crasher, CrashPoint, crash_points
from adk_django.testing.effects import EffectLog
from adk_django.testing.scripted import ScriptedProvider

__all__ = [
    "CheckpointStoreConformance",
    "CommitConformance",
    "Crash",
    "CrashPoint",
    "Crasher",
    "EffectLog",
    "FakeClock",
    "HistoryStoreConformance",
    "IdempotencyStoreConformance",
    "LeaseStoreConformance",
    "RunStoreConformance",
    "ScriptedProvider",
    "StoreConformance",
    "crash_points",
]
