"""Command lines that reach into workers, the workers of a job that are followed, and tar for `cp`."""

import asyncio
import io
import os
import signal
import subprocess
import tarfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from adapter import names
from adapter.cli import job_reader
from adapter.cli.commands.parser import build_parser, parse_command_line
from adapter.cli.job_reader import UnreadableJob
from adapter.cli.worker_access import copy_files, follow_logs, grants
from adapter.objects.job_manifest import InvalidJob
from adapter.objects.rayjob import JobStatus
from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import ApiError


def pod(uid: str, state: str = "running", kind: str = names.WORKER, phase: str = "Running") -> Raw:
    status = {"phase": phase, "containerStatuses": [{"state": {state: {}}}]}
    return {"metadata": {"name": uid, "uid": uid, "labels": {names.RAY_NODE_TYPE_LABEL: kind}}, "status": status}


@pytest.mark.parametrize(
    ("line", "words", "stdin", "tty"),
    [
        ("exec a -- ls -l", ["ls", "-l"], False, False),
        ("exec a -it -- bash", ["bash"], True, True),
        ("exec -i -t a -- sh -c x", ["sh", "-c", "x"], True, True),
        ("exec a -i -n ns -- cat -- -n", ["cat", "--", "-n"], True, False),
        ("exec a -c ray -- ls", ["ls"], False, False),
        ("exec a ls", ["ls"], False, False),
        ("exec a -- rm -- -rf", ["rm", "--", "-rf"], False, False),
        ("exec -it a -- sh -c x -- y -- z", ["sh", "-c", "x", "--", "y", "--", "z"], True, True),
    ],
)
def test_a_command_is_typed_as_for_kubectl(line: str, words: list[str], stdin: bool, tty: bool) -> None:
    given = parse_command_line(["kubectl-rayspan", *line.split()])
    assert (given.pod, given.words, given.stdin, given.tty) == ("a", words, stdin, tty)


async def test_only_the_user_may_read_the_kubeconfig_with_the_key(tmp_path: Path) -> None:
    """It holds the credentials of the user as well, wherever its folder is."""
    no_client: Any = None
    access = grants.KubectlAccess(build_parser(["x", "logs", "a"]).parse_args(["logs", "a"]), no_client, tmp_path)
    access._user_kubeconfig = {"clusters": [{"name": "m", "cluster": {"server": "https://m"}}]}
    umask = os.umask(0)
    try:
        file = await access._write_kubeconfig("/default/kubectl-1/key")
    finally:
        os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o600


def test_workers_are_followed_once_they_have_started_and_only_once() -> None:
    pods = [
        pod("head", kind=names.HEAD),
        pod("runs"),
        pod("pulls", "waiting", phase="Pending"),
        pod("over", "terminated", phase="Failed"),
        pod("open"),
        pod("done"),
    ]
    found = follow_logs.pods_to_follow(pods, {"open"}, {"done"})
    assert [one["metadata"]["name"] for one in found] == ["runs", "over"]


class _Job:
    """A job whose workers run for a number of looks; each log command ends at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, programs: dict[str, str], looks: int) -> None:
        self._programs, self._looks = programs, looks
        self.asked: list[tuple[str, float]] = []
        monkeypatch.setattr(follow_logs, "PAUSE_SECONDS", 0.01)
        monkeypatch.setattr(job_reader, "read", self._read)

    async def _read(self, *_: Any) -> Any:
        self._looks -= 1
        over = self._looks <= 0
        pods = [pod(name, phase="Succeeded" if over else "Running") for name in self._programs]
        status = JobStatus(deployment_status="Complete" if over else "Running")
        return SimpleNamespace(jobs=[SimpleNamespace(status=status, pods=pods)])

    async def command_for(self, found: Raw, *_: Any) -> list[str]:
        name = found["metadata"]["name"]
        self.asked.append((name, asyncio.get_running_loop().time()))
        return ["sh", "-c", self._programs[name]]

    async def followed(self, **more: Any) -> int:
        words = ["logs", "job", "-f", *(f"--{name.replace('_', '-')}={value}" for name, value in more.items())]
        given = build_parser(["kubectl-rayspan", *words]).parse_args(words)
        client: Any = None
        ways: Any = self
        return await follow_logs._LogFollower(given, client, "default", ways).run()


async def test_a_log_that_cannot_be_followed_is_given_up_after_five_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each retry costs a grant, so the delay grows. Other workers are followed, and the exit code reports the gap."""
    job = _Job(monkeypatch, {"a": "exit 7", "b": "exec sleep 0.5"}, 150)
    assert await job.followed() == 7
    times = [when for name, when in job.asked if name == "a"]
    waits = [after - before for before, after in pairwise(times)]
    assert len(times) == 5 and waits[-1] > 0.08, "0.02 s, 0.04, 0.08 and 0.16"
    assert [name for name, _ in job.asked].count("b") == 1
    assert capsys.readouterr().err == (
        "Pod a: its log could not be followed 5 times in a row, and is no longer requested; the "
        "errors are printed above. `kubectl rayspan logs a` prints this log alone.\n"
    )


