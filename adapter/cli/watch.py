"""`rayspan watch`: how does a job go on, until it has ended? Looks again and again, and shows what changed.

On a terminal the tree of `where` is drawn over and over, or short lines where it is higher than the screen; elsewhere each line that is new
is printed, and for programs each document. It reads and changes nothing. Exit code 0: the job has succeeded, or the RayCluster or RayService
was deleted, which have no other end; 1: it has failed, or its end was not seen, or it may not be read any more, or the manager cannot be
asked; 2: there is no such job.
"""

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from adapter.cli import job_reader, rayservice_report, watch_lines, where_table
from adapter.cli.common import DONE, TROUBLE, complain
from adapter.cli.job_reader import Asked, Unread
from adapter.cli.manager_reader import Look
from adapter.diagnosis.job_document import Document, document
from adapter.objects.rayjob import Unusable
from adapter.shell.kube.client import ApiError, Client, Unreachable

# Between two looks, which are about eight small reads each. A worker takes longer to start, and a hundred people who watch shall not be
# what an API server is busy with.
PAUSE_SECONDS = 2.0


def main(given: argparse.Namespace) -> int:
    """Watch, and return the exit code."""

    async def tell(client: Client, asked: Asked) -> int:
        try:
            return await _Watch(client, given, asked).run(asked)
        except Unread as refused:  # it was there before, so the command line is right
            return complain(str(refused), TROUBLE)

    try:
        return job_reader.attempt(given, tell)
    except KeyboardInterrupt:
        return complain("No longer watching; the job goes on.", TROUBLE)


class _Watch:
    """One job that is watched, by its uid: another one of its name is not it."""

    def __init__(self, client: Client, given: argparse.Namespace, asked: Asked) -> None:
        self._client, self._namespace = client, job_reader.namespace(given)
        self._which, self._uid = job_reader.identity(asked)
        self._screen = _Programs() if given.output == "json" else _Terminal() if sys.stdout.isatty() else _Lines()
        self._silent = False

    async def run(self, asked: Asked) -> int:
        """Show it, and look again until it has ended; returns the exit code."""
        while True:
            found = [document(facts) for facts in asked.jobs]
            self._screen.show(asked, found)
            code = watch_lines.ended(asked, found)
            if code is not None:
                return code
            again = await self._again()
            if again is None:
                return self._gone()
            asked = again

    async def _again(self) -> Asked | None:
        """The next look that was answered; None when the job is not there any more."""
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                found = await job_reader.read(Look(self._client), self._namespace, self._which)
            except Unread:
                raise
            except Unusable:
                return None
            except (Unreachable, ApiError) as error:
                if isinstance(error, ApiError) and not error.passing:
                    raise
                if not self._silent:
                    self._screen.note(f"The manager cluster cannot be asked: {error}; asking again ...")
                self._silent = True
            else:
                self._silent = False
                return found if job_reader.identity(found)[1] == self._uid else None

    def _gone(self) -> int:
        if watch_lines.ends_by_itself(self._which):
            return complain(f"{self._which} is gone, and how it ended was not seen.", TROUBLE)
        self._screen.note(f"{self._which} was deleted.")
        return DONE


class _Lines:
    """Where there is no terminal: each line that is new, with the seconds since the first."""

    def __init__(self) -> None:
        self._begun = datetime.now(UTC)
        self._last: list[str] = []

    def show(self, asked: Asked, found: Sequence[Document]) -> None:
        """Show what is so now."""
        seconds = (datetime.now(UTC) - self._begun).total_seconds()
        lines = watch_lines.lines(asked, found)
        for line in lines:
            if line not in self._last:
                print(f"{seconds:4.0f} s  {line}", flush=True)
        self._last = lines

    def note(self, text: str) -> None:
        """Say something beside it."""
        print(text, file=sys.stderr)


class _Terminal:
    """One picture, drawn over and over."""

    def __init__(self) -> None:
        self._begun = datetime.now(UTC)
        self._height = 0

    def show(self, asked: Asked, found: Sequence[Document]) -> None:
        """Draw what is so now."""
        now, size = datetime.now(UTC), shutil.get_terminal_size()
        tree = rayservice_report.rendered(asked, [where_table.render(one, now) for one in found]).splitlines()
        room = size.lines - 3  # below it two lines, and the one that the cursor is in: who fills the last one scrolls
        lines = tree if len(tree) <= room else watch_lines.lines(asked, found)[:room]
        picture = [*lines, "", f"{(now - self._begun).total_seconds():.0f} s; Ctrl-C stops the watching, not the job."]
        up = f"\033[{self._height}F" if self._height else ""
        # A line that is wrapped would spoil the count of lines.
        text = "".join(f"\033[K{line[: size.columns - 1]}\n" for line in picture)
        print(f"{up}{text}\033[J", end="", flush=True)
        self._height = len(picture)

    def note(self, text: str) -> None:
        """Say something beside it, below which the picture is drawn anew."""
        print(text, file=sys.stderr)
        self._height = 0


class _Programs:
    """A document a line, whenever it has changed."""

    def __init__(self) -> None:
        self._last: Document = {}

    def show(self, asked: Asked, found: Sequence[Document]) -> None:
        """Print it if it is news."""
        now = rayservice_report.document(asked, found)
        if now != self._last:
            print(json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **now}), flush=True)
        self._last = now

    def note(self, text: str) -> None:
        """Say something beside it."""
        print(text, file=sys.stderr)
