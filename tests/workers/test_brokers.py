"""What is sent to a broker, when, and what becomes of a start whose broker does not answer."""

import base64
import contextlib
import json
import os
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from celery import current_app
from django.db import transaction
from django.test import TestCase

from adk_django import agents as registry
from adk_django import runs
from adk_django.core.record import RunStatus
from adk_django.models import Run, TranscriptMessage
from adk_django.operations import wakeups
from tests.backends import TENANT
from tests.celery_apps import celery_app
from tests.workers.conftest import Site
from tests.workers.run_definitions import CANARY, LARGE, agents


def bodies(site: Site) -> list[tuple[int, Any]]:
    """Return the messages in Redis, taken or not: the bytes of each, and its body."""
    waiting: Any = site.redis.lrange("adk", 0, -1)
    taken = [json.dumps(json.loads(text)[0]).encode() for text in site.redis.hvals("unacked")]
    found = []
    for raw in (*waiting, *taken):
        message = json.loads(raw)
        found.append((len(raw), base64.b64decode(message["body"])))
    return found


# Transactions


def test_a_start_that_rolls_back_sends_nothing(site: Site) -> None:
    with contextlib.suppress(ZeroDivisionError), transaction.atomic(using=site.alias):
        site.start("books")
        _ = 1 / 0
    assert site.queued() == 0
    assert not Run.objects.using(site.alias).exists()


def test_a_start_sends_once_the_run_is_committed_whatever_else_is_open(site: Site) -> None:
    with transaction.atomic(using=site.alias):
        site.start("books", "inside")
        assert site.queued() == 0
    assert site.queued() == 1
    with transaction.atomic(using="default"):  # another database's
        site.start("books", "beside")
        assert site.queued() == 2


