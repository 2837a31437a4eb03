"""Watches the workers that must leave worker clusters, for `drain` and `move`. The controller moves them."""

import asyncio
from abc import ABC, abstractmethod

from adapter.cli import common
from adapter.cli.terminal import print_line, print_note
from adapter.diagnosis.job_document import Document
from adapter.gang.drain_order import RemainingJob, change_lines
from adapter.objects.unstructured import Key
from adapter.shell.kube.client import ApiError, Client, Unreachable

PAUSE_SECONDS = 1.0  # between polls of a few small lists; a worker takes ten times as long to leave


class RemainingWatch(ABC):
    """Polls the remaining workers, and prints each change once."""

    def __init__(self, client: Client, *, as_json: bool = False) -> None:
        """`as_json`: print one JSON document a line."""
        self._client, self._as_json = client, as_json
        self._last_line = ""
        self._remaining: dict[Key, RemainingJob] = {}
        self._unreachable = False

    async def run(self) -> int:
        """Poll until no worker remains or they need not leave any more; return the exit code."""
        while True:
            code = await self._poll_once()
            if code is not None:
                return code
            await asyncio.sleep(PAUSE_SECONDS)

    @abstractmethod
    async def _read_remaining(self) -> dict[Key, RemainingJob]:
        """Read the manager's objects, and keep what the exit code depends on."""

    @abstractmethod
    def _document(self, now: dict[Key, RemainingJob]) -> Document:
        """The remaining workers, for programs."""

    @abstractmethod
    def _exit_code(self) -> int | None:
        """The exit code, by `_remaining` and what was read with it; None to poll again."""

    async def _poll_once(self) -> int | None:
        try:
            remaining = await self._read_remaining()
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError) and error.status < 500 and error.status != 429:
                raise
            self._report_unreachable(error)
            return None
        self._unreachable = False
        self._print_changes(remaining)
        self._remaining = remaining
        return self._exit_code()

    def _print_changes(self, now: dict[Key, RemainingJob]) -> None:
        if not self._as_json:
            for line in change_lines(self._remaining, now):
                print_line(line)
        elif (line := common.format_json(self._document(now))) != self._last_line:
            print_line(line)
            self._last_line = line

    def _report_unreachable(self, error: Exception) -> None:
        if not self._unreachable:
            print_note(f"The manager cluster cannot be reached: {error}; trying again ...")
        self._unreachable = True
