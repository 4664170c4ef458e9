"""A wall clock that is wrong: everything a process can read it by is shifted."""

import datetime
import sys
import time
from datetime import timedelta
from typing import Any

_real_time, _real_datetime = time.time, datetime.datetime


class _Kind(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _real_datetime)


def shift(seconds: float) -> None:
    """Let this process believe that it is ``seconds`` later. For good: only for a process that ends."""

    class Shifted(_real_datetime, metaclass=_Kind):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return _real_datetime.now(tz) + timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> Any:
            return _real_datetime.utcnow() + timedelta(seconds=seconds)

    time.time = lambda: _real_time() + seconds
    time.time_ns = lambda: int(time.time() * 1e9)
    datetime.datetime = Shifted  # type: ignore[misc]  # a wrong clock is the point
    for module in list(sys.modules.values()):
        if getattr(module, "datetime", None) is _real_datetime:
            module.datetime = Shifted  # type: ignore[attr-defined]
