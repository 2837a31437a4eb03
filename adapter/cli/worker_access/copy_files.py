"""`rayspan cp`: copies a file or folder from a worker, or to one.

As with `kubectl cp`, tar runs in the worker. The worker chooses the archive, so only the requested file or folder is
unpacked, and nothing outside of the target folder. Links and devices are skipped and reported. Exit code 0: copied;
2: wrong command line; else 1.
"""

import argparse
import asyncio
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Self, cast

from adapter.access.grant import EXEC
from adapter.cli.common import EXIT_ERROR, EXIT_OK, print_error
from adapter.cli.terminal import print_note
from adapter.cli.worker_access import grants
from adapter.objects.job_manifest import InvalidJob
from adapter.objects.unstructured import MAX_ITEM_LENGTH, Raw, printable
from adapter.shell.kube.client import Client

ChildProcess = subprocess.Popen[bytes]
_READ_BYTES = 65_536
_MAX_SKIPPED_NAMES = 3  # only this many are named, because a worker may pack any number
_MAX_HEADER_BYTES = 2**20  # of a long name or of attributes, which tarfile reads into memory; kubectl's limit
_LONG_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


@dataclass(frozen=True, slots=True)
class CopyLocation:
    """One side of a copy; an empty `pod` means this machine."""

    pod: str
    path: str


def parse_location(text: str) -> CopyLocation:
    """Parse POD:PATH or PATH; a local path with a colon must begin with a dot or a slash, as for kubectl."""
    pod, colon, path = text.partition(":")
    if not colon or text[:1] in ("/", "."):
        return CopyLocation("", text)
    if not pod or not path:
        raise InvalidJob(f"{text} is neither a path nor POD:PATH.")
    return CopyLocation(pod, path)


def pack_command(path: str) -> tuple[list[str], str]:
    """The command that packs a worker's file or folder, and the name that it must have in the archive.

    The name is the path's last part; it is empty for the folder `.` or `/`, whose entries are packed.
    """
    full_path = PurePosixPath(path)
    if full_path.name == "..":
        raise InvalidJob(f"{path} ends in `..`: write the path of the folder itself.")
    return ["tar", "cf", "-", "-C", str(full_path.parent), "--", full_path.name or "."], full_path.name


def unpack_command(path: str) -> tuple[list[str], str]:
    """The command that unpacks into a path's parent in a worker, and the name that the entry must have in the archive.

    The name is the path's last part.
    """
    full_path = PurePosixPath(path)
    if not full_path.name:
        raise InvalidJob(f"{path} is a directory: add the name that the copied file gets in it.")
    return ["tar", "xmf", "-", "-C", str(full_path.parent)], full_path.name


def main(args: argparse.Namespace) -> int:
    """Copy and return the exit code."""

    async def copy(client: Client, namespace: str) -> int:
        source, target = parse_location(args.source), parse_location(args.goal)
        if bool(source.pod) == bool(target.pod):
            raise InvalidJob("One argument must be POD:PATH, and the other one a local path.")
        pod = await grants.get_pod(client, namespace, source.pod or target.pod)
        with grants.open_access(args, client) as access:
            if source.pod:
                local_target, (tar_command, name) = _reject_symlink(Path(target.path)), pack_command(source.path)
                command = await _exec_command(access, pod, args, tar_command)
                unpack = partial(_unpack_stream, local_target, name)
                return await _run_alongside(command, unpack, stdout=subprocess.PIPE)
            local_source, (tar_command, name) = _require_existing(Path(source.path)), unpack_command(target.path)
            command = await _exec_command(access, pod, args, tar_command, stdin=True)
            return await _run_alongside(command, partial(_pack_stream, local_source, name), stdin=subprocess.PIPE)

    return grants.run_in_namespace(args, copy)


def _reject_symlink(target: Path) -> Path:
    if target.is_symlink():
        raise InvalidJob(f"{target} is a symbolic link: name its target, or remove it.")
    return target


def _require_existing(source: Path) -> Path:
    if not source.exists():
        raise InvalidJob(f"There is no {source}.")
    return source


async def _run_alongside(command: Sequence[str], local_part: Callable[[ChildProcess], int], **pipe: int) -> int:
    """Run the command with `local_part` in a thread, and return the exit code of `local_part`.

    If cancelled, terminate the command before its kubeconfig is deleted.
    """
    with subprocess.Popen(command, **pipe) as child:  # type: ignore[call-overload]  # noqa: ASYNC220
        copy_task = asyncio.create_task(asyncio.to_thread(local_part, child))
        try:
            return await asyncio.shield(copy_task)
        except asyncio.CancelledError:
            child.terminate()
            await asyncio.wait({copy_task})
            raise


