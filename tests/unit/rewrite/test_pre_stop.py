"""The pre-stop hook that drains a Ray node: which containers get it, and what it does, run as kubelet runs it, with
fakes of raylet and Ray."""

import json
import os
import re
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from adapter import names, programs
from adapter.objects.unstructured import Raw
from adapter.rewrite import pre_stop

TOLD = re.compile(r"^rayspan: ", re.MULTILINE)
PROCESSES, LOG = "/proc/[0-9]*", "/proc/1/fd/1"
# Fakes of Ray's client, by name. Each notes its arguments first.
PLAYS = {
    "drained": "os.kill(raylet, signal.SIGTERM); return True, ''",
    "busy": "return True, ''",
    "refused": "return False, 'it is not idle'",
    "headless": "os.kill(head, signal.SIGKILL); return True, ''",
    "hangs": "threading.Event().wait()",
    "old": "raise AttributeError('drain_node')",
}
CLIENT = """
import json, os, signal, sys, threading

class GcsClient:
    def __init__(self, address):
        self.address = address

    def drain_node(self, *told):
        raylet, head = {raylet}, {head}
        with open({notes!r}, "w") as notes:
            json.dump([self.address, *told], notes)
        {play}
"""


# --- which containers get the hook ------------------------------------------------------------------------------------


def hooked(container: Raw, **pod_spec: Any) -> Raw:
    return pre_stop.with_hook(container, pod_spec)


@pytest.mark.parametrize(
    ("grace", "seconds"),
    [(None, "25"), (30, "25"), (600, "595"), (6, "1")],
    ids=["Kubernetes' default", "30", "600", "6"],
)
def test_the_hook_has_the_time_of_the_grace_period(grace: int | None, seconds: str) -> None:
    out = hooked({"name": "ray"}, **({} if grace is None else {"terminationGracePeriodSeconds": grace}))
    words = out["lifecycle"]["preStop"]["exec"]["command"]
    assert words == ["python3", "-c", programs.DRAIN_HOOK, seconds, "3", names.DRAIN_MESSAGE]


@pytest.mark.parametrize("grace", [0, 1, 5])
def test_a_pod_with_a_short_grace_period_has_no_hook(grace: int) -> None:
    container = {"name": "ray"}
    assert hooked(container, terminationGracePeriodSeconds=grace) is container


def test_a_users_own_hook_is_kept() -> None:
    container = {"name": "ray", "lifecycle": {"preStop": {"exec": {"command": ["ray", "stop"]}}}}
    assert hooked(container) is container


def test_other_lifecycle_hooks_are_kept() -> None:
    start = {"exec": {"command": ["true"]}}
    out = hooked({"name": "ray", "lifecycle": {"postStart": start, "preStop": None, "stopSignal": "SIGINT"}})
    assert out["lifecycle"].keys() == {"postStart", "preStop", "stopSignal"}
    assert out["lifecycle"]["postStart"] is start
    assert hooked(out) is out, "twice is once"


# --- what the hook does -----------------------------------------------------------------------------------------------


@dataclass
class Pod:
    """A container with a fake raylet, which waits for its standard input to end or for a signal, and a head that is
    only a port."""

    folder: Path
    raylet: subprocess.Popen[str]
    head: subprocess.Popen[str]
    address: str
    environment: dict[str, str] = field(default_factory=dict)
    sidecar: str = f"127.0.0.1:{names.RELAY_PROXY_PORT}"

    def stop(self, play: str = "", *, seconds: float = 20, silence: float = 20) -> list[str]:
        """Run the hook; `play` names the fake of Ray, or is empty for none. Returns the log lines."""
        script, log = programs.DRAIN_HOOK, self.folder / "log"
        # The guard is for a process that hangs with all its threads, not for a machine that is slow by a second.
        for here, there in (
            (PROCESSES, f"/proc/{self.raylet.pid}"),
            (LOG, str(log)),
            ("seconds + 1,", "seconds + 60,"),
            (f"127.0.0.1:{names.RELAY_PROXY_PORT}", self.sidecar),
        ):
            assert script.count(here) == 1
            script = script.replace(here, there)
        if play:
            (self.folder / "ray").mkdir()
            (self.folder / "ray" / "__init__.py").touch()
            about = {"raylet": self.raylet.pid, "head": self.head.pid, "notes": str(self.notes), "play": PLAYS[play]}
            (self.folder / "ray" / "_raylet.py").write_text(CLIENT.format(**about))
        words = [sys.executable, "-c", script, str(seconds), str(silence), "why"]
        environment = {**os.environ, "PYTHONPATH": str(self.folder), **self.environment}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "it must never fail a shutdown"
        return TOLD.sub("", log.read_text()).splitlines() if log.exists() else []

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    @property
    def running(self) -> bool:
        return self.raylet.poll() is None


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        # Only the head holds the port, so it closes with the head.
        head = subprocess.Popen(
            ["/bin/sh", "-c", "read rest"], stdin=subprocess.PIPE, text=True, pass_fds=[server.fileno()]
        )
        address = f"127.0.0.1:{server.getsockname()[1]}"
    words = ["/ray/raylet/raylet", "-c", "read rest", "sh", "--node_id=0a1b", "--other=x=y", f"--gcs-address={address}"]
    raylet = subprocess.Popen(words, executable="/bin/sh", stdin=subprocess.PIPE, text=True)
    yield Pod(tmp_path, raylet, head, address)
    for process in (raylet, head):
        process.kill()
        process.communicate()


