"""For the suites of products and stores: a scripted model, a clock, an effect log, crash points and the store suites."""

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
