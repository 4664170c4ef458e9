"""Chaos: workers are killed and stopped, the broker forgets and repeats itself, the database is restarted. Then calm.

Run as a module, it prints one line and exits 0 where every run came to its end, no effect happened twice and none is
missing. CHAOS_SECONDS is how long it lasts. SETUPS are the sets of stores it can be let loose on.
"""

import argparse
import collections
import contextlib
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.servers import LastingPostgres, RedisServer

TTL_SECONDS = 3.0
RUNS = 200
ADK: dict[str, Any] = {
    "LEASES": {"ttl_seconds": TTL_SECONDS, "renew_within_seconds": 1.5},
    "RESUME": {"max_deaths": 10_000, "backoff_seconds": [0.5, 2.0]},
    "TOOLS": {"time_limit_seconds": 12, "grace_seconds": 3},
    "CONTINUE": {"max_steps": 8},
}
SETUPS: dict[str, dict[str, Any]] = {  # what each adds to `ADK`
    "orm": {},
    "redis": {
        "STORES": {
            kind: {"BACKEND": f"adk_django.stores.redis.Redis{name}Store", "OPTIONS": {"CACHE": "adk"}}
            for kind, name in {
                "checkpoints": "Checkpoint",
                "leases": "Lease",
                "idempotency": "Idempotency",
                "history": "History",
            }.items()
        }
    },
}
# The broker forgets; a server with stores, which is behind the cache alias `adk`, loses nothing it has answered for.
SAVING = {"broker": (), "stores": ("--appendonly", "yes", "--appendfsync", "always")}


def main() -> int:
    """Let chaos loose, then check; return an exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--setup", choices=SETUPS, default="orm")
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    seconds = float(os.environ.get("CHAOS_SECONDS", "120"))
    seed = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(10**6)))
    with contextlib.ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="adk-chaos-")))
        broker, stores = (RedisServer(folder / name, *SAVING[name]) for name in SAVING)
        for server in (broker, stores):
            server.folder.mkdir()
            ends.enter_context(server)
        postgres = ends.enter_context(LastingPostgres())
        _settle_in(folder, broker.url, stores.url, postgres.url, given.setup)
        from tests.workers.chaos_faults import Storm

        storm = ends.enter_context(contextlib.closing(Storm(folder, postgres, broker, random.Random(seed), given.runs)))
        storm.rage(seconds)
        storm.calm()
        found = storm.verdict()
    counts = collections.Counter(storm.injuries)
    injuries = ", ".join(f"{kind} {number}" for kind, number in sorted(counts.items()))
    sys.stderr.write(f"seed {seed}: {injuries}\n" + "".join(f"{fault}\n" for fault in found.faults))
    sys.stdout.write(
        f"runs {given.runs}  kills {counts['child'] + counts['parent']}  takeovers {found.takeovers}  "
        f"undecided {found.undecided}  doubled {found.doubled}  lost {found.lost}\n"
    )
    return 1 if found.faults else 0


def _settle_in(folder: Path, broker: str, stores: str, postgres: str, setup: str) -> None:
    """Make this process the product of what is behind these URLs."""
    import json

    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "tests.workers.settings",
        "ADK_TEST_DATABASE_URL": postgres,
        "ADK_TEST_DEFAULT": "postgres",
        "ADK_TEST_REDIS_URL": stores,
        "WORKERS_BROKER": broker,
        "WORKERS_ADK": json.dumps({**ADK, **SETUPS[setup]}),
        "WORKERS_FOLDER": str(folder),
    }
    import django

    django.setup()
    from django.core.management import call_command

    from tests.workers.celery_app import app

    app.set_default()
    call_command("migrate", verbosity=0)


if __name__ == "__main__":
    sys.exit(main())