@pytest.mark.django_db(databases=["default", "postgres"])
@pytest.mark.usefixtures("broker")
class TestInTestCase(TestCase):
    """Callbacks of a commit that a TestCase never makes."""

    databases = {"default", "postgres"}  # noqa: RUF012  # Django's own

    @pytest.fixture(autouse=True)
    def _server(self, broker: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        made = {agent.name: agent for agent in agents(tmp_path, using="postgres")}
        monkeypatch.setattr(registry, "_registry", made)
        with redis.Redis.from_url(broker) as self.redis:
            yield

    def test_are_run_where_they_are_captured(self) -> None:
        for using in ("default", "postgres"):
            self.redis.flushdb()
            with self.captureOnCommitCallbacks(using=using) as callbacks:
                runs.start("books", "go", tenant=TENANT, run_id="run_1", using=using)
            assert len(callbacks) == 1
            assert self.redis.llen("adk") == 0
            with self.captureOnCommitCallbacks(using=using, execute=True):
                runs.start("books", "go", tenant=TENANT, run_id="run_2", using=using)
            assert self.redis.llen("adk") == 1


# Brokers that do not answer


@pytest.fixture(params=["closed", "silent"])
def dumb(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of a port that is closed, or of one that listens and never answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if request.param == "silent":
            taken.listen(16)
        yield f"redis://127.0.0.1:{taken.getsockname()[1]}/1"


@pytest.mark.timeout(60)
def test_a_broker_that_does_not_answer_fails_no_start(site: Site, dumb: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"), celery_app(dumb):
        assert site.start("books", "outside", CANARY).created
        wakeups._silent_until.clear()  # some seconds later
        with transaction.atomic(using=site.alias):
            assert site.start("books", "inside", CANARY).created
        assert site.start("books", "meanwhile", CANARY).created
    assert caplog.text.count("a wake-up was not sent") == 3  # in the meantime nobody asked
    assert CANARY not in caplog.text
    assert sorted(site.sweep()) == ["inside", "meanwhile", "outside"]
    assert site.queued() == 3


# The connections that wake-ups are sent on


def test_wake_ups_share_a_connection_to_the_broker(site: Site) -> None:
    wakeups.send([(TENANT, "first")])
    before = site.redis.info("stats")["total_connections_received"]
    for number in range(20):
        assert wakeups.send([(TENANT, f"run_{number}")]) == 1
    assert site.redis.info("stats")["total_connections_received"] == before
    assert site.queued() == 21


class Closing(threading.Thread):
    """A port before a server, which closes a connection instead of passing on what comes after `armed` is set."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._behind, self._listening = port, socket.create_server(("127.0.0.1", 0))
        self.port, self.armed = self._listening.getsockname()[1], False

    def run(self) -> None:
        """Serve each connection on a thread."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._behind)) as server:
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data or (ready is client and self.armed):
                        self.armed = False
                        return
                    (server if ready is client else client).sendall(data)

    def close(self) -> None:
        """Take no more connections."""
        self._listening.close()


def test_a_wake_up_is_sent_anew_where_the_broker_closed_its_connection(site: Site) -> None:
    broker = urlsplit(current_app.conf.broker_url)
    between = Closing(broker.port or 6379)
    between.start()
    with contextlib.closing(between), celery_app(broker._replace(netloc=f"127.0.0.1:{between.port}").geturl()):
        assert wakeups.send([(TENANT, "first")]) == 1
        between.armed = True
        assert wakeups.send([(TENANT, "second"), (TENANT, "third")]) == 2
        assert not between.armed, "the connection was closed"
    assert site.queued() == 3


def test_a_fork_opens_a_connection_of_its_own(site: Site) -> None:
    app, url = current_app._get_current_object(), current_app.conf.broker_url
    pool = wakeups._producers(app, url)
    assert wakeups._producers(app, url) is pool
    if not (child := os.fork()):
        os._exit(wakeups._producers(app, url) is pool)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the child has another pool than its parent"


# What is in a message, and in a log


@pytest.mark.parametrize(
    ("agent", "came"),
    [
        ("sings", RunStatus.COMPLETED.value),
        ("stumbles", RunStatus.UNDECIDED.value),
        ("moody", "provider-failed"),
        ("quits", "None"),
    ],
)
def test_nothing_of_a_run_is_in_a_message_or_a_log(site: Site, agent: str, came: str) -> None:
    gate = site.gate("sing")
    site.start(agent, text=f"tell me of {CANARY}")
    seen = bodies(site)
    worker = site.worker(level="DEBUG")
    if agent == "sings":
        worker.said("entered")
        seen += bodies(site)
    gate.open()
    assert worker.said("done")["came"] == came
    site.age()
    site.sweep()
    seen += bodies(site)
    assert [size for size, body in seen if len(body) >= 1_000 or size >= 2_000] == []
    everything = [*(repr(body) for _, body in seen), repr(dump(site)), worker.log.read_text(errors="replace")]
    assert CANARY not in "".join(everything)
    assert CANARY in repr(list(Run.objects.using(site.alias).values()))  # it was there to be found


def dump(site: Site) -> dict[bytes, Any]:
    """Return all that Redis holds."""
    read: Any = {
        b"string": site.redis.get,
        b"list": lambda key: site.redis.lrange(key, 0, -1),
        b"hash": site.redis.hgetall,
        b"set": site.redis.smembers,
        b"zset": lambda key: site.redis.zrange(key, 0, -1, withscores=True),
        b"none": lambda key: None,  # gone meanwhile
    }
    keys: Any = site.redis.keys("*")
    return {key: read[site.redis.type(key)](key) for key in keys}


def test_a_message_is_small_however_long_the_history(site: Site) -> None:
    adk = {
        "CHECKPOINTS": {"max_bytes": 20_000_000},
        "TOOLS": {"max_result_bytes": 2 * LARGE},
        "CONTINUE": {"max_steps": 5},
    }
    gate, worker = site.gate("book"), site.worker(adk, level="DEBUG")
    site.start("grows")
    worker.said("entered")
    messages = bodies(site)
    assert messages
    assert all(len(body) < 1_000 and size < 2_000 for size, body in messages)
    assert CANARY not in repr(dump(site))
    assert len(worker.so_far("done")) > 1  # it was handed over, by messages no larger than the first
    gate.open()
    site.completed(worker)
    assert CANARY not in worker.log.read_text(errors="replace")
    lengths = [len(row.payload) for row in TranscriptMessage.objects.using(site.alias).all()]
    assert sum(lengths) > 10 * LARGE
