"""`rayspan cp`: how does a file or folder come from a worker, or to one?

As by kubectl: tar packs on one side and unpacks on the other, and its stream is a command in the worker. What comes from a worker is
unpacked by rules that let nothing out of the folder it goes to: files and folders come, and links and devices are left out, and told.
Exit code 0: it is copied; 2: the command line is wrong; else 1.
"""

import argparse
import asyncio
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

from adapter.access.grant import EXEC
from adapter.cli.common import EXIT_ERROR, EXIT_OK, print_error
from adapter.cli.worker_access import grants
from adapter.objects.rayjob import InvalidJob
from adapter.objects.unstructured import MAX_ITEM_LENGTH, Raw, printable
from adapter.shell.kube.client import Client

ChildProcess = subprocess.Popen[bytes]
_READ_BYTES = 65_536
_MAX_SKIPPED_NAMES = 3  # of what is left out, by name: a worker may pack as many as it likes


@dataclass(frozen=True, slots=True)
class CopyLocation:
    """One side of a copy: a path in a pod, or, without a pod, on this machine."""

    pod: str
    path: str


def parse_location(text: str) -> CopyLocation:
    """Read POD:PATH or PATH; a path with a colon begins with a dot or a slash, as for kubectl."""
    pod, colon, path = text.partition(":")
    if not colon or text[:1] in ("/", "."):
        return CopyLocation("", text)
    if not pod or not path:
        raise InvalidJob(f"{text} is neither a path nor POD:PATH.")
    return CopyLocation(pod, path)


def pack_command(path: str) -> list[str]:
    """The command that packs a path of a worker, under the last part of its name."""
    whole = PurePosixPath(path)
    return ["tar", "cf", "-", "-C", str(whole.parent), "--", whole.name or "."]


def unpack_command(path: str) -> tuple[list[str], str]:
    """The command that unpacks below the parent of a path of a worker, and the name that is packed for it."""
    whole = PurePosixPath(path)
    if not whole.name:
        raise InvalidJob(f"{path} is a folder and no name in one: say what it is to be called there.")
    return ["tar", "xmf", "-", "-C", str(whole.parent)], whole.name


def main(args: argparse.Namespace) -> int:
    """Copy and return the exit code."""

    async def doing(client: Client, namespace: str) -> int:
        source, goal = parse_location(args.source), parse_location(args.goal)
        if bool(source.pod) == bool(goal.pod):
            raise InvalidJob("One of the two is POD:PATH, and the other one a path of this machine.")
        pod = await grants.get_pod(client, namespace, source.pod or goal.pod)
        with grants.open_access(args, client) as ways:
            if source.pod:
                into = _reject_symlink(Path(goal.path))
                command = await _exec_command(ways, pod, args, pack_command(source.path))
                return await _run_alongside(command, partial(_unpack_stream, into), stdout=subprocess.PIPE)
            found, (words, name) = _require_existing(Path(source.path)), unpack_command(goal.path)
            command = await _exec_command(ways, pod, args, words, stdin=True)
            return await _run_alongside(command, partial(_pack_stream, found, name), stdin=subprocess.PIPE)

    return grants.run_in_namespace(args, doing)


def _reject_symlink(target: Path) -> Path:
    if target.is_symlink():
        raise InvalidJob(f"{target} is a symbolic link: name what it leads to, or remove it.")
    return target


def _require_existing(source: Path) -> Path:
    if not source.exists():
        raise InvalidJob(f"There is no {source}.")
    return source


async def _run_alongside(command: Sequence[str], local_part: Callable[[ChildProcess], int], **pipe: int) -> int:
    """Do one's own part of a copy in a thread. Whoever is told to end ends the command first: its kubeconfig is there until then."""
    with subprocess.Popen(command, **pipe) as child:  # type: ignore[call-overload]  # noqa: ASYNC220 (a thread reads it)
        copied = asyncio.create_task(asyncio.to_thread(local_part, child))
        try:
            return await asyncio.shield(copied)
        except asyncio.CancelledError:
            child.terminate()
            await asyncio.wait({copied})
            raise


async def _exec_command(
    access: grants.KubectlAccess, pod: Raw, args: argparse.Namespace, command: Sequence[str], *, stdin: bool = False
) -> list[str]:
    container = grants.choose_container(pod, args.container)
    kubectl = await access.command_for(pod, EXEC, container=container, command=list(command), stdin=stdin)
    flags = ["--stdin"] if stdin else []
    return [*kubectl, "exec", str(pod["metadata"]["name"]), "-c", container, *flags, "--", *command]


class _MemberFilter:
    """Which members of an archive are unpacked: files and folders, where tarfile's own rules for data let them be.

    A link would lead the next copy to where it points, and before Python 3.11.13 those rules can be led out of the folder by links
    (CVE-2025-4517).
    """

    def __init__(self) -> None:
        self._skipped_names: list[str] = []
        self._skipped_count, self.accepted_count = 0, 0

    def __call__(self, member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        if member.isreg() or member.isdir():
            self.accepted_count += 1
            return tarfile.data_filter(member, folder)
        self._skipped_count += 1
        if len(self._skipped_names) < _MAX_SKIPPED_NAMES:
            self._skipped_names.append(printable(member.name, MAX_ITEM_LENGTH))
        return None

    def report_skipped(self) -> None:
        """Say what did not come."""
        if self._skipped_count:
            more = " ..." if self._skipped_count > _MAX_SKIPPED_NAMES else "."
            named = ", ".join(self._skipped_names)
            print(f"{self._skipped_count} that are no files or folders were left out: {named}{more}", file=sys.stderr)


def _unpack_stream(target: Path, process: ChildProcess) -> int:
    """Unpack what a command prints: into a folder that is there, else under the name of the goal."""
    chosen, printed = _MemberFilter(), cast("IO[bytes]", process.stdout)
    try:
        with tarfile.open(fileobj=printed, mode="r|") as packed:
            if target.is_dir():
                packed.extractall(target, filter=chosen)
            else:
                _unpack_renamed(packed, target, chosen)
        while printed.read(_READ_BYTES):  # with which tar fills its last block
            pass
    except (tarfile.TarError, OSError) as error:
        process.kill()
        return print_error(f"It could not be unpacked: {error}", EXIT_ERROR)
    chosen.report_skipped()
    return EXIT_OK if process.wait() == 0 and chosen.accepted_count else EXIT_ERROR


def _unpack_renamed(packed: tarfile.TarFile, target: Path, chosen: _MemberFilter) -> None:
    """Unpack all of it with the goal in place of the first part of each name."""
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".rayspan-") as folder:
        packed.extractall(folder, filter=chosen)
        for found in Path(folder).iterdir():
            found.rename(target)


def _pack_stream(source: Path, name: str, process: ChildProcess) -> int:
    """Pack a file or folder for a command that unpacks it."""
    with suppress(BrokenPipeError), cast("IO[bytes]", process.stdin) as heard:  # one that has ended has said why
        with tarfile.open(fileobj=heard, mode="w|") as packed:
            packed.add(source, arcname=name)
    return EXIT_OK if process.wait() == 0 else EXIT_ERROR
