"""`rayspan watch`: poll a job until it ends, and print what changes.

A terminal shows the tree of `where`, or short lines when the tree is too high. Other outputs get each new line or JSON
document. The deletion of a RayCluster or RayService ends the watch with exit code 0.
"""

import argparse
import asyncio
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from adapter.cli import job_reader, rayservice_report, watch_lines, where_table
from adapter.cli.common import EXIT_ERROR, EXIT_OK, format_json, print_error
from adapter.cli.job_reader import SelectedJobs, UnreadableJob
from adapter.cli.manager_reader import ManagerReader
from adapter.cli.terminal import print_line, print_note, redraw_picture
from adapter.diagnosis.job_document import Document, describe_job
from adapter.objects.job_manifest import InvalidJob
from adapter.shell.kube.client import ApiError, Client, Unreachable

# Between two polls. Each makes about eight small reads, and a hundred users must not load the API server.
# A shorter pause would show little more, because a worker takes longer than this to start.
PAUSE_SECONDS = 2.0


def main(args: argparse.Namespace) -> int:
    """Watch the job; return the exit code."""

    async def watch(client: Client, selection: SelectedJobs) -> int:
        try:
            return await _JobWatch(client, args, selection).run(selection)
        except UnreadableJob as error:  # it existed before, so this is no usage error
            return print_error(str(error), EXIT_ERROR)

    try:
        return job_reader.run_on_job(args, watch)
    except KeyboardInterrupt:
        return print_error("Stopped watching; the job continues.", EXIT_ERROR)


class _JobWatch:
    """Watches one job by its uid; a new job of the same name counts as its deletion."""

    def __init__(self, client: Client, args: argparse.Namespace, selection: SelectedJobs) -> None:
        self._client, self._namespace = client, job_reader.job_namespace(args)
        self._job_name, self._uid = job_reader.job_identity(selection)
        self._display = (
            _JsonDisplay() if args.output == "json" else _TerminalDisplay() if sys.stdout.isatty() else _LineDisplay()
        )
        self._unreachable = False

    async def run(self, selection: SelectedJobs) -> int:
        """Show the job and poll until it has ended; return the exit code."""
        while True:
            documents = [describe_job(facts) for facts in selection.jobs]
            self._display.show(selection, documents)
            code = watch_lines.exit_code(selection, documents)
            if code is not None:
                return code
            next_selection = await self._read_again()
            if next_selection is None:
                return self._end_on_deletion()
            selection = next_selection

    async def _read_again(self) -> SelectedJobs | None:
        """The job at the next successful poll; None when it no longer exists."""
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                selection = await job_reader.read(ManagerReader(self._client), self._namespace, self._job_name)
            except UnreadableJob:
                raise
            except InvalidJob:
                return None
            except (Unreachable, ApiError) as error:
                if isinstance(error, ApiError) and not error.is_transient:
                    raise
                if not self._unreachable:
                    self._display.show_note(f"The manager cluster cannot be reached: {error}; trying again ...")
                self._unreachable = True
            else:
                self._unreachable = False
                return selection if job_reader.job_identity(selection)[1] == self._uid else None

    def _end_on_deletion(self) -> int:
        if watch_lines.ends_by_itself(self._job_name):
            return print_error(f"{self._job_name} was deleted before its end was observed.", EXIT_ERROR)
        self._display.show_note(f"{self._job_name} was deleted.")
        return EXIT_OK


class _LineDisplay:
    """Prints each new line, with the seconds since the start; for an output that is no terminal."""

    def __init__(self) -> None:
        self._started_at = datetime.now(UTC)
        self._last_lines: list[str] = []

    def show(self, selection: SelectedJobs, documents: Sequence[Document]) -> None:
        """Print the new lines."""
        seconds = (datetime.now(UTC) - self._started_at).total_seconds()
        lines = watch_lines.job_lines(selection, documents)
        for line in lines:
            if line not in self._last_lines:
                print_line(f"{seconds:4.0f} s  {line}")
        self._last_lines = lines

    def show_note(self, text: str) -> None:
        """Print a note."""
        print_note(text)


class _TerminalDisplay:
    """Shows one picture on a terminal, and redraws it in place."""

    def __init__(self) -> None:
        self._started_at = datetime.now(UTC)
        self._height = 0

    def show(self, selection: SelectedJobs, documents: Sequence[Document]) -> None:
        """Redraw the picture."""
        now, size = datetime.now(UTC), shutil.get_terminal_size()
        tree = rayservice_report.combine_texts(
            selection, [where_table.render(document, now) for document in documents]
        ).splitlines()
        # Minus the blank line, the hint and the line that the cursor ends on: text on the last line would scroll the
        # terminal.
        max_lines = size.lines - 3
        lines = tree if len(tree) <= max_lines else watch_lines.job_lines(selection, documents)[:max_lines]
        picture = [
            *lines,
            "",
            f"{(now - self._started_at).total_seconds():.0f} s; Ctrl-C stops this command, not the job.",
        ]
        redraw_picture(picture, self._height, size.columns)
        self._height = len(picture)

    def show_note(self, text: str) -> None:
        """Print a note; the next picture is drawn below it."""
        print_note(text)
        self._height = 0


class _JsonDisplay:
    """Prints one JSON document a line at each change, for programs."""

    def __init__(self) -> None:
        self._last_document: Document = {}

    def show(self, selection: SelectedJobs, documents: Sequence[Document]) -> None:
        """Print the document if it has changed."""
        document = rayservice_report.combine_documents(selection, documents)
        if document != self._last_document:
            print_line(format_json({"time": datetime.now(UTC).isoformat(timespec="seconds"), **document}))
        self._last_document = document

    def show_note(self, text: str) -> None:
        """Print a note."""
        print_note(text)