async def _exec_command(
    access: grants.KubectlAccess, pod: Raw, args: argparse.Namespace, command: Sequence[str], *, stdin: bool = False
) -> list[str]:
    container = grants.choose_container(pod, args.container)
    kubectl = await access.command_for(pod, EXEC, container=container, command=list(command), stdin=stdin)
    flags = ["--stdin"] if stdin else []
    return [*kubectl, "exec", str(pod["metadata"]["name"]), "-c", container, *flags, "--", *command]


class InvalidArchive(tarfile.TarError):
    """The archive holds something else than was requested; the text is a sentence."""


class _BoundedTarInfo(tarfile.TarInfo):
    """An entry whose headers fit into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Parse a header; raise `InvalidArchive` if more than `_MAX_HEADER_BYTES` belong to it."""
        entry = super().frombuf(buf, encoding, errors)
        if entry.type == tarfile.GNUTYPE_SPARSE:
            raise InvalidArchive("The archive has a sparse file, whose headers have no limit; none is read.")
        if entry.type in _LONG_HEADERS and entry.size > _MAX_HEADER_BYTES:
            raise InvalidArchive(
                f"The archive has a header of {entry.size} bytes; at most {_MAX_HEADER_BYTES} are read."
            )
        return entry


class _MemberFilter:
    """Accepts the files and folders of an archive that were requested and that tarfile's data filter allows.

    Links are skipped: a later copy to the same target would follow them, and before Python 3.11.13 they can bypass the
    data filter (CVE-2025-4517).
    """

    def __init__(self, name: str) -> None:
        """`name`: of the requested file or folder in the archive; empty if every entry was requested."""
        self._name = name
        self._skipped_names: list[str] = []
        self._skipped_count, self.accepted_count = 0, 0

    def __call__(self, member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        self._check_requested(member)
        if member.isreg() or member.isdir():
            self.accepted_count += 1
            return tarfile.data_filter(member, folder)
        self._skipped_count += 1
        if len(self._skipped_names) < _MAX_SKIPPED_NAMES:
            self._skipped_names.append(printable(member.name, MAX_ITEM_LENGTH))
        return None

    def _check_requested(self, member: tarfile.TarInfo) -> None:
        """Raise `InvalidArchive` for an entry that is not the requested one and not below it."""
        parts = PurePosixPath(member.name).parts
        if ".." in parts or (self._name and parts[:1] != (self._name,)):
            wanted = f"{self._name} was requested" if self._name else "a path with `..` is not accepted"
            raise InvalidArchive(
                f"The worker sent {printable(member.name, MAX_ITEM_LENGTH)}, but {wanted}; nothing more is unpacked. "
                "Do not trust what was copied from this worker."
            )

    def report_skipped(self) -> None:
        if self._skipped_count:
            more = " ..." if self._skipped_count > _MAX_SKIPPED_NAMES else "."
            skipped_names = ", ".join(self._skipped_names)
            print_note(
                f"{self._skipped_count} that are neither files nor directories were skipped: {skipped_names}{more}"
            )


def _unpack_stream(target: Path, name: str, process: ChildProcess) -> int:
    """Unpack the entry of that name into the target if it is a folder, else as the target."""
    member_filter, stdout = _MemberFilter(name), cast("IO[bytes]", process.stdout)
    try:
        with tarfile.open(fileobj=stdout, mode="r|", tarinfo=_BoundedTarInfo) as packed:
            if target.is_dir():
                packed.extractall(target, filter=member_filter)
            else:
                _unpack_renamed(packed, target, name, member_filter)
        while stdout.read(_READ_BYTES):  # the padding of tar's last block
            pass
    except (tarfile.TarError, OSError, RecursionError) as error:  # tarfile recurses for each header before an entry
        process.kill()
        return print_error(f"It could not be unpacked: {error}", EXIT_ERROR)
    member_filter.report_skipped()
    return EXIT_OK if process.wait() == 0 and member_filter.accepted_count else EXIT_ERROR


def _unpack_renamed(packed: tarfile.TarFile, target: Path, name: str, chosen: _MemberFilter) -> None:
    """Unpack, with the entry of that name renamed to the target; an empty name stands for the folder of all entries."""
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".rayspan-") as folder:
        content = Path(folder, "content")
        packed.extractall(content, filter=chosen)
        if chosen.accepted_count:
            (content / name).rename(target)


def _pack_stream(source: Path, name: str, process: ChildProcess) -> int:
    try:
        with cast("IO[bytes]", process.stdin) as stdin, tarfile.open(fileobj=stdin, mode="w|") as packed:
            packed.add(source, arcname=name)
    except BrokenPipeError:
        pass  # the command has printed why it ended
    except (tarfile.TarError, OSError) as error:
        process.kill()
        return print_error(f"It could not be packed, and the worker may have a part of it: {error}", EXIT_ERROR)
    return EXIT_OK if process.wait() == 0 else EXIT_ERROR
