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

from adapter import names
from adapter.facts import Raw, condition, meta, moment

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

# Run by `python3 -c` with a word by which the right pod is known, and the port. The clock is asked for line by line.
SERVER = """\
import socket, socketserver, sys, time

word, port = sys.argv[1], int(sys.argv[2])


class Answer(socketserver.StreamRequestHandler):
    timeout = 30
    disable_nagle_algorithm = True

    def handle(self):
        self.wfile.write(b"rayspan %s\\n" % word.encode())
        for line in self.rfile:
            if line != b"time\\n":
                break
            self.wfile.write(b"%r\\n" % time.time())
        count = 0
        while piece := self.rfile.read(1 << 16):
            count += len(piece)
        self.wfile.write(b"%d\\n" % count)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64
    allow_reuse_address = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request, address):
        pass  # whoever asked tells


Server(("", port), Answer).serve_forever()
"""

# Run by `python3 -c` with what to ask as JSON, and the file for the answer. All are dialled at once, for those that do not answer take
# their time, and then measured one by one, so that this pod's own measurements do not disturb each other.
CLIENT = """\
import json, os, socket, sys, time
from concurrent.futures import ThreadPoolExecutor

asked = json.loads(sys.argv[1])
silence, seconds = asked["silence"], asked["seconds"]


def dial(peer):
    end = time.monotonic() + silence
    while True:
        try:
            return socket.create_connection((peer["address"], peer["port"]), max(end - time.monotonic(), 0.1))
        except ConnectionRefusedError:  # it may be about to listen
            if time.monotonic() > end - 0.2:
                return "refused"
            time.sleep(0.2)
        except TimeoutError:
            return "timeout"
        except OSError as error:
            return "unreachable" if error.errno in (101, 113) else str(error)[:100]


def measured(link, word):
    link.settimeout(silence)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    talk = link.makefile("rwb")
    if talk.readline(200).split() != [b"rayspan", word.encode()]:
        return {"error": "stranger"}
    trips = []
    for _ in range(20):
        clock, start = time.time(), time.perf_counter()
        talk.write(b"time\\n")
        talk.flush()
        there = float(talk.readline(200))
        trip = time.perf_counter() - start
        trips.append((trip, there - clock - trip / 2))
    trips.sort()
    return {"ms": round(trips[len(trips) // 2][0] * 1000, 3), "ahead": round(trips[0][1], 3), **bulk(link, talk)}


def bulk(link, talk):
    start = time.perf_counter()
    piece = bytes(1 << 16)
    # What is slow is acknowledged bit by bit; what is too large for the way never is.
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence * 1000))
    link.settimeout(30)
    try:
        link.sendall(b"bulk\\n")
        while time.perf_counter() < start + seconds:
            link.sendall(piece)
        link.shutdown(socket.SHUT_WR)
        count = int(talk.readline(200))
    except (OSError, ValueError):
        return {"error": "stalled"}
    return {"mbit": round(count * 8 / (time.perf_counter() - start) / 1e6, 1)}


def tried(link, peer):
    if isinstance(link, str):
        return {"error": link}
    try:
        with link:
            return measured(link, peer["word"])
    except TimeoutError:
        return {"error": "timeout"}
    except (OSError, ValueError):
        return {"error": "broken"}


def resolved(name):
    try:
        return {"address": socket.getaddrinfo(name, 443)[0][4][0]}
    except OSError as error:
        return {"error": str(error)[:100]}


pool = ThreadPoolExecutor(64)
name = pool.submit(resolved, asked["name"])
links = pool.map(dial, asked["peers"])
found = {"peers": [tried(link, peer) for link, peer in zip(links, asked["peers"])]}
try:
    found["dns"] = name.result(silence)
except Exception:
    found["dns"] = {"error": "no answer in %g s" % silence}
text = json.dumps(found)
with open(sys.argv[2], "w") as file:
    file.write(text)
print(text, flush=True)
os._exit(0)  # a resolver may hang for longer
"""


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
    return _pod(run, "server", [SERVER, word, str(PORT)])


def client(run: Run, peers: Iterable[Peer]) -> dict[str, Any]:
    """The Pod that asks those peers."""
    dialled = [{"address": peer.address, "port": PORT, "word": peer.word} for peer in peers]
    asked = {"silence": SILENCE_SECONDS, "seconds": BULK_SECONDS, "name": DNS_NAME, "peers": dialled}
    return _pod(run, "client", [CLIENT, json.dumps(asked), _MESSAGE_PATH])


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
        # Glibc would ask every server twice for every domain, five seconds each, and outlast our patience.
        "env": [{"name": "RES_OPTIONS", "value": "timeout:2 attempts:1"}],
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
    """Read what the asking pod left about its peers; None where it cannot be what our script writes."""
    try:
        found = json.loads(message)
        trips = {peer.cluster: _trip(one) for peer, one in zip(peers, found["peers"], strict=True)}
        return Report(trips, str(found["dns"].get("error") or ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _trip(found: Raw) -> Trip:
    amounts = [None if found.get(key) is None else float(found[key]) for key in ("ms", "mbit", "ahead")]
    return Trip(str(found.get("error") or ""), *amounts)


def expired(pod: Raw, now: datetime) -> bool:
    """Whether a probe is one that its run left behind: others that run now are within their deadline."""
    made = moment(meta(pod).get("creationTimestamp"))
    seconds = int((pod.get("spec") or {}).get("activeDeadlineSeconds") or 0)
    return made is not None and made + timedelta(seconds=seconds) < now
