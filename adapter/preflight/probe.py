"""Builds the probe pods and reads their reports. Probe pods dial each other as Ray's nodes do, for a few seconds.

Each cluster gets a server pod and, once the addresses of all servers are known, a client pod. The client's termination
message is one line of JSON, which is read with the pod. The pods need no right, no volume, no account, and nothing in
the image but Python. No requests are made here.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from math import isfinite
from typing import Any

from adapter import names, programs
from adapter.objects.specs import split_address
from adapter.objects.unstructured import UNREADABLE, Raw, condition, meta, parse_time
from adapter.objects.worker_pod import waits_for_image

# Ray's nodes choose their own ports: workers from 10002 on, other processes anywhere above. A firewall with a list of
# well-known ports blocks them, so the probe uses a port that no such list has.
PORT = 18273
# Every cluster's DNS resolves this name, with the search path that every pod has.
DNS_NAME = "kubernetes.default.svc"
# A path without an answer for this long is broken. TCP retransmits after 1 s and 3 s, so a path that loses some packets
# still counts as working.
SILENCE_SECONDS = 5.0
BULK_SECONDS = 0.5  # long enough for TCP to find its speed over a few milliseconds of latency
_MESSAGE_PATH = "/dev/termination-log"
# The user and group of Ray's own images, where others may be unable to read the Python. Other images run as this user,
# too.
_USER, _GROUP = 1000, 100
# With these reasons waiting longer does not help, although the kubelet retries and the reasons alternate.
_START_FAILURES = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
    "CrashLoopBackOff",
)
_MAX_MESSAGE_LENGTH = 300  # characters of a foreign message


@dataclass(frozen=True, slots=True)
class Peer:
    """The server pod of another cluster, and the word that identifies it."""

    cluster: str
    address: str
    token: str


@dataclass(frozen=True, slots=True)
class PathResult:
    """The path from a pod to the server pod of another cluster; `error` is empty if it works."""

    error: str = ""  # timeout, refused, unreachable, stranger, stalled, broken, or a message of the system
    milliseconds: float | None = None  # round trip
    megabits: float | None = None  # per second, in this direction
    clock_ahead: float | None = None  # seconds that the remote clock is ahead
    seen_address: str = ""  # of the client, as the server sees it; empty if it is the client's own


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The report of a client pod."""

    paths: Mapping[str, PathResult] = field(default_factory=dict)
    dns_error: str = ""  # why DNS_NAME was not resolved
    relay_error: str | None = None  # why the relay's port was not reached; None: not asked for


@dataclass(frozen=True, slots=True)
class ProbeState:
    """The progress of a probe pod; with `is_permanent`, waiting longer will not end its `error`."""

    address: str = ""  # once it runs
    ended: bool = False
    message: str = ""  # its termination message
    error: str = ""
    image_missing: bool = False
    is_permanent: bool = False


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """What all probes of one run share."""

    id: str
    namespace: str
    image: str
    deadline: timedelta  # a kubelet ends the probes after it, even if the command that runs them has ended


def server_pod(run: ProbeRun, token: str) -> dict[str, Any]:
    """The Pod of the server."""
    return _probe_pod(run, "server", [programs.PROBE_SERVER, token, str(PORT)])


def client_pod(run: ProbeRun, peers: Iterable[Peer], relay_address: str = "") -> dict[str, Any]:
    """The Pod of the client, which dials these peers, and the relay if there is an address of it."""
    dialled = [{"address": peer.address, "port": PORT, "word": peer.token} for peer in peers]
    host, port = split_address(relay_address) if relay_address else ("", 0)
    ports = [{"address": host, "port": port}] if relay_address else []
    request = {"silence": SILENCE_SECONDS, "seconds": BULK_SECONDS, "name": DNS_NAME, "peers": dialled, "ports": ports}
    return _probe_pod(run, "client", [programs.PROBE_CLIENT, json.dumps(request), _MESSAGE_PATH])


def trial_pod(run: ProbeRun) -> dict[str, Any]:
    """A Pod for dry runs."""
    return _probe_pod(run, "trial", ["pass"])


