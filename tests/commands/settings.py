"""Settings of the commands' child processes: the suite's, with an app that has agents and a check that fails.

TEST_ADK={...}   the setting ADK, as JSON
"""

import json
import os

from tests import settings as suite
from tests.settings import *  # noqa: F403  # all of the suite's

INSTALLED_APPS = [*suite.INSTALLED_APPS, "tests.commands.product_app.apps.DeskConfig"]
ADK = json.loads(os.environ.get("TEST_ADK", "{}"))
