"""The probe scripts over real sockets between processes, and the states of a probe's pod."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adapter import programs
from adapter.objects.unstructured import Raw
from adapter.preflight import probe
from adapter.preflight.probe import PathResult, Peer, ProbeReport, ProbeRun, ProbeState
from tests.unit.builders import START, at, stamp

RUN = ProbeRun("0a1b2c3d", "demo", "rayspan/rayspan:dev", at(180) - START)
WORD = "swordfish"


# --- the scripts -----------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def serving(*words: str) -> Iterator[int]:
    """The answering script as a process on a free port."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", programs.PROBE_SERVER, *(words or [WORD]), str(port)])
    try:
        yield port
    finally:
        process.kill()
        process.wait()


@contextmanager
def answering(*said: bytes, close: bool) -> Iterator[int]:
    """A server that greets every connection, and then closes it or falls silent without reading."""
    links: list[socket.socket] = []

    def serve() -> None:
        try:
            while True:
                link, _ = door.accept()
                links.append(link)
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                for line in said:
                    link.sendall(line)
                if close:
                    link.close()
        except OSError:
            return

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(door.getsockname()[1])
        finally:
            door.shutdown(socket.SHUT_RDWR)
            thread.join()
            for link in links:
                link.close()


def ask(tmp_path: Path, *ports: int, silence: float = 5.0, name: str = "localhost", relay: Sequence[Raw] = ()) -> Any:
    """The result of the asking script; its log has the same text."""
    peers = [{"address": "127.0.0.1", "port": port, "word": WORD} for port in ports]
    asked = {"silence": silence, "seconds": 0.1, "name": name, "peers": peers, "ports": [*relay]}
    file = tmp_path / "message"
    words = [sys.executable, "-c", programs.PROBE_CLIENT, json.dumps(asked), str(file)]
    log = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
    assert log.stdout.strip() == file.read_text() and not log.stderr
    assert len(file.read_bytes()) < 4096, "what a termination message holds"
    return json.loads(file.read_text())


def test_two_processes_measure_the_path_between_them(tmp_path: Path) -> None:
    with serving() as port, serving() as other:
        found = ask(tmp_path, port, other)
    for one in found["peers"]:
        assert one.keys() == {"ms", "mbit", "ahead"}
        assert 0 < one["ms"] < 1000 and one["mbit"] > 1 and abs(one["ahead"]) < 0.5
    assert found["dns"]["address"] in ("127.0.0.1", "::1")


def test_each_fault_is_reported(tmp_path: Path) -> None:
    """A closed port, another pod's server, a server that hangs up, and one that works."""
    with (
        serving() as well,
        serving("another") as stranger,
        answering(b"HTTP/1.1 400 Bad Request\r\n", close=True) as web,
        answering(b"rayspan swordfish\n", close=True) as rude,
    ):
        found = ask(tmp_path, free_port(), stranger, web, rude, well, name="nowhere.invalid")
    errors = [one.get("error") for one in found["peers"]]
    assert errors == ["refused", "stranger", "stranger", "broken", None]
    assert found["dns"]["error"]


def test_nat_on_the_way_is_seen(tmp_path: Path) -> None:
    """The stand-in has seen another address than the one that its client has."""
    times = b"".join(b"%r\n" % 1.5 for _ in range(20))
    with (
        answering(b"rayspan swordfish 192.0.2.7\n", times, close=False) as behind,
        answering(b"rayspan swordfish 127.0.0.1\n", times, close=False) as beside,
    ):
        found = ask(tmp_path, behind, beside)["peers"]
    assert [one.get("seen") for one in found] == ["192.0.2.7", None]


def test_a_port_is_tried_by_a_connection(tmp_path: Path) -> None:
    with answering(close=True) as router:
        ports = [{"address": "127.0.0.1", "port": port} for port in (router, free_port())]
        ports.append({"address": "nowhere.invalid", "port": 1})
        report = ask(tmp_path, relay=ports)["ports"]
    assert [port.get("error") for port in report[:2]] == [None, "refused"]
    assert report[2]["error"]
    assert probe.parse_report(json.dumps({"peers": [], "dns": {}, "ports": report[1:2]}), []) == ProbeReport(
        relay_error="refused"
    )


