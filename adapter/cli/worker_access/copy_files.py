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
from adapter.cli.common import DONE, TROUBLE, complain
from adapter.cli.worker_access import grants
from adapter.objects.rayjob import Unusable
from adapter.objects.unstructured import LONGEST_OF_ONE, Raw, quoted
from adapter.shell.kube.client import Client

Child = subprocess.Popen[bytes]
_REST = 65_536
_NAMED = 3  # of what is left out, by name: a worker may pack as many as it likes


@dataclass(frozen=True, slots=True)
class End:
    """One side of a copy: a path in a pod, or, without a pod, on this machine."""

    pod: str
    path: str


def end(text: str) -> End:
    """Read POD:PATH or PATH; a path with a colon begins with a dot or a slash, as for kubectl."""
    pod, colon, path = text.partition(":")
    if not colon or text[:1] in ("/", "."):
        return End("", text)
    if not pod or not path:
        raise Unusable(f"{text} is neither a path nor POD:PATH.")
    return End(pod, path)


def packing(path: str) -> list[str]:
    """The command that packs a path of a worker, under the last part of its name."""
    whole = PurePosixPath(path)
    return ["tar", "cf", "-", "-C", str(whole.parent), "--", whole.name or "."]


def unpacking(path: str) -> tuple[list[str], str]:
    """The command that unpacks below the parent of a path of a worker, and the name that is packed for it."""
    whole = PurePosixPath(path)
    if not whole.name:
        raise Unusable(f"{path} is a folder and no name in one: say what it is to be called there.")
    return ["tar", "xmf", "-", "-C", str(whole.parent)], whole.name


def main(given: argparse.Namespace) -> int:
    """Copy and return the exit code."""

    async def doing(client: Client, namespace: str) -> int:
        source, goal = end(given.source), end(given.goal)
        if bool(source.pod) == bool(goal.pod):
            raise Unusable("One of the two is POD:PATH, and the other one a path of this machine.")
        pod = await grants.pod_of(client, namespace, source.pod or goal.pod)
        with grants.ways(given, client) as ways:
            if source.pod:
                into = _unlinked(Path(goal.path))
                command = await _exec(ways, pod, given, packing(source.path))
                return await _beside(command, partial(_fetched, into), stdout=subprocess.PIPE)
            found, (words, name) = _there(Path(source.path)), unpacking(goal.path)
            command = await _exec(ways, pod, given, words, stdin=True)
            return await _beside(command, partial(_sent, found, name), stdin=subprocess.PIPE)

    return grants.attempt(given, doing)


def _unlinked(goal: Path) -> Path:
    if goal.is_symlink():
        raise Unusable(f"{goal} is a symbolic link: name what it leads to, or remove it.")
    return goal


def _there(source: Path) -> Path:
    if not source.exists():
        raise Unusable(f"There is no {source}.")
    return source


async def _beside(command: Sequence[str], part: Callable[[Child], int], **pipe: int) -> int:
    """Do one's own part of a copy in a thread. Whoever is told to end ends the command first: its kubeconfig is there until then."""
    with subprocess.Popen(command, **pipe) as child:  # type: ignore[call-overload]  # noqa: ASYNC220 (a thread reads it)
        copied = asyncio.create_task(asyncio.to_thread(part, child))
        try:
            return await asyncio.shield(copied)
        except asyncio.CancelledError:
            child.terminate()
            await asyncio.wait({copied})
            raise


async def _exec(
    ways: grants.Way, pod: Raw, given: argparse.Namespace, command: Sequence[str], *, stdin: bool = False
) -> list[str]:
    container = grants.container_of(pod, given.container)
    kubectl = await ways.to(pod, EXEC, container=container, command=list(command), stdin=stdin)
    flags = ["--stdin"] if stdin else []
    return [*kubectl, "exec", str(pod["metadata"]["name"]), "-c", container, *flags, "--", *command]


class _Filter:
    """Which members of an archive are unpacked: files and folders, where tarfile's own rules for data let them be.

    A link would lead the next copy to where it points, and before Python 3.11.13 those rules can be led out of the folder by links
    (CVE-2025-4517).
    """

    def __init__(self) -> None:
        self._left_out: list[str] = []
        self._most, self.taken = 0, 0

    def __call__(self, member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        if member.isreg() or member.isdir():
            self.taken += 1
            return tarfile.data_filter(member, folder)
        self._most += 1
        if len(self._left_out) < _NAMED:
            self._left_out.append(quoted(member.name, LONGEST_OF_ONE))
        return None

    def tell(self) -> None:
        """Say what did not come."""
        if self._most:
            more = " ..." if self._most > _NAMED else "."
            named = ", ".join(self._left_out)
            print(f"{self._most} that are no files or folders were left out: {named}{more}", file=sys.stderr)


def _fetched(goal: Path, child: Child) -> int:
    """Unpack what a command prints: into a folder that is there, else under the name of the goal."""
    chosen, printed = _Filter(), cast("IO[bytes]", child.stdout)
    try:
        with tarfile.open(fileobj=printed, mode="r|") as packed:
            if goal.is_dir():
                packed.extractall(goal, filter=chosen)
            else:
                _renamed(packed, goal, chosen)
        while printed.read(_REST):  # with which tar fills its last block
            pass
    except (tarfile.TarError, OSError) as error:
        child.kill()
        return complain(f"It could not be unpacked: {error}", TROUBLE)
    chosen.tell()
    return DONE if child.wait() == 0 and chosen.taken else TROUBLE


def _renamed(packed: tarfile.TarFile, goal: Path, chosen: _Filter) -> None:
    """Unpack all of it with the goal in place of the first part of each name."""
    with tempfile.TemporaryDirectory(dir=goal.absolute().parent, prefix=".rayspan-") as folder:
        packed.extractall(folder, filter=chosen)
        for found in Path(folder).iterdir():
            found.rename(goal)


def _sent(source: Path, name: str, child: Child) -> int:
    """Pack a file or folder for a command that unpacks it."""
    with suppress(BrokenPipeError), cast("IO[bytes]", child.stdin) as heard:  # one that has ended has said why
        with tarfile.open(fileobj=heard, mode="w|") as packed:
            packed.add(source, arcname=name)
    return DONE if child.wait() == 0 else TROUBLE
