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
from adapter.objects.unstructured import UNREADABLE, Raw, condition, meta, moment

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
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_NO_START = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
    "CrashLoopBackOff",
)
_LONGEST = 300  # characters of somebody else's message


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom to dial: the pod that answers in another cluster, and the word by which it is known."""

    cluster: str
    address: str
    word: str


@dataclass(frozen=True, slots=True)
class Trip:
    """What a pod found on its way to one of another cluster; `error` is empty if all went well."""

    error: str = ""  # timeout, refused, unreachable, stranger, stalled, broken, or what the system said
    milliseconds: float | None = None  # there and back
    megabits: float | None = None  # per second, that way
    ahead: float | None = None  # seconds by which the clock there is ahead of the one here


@dataclass(frozen=True, slots=True)
class Report:
    """What the pod that asks has found."""

    trips: Mapping[str, Trip] = field(default_factory=dict)
    name_error: str = ""  # why DNS does not know DNS_NAME


@dataclass(frozen=True, slots=True)
class State:
    """How far a probe is: `hopeless` says that waiting longer will not help against its `trouble`."""

    address: str = ""  # once it runs
    ended: bool = False
    message: str = ""  # what it left
    trouble: str = ""
    no_image: bool = False
    hopeless: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """What all probes of one run have in common."""

    id: str
    namespace: str
    image: str
    deadline: timedelta  # after which a kubelet ends them, whatever becomes of us


def server(run: Run, word: str) -> dict[str, Any]:
    """The Pod that answers."""
    return _pod(run, "server", [programs.PROBE_SERVER, word, str(PORT)])


def client(run: Run, peers: Iterable[Peer]) -> dict[str, Any]:
    """The Pod that asks those peers."""
    dialled = [{"address": peer.address, "port": PORT, "word": peer.word} for peer in peers]
    asked = {"silence": SILENCE_SECONDS, "seconds": BULK_SECONDS, "name": DNS_NAME, "peers": dialled}
    return _pod(run, "client", [programs.PROBE_CLIENT, json.dumps(asked), _MESSAGE_PATH])


def _pod(run: Run, part: str, words: Iterable[str]) -> dict[str, Any]:
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


def state(pod: Raw) -> State:
    """Read how far a probe is."""
    status = pod.get("status") or {}
    containers: list[Raw] = status.get("containerStatuses") or [{}]
    container: Raw = containers[0].get("state") or {}
    ended = container.get("terminated") or {}
    if ended or status.get("phase") in ("Succeeded", "Failed"):
        return _ended(status, ended)
    if "running" in container and status.get("podIP"):
        return State(address=status["podIP"])
    waiting = container.get("waiting") or {}
    reason, message = waiting.get("reason") or "", str(waiting.get("message") or "")[:_LONGEST]
    if reason in _NO_IMAGE:
        return State(trouble=f"{reason}: {message}".rstrip(": "), no_image=True, hopeless=True)
    if reason in _NO_START:
        return State(trouble=f"{reason}: {message}".rstrip(": "), hopeless=True)
    return State(trouble=_why_pending(pod))


def _ended(status: Raw, ended: Raw) -> State:
    said = str(ended.get("message") or status.get("message") or "").strip()
    if status.get("phase") == "Succeeded" or (ended and ended.get("exitCode") == 0):
        return State(ended=True, message=said)
    why = ended.get("reason") or status.get("reason") or "it failed"
    return State(ended=True, trouble=f"{why}: {said[-_LONGEST:]}".rstrip(": "), hopeless=True)


def _why_pending(pod: Raw) -> str:
    gates = [gate.get("name") for gate in (pod.get("spec") or {}).get("schedulingGates") or ()]
    if gates:
        return f"it is held by the scheduling gate {gates[0]}"
    unscheduled = condition(pod, "PodScheduled")
    if unscheduled.get("status") == "False":
        return f"no node takes it: {str(unscheduled.get('message') or unscheduled.get('reason'))[:_LONGEST]}"
    return "it was not started in time"


def report(message: str, peers: Iterable[Peer]) -> Report | None:
    """Read what the asking pod left about its peers; None where it cannot be what our program writes."""
    try:
        found = json.loads(message)
        trips = {peer.cluster: _trip(one) for peer, one in zip(peers, found["peers"], strict=True)}
        return Report(trips, str(found["dns"].get("error") or ""))
    except UNREADABLE:
        return None


def _trip(found: Raw) -> Trip:
    amounts = [None if found.get(key) is None else float(found[key]) for key in ("ms", "mbit", "ahead")]
    return Trip(str(found.get("error") or ""), *amounts)


def expired(pod: Raw, now: datetime) -> bool:
    """Whether a probe is one that its run left behind: others that run now are within their deadline."""
    made = moment(meta(pod).get("creationTimestamp"))
    seconds = int((pod.get("spec") or {}).get("activeDeadlineSeconds") or 0)
    return made is not None and made + timedelta(seconds=seconds) < now
