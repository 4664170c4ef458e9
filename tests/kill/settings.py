"""Settings of commands that race: the suite's, with an app that registers the agent of the run they race for."""

from tests import settings as suite
from tests.settings import *  # noqa: F403  # all of the suite's

INSTALLED_APPS = [*suite.INSTALLED_APPS, "tests.kill"]
