"""The agents of the suite's workers, found by autodiscovery. WORKERS_FOLDER=path is where their tools leave traces."""

import os
from pathlib import Path

from adk_django.agents import register
from tests.workers.scenes import agents

for agent in agents(Path(os.environ["WORKERS_FOLDER"]), using="default"):
    register(agent)
