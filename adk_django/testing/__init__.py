"""For suites of products and of stores: a scripted model, a clock, an effect log, crash points, conformance."""

from adk_django.testing.clock import FakeClock
from adk_django.testing.crashes import Crash, Crasher, CrashPoint, crash_points
from adk_django.testing.effects import EffectLog
from adk_django.testing.scripted import ScriptedProvider

__all__ = [
    "Crash",
    "CrashPoint",
    "Crasher",
    "EffectLog",
    "FakeClock",
    "ScriptedProvider",
    "crash_points",
]
