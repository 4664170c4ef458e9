"""The row of a run that is to be started: checked, masked, and under an id of its own."""

import os
import uuid
from collections.abc import Callable
from typing import Any

from adk_django.agents import Agent
from adk_django.core.codec import digest
from adk_django.core.ids import require_ids
from adk_django.core.record import RunRecord


def new_record(
    agent: Agent, input: str, *, tenant: str, run_id: str | None, user: str | None, mask: Callable[[Any], Any]
) -> RunRecord:
    """Return the row of a new run: its text masked, its digest of the real one. Raise ValueError for bad input."""
    named = {"run_id": run_id, "user": user}
    require_ids(tenant=tenant, **{field: text for field, text in named.items() if text is not None})
    if not isinstance(input, str):
        raise ValueError(f"input is {type(input).__name__}: expected a text")
    return RunRecord(
        tenant=tenant,
        run_id=str(uuid.uuid4()) if run_id is None else run_id,
        agent=agent.name,
        input=mask(input),
        input_digest=digest(input),
        salt=os.urandom(32).hex(),
        user=user,
    )