def _probe_pod(run: ProbeRun, part: str, words: Iterable[str]) -> dict[str, Any]:
    security = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    container = {
        "name": "probe",
        "image": run.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", *words],
        # Without these options, glibc waits five seconds for each answer, as long as the probe waits in all.
        "env": [{"name": "RES_OPTIONS", "value": "timeout:1 attempts:3"}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": security,
        "terminationMessagePath": _MESSAGE_PATH,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    spec = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(run.deadline.total_seconds()),
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _GROUP,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    name = f"rayspan-probe-{run.id}-{part}"
    labels = {names.PROBE_LABEL: run.id}
    metadata = {"name": name, "namespace": run.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def parse_state(pod: Raw) -> ProbeState:
    """Read the state of a probe pod; a status of a wrong shape is a permanent error."""
    try:
        return _parse_state(pod)
    except UNREADABLE:
        return ProbeState(error="its cluster reports a status that cannot be read", is_permanent=True)


def _parse_state(pod: Raw) -> ProbeState:
    status = pod.get("status") or {}
    containers: list[Raw] = status.get("containerStatuses") or [{}]
    container: Raw = containers[0].get("state") or {}
    ended = container.get("terminated") or {}
    if ended or status.get("phase") in ("Succeeded", "Failed"):
        return _terminated_state(status, ended)
    if "running" in container and status.get("podIP"):
        return ProbeState(address=str(ip_address(status["podIP"])))
    waiting = container.get("waiting") or {}
    reason, message = waiting.get("reason") or "", str(waiting.get("message") or "")[:_MAX_MESSAGE_LENGTH]
    if waits_for_image(reason):
        return ProbeState(error=f"{reason}: {message}".rstrip(": "), image_missing=True, is_permanent=True)
    if reason in _START_FAILURES:
        return ProbeState(error=f"{reason}: {message}".rstrip(": "), is_permanent=True)
    return ProbeState(error=_pending_reason(pod))


def _terminated_state(status: Raw, ended: Raw) -> ProbeState:
    message = str(ended.get("message") or status.get("message") or "").strip()
    if status.get("phase") == "Succeeded" or (ended and ended.get("exitCode") == 0):
        return ProbeState(ended=True, message=message)
    reason = ended.get("reason") or status.get("reason") or "it failed"
    return ProbeState(ended=True, error=f"{reason}: {message[-_MAX_MESSAGE_LENGTH:]}".rstrip(": "), is_permanent=True)


def _pending_reason(pod: Raw) -> str:
    gates = [gate.get("name") for gate in (pod.get("spec") or {}).get("schedulingGates") or ()]
    if gates:
        return f"it is held by the scheduling gate {gates[0]}"
    unscheduled = condition(pod, "PodScheduled")
    if unscheduled.get("status") == "False":
        return f"no node takes it: {str(unscheduled.get('message') or unscheduled.get('reason'))[:_MAX_MESSAGE_LENGTH]}"
    return "it was not started in time"


def parse_report(message: str, peers: Iterable[Peer]) -> ProbeReport | None:
    """Read the report of a client about its peers; None if it is malformed."""
    try:
        report = json.loads(message)
        paths = {peer.cluster: _parse_path(path) for peer, path in zip(peers, report["peers"], strict=True)}
        relay_error = next((str(port.get("error") or "") for port in report.get("ports") or ()), None)
        return ProbeReport(paths, str(report["dns"].get("error") or ""), relay_error)
    except UNREADABLE:
        return None


def _parse_path(raw: Raw) -> PathResult:
    amounts = [None if raw.get(key) is None else float(raw[key]) for key in ("ms", "mbit", "ahead")]
    if not all(amount is None or isfinite(amount) for amount in amounts):
        raise ValueError("a number that is not finite")
    milliseconds, megabits, ahead = amounts
    seen_address = _parse_address(raw.get("seen"))
    return PathResult(str(raw.get("error") or ""), milliseconds, megabits, ahead, seen_address)


def _parse_address(text: object) -> str:
    """An address that another cluster's server reported; empty if it is none, since it must not spoil the report."""
    try:
        return str(ip_address(str(text)))
    except ValueError:
        return ""


def is_expired(pod: Raw, now: datetime) -> bool:
    """Whether a probe is past its deadline, so that no command uses it any more."""
    created_at = parse_time(meta(pod).get("creationTimestamp"))
    seconds = int((pod.get("spec") or {}).get("activeDeadlineSeconds") or 0)
    return created_at is not None and created_at + timedelta(seconds=seconds) < now
