"""The check of stores that were changed while runs are under way."""

from typing import Any

import pytest
from django.core.management import call_command

from adk_django.checks import settings as checks
from adk_django.conf import DEFAULT_STORES
from adk_django.core.record import RunStatus
from adk_django.models import Checkpoint, Run
from adk_django.stores.handler import IN_REDIS
from tests.backends import TENANT
from tests.fake_tools import calls, usual
from tests.run_fixture import Stage

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

STORES: dict[str, dict[str, Any]] = {
    "orm": {},
    "redis": {"STORES": {kind: {"BACKEND": path, "OPTIONS": {"CACHE": "adk"}} for kind, path in IN_REDIS.items()}},
    "memory": {
        "STORES": {kind: {"BACKEND": path.replace("orm.Orm", "memory.Memory")} for kind, path in DEFAULT_STORES.items()}
    },
}


def started(backend: str, log: list[str], *scripts: list[Any]) -> list[str]:
    """Carry runs of these scripts to their first stop in a backend; return how each stands."""
    found = []
    for script in scripts:
        stage = Stage(backend, script, *usual(log))
        stage.run()
        found.append(stage.record.status.value)
    return found


def w018(**given: Any) -> list[str]:
    """Return what the check says of the stores."""
    return [item.msg for item in checks.check_servers(**given) if item.id == "adk_django.W018"]


@pytest.mark.parametrize("after", STORES)
@pytest.mark.parametrize("before", ["default", "redis"])
def test_w018_stores_that_were_changed_while_runs_are_under_way(
    before: str, after: str, log: list[str], settings: Any, redis: Any
) -> None:
    waits, ends = [calls("wire"), "done"], ["done"]
    assert started(before, log, waits, ends, waits) == ["waiting", "completed", "waiting"]
    settings.ADK = STORES[after]
    said = w018(databases=["default"])
    deploy = [item.msg for item in checks.check_deployment() if item.id == "adk_django.W018"]
    if after == {"default": "orm"}.get(before, before):
        assert said == deploy == []
        return
    (message,) = said
    assert message.startswith("2 runs are under way on the database 'default' and not in the stores")
    assert deploy == said


def test_w018_counts_no_run_that_has_not_begun_ended_or_whose_save_failed(log: list[str], settings: Any) -> None:
    stage = Stage("default", [calls("wire"), "done"], *usual(log))
    stage.run()
    Checkpoint.objects.all().delete()
    assert w018(databases=["default"])[0].startswith("1 run is under way")
    for changes in ({"begun_at": None}, {"status": RunStatus.COMPLETED.value}, {"failed_save": "too large"}):
        kept = Run.objects.values(*changes).get(run_id=stage.run_id, tenant=TENANT)
        Run.objects.update(**changes)
        assert w018(databases=["default"]) == []
        Run.objects.update(**kept)
    assert w018(databases=[]) == w018(databases=["postgres"]) == []


def test_w018_is_found_by_the_command(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Stage("default", [calls("wire"), "done"], *usual(log)).run()
    Checkpoint.objects.all().delete()
    call_command("check", tags=["adk_django"], databases=["default"])
    assert "adk_django.W018" in capsys.readouterr().err
