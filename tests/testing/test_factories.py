"""What the factories make is what the stores read."""

import pytest

from adk_django.core.effects import Slot
from adk_django.core.plan import ToolDisposition
from adk_django.operations.planning import plan_resume
from adk_django.runs import inspect, list_runs, settle
from adk_django.stores.handler import complete
from adk_django.testing import factories

pytestmark = pytest.mark.django_db


def test_a_killed_run_is_inspected_and_settled() -> None:
    run = factories.RunFactory(run_id="run_killed")
    for made in (factories.CheckpointFactory, factories.IdempotencyKeyFactory):
        made(run_id=run.run_id)
    factories.RunLeaseFactory(run_id=run.run_id, dead=True)
    stores = complete()
    frontier = stores.checkpoints.latest(run.run_id, tenant="acme")
    assert frontier is not None
    (item,) = plan_resume(frontier, stores.idempotency).indeterminate
    assert (item.call.slot, item.call.tool) == (Slot(1, 1), "book_flight")
    seen = inspect(run.run_id, tenant="acme")
    assert seen is not None
    assert not seen.live
    settle(run.run_id, "1.1", tenant="acme", answer="never_ran", by="suite", reason="it says so")
    assert plan_resume(frontier, stores.idempotency).resumptions[0].disposition is ToolDisposition.NEVER_RAN


def test_a_live_lease_is_held_and_a_run_is_stuck_without_one() -> None:
    held, free = factories.RunFactory(), factories.RunFactory()
    factories.RunLeaseFactory(run_id=held.run_id)
    assert [row.run_id for row in list_runs(stuck=True)] == [free.run_id]


def test_a_request_waits_for_its_answer() -> None:
    request = factories.ApprovalFactory()
    (found,) = complete().runs.approvals(request.run_id, tenant="acme")
    assert (found.request_id, found.arguments) == (request.request_id, {"flight": "AD101"})


def test_a_conversation_is_fetched_by_its_handle() -> None:
    first = factories.TranscriptMessageFactory()
    last = factories.TranscriptMessageFactory(run_id=first.run_id, position=1, before=first.digest)
    messages = complete().history.fetch(factories.handle_of(last), tenant="acme")
    assert [message.text for message in messages] == ["Book the flight", "Book the flight"]
