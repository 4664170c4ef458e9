"""The demo's story: five runs, each killed once with SIGKILL at a point that matters, and carried on."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from example_project.travel.demo_processes import Said, Stage

TENANT = "acme"
BOOKING = "2.1"  # the call that buys the seat, in every run of this story
ACTS = "held with fence"  # where adk_resume has shown what adk_inspect shows, and begins to act

PROLOGUE = """\
An agent books flights. Its tools: search_flights (read_only), book_flight (effectful: asking
twice buys twice), note_itinerary (transactional: a row of our own database).

The model is a scripted provider: it follows a script, decides only from the conversation it
is given, and needs no network. The rest is real: processes, SIGKILL, a SQLite file, and an
airline in a process of its own that sells a second seat to whoever asks a second time.

demo_child is adk_run that stays at a point, so that it is killed there and nowhere else.
"""


@dataclass(frozen=True)
class Row:
    """What one scene came to."""

    scenario: str
    deaths: int
    plan: str
    sold: int
    noted: int
    wanted: int = 1

    @property
    def right(self) -> bool:
        """Whether the passenger has the seats wanted, each of them noted, and no other."""
        return self.sold == self.noted == self.wanted


class Scene:
    """One run of the story, by one passenger."""

    def __init__(self, stage: Stage, number: str, passenger: str, title: str, extra: str = "") -> None:
        self.stage, self.title = stage, f"{number} {title}"
        self.passenger, self.run_id = passenger, f"trip-{number}"
        self.prompt = f"Book a flight from BER to LIS for {passenger}.{extra}"
        self._deaths, self._plan = 0, ""
        stage.say(f"\n{self.title}\n{'-' * len(self.title)}")

    def command(self, name: str, *words: str, expect: int = 0, begin: str = "") -> Said:
        """Run a command about this run, and show it."""
        return self.stage.command(name, self.run_id, *words, "--tenant", TENANT, expect=expect, begin=begin)

    def start(self, command: str = "adk_run") -> tuple[str, ...]:
        """Return the command line of a worker that starts this run."""
        return (command, "booking", self.prompt, "--tenant", TENANT, "--run-id", self.run_id)

    def hold(self, point: str) -> tuple[str, ...]:
        """Return the command line of a worker that starts this run and stays at ``point``."""
        return (*self.start("demo_child"), "--hold", point)

    @contextmanager
    def worker(self, marker: Path, *words: str) -> Iterator[None]:
        """Start a worker, run the block once ``marker`` is there, and kill the worker."""
        with self.stage.doomed(marker, *words):
            yield
        self._deaths += 1

    def inspect(self) -> None:
        """Show what is known after the death, keep what the plan says, and wait until the run may be taken over."""
        seen = self.command("adk_inspect")
        self._plan = ", ".join(seen.lines(r"call (\d+\.\d+ \w+: \w+)"))
        self.count()
        self.stage.wait_for_lapse(seen)

    def count(self) -> tuple[int, int]:
        """Say and return how many seats the airline sold, and how many of them we noted."""
        sold, noted = len(self.stage.seats(self.passenger)), self.stage.itineraries(self.passenger)
        self.stage.say(f"The airline sold {sold} to {self.passenger}; our itineraries hold {noted}.")
        return sold, noted

    def resume(self, why: str, begin: str = ACTS) -> Row:
        """Carry the run on in a new process and return what came of it."""
        self.stage.say(why)
        self.command("adk_resume", begin=begin)
        return Row(self.title, self._deaths, self._plan, *self.count())


def before_the_call(stage: Stage) -> Row:
    """Kill the worker after the model answered and before the call is claimed."""
    scene = Scene(stage, "1", "Ada", "killed before the call was claimed")
    with scene.worker(stage.marker, *scene.hold("answered")):
        stage.say("The answer is saved and the call is not claimed. A second worker tries meanwhile:")
        scene.command("adk_resume", expect=3, begin="is held by")
    scene.inspect()
    return scene.resume("No claim: the body was never entered. The call is made, and the model is not asked again.")


def _inside_the_request(stage: Stage, number: str, passenger: str, title: str) -> Scene:
    scene = Scene(stage, number, passenger, title)
    stage.stall.touch()
    with scene.worker(stage.stalled, *scene.start()):
        stage.say("The airline has sold the seat and has not answered yet.")
    stage.stall.unlink()
    scene.inspect()
    stage.say("The airline's look-up is down, so the call's own probe cannot answer, and the run is refused:")
    stage.look_up_down.touch()
    scene.command("adk_resume", expect=4, begin=ACTS)
    scene.count()
    return scene


def settled_by_its_probe(stage: Stage) -> Row:
    """Kill the worker inside the airline's request; the airline's look-up says that the seat was sold."""
    title = "killed inside the request; its probe settled it"
    scene = _inside_the_request(stage, "2a", "Bo", title)
    stage.look_up_down.unlink()
    stage.say("The look-up is back. Ask it, and only it:")
    scene.command("adk_settle", BOOKING, "--probe", "--reason", "the look-up is back", "--by", "travel desk")
    why = "The call happened. Its outcome is on record and is given to the model; nothing is bought."
    return scene.resume(why, begin="")


def settled_by_a_person(stage: Stage) -> Row:
    """Kill the worker inside the airline's request; a person who asked the airline says that the seat was sold."""
    scene = _inside_the_request(stage, "2b", "Cleo", "killed inside the request; a person settled it")
    [seat] = stage.seats(scene.passenger)
    stage.say("The look-up stays down. A person calls the airline and answers, once and on the record:")
    told = (
        "--as",
        "completed",
        "--outcome",
        f"seat {seat}",
        "--reason",
        "the airline said so on the phone",
        "--by",
        "travel desk",
    )
    scene.command("adk_settle", BOOKING, *told)
    stage.look_up_down.unlink()
    return scene.resume("The person's answer is given to the model as the outcome.", begin="")


