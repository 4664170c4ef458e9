"""The airline of the example, as a process of its own: what a run's target does while the run's worker dies."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError

import pytest

from example_project.airline import client
from example_project.airline.launch import PROJECT_DIR, airline
from example_project.airline.server import Books


def wait_until(what, seconds=30):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it never came to pass"
        time.sleep(0.02)


def ask(url, path, body=None, headers=None):
    request = urllib.request.Request(url + path, body, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def sold(flight="AD101", origin="BER", destination="LIS", seats=180):
    [left] = [f["left"] for f in client.search(origin, destination) if f["flight"] == flight]
    return seats - left


@pytest.fixture
def books(tmp_path):
    return tmp_path / "airline.sqlite3"


@pytest.fixture
def at(monkeypatch):
    return lambda url: monkeypatch.setenv("AIRLINE_URL", url)


def test_a_seat_is_sold_once_and_found_under_its_key(books, at):
    with airline(books) as url:
        at(url)
        assert client.status("key-1") is None
        seat = client.book("AD101", "Ada", "key-1")
        assert (seat["flight"], seat["passenger"], seat["key"]) == ("AD101", "Ada", "key-1")
        assert client.status("key-1") == seat
        assert client.status("key-2") is None
        assert sold() == 1


def test_a_repeated_key_sells_a_second_seat_unless_the_airline_honours_it(books, at):
    with airline(books) as url:
        at(url)
        first = client.book("AD101", "Ada", "key-1")
        second = client.book("AD101", "Ada", "key-1")
        assert first["reference"] != second["reference"]
        assert client.status("key-1") == first
        assert sold() == 2


def test_an_airline_that_honours_keys_answers_with_the_first_seat(books, at):
    with airline(books, honour_keys=True) as url:
        at(url)
        first = client.book("AD101", "Ada", "key-1")
        assert client.book("AD101", "Ada", "key-1") == first
        assert client.book("AD101", "Ada", "key-2")["reference"] != first["reference"]
        assert sold() == 2


@pytest.mark.parametrize("servers", [1, 2])
def test_two_buyers_with_one_honoured_key_get_one_seat(books, monkeypatch, servers):
    both_looked = threading.Barrier(2)
    look = Books._seats

    def look_together(*args):
        seats = look(*args)
        # Met only if the second buyer can look before the first has paid; else the first looks alone and goes on.
        with contextlib.suppress(threading.BrokenBarrierError):
            both_looked.wait(0.5)
        return seats

    monkeypatch.setattr(Books, "_seats", look_together)
    with contextlib.ExitStack() as stack:
        desks = [stack.enter_context(contextlib.closing(Books(books, honour_keys=True))) for _ in range(servers)]
        buyers = stack.enter_context(ThreadPoolExecutor(2))
        sales = [buyers.submit(desk.sell, "AD101", "Ada", "key-1") for desk in (desks[0], desks[-1])]
        assert sorted(new for _, new in (sale.result() for sale in sales)) == [False, True]
        assert [seat.reference for seat in desks[0].all()] == ["SEAT-0001"]


def test_an_honoured_key_with_another_order_is_no_proof_that_nothing_was_sold(books, at):
    with airline(books, honour_keys=True) as url:
        at(url)
        first = client.book("AD101", "Ada", "key-1")
        with pytest.raises(client.NoAnswer, match="another seat"):
            client.book("AD103", "Ada", "key-1")
        assert client.status("key-1") == first


def test_a_full_or_unknown_flight_is_refused_and_nothing_is_sold(books, at):
    with airline(books) as url:
        at(url)
        for key in ("key-1", "key-2"):
            client.book("AD201", "Ada", key)
        with pytest.raises(client.SeatRefused, match="full"):
            client.book("AD201", "Ada", "key-3")
        with pytest.raises(client.SeatRefused, match="no flight XX1"):
            client.book("XX1", "Ada", "key-4")
        assert client.status("key-3") is None
        assert client.status("key-4") is None
        assert sold("AD201", "BER", "HEL", 2) == 2


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/flights?from=BER", None, {}),
        ("/seats?key=", None, {}),
        ("/seats?key=%C3%A9", None, {}),
        ("/seats", b"not json", {}),
        ("/seats", b"[" * 9000, {}),
        ("/seats", b"[]", {}),
        ("/seats", b'{"flight": "AD101"}', {}),
        ("/seats", b'{"flight": "AD101", "passenger": 7}', {}),
        ("/seats", b'{"flight": "AD101", "passenger": "\\ud800"}', {}),
        ("/seats", b'{"flight": "AD101", "passenger": "Ada"}', {"Idempotency-Key": " "}),
        ("/seats", b'{"flight": "AD101", "passenger": "' + b"A" * 20_000 + b'"}', {}),
    ],
)
def test_bad_input_is_a_400_that_sells_nothing(books, path, body, headers):
    with airline(books) as url:
        code, answer = ask(url, path, body, headers)
        assert (code, '"sold": false' in answer) == (400, True), answer
        assert ask(url, "/seats") == (200, '{"count": 0, "seats": []}')


def test_an_airline_that_is_down_or_another_page_settles_nothing(books, at):
    with airline(books) as url:
        at(url + "/elsewhere")
        with pytest.raises(client.NoAnswer, match="no page"):
            client.status("key-1")
        at(url)
        assert client.status("key-1") is None
    with pytest.raises(client.NoAnswer):
        client.book("AD101", "Ada", "key-1")
    with pytest.raises(client.NoAnswer):
        client.status("key-1")


def test_a_look_up_that_is_down_settles_nothing_and_comes_back(books, at, tmp_path):
    down = tmp_path / "down"
    with airline(books, look_up_down=down) as url:
        at(url)
        down.touch()
        seat = client.book("AD101", "Ada", "key-1")
        for key in ("key-1", "key-2"):
            with pytest.raises(client.NoAnswer, match="down"):
                client.status(key)
        down.unlink()
        assert client.status("key-1") == seat
        assert client.status("key-2") is None


def test_a_seat_whose_buyer_was_killed_stays_sold(books, at, tmp_path):
    stall = tmp_path / "stall"
    stall.touch()
    with airline(books, stall_after_sale=stall) as url:
        at(url)
        order = "from example_project.airline import client; client.book('AD101', 'Ada', 'key-1', timeout=600)"
        buyer = subprocess.Popen([sys.executable, "-c", order], cwd=PROJECT_DIR, env={**os.environ, "AIRLINE_URL": url})
        try:
            marker = tmp_path / "stall.sold"
            wait_until(marker.exists)
            assert buyer.poll() is None
        finally:
            buyer.kill()
        assert buyer.wait() == -signal.SIGKILL
        assert client.status("key-1")["reference"] == marker.read_text() == "SEAT-0001"
        assert sold() == 1


def test_a_held_answer_arrives_once_the_stall_file_is_gone(books, at, tmp_path):
    stall = tmp_path / "stall"
    stall.touch()
    with airline(books, stall_after_sale=stall) as url, ThreadPoolExecutor(1) as buyers:
        at(url)
        answer = buyers.submit(client.book, "AD101", "Ada", "key-1", timeout=60)
        wait_until((tmp_path / "stall.sold").exists)
        assert not answer.done()
        stall.unlink()
        assert answer.result(60)["reference"] == "SEAT-0001"


def test_a_buyer_that_gave_up_waiting_cannot_know(books, at, tmp_path):
    stall = tmp_path / "stall"
    stall.touch()
    with airline(books, stall_after_sale=stall) as url:
        at(url)
        with pytest.raises(client.NoAnswer):
            client.book("AD101", "Ada", "key-1", timeout=0.5)
        wait_until((tmp_path / "stall.sold").exists)
        assert client.status("key-1")["reference"] == "SEAT-0001"


def test_a_restarted_airline_knows_the_seats_it_sold(books, at):
    with airline(books) as url:
        at(url)
        seat = client.book("AD101", "Ada", "key-1")
    with airline(books, honour_keys=True) as url:
        at(url)
        assert client.status("key-1") == seat
        assert client.book("AD101", "Ada", "key-1") == seat
        assert client.book("AD101", "Bo", "key-2")["reference"] == "SEAT-0002"


def test_the_airline_does_not_outlive_a_killed_parent(books, at, tmp_path):
    told = tmp_path / "url"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from example_project.airline.launch import airline\n"
            "with airline(Path(sys.argv[1])) as url: Path(sys.argv[2]).write_text(url); time.sleep(600)",
            str(books),
            str(told),
        ],
        cwd=PROJECT_DIR,
    )
    try:
        wait_until(lambda: told.exists() and told.read_text())
        at(told.read_text())
        assert client.status("key-1") is None
    finally:
        parent.kill()
        parent.wait()

    def gone():
        try:
            client.status("key-1")
        except client.NoAnswer as answer:
            return "refused" in str(answer)
        return False

    wait_until(gone)


def test_the_airline_is_another_company_and_imports_no_django():
    listing = "import sys, example_project.airline.server; print({'django', 'adk_django'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", listing], cwd=PROJECT_DIR, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_client_reads_where_the_airline_is_from_the_settings(books, monkeypatch, settings):
    monkeypatch.delenv("AIRLINE_URL", raising=False)
    with airline(books) as url:
        settings.AIRLINE_URL = url + "/"
        assert client.search("ber", "lis")[0]["flight"] == "AD101"
