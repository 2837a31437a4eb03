"""What does a probe pod look like, and what did it find? Pods that dial each other as Ray's nodes would, for a few seconds.

Each cluster gets two: one that answers, and then, once the addresses of all are known, one that asks them and leaves one line of
JSON as its termination message, which is read with the pod. They need no right, no volume, no account and nothing in the image but Python.
Nothing here is created or read.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from adapter import names, programs
from adapter.objects.unstructured import UNREADABLE, Raw, condition, meta, parse_time

# Ray's nodes dial each other on ports that they choose themselves: workers from 10002 on, other processes anywhere above. A firewall
# that lets in a list of well-known ports keeps them apart, and so the probe takes one that nobody lists.
PORT = 18273
# A name that every cluster's DNS knows, by the search path that every pod has.
DNS_NAME = "kubernetes.default.svc"
# Packets that are dropped on the way are tried again after 1 s and 3 s: a link that loses some of them is found all the same.
SILENCE_SECONDS = 5.0
BULK_SECONDS = 0.5  # long enough for TCP to find its speed over a few milliseconds of latency
_MESSAGE_PATH = "/dev/termination-log"
# The account of Ray's own images, so that their Python can be read; any other image runs as it, too.
_USER, _GROUP = 1000, 100
# No image can be had that way, however long one waits. (A kubelet goes on trying, and the reasons alternate.)
_IMAGE_FAILURES = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_START_FAILURES = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
    "CrashLoopBackOff",
)
_MAX_MESSAGE_LENGTH = 300  # characters of somebody else's message


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom to dial: the pod that answers in another cluster, and the word by which it is known."""

    cluster: str
    address: str
    token: str


@dataclass(frozen=True, slots=True)
class PathResult:
    """What a pod found on its way to one of another cluster; `error` is empty if all went well."""

    error: str = ""  # timeout, refused, unreachable, stranger, stalled, broken, or what the system said
    milliseconds: float | None = None  # there and back
    megabits: float | None = None  # per second, that way
    clock_ahead: float | None = None  # seconds by which the clock there is ahead of the one here


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What the pod that asks has found."""

    paths: Mapping[str, PathResult] = field(default_factory=dict)
    dns_error: str = ""  # why DNS does not know DNS_NAME


@dataclass(frozen=True, slots=True)
class ProbeState:
    """How far a probe is: `hopeless` says that waiting longer will not help against its `trouble`."""

    address: str = ""  # once it runs
    ended: bool = False
    message: str = ""  # what it left
    error: str = ""
    image_missing: bool = False
    is_permanent: bool = False


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """What all probes of one run have in common."""

    id: str
    namespace: str
    image: str
    deadline: timedelta  # after which a kubelet ends them, whatever becomes of us


def server_pod(run: ProbeRun, token: str) -> dict[str, Any]:
    """The Pod that answers."""
    return _probe_pod(run, "server", [programs.PROBE_SERVER, token, str(PORT)])


def client_pod(run: ProbeRun, peers: Iterable[Peer]) -> dict[str, Any]:
    """The Pod that asks those peers."""
    dialled = [{"address": peer.address, "port": PORT, "word": peer.token} for peer in peers]
    asked = {"silence": SILENCE_SECONDS, "seconds": BULK_SECONDS, "name": DNS_NAME, "peers": dialled}
    return _probe_pod(run, "client", [programs.PROBE_CLIENT, json.dumps(asked), _MESSAGE_PATH])


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
        # Glibc would wait five seconds for each answer, and outlast our patience.
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
    """Read how far a probe is."""
    status = pod.get("status") or {}
    containers: list[Raw] = status.get("containerStatuses") or [{}]
    container: Raw = containers[0].get("state") or {}
    ended = container.get("terminated") or {}
    if ended or status.get("phase") in ("Succeeded", "Failed"):
        return _terminated_state(status, ended)
    if "running" in container and status.get("podIP"):
        return ProbeState(address=status["podIP"])
    waiting = container.get("waiting") or {}
    reason, message = waiting.get("reason") or "", str(waiting.get("message") or "")[:_MAX_MESSAGE_LENGTH]
    if reason in _IMAGE_FAILURES:
        return ProbeState(error=f"{reason}: {message}".rstrip(": "), image_missing=True, is_permanent=True)
    if reason in _START_FAILURES:
        return ProbeState(error=f"{reason}: {message}".rstrip(": "), is_permanent=True)
    return ProbeState(error=_pending_reason(pod))


def _terminated_state(status: Raw, ended: Raw) -> ProbeState:
    said = str(ended.get("message") or status.get("message") or "").strip()
    if status.get("phase") == "Succeeded" or (ended and ended.get("exitCode") == 0):
        return ProbeState(ended=True, message=said)
    why = ended.get("reason") or status.get("reason") or "it failed"
    return ProbeState(ended=True, error=f"{why}: {said[-_MAX_MESSAGE_LENGTH:]}".rstrip(": "), is_permanent=True)


def _pending_reason(pod: Raw) -> str:
    gates = [gate.get("name") for gate in (pod.get("spec") or {}).get("schedulingGates") or ()]
    if gates:
        return f"it is held by the scheduling gate {gates[0]}"
    unscheduled = condition(pod, "PodScheduled")
    if unscheduled.get("status") == "False":
        return f"no node takes it: {str(unscheduled.get('message') or unscheduled.get('reason'))[:_MAX_MESSAGE_LENGTH]}"
    return "it was not started in time"


def parse_report(message: str, peers: Iterable[Peer]) -> ProbeReport | None:
    """Read what the asking pod left about its peers; None where it cannot be what our program writes."""
    try:
        found = json.loads(message)
        trips = {peer.cluster: _parse_path(one) for peer, one in zip(peers, found["peers"], strict=True)}
        return ProbeReport(trips, str(found["dns"].get("error") or ""))
    except UNREADABLE:
        return None


def _parse_path(raw: Raw) -> PathResult:
    amounts = [None if raw.get(key) is None else float(raw[key]) for key in ("ms", "mbit", "ahead")]
    return PathResult(str(raw.get("error") or ""), *amounts)


def is_expired(pod: Raw, now: datetime) -> bool:
    """Whether a probe is one that its run left behind: others that run now are within their deadline."""
    made = parse_time(meta(pod).get("creationTimestamp"))
    seconds = int((pod.get("spec") or {}).get("activeDeadlineSeconds") or 0)
    return made is not None and made + timedelta(seconds=seconds) < now