def after_the_outcome(stage: Stage) -> Row:
    """Kill the worker between the commit of the outcome and the next call of the same turn."""
    title = "killed after the outcome was recorded"
    scene = Scene(stage, "3", "Dora", title, " Look for the way back as well.")
    with scene.worker(stage.marker, *scene.hold("recorded")):
        stage.say("The seat is bought and its outcome is committed; the search beside it is not made.")
    scene.inspect()
    return scene.resume("The outcome is on record: it is replayed. What never ran is made.")


def inside_the_transaction(stage: Stage) -> Row:
    """Kill the worker inside the transactional tool, its row inserted and not committed."""
    scene = Scene(stage, "4", "Emil", "killed inside the transactional tool")
    with scene.worker(stage.marker, *scene.hold("inside")):
        stage.say("The itinerary's row is inserted, in a transaction that is not committed.")
    scene.inspect()
    return scene.resume("Row and outcome are one commit, and it never came: the call never ran. It is made.")


SCENES: tuple[Callable[[Stage], Row], ...] = (
    before_the_call,
    settled_by_its_probe,
    settled_by_a_person,
    after_the_outcome,
    inside_the_transaction,
)


def tell(stage: Stage) -> list[Row]:
    """Tell the whole story and return its rows. Raise DemoError if anything does not come out as it must."""
    stage.say(PROLOGUE)
    stage.command("migrate", "--verbosity", "0")
    return [scene(stage) for scene in SCENES]


def table(rows: list[Row]) -> Iterator[str]:
    """Yield the lines that say what it came to."""
    yield f"{'scenario':<50}  deaths  seats wanted  seats sold  noted"
    for row in rows:
        yield f"{row.scenario:<50}  {row.deaths:>6}  {row.wanted:>12}  {row.sold:>10}  {row.noted:>5}"
        yield f"    plan: {row.plan}"