async def test_a_log_that_breaks_off_after_a_while_is_followed_as_long_as_its_worker_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow_logs, "MIN_FOLLOW_SECONDS", 0.0)
    job = _Job(monkeypatch, {"a": "exit 1"}, 40)
    assert await job.followed() == 0
    assert len(job.asked) > 6


async def test_missing_lines_are_requested_by_their_age(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The node that answers has another clock than this machine, so no point in time is named.

    A grant takes 30 s here.
    """
    monkeypatch.setattr(follow_logs, "MIN_FOLLOW_SECONDS", 0.0)
    job = _Job(monkeypatch, {"a": f'echo "$*" >>{tmp_path}/asked; exit 1'}, 10)
    monkeypatch.setattr(time, "time", lambda: 1_000.0 + 30 * len(job.asked))
    assert await job.followed(since="5m") == 0
    first, *later = (tmp_path / "asked").read_text().splitlines()
    assert first == "a --since 5m --follow --prefix" and later
    assert {*later} == {"a --since 40s --follow --prefix"}, "and ten seconds more"


async def test_a_log_without_its_last_lines_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await _Job(monkeypatch, {"a": "sleep 0.1; exit 1"}, 2).followed() == 0
    assert capsys.readouterr().err == (
        "Pod a: its log broke off, and the pod has ended, so its last lines may be missing.\n"
    )


async def test_a_bound_of_followed_workers_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await _Job(monkeypatch, {"a": "exec sleep 0.3", "b": "exec sleep 0.3"}, 20).followed(max_log_requests=1)
    assert capsys.readouterr().err == "1 logs are open, and more workers run: raise --max-log-requests.\n"


async def test_a_busy_api_server_does_not_end_the_logs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job, answers = _Job(monkeypatch, {"a": "exec sleep 0.1"}, 9), [ApiError(503, "ServiceUnavailable", "It restarts.")]
    read = job_reader.read

    async def read_later(*asked: Any) -> Any:
        if job.asked and answers:
            raise answers.pop()
        return await read(*asked)

    monkeypatch.setattr(job_reader, "read", read_later)
    assert await job.followed() == 0 and not answers
    assert "; trying again ..." in capsys.readouterr().err


@pytest.mark.parametrize(("said", "code"), [(InvalidJob("gone"), 0), (UnreadableJob("You may not get it."), None)])
async def test_a_job_that_may_not_be_read_does_not_count_as_deleted(
    said: Exception, code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _Job(monkeypatch, {"a": "exec sleep 0.1"}, 9)
    read = job_reader.read

    async def once(*asked: Any) -> Any:
        if job.asked:
            raise said
        return await read(*asked)

    monkeypatch.setattr(job_reader, "read", once)
    if code is None:
        with pytest.raises(UnreadableJob):
            await job.followed()
    else:
        assert await job.followed() == code


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("worker-a:/tmp/x", copy_files.CopyLocation("worker-a", "/tmp/x")),
        ("./a:b", copy_files.CopyLocation("", "./a:b")),
        ("/a:b", copy_files.CopyLocation("", "/a:b")),
        ("a", copy_files.CopyLocation("", "a")),
    ],
)
def test_a_side_of_a_copy_is_read_as_kubectl_does(text: str, wanted: copy_files.CopyLocation) -> None:
    assert copy_files.parse_location(text) == wanted


@pytest.mark.parametrize("text", ["a:", ":/x"])
def test_an_incomplete_side_is_rejected(text: str) -> None:
    with pytest.raises(InvalidJob, match="neither a path nor POD:PATH"):
        copy_files.parse_location(text)


def test_the_tar_command_in_a_worker() -> None:
    assert copy_files.pack_command("/tmp/ray/logs") == (["tar", "cf", "-", "-C", "/tmp/ray", "--", "logs"], "logs")
    assert copy_files.pack_command("notes") == (["tar", "cf", "-", "-C", ".", "--", "notes"], "notes")
    assert copy_files.pack_command("/") == (["tar", "cf", "-", "-C", "/", "--", "."], ""), "the folder's entries"
    assert copy_files.pack_command("-x") == (["tar", "cf", "-", "-C", ".", "--", "-x"], "-x"), "a name is no option"
    with pytest.raises(InvalidJob, match=r"ends in `\.\.`: write the path of the folder itself"):
        copy_files.pack_command("/tmp/ray/..")
    assert copy_files.unpack_command("/tmp/data.csv") == (["tar", "xmf", "-", "-C", "/tmp"], "data.csv")
    with pytest.raises(InvalidJob, match="is a directory: add the name"):
        copy_files.unpack_command("/")


def _packed(file: Path, *members: tarfile.TarInfo) -> list[str]:
    with tarfile.open(file, "w") as packed:
        for one in members:
            packed.addfile(one, io.BytesIO(b"x" * one.size))
    return ["cat", str(file)]


def _fetched(command: list[str], goal: Path, name: str) -> int:
    unpack = partial(copy_files._unpack_stream, goal, name)
    return asyncio.run(copy_files._run_alongside(command, unpack, stdout=subprocess.PIPE))


def _file_member(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = 3
    return member


def test_a_file_is_fetched_under_another_name_and_into_a_folder(tmp_path: Path) -> None:
    command = _packed(tmp_path / "packed", _file_member("data"))
    assert _fetched(command, tmp_path / "named", "data") == 0
    (tmp_path / "folder").mkdir()
    assert _fetched(command, tmp_path / "folder", "data") == 0
    assert (tmp_path / "named").read_bytes() == (tmp_path / "folder/data").read_bytes() == b"xxx"


def test_the_entries_of_a_whole_folder_are_fetched_under_another_name_and_into_a_folder(tmp_path: Path) -> None:
    command = _packed(tmp_path / "packed", _file_member("./first"), _file_member("./second"))
    (tmp_path / "folder").mkdir()
    for goal in (tmp_path / "named", tmp_path / "folder"):
        assert _fetched(command, goal, "") == 0
        assert sorted(file.name for file in goal.iterdir()) == ["first", "second"]


@pytest.mark.parametrize("into", ["home", "new"], ids=["into a folder", "under another name"])
@pytest.mark.parametrize(
    "extra", [".bashrc", "./.ssh/authorized_keys", "bin/ls", "logs2/x", "logs/../.bashrc", "/logs/x", "."]
)
def test_an_entry_that_was_not_requested_ends_the_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: str, into: str
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.bashrc").write_text("mine")
    command = _packed(tmp_path / "packed", _file_member("logs/a.out"), _file_member(extra), _file_member("logs/b.out"))
    assert _fetched(command, tmp_path / into, "logs") == 1
    files = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert files - {"packed"} <= {"home/.bashrc", "home/logs/a.out"}
    assert (tmp_path / "home/.bashrc").read_text() == "mine"
    assert f"The worker sent {extra}, but logs was requested" in capsys.readouterr().err


def test_a_path_with_parent_parts_is_refused_when_a_whole_folder_was_requested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    assert _fetched(_packed(tmp_path / "packed", _file_member("x/../y")), tmp_path / "folder", "") == 1
    assert "a path with `..` is not accepted" in capsys.readouterr().err
    assert not any((tmp_path / "folder").iterdir())


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_would_fill_the_memory_ends_the_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: bytes
) -> None:
    header = tarfile.TarInfo("header")
    header.type, header.size = kind, 2**20 + 1
    (tmp_path / "packed").write_bytes(header.tobuf() + bytes(2**21))
    assert _fetched(["cat", str(tmp_path / "packed")], tmp_path / "goal", "data") == 1
    assert "a header of 1048577 bytes; at most 1048576 are read" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_SPARSE], ids=["many headers", "a sparse file"])
def test_an_archive_that_tarfile_cannot_bound_ends_the_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: bytes
) -> None:
    header = tarfile.TarInfo("header")
    header.type, header.size = kind, 512
    (tmp_path / "packed").write_bytes((header.tobuf() + b"9 a=b cd\n".ljust(512, b"\0")) * 4000)
    assert _fetched(["cat", str(tmp_path / "packed")], tmp_path / "goal", "data") == 1
    assert "It could not be unpacked: " in capsys.readouterr().err


def test_a_source_that_cannot_be_read_ends_the_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as program:
        assert copy_files._pack_stream(tmp_path / "vanished", "data", program) == 1
    assert "It could not be packed, and the worker may have a part of it: " in capsys.readouterr().err


def _link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    link = tarfile.TarInfo(name)
    link.type, link.linkname = kind, target
    return link


def test_an_archive_cannot_write_outside_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    assert _fetched(_packed(tmp_path / "1", tarfile.TarInfo("../out")), tmp_path / "folder", "") == 1
    assert "could not be unpacked" in capsys.readouterr().err
    assert not (tmp_path / "out").exists() and not any((tmp_path / "folder").iterdir())


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
@pytest.mark.parametrize("into", ["folder", "logs"], ids=["into a folder", "under another name"])
def test_links_and_devices_of_an_archive_are_skipped_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: bytes, into: str
) -> None:
    """The next copy would write through them, and older Pythons let some of them out of the folder (CVE-2025-4517)."""
    (tmp_path / "folder").mkdir()
    came, link = tarfile.TarInfo("x/data"), _link("x/lnk\n", "data", kind)
    came.size = 3
    assert _fetched(_packed(tmp_path / "packed", came, link), tmp_path / into, "x") == 0
    found = tmp_path / into / ("x" if into == "folder" else "")
    assert [one.name for one in found.iterdir()] == ["data"]
    assert "1 that are neither files nor directories were skipped: x/lnk�." in capsys.readouterr().err


def test_a_link_instead_of_the_requested_file_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next copy to that name would be written through the link."""
    (tmp_path / ".ssh").mkdir()
    assert _fetched(_packed(tmp_path / "packed", _link("x", ".ssh")), tmp_path / "logs", "x") == 1
    assert not (tmp_path / "logs").is_symlink() and "were skipped: x." in capsys.readouterr().err


def test_many_skipped_entries_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    links = [_link(f"x/{number}", "data") for number in range(100)]
    _fetched(_packed(tmp_path / "packed", *links), tmp_path / "logs", "x")
    said = capsys.readouterr().err
    assert (
        said.count("\n") == 1 and "100 that are neither files nor directories were skipped: x/0, x/1, x/2 ..." in said
    )


def test_a_destination_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "logs").symlink_to(".ssh")
    with pytest.raises(InvalidJob, match=r"logs is a symbolic link: name its target, or remove it\."):
        copy_files._reject_symlink(tmp_path / "logs")