def test_a_refused_connection_is_reported_on_a_busy_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last try begins before the time is over, and ends after it."""
    sleeps_long = "import time\nsleep = time.sleep\ntime.sleep = lambda _: sleep(0.7)\n"
    monkeypatch.setattr(programs, "PROBE_CLIENT", sleeps_long + programs.PROBE_CLIENT)
    port = {"address": "127.0.0.1", "port": free_port()}
    assert ask(tmp_path, silence=1, relay=[port])["ports"] == [{"error": "refused"}]


def test_a_silent_server_is_given_up(tmp_path: Path) -> None:
    with answering(close=False) as silent:
        assert ask(tmp_path, silent, silence=0.5)["peers"] == [{"error": "timeout"}]


def test_lost_large_packets_are_reported(tmp_path: Path) -> None:
    """The stand-in answers the clock's requests and then reads no more."""
    times = b"".join(b"%r\n" % 1.5 for _ in range(20))
    with answering(b"rayspan swordfish\n", times, close=False) as narrow:
        (found,) = ask(tmp_path, narrow, silence=1)["peers"]
    assert found["error"] == "stalled" and found["ms"] > 0
    assert found["ahead"] < -1e9, "and its clock is far behind"


def test_a_probe_waits_for_a_server_that_starts(tmp_path: Path) -> None:
    port = free_port()
    late = f"import time; time.sleep(0.7)\n{programs.PROBE_SERVER}"
    process = subprocess.Popen([sys.executable, "-c", late, WORD, str(port)])
    try:
        assert "error" not in ask(tmp_path, port)["peers"][0]
    finally:
        process.kill()
        process.wait()


# --- the pods --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pod", [probe.server_pod(RUN, WORD), probe.client_pod(RUN, [Peer("east", "10.1.0.5", WORD)])])
def test_a_probe_meets_the_restricted_pod_security_standard(pod: Raw) -> None:
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]} and security["readOnlyRootFilesystem"]
    assert security["allowPrivilegeEscalation"] is False
    assert spec["automountServiceAccountToken"] is False and "volumes" not in spec


@pytest.mark.parametrize("pod", [probe.server_pod(RUN, WORD), probe.client_pod(RUN, [])])
def test_a_probe_can_be_found_and_ends_by_itself(pod: Raw) -> None:
    assert pod["metadata"]["labels"] == {"rayspan.dev/probe": "0a1b2c3d"}, "and none by which a queue would hold it"
    assert (pod["spec"]["activeDeadlineSeconds"], pod["spec"]["restartPolicy"]) == (180, "Never")
    assert pod["spec"]["terminationGracePeriodSeconds"] == 1


def test_a_pod_runs_the_tested_scripts() -> None:
    (container,) = probe.client_pod(RUN, [Peer("east", "10.1.0.5", WORD)])["spec"]["containers"]
    *python, script, asked, file = container["command"]
    assert (python, script, file) == (["python3", "-c"], programs.PROBE_CLIENT, container["terminationMessagePath"])
    assert json.loads(asked) == {
        "silence": 5.0,
        "seconds": 0.5,
        "name": "kubernetes.default.svc",
        "peers": [{"address": "10.1.0.5", "port": probe.PORT, "word": WORD}],
        "ports": [],
    }


def test_relay_port_is_dialled_by_its_address() -> None:
    (container,) = probe.client_pod(RUN, [], "[2001:db8::1]:30443")["spec"]["containers"]
    assert json.loads(container["command"][-2])["ports"] == [{"address": "2001:db8::1", "port": 30443}]


def pod(state: Raw | None = None, *, phase: str = "Pending", address: str = "", **status: Any) -> Raw:
    containers = [] if state is None else [{"state": state}]
    return {"status": {"phase": phase, "podIP": address, "containerStatuses": containers, **status}}