STARTED = "this pod is being stopped; its Ray node takes no more work, and has 20 s to finish what it has"


def test_the_hook_waits_until_the_node_is_drained(pod: Pod) -> None:
    """The raylet is not reaped meanwhile, as `ray start` may not reap it for a second: an ended process is not
    waited for."""
    assert pod.stop("drained") == [STARTED, "the Ray node is drained"]
    address, node, reason, why, deadline = json.loads(pod.notes.read_text())
    assert (address, node, reason, why) == (pod.address, "0a1b", 2, "why")
    assert isinstance(deadline, int)
    assert pod.raylet.wait(10) == -signal.SIGTERM


def test_a_busy_node_is_stopped_at_the_deadline(pod: Pod) -> None:
    """The raylet gets the signal, so that the head is notified, and not before the deadline that Ray was given."""
    said = pod.stop("busy", seconds=1)
    assert said[1:] == ["work is left on the Ray node, which is stopped now"]
    assert pod.raylet.wait(10) == -signal.SIGTERM


def test_a_drain_that_ray_rejects_is_not_waited_for(pod: Pod) -> None:
    assert pod.stop("refused") == [STARTED, "the Ray node cannot be drained: it is not idle"]
    assert pod.running


HEADLESS = "the head does not answer and cannot fetch what is left on the Ray node, which is killed now"


@pytest.mark.parametrize("play", ["drained", "hangs"])
def test_without_a_head_the_node_is_killed_at_once(pod: Pod, play: str) -> None:
    """Its time is far longer than this test would wait."""
    pod.raylet.send_signal(signal.SIGSTOP)  # so it is busy, whatever the fake client does
    pod.head.kill()
    pod.head.wait()
    said = pod.stop(play, seconds=600, silence=0.1)
    assert said[1:] == [HEADLESS]
    assert pod.raylet.wait(10) == -signal.SIGKILL, "of anything less, `ray start` takes no notice"


def test_a_head_that_ends_meanwhile_ends_the_wait(pod: Pod) -> None:
    said = pod.stop("headless", seconds=600, silence=0.1)
    assert said[1:] == [HEADLESS]
    assert pod.raylet.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("status", "seconds", "silence", "words"),
    [
        ("200 OK", 5, 0.3, ["work is left on the Ray node, which is stopped now"]),
        ("404 Not Found", 600, 0.01, [HEADLESS]),
        ("", 600, 0.01, [HEADLESS]),
    ],
)
def test_the_head_of_a_relayed_network_is_asked_for_through_the_sidecar(
    pod: Pod, status: str, seconds: float, silence: float, words: list[str]
) -> None:
    """Its name resolves nowhere else, so its port is closed here. It may be silent for ten times as long."""
    pod.head.kill()
    pod.head.wait()
    with _proxy(status) as (address, requests):
        pod.sidecar, pod.environment["grpc_proxy"] = address, f"http://{address}"
        assert pod.stop("busy", seconds=seconds, silence=silence)[1:] == words
    assert set(requests) == {f"CONNECT {pod.address} HTTP/1.1"}


def test_another_proxy_of_the_pod_is_not_asked(pod: Pod) -> None:
    pod.head.kill()
    pod.head.wait()
    with _proxy("200 OK") as (address, requests):
        pod.environment["grpc_proxy"] = f"http://{address}"
        assert pod.stop("busy", seconds=600, silence=0.1)[1:] == [HEADLESS]
    assert requests == []


@contextmanager
def _proxy(status: str) -> Iterator[tuple[str, list[str]]]:
    """An HTTP proxy that answers each CONNECT with one status, or with nothing; yields its address and its requests."""
    requests: list[str] = []

    class Connect(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            requests.append(self.rfile.readline().decode().strip())
            self.wfile.write(f"HTTP/1.1 {status}\r\n\r\n".encode() if status else b"")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connect) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", requests
        finally:
            server.shutdown()
            thread.join()


def test_a_client_that_hangs_does_not_delay_the_shutdown(pod: Pod) -> None:
    said = pod.stop("hangs", seconds=0.1)
    assert said[1:] == ["work is left on the Ray node, which is stopped now"]
    assert pod.raylet.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize(("play", "problem"), [("", "ModuleNotFoundError"), ("old", "AttributeError")])
def test_a_ray_that_cannot_drain_keeps_running(pod: Pod, play: str, problem: str) -> None:
    said = pod.stop(play)
    assert said[0] == STARTED and said[1].startswith(f"the Ray node cannot be drained: {problem}(")
    assert pod.running


def test_a_container_without_a_raylet_is_stopped_at_once(pod: Pod) -> None:
    pod.raylet.communicate("\n")
    assert pod.stop("drained") == [] and not pod.notes.exists()
