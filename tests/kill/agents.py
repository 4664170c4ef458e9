"""The agent of commands that race, found by autodiscovery: it books, and waits at a gate once it has.

KILL_LOG=path    where it logs its effects
KILL_GATE=path   the gate
"""

import os

from adk_django.agents import register
from adk_django.testing import EffectLog
from tests.kill.jobs import wait_at
from tests.kill.run_definitions import SCENES, around

register(
    around(
        SCENES["effectful"].agent(EffectLog(os.environ["KILL_LOG"])),
        lambda item, key: None,
        lambda item: wait_at(os.environ["KILL_GATE"]),
    )
)
