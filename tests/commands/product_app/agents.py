"""Registers the agents of the commands' child processes."""

from adk_django.agents import register
from tests.commands.product_app.definitions import AGENTS

for agent in AGENTS.values():
    register(agent)