async def test_sigterm_ends_the_command_of_a_copy() -> None:
    """SIGTERM is a cancellation here (`grants.attempt`); the command's kubeconfig is deleted afterwards."""
    begun: Queue[copy_files.ChildProcess] = Queue()

    def part(child: copy_files.ChildProcess) -> int:
        begun.put(child)
        return child.wait()

    copying = asyncio.create_task(copy_files._run_alongside(["sleep", "60"], part))
    child = await asyncio.to_thread(begun.get)
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    assert child.returncode == -signal.SIGTERM


async def test_output_after_the_commands_end_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "much").write_bytes(bytes(10**6))
    part = partial(copy_files._pack_stream, tmp_path / "much", "much")
    assert await copy_files._run_alongside(["sh", "-c", "exit 3"], part, stdin=subprocess.PIPE) == 1
    assert (
        await copy_files._run_alongside(["tar", "tf", "-"], part, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) == 0
    )


def test_a_command_uses_the_container_that_kubectl_would_use() -> None:
    made: Raw = {"metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    assert grants.choose_container(made, "") == "a"
    assert grants.choose_container(made, "b") == "b"
    made["metadata"]["annotations"] = {names.DEFAULT_CONTAINER_ANNOTATION: "b"}
    assert grants.choose_container(made, "") == "b"


@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        pytest.param(
            403, 'User "alice" cannot get resource "services/proxy"', "--role=rayspan-access-user --user=alice`",
            id="no right to the access server",
        ),
        pytest.param(
            404, 'services "rayspan-access" not found', "adds the component worker-access",
            id="the access server is not installed",
        ),
        pytest.param(
            503, "no endpoints available", "does not answer: no endpoints available.",
            id="the access server does not answer",
        ),
    ],
)  # fmt: skip
def test_an_unavailable_access_server_has_a_remedy(status: int, message: str, said: str) -> None:
    assert said in grants._unavailable_message(ApiError(status, "", message))


def test_the_policys_message_is_shown_without_its_preamble() -> None:
    preamble = (
        "workeraccesses.rayspan.dev \"x\" is forbidden: ValidatingAdmissionPolicy 'rayspan-access' with binding "
        "'rayspan-access' denied request: "
    )
    assert grants._error_message(ApiError(403, "Forbidden", f"{preamble}You may not.")) == "You may not."
    assert "adds the component worker-access" in grants._error_message(ApiError(404, "NotFound", "no such kind"))
