"""The nursery: a process with Django set up that does each job in a fork of itself.

Run as a module. Each line it reads is a job, or the number of a child to wait for. A fork is a process of its own with
connections of its own, to be stopped and killed like any other, and it starts in milliseconds. When the nursery's
standard input closes, however the suite died, its children are killed and it ends.
"""

import contextlib
import json
import os
import signal
import sys
import traceback

import django


def be(name: str, given: dict[str, object]) -> None:
    """Do a job and die; called in the child."""
    from tests.kill import jobs

    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        jobs.JOBS[name](**given)
        code = 0
    except BaseException:  # a job that fails must not go on as a second nursery
        traceback.print_exc()
        jobs.say("failed", text=traceback.format_exc(limit=-3)[-1500:])
    finally:
        os._exit(code)


def main() -> None:
    """Do what each line asks, until there are no more."""
    django.setup()
    from tests.kill import jobs

    jobs.prepare()
    alive: set[int] = set()
    ended: dict[int, int] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "job" in asked:
            pid = os.fork()
            if pid == 0:
                be(asked["job"], asked["given"])
            alive.add(pid)
            ended.pop(pid, None)  # of an earlier child, whose number this one has
            jobs.say("born", pid=pid)
        else:
            pid = asked["wait"]
            status = ended[pid] if pid in ended else os.waitpid(pid, os.WUNTRACED)[1]
            if not os.WIFSTOPPED(status):
                alive.discard(pid)
                ended[pid] = status
            jobs.say("changed", pid=pid, status=status)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