FULL = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available."}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param({}, ProbeState(error="it was not started in time"), id="a new pod"),
        pytest.param(
            pod(conditions=[FULL]),
            ProbeState(error="no node takes it: 0/1 nodes are available."),
            id="no node has capacity",
        ),
        pytest.param(
            {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, **pod(conditions=[FULL])},
            ProbeState(error="it is held by the scheduling gate kueue.x-k8s.io/admission"),
            id="a scheduling gate of Kueue",
        ),
        pytest.param(
            pod({"waiting": {"reason": "ContainerCreating"}}),
            ProbeState(error="it was not started in time"),
            id="a container that is being created",
        ),
        pytest.param(
            pod({"waiting": {"reason": "ErrImagePull", "message": "not found"}}),
            ProbeState(error="ErrImagePull: not found", image_missing=True, is_permanent=True),
            id="no image can be pulled",
        ),
        pytest.param(
            pod({"waiting": {"reason": "CreateContainerConfigError", "message": "no"}}),
            ProbeState(error="CreateContainerConfigError: no", is_permanent=True),
            id="an image that needs root",
        ),
        pytest.param(
            pod({"terminated": {"reason": "StartError", "exitCode": 128, "message": "python3: not found"}}),
            ProbeState(ended=True, error="StartError: python3: not found", is_permanent=True),
            id="an image without Python",
        ),
        pytest.param(
            pod({"running": {}}, phase="Running", address="10.1.0.5"),
            ProbeState(address="10.1.0.5"),
            id="a running pod",
        ),
        pytest.param(
            pod({"running": {}}, phase="Running"),
            ProbeState(error="it was not started in time"),
            id="a running pod without an address",
        ),
        pytest.param(
            pod({"terminated": {"exitCode": 0, "message": "{}"}}, phase="Succeeded"),
            ProbeState(ended=True, message="{}"),
            id="a pod that succeeded",
        ),
        pytest.param(
            pod({"terminated": {"exitCode": 0, "message": "{}"}}, phase="Running"),
            ProbeState(ended=True, message="{}"),
            id="an ended container in a running pod",
        ),
        pytest.param(
            pod(phase="Failed", reason="DeadlineExceeded", message="too long"),
            ProbeState(ended=True, error="DeadlineExceeded: too long", is_permanent=True),
            id="a pod past its deadline",
        ),
    ],
)
def test_the_state_of_a_probe(found: Raw, want: ProbeState) -> None:
    assert probe.parse_state(found) == want


EAST, WEST = Peer("east", "10.1.0.5", WORD), Peer("west", "10.2.0.5", WORD)


def test_an_answer_is_read() -> None:
    peers = [{"ms": 0.3, "mbit": 900.5, "ahead": -0.01}, {"error": "timeout"}]
    found = probe.parse_report(json.dumps({"peers": peers, "dns": {"address": "10.96.0.1"}}), [EAST, WEST])
    assert found == probe.ProbeReport({"east": PathResult("", 0.3, 900.5, -0.01), "west": PathResult("timeout")}, "")


@pytest.mark.parametrize(
    ("seen", "want"),
    [("192.0.2.7", "192.0.2.7"), ("fd00::7", "fd00::7"), ("x", ""), (None, ""), (7.5, ""), (["192.0.2.7"], "")],
)
def test_the_address_that_a_server_saw_is_read(seen: Any, want: str) -> None:
    """A server that reports something else spoils no other path of the report."""
    report = json.dumps({"peers": [{"seen": seen}, {}], "dns": {}})
    found = probe.parse_report(report, [EAST, WEST])
    assert found and [path.seen_address for path in found.paths.values()] == [want, ""]


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Killed",
        "[]",
        "{}",
        '{"peers": []}',
        '{"peers": [], "dns": {}}',
        '{"peers": [1, 2], "dns": {}}',
        '{"peers": [{"ms": "fast"}, {}], "dns": {}}',
        '{"peers": [{}, {}], "dns": []}',
    ],
)
def test_an_invalid_answer_is_none(message: str) -> None:
    assert probe.parse_report(message, [EAST, WEST]) is None


@pytest.mark.parametrize(("seconds", "want"), [(179, False), (181, True)])
def test_a_probe_is_stale_once_its_run_must_be_over(seconds: float, want: bool) -> None:
    """The probes of a run in progress are kept."""
    made = {**probe.server_pod(RUN, WORD), "metadata": {"creationTimestamp": stamp(0)}}
    assert probe.is_expired(made, at(seconds)) is want


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": ["x"]},
        {"containerStatuses": 7},
        {"podIP": "x", "containerStatuses": [{"state": {"running": {}}}]},
        "odd",
    ],
)
def test_a_status_of_a_wrong_shape_is_an_error_of_its_probe(status: Any) -> None:
    state = probe.parse_state({"status": status})
    assert state.is_permanent and state.error == "its cluster reports a status that cannot be read"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_not_finite_makes_a_report_invalid(number: str) -> None:
    report = f'{{"peers": [{{"ms": {number}}}], "dns": {{}}}}'
    assert probe.parse_report(report, [probe.Peer("west", "10.0.0.1", "w")]) is None
