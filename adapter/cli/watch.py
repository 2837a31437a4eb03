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
from adapter.cli.common import EXIT_ERROR, EXIT_OK, print_error
from adapter.cli.job_reader import SelectedJobs, UnreadableJob
from adapter.cli.manager_reader import ManagerReader
from adapter.diagnosis.job_document import Document, describe_job
from adapter.objects.rayjob import InvalidJob
from adapter.shell.kube.client import ApiError, Client, Unreachable

# Between two looks, which are about eight small reads each. A worker takes longer to start, and a hundred people who watch shall not be
# what an API server is busy with.
PAUSE_SECONDS = 2.0


def main(args: argparse.Namespace) -> int:
    """Watch, and return the exit code."""

    async def tell(client: Client, asked: SelectedJobs) -> int:
        try:
            return await _JobWatch(client, args, asked).run(asked)
        except UnreadableJob as refused:  # it was there before, so the command line is right
            return print_error(str(refused), EXIT_ERROR)

    try:
        return job_reader.run_on_job(args, tell)
    except KeyboardInterrupt:
        return print_error("No longer watching; the job goes on.", EXIT_ERROR)


class _JobWatch:
    """One job that is watched, by its uid: another one of its name is not it."""

    def __init__(self, client: Client, args: argparse.Namespace, selection: SelectedJobs) -> None:
        self._client, self._namespace = client, job_reader.job_namespace(args)
        self._job_name, self._uid = job_reader.job_identity(selection)
        self._display = (
            _JsonDisplay() if args.output == "json" else _TerminalDisplay() if sys.stdout.isatty() else _LineDisplay()
        )
        self._unreachable = False

    async def run(self, selection: SelectedJobs) -> int:
        """Show it, and look again until it has ended; returns the exit code."""
        while True:
            found = [describe_job(facts) for facts in selection.jobs]
            self._display.show(selection, found)
            code = watch_lines.exit_code(selection, found)
            if code is not None:
                return code
            again = await self._read_again()
            if again is None:
                return self._end_on_deletion()
            selection = again

    async def _read_again(self) -> SelectedJobs | None:
        """The next look that was answered; None when the job is not there any more."""
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                found = await job_reader.read(ManagerReader(self._client), self._namespace, self._job_name)
            except UnreadableJob:
                raise
            except InvalidJob:
                return None
            except (Unreachable, ApiError) as error:
                if isinstance(error, ApiError) and not error.is_transient:
                    raise
                if not self._unreachable:
                    self._display.show_note(f"The manager cluster cannot be asked: {error}; asking again ...")
                self._unreachable = True
            else:
                self._unreachable = False
                return found if job_reader.job_identity(found)[1] == self._uid else None

    def _end_on_deletion(self) -> int:
        if watch_lines.ends_by_itself(self._job_name):
            return print_error(f"{self._job_name} is gone, and how it ended was not seen.", EXIT_ERROR)
        self._display.show_note(f"{self._job_name} was deleted.")
        return EXIT_OK


class _LineDisplay:
    """Where there is no terminal: each line that is new, with the seconds since the first."""

    def __init__(self) -> None:
        self._started_at = datetime.now(UTC)
        self._last_lines: list[str] = []

    def show(self, selection: SelectedJobs, documents: Sequence[Document]) -> None:
        """Show what is so now."""
        seconds = (datetime.now(UTC) - self._started_at).total_seconds()
        lines = watch_lines.job_lines(selection, documents)
        for line in lines:
            if line not in self._last_lines:
                print(f"{seconds:4.0f} s  {line}", flush=True)
        self._last_lines = lines

    def show_note(self, text: str) -> None:
        """Say something beside it."""
        print(text, file=sys.stderr)


class _TerminalDisplay:
    """One picture, drawn over and over."""

    def __init__(self) -> None:
        self._started_at = datetime.now(UTC)
        self._height = 0

    def show(self, selection: SelectedJobs, documents: Sequence[Document]) -> None:
        """Draw what is so now."""
        now, size = datetime.now(UTC), shutil.get_terminal_size()
        tree = rayservice_report.combine_texts(
            selection, [where_table.render(one, now) for one in documents]
        ).splitlines()
        room = size.lines - 3  # below it two lines, and the one that the cursor is in: who fills the last one scrolls
        lines = tree if len(tree) <= room else watch_lines.job_lines(selection, documents)[:room]
        picture = [
            *lines,
            "",
            f"{(now - self._started_at).total_seconds():.0f} s; Ctrl-C stops the watching, not the job.",
        ]
        up = f"\033[{self._height}F" if self._height else ""
        # A line that is wrapped would spoil the count of lines.
        text = "".join(f"\033[K{line[: size.columns - 1]}\n" for line in picture)
        print(f"{up}{text}\033[J", end="", flush=True)
        self._height = len(picture)

    def show_note(self, text: str) -> None:
        """Say something beside it, below which the picture is drawn anew."""
        print(text, file=sys.stderr)
        self._height = 0


class _JsonDisplay:
    """A document a line, whenever it has changed."""

    def __init__(self) -> None:
        self._last_document: Document = {}

    def show(self, selection: SelectedJobs, documents: Sequence[Document]) -> None:
        """Print it if it is news."""
        now = rayservice_report.combine_documents(selection, documents)
        if now != self._last_document:
            print(json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **now}), flush=True)
        self._last_document = now

    def show_note(self, text: str) -> None:
        """Say something beside it."""
        print(text, file=sys.stderr)
