"""What every command does the same: its options, our own checks, one line for whatever goes wrong, an exit code.

Django ends a command that raises with 1, which here means that there is no such run; it runs every app's checks before
one. So these commands run the checks of this app alone and turn each exception into the code of this table:

    1   no such run, call or request; a run that has ended
    2   a command line that cannot be read
    3   another worker holds the run
    4   refused: the run, the call or the request must be left as it is
    5   a fault: store or model provider down, wrong settings, anything else
"""

import argparse
import contextlib
import getpass
import json
import os
import sys
import traceback
from abc import ABC, abstractmethod
from typing import Any, Final, NoReturn

from django.core.checks import run_checks
from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.db import connections

from adk_django.core.effects import Slot
from adk_django.core.ids import require_ids
from adk_django.exceptions import (
    AdkError,
    CallNotFoundError,
    CheckpointNotFoundError,
    ConfigurationError,
    FenceLostError,
    ProviderError,
    RequestNotFoundError,
    RunLeaseError,
    StoreUnavailableError,
)
from adk_django.operations.planning import printable

TAG: Final = "adk_django"  # of our checks
_IDS: Final = {  # arguments that name something, and what they are elsewhere
    **{name: name for name in ("tenant", "run_id", "user", "agent")},
    "run": "run_id",
    "request": "request_id",
}

_CODES: Final[tuple[tuple[type[BaseException], int], ...]] = (  # the first that fits
    (CheckpointNotFoundError, 1),
    (CallNotFoundError, 1),
    (RequestNotFoundError, 1),
    (FenceLostError, 4),  # the lease store forgot: nobody holds the run
    (RunLeaseError, 3),
    (ConfigurationError, 5),
    (ProviderError, 5),
    (StoreUnavailableError, 5),
    (AdkError, 4),
    (BaseException, 5),
)
_INTERRUPTED: Final = 130  # what a shell makes of Ctrl-C


class Refusal(Exception):  # noqa: N818  # an answer, not an error
    """A command's own refusal: ``exit_code`` is of the table above, ``code`` the stable string of JSON output."""

    def __init__(self, message: str, *, exit_code: int, code: str) -> None:
        super().__init__(message)
        self.exit_code, self.code = exit_code, code


class AdkCommand(BaseCommand, ABC):
    """A command of this app. Subclasses write ``act``, which says things, fills ``facts``, and returns or raises."""

    requires_system_checks = ()  # ours are run by `handle`, which turns them into a code
    needs_tenant = True
    _from_argv = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Add what all these commands take, then the command's own."""
        self.parser = parser
        parser.add_argument("--tenant", required=self.needs_tenant, help="whose run it is")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="what to write; default: text")
        parser.add_argument("--database", choices=tuple(connections), help="the alias the runs are in")
        self.add_own_arguments(parser)
        if not self._from_argv:
            parser.error = _unreadable  # type: ignore[method-assign]  # Django's own has no code of its own

    @abstractmethod
    def add_own_arguments(self, parser: CommandParser) -> None:
        """Add the command's own arguments."""

    @abstractmethod
    def act(self, **options: Any) -> None:
        """Do what the command is for."""

    def run_from_argv(self, argv: list[str]) -> None:
        """Run for a command line: end the process with the command's code."""
        self._from_argv = True
        super().run_from_argv(argv)

    def handle(self, *args: Any, **options: Any) -> None:
        """Act; end with what came of it."""
        self.using: str | None = options["database"]
        self.as_json = options["format"] == "json"
        self.facts: dict[str, Any] = {}
        try:
            require_ids(**{_IDS[name]: options[name] for name in _IDS if options.get(name) is not None})
        except ValueError as error:
            _unreadable(str(error))
        try:
            _refuse_failed_checks()
            self.act(**options)
        except CommandError:  # a command line that `act` found to be unreadable
            raise
        except KeyboardInterrupt as error:
            if not self._from_argv:
                raise
            self._end(_INTERRUPTED, error, code="interrupted", tell="interrupted", show=False)
        except Exception as error:
            exit_code, code = _code_of(error)
            self._end(exit_code, error, code=code, tell=_told(error), show=options["traceback"])
        if self.as_json:
            self._write(self.stdout, json.dumps({"exit_code": 0, **self.facts}))

    def _end(self, exit_code: int, error: BaseException, *, code: str, tell: str, show: bool) -> NoReturn:
        if self.as_json:
            retryable = getattr(error, "retryable", False)
            fault = {"code": code, "message": tell, "retryable": retryable}
            self._write(self.stdout, json.dumps({"exit_code": exit_code, **self.facts, "error": fault}))
        if not self._from_argv:
            raise CommandError(printable(tell), returncode=exit_code) from error
        if show:
            for line in "".join(traceback.format_exception(error)).splitlines():
                self._write(self.stderr, printable(line))
        elif not self.as_json:
            self._write(self.stderr, printable(tell))
        sys.exit(exit_code)

    def say(self, *lines: str) -> None:
        """Write lines for people, each made one that a terminal only shows. Nothing where JSON is asked for."""
        if not self.as_json:
            for line in lines:
                self._write(self.stdout, printable(line))

    def _write(self, stream: OutputWrapper, line: str) -> None:
        """Write a line at once. A reader that left ends nothing: what is under way is carried on."""
        encoding = getattr(stream, "encoding", None) or "utf-8"
        try:
            stream.write(line.encode(encoding, "backslashreplace").decode(encoding))
            stream.flush()
        except BrokenPipeError:
            # What is still buffered would fail once more when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _unreadable(message: str) -> NoReturn:
    raise CommandError(f"Error: {message}", returncode=2)


def _refuse_failed_checks() -> None:
    failed = [item for item in run_checks(tags=[TAG]) if item.is_serious() and not item.is_silenced()]
    if failed:
        more = f" (and {len(failed) - 1} more: python manage.py check --tag {TAG})" if failed[1:] else ""
        raise Refusal(f"{failed[0].id}: {failed[0].msg}{more}", exit_code=5, code="failed-check")


def _code_of(error: Exception) -> tuple[int, str]:
    if isinstance(error, Refusal):
        return error.exit_code, error.code
    exit_code = next(code for kind, code in _CODES if isinstance(error, kind))
    return exit_code, error.code if isinstance(error, AdkError) else "fault"


def _told(error: Exception) -> str:
    ours = isinstance(error, AdkError | Refusal)
    return str(error) if ours else f"{type(error).__name__}: {error}"


def a_call(text: str) -> Slot:
    """Return the call that ``text`` names, for argparse."""
    try:
        return Slot.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_reason(parser: CommandParser, *, required: bool = True) -> None:
    """Add who answers, and why."""
    parser.add_argument("--reason", required=required, default="", help="why; kept on the record")
    parser.add_argument("--by", help="who answers; default: the user of the operating system")


def answerer(by: str | None) -> str:
    """Return who answers: ``by``, or the user this process belongs to."""
    if by:
        return by
    with contextlib.suppress(KeyError, OSError, ImportError):  # what Pythons raise where nobody has that number
        return getpass.getuser()
    return f"uid {os.getuid()}"
