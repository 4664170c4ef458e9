"""What adk_run and adk_resume share: carry a run on here, show how it goes, say how it stopped."""

import contextlib
import shlex
from typing import Any

from adk_django import runs
from adk_django.core.checkpoint import PendingCall
from adk_django.core.decide import AskModel, Commit, Decision, Dispatch, Probe, Stop, Transact
from adk_django.core.effects import Claim
from adk_django.core.record import RunRecord, RunStatus, Writes
from adk_django.core.state import RunState
from adk_django.exceptions import ProviderError
from adk_django.execution.runner import RunResult
from adk_django.management import json_output
from adk_django.management.base import AdkCommand, Refusal
from adk_django.operations import wakeups
from adk_django.operations.inspection import moves


class DrivingCommand(AdkCommand):
    """A command that carries a run on to its next stop."""

    def carry_on(self, run_id: str, *, tenant: str, **options: Any) -> None:
        """Carry the run on, showing each step; say how it stopped. Raise what `runs.resume` does.

        A stop without one step is a refusal: the run is where it was.
        """
        progress = _Progress(self)
        try:
            result = runs.resume(run_id, tenant=tenant, watch=progress, using=self.using, **options)
        except ProviderError as error:
            seen = runs.inspect(run_id, tenant=tenant, using=self.using)
            again = seen.record.reason if seen is not None else str(error)
            raise ProviderError(f"{again}; the run stays active") from error
        finally:
            self.facts["fence"], self.facts["steps"] = progress.fence, progress.steps
        self.facts |= {
            "run_id": run_id,
            "tenant": tenant,
            "status": result.status.value,
            "reason": result.reason,
            "output": result.output,
            "usage": json_output.of_usage(result.usage),
            "iterations": result.iterations,
        }
        if not (progress.moved or result.status is RunStatus.CANCELLED):
            raise _stood_still(result)
        self.say(f"stopped: {result.status}" + (f": {result.reason}" if result.reason else ""))
        if result.output is not None:
            self.say("output:", *result.output.splitlines())
        seen = runs.inspect(run_id, tenant=tenant, using=self.using)
        self.facts["next_step"] = seen.next_step if seen is not None else ""
        if self.facts["next_step"]:
            self.say(f"next {self.facts['next_step']}")


def refuse_ended(record: RunRecord) -> None:
    """Raise the refusal of a run that has ended, saying how."""
    if record.status.ended:
        how = f"{record.status}: {record.reason}" if record.reason else record.status.value
        raise Refusal(f"run {record.run_id} has ended as {how}", exit_code=1, code="run-ended")


def handed_on(run_id: str, tenant: str) -> str:
    """Return what became of a run that is left to a worker."""
    if wakeups.configured():
        return "handed to a worker"
    command = f"adk_resume {shlex.quote(run_id)} --tenant {shlex.quote(tenant)}"
    return f"due, and nobody is woken: the product's Celery app names no broker; {command} carries it on here"


def stands_still(run_id: str, status: str, reason: str) -> Refusal:
    """Return the refusal of a run that cannot take one step."""
    why = f": {reason}" if reason else ""
    return Refusal(f"run {run_id} is {status}{why}", exit_code=4, code=f"run-{status}")


def _stood_still(result: RunResult) -> Refusal:
    if result.status.ended:
        return Refusal(f"run {result.run_id} has ended as {result.status}", exit_code=1, code="run-ended")
    return stands_still(result.run_id, result.status.value, result.reason)


class _Progress:
    """Watches a slice: says each step before it is taken. Never raises, so that nothing is left half done for it."""

    def __init__(self, command: AdkCommand) -> None:
        self._command = command
        self.fence: int | None = None
        self.steps: list[str] = []
        self.moved = False

    def __call__(self, run: RunState, decision: Decision) -> None:
        with contextlib.suppress(OSError):
            if self.fence is None:
                self.fence = run.setting.fence
                self._command.say(f"held with fence {self.fence}")
            self.moved = self.moved or moves(decision)
            if step := _step(run, decision):
                self.steps.append(step)
                self._command.say(step)


def _step(run: RunState, decision: Decision) -> str:
    match decision:
        case AskModel():
            return f"asking the model, turn {run.turn + 1}"
        case Dispatch(calls):
            return f"making {_calls(*calls)}"
        case Transact(call):
            return f"making {_calls(call)} in its transaction"
        case Probe(claims):
            return f"probing {_calls(*claims)}"
        case Commit(writes):
            return f"committing {_written(writes)}"
        case Stop():
            return ""


def _written(writes: Writes) -> str:
    parts = [writes.boundary_name] if writes.boundary_name else []
    parts += [f"claim of {_calls(*writes.claims)}"] if writes.claims else []
    parts += [f"outcome of {_calls(*writes.outcomes)}"] if writes.outcomes else []
    parts += [f"failure of {_calls(*writes.failures)}"] if writes.failures else []
    parts += [f"answer for {_calls(*(item.claim for item in writes.settlements))}"] if writes.settlements else []
    parts += [f"request of {_calls(*writes.requests)}"] if writes.requests else []
    parts += [f"status {writes.status}"] if writes.status else []
    return ", ".join(parts) or "what is known"


def _calls(*calls: PendingCall | Claim | Any) -> str:
    return ("calls " if calls[1:] else "call ") + ", ".join(f"{call.slot} ({call.tool})" for call in calls)
