"""The agents of the suite's workers, found by autodiscovery. WORKERS_FOLDER=path is where their tools leave traces."""

import os
from pathlib import Path

from django.conf import settings

from adk_django.agents import register
from tests.workers.run_definitions import agents

# Transactional tools need the runs' own database.
USING = None if "STORES" in settings.ADK else "default"

for agent in agents(Path(os.environ["WORKERS_FOLDER"]), using=USING):
    register(agent)
