"""Which way does a request go that has a grant: to which worker cluster, on which path, with which query? Or why does it go nowhere?

The pod must still be the one that the grant is for, its copy must be the copy of this very pod and ours, and the request must be no
more than the grant. The API server's service proxy drops the query of what is upgraded, so that of a command is made of the grant
alone. Each refusal is a sentence.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from adapter import names
from adapter.access.access_request import NAME_PATTERN, AccessRequest
from adapter.access.grant import EXEC, LOG, Grant
from adapter.objects.unstructured import MAX_ITEM_LENGTH, Raw, label, printable, uid_of
from adapter.objects.worker_pod import slot_cluster

Query = tuple[tuple[str, str], ...]
# Of k8s:pkg/apis/core/types.go, PodLogOptions, but for insecureSkipTLSVerifyBackend: that would weaken a cluster's own link.
_LOG_PARAMETERS: Final = frozenset(
    ("container", "follow", "limitBytes", "previous", "sinceSeconds", "sinceTime", "stream", "tailLines", "timestamps")
)
_MAX_VALUE_LENGTH = 253  # characters: that of a container's name, and times are shorter
# What kubectl speaks (k8s:apimachinery/pkg/util/remotecommand/constants.go, portforward/constants.go). Others are not passed on: a
# client may put a token for the API server among them, which is nobody's business over there.
_PROTOCOLS: Final = {
    True: ("v5.channel.k8s.io", "v4.channel.k8s.io"),
    False: ("SPDY/3.1+portforward.k8s.io",),
}


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """Why a request is not answered, in the form of an API server's Status."""

    status: int
    reason: str
    message: str


# The same for a grant that is not there, one of another key and one that is over: nobody learns which there are.
NO_GRANT: Final = ErrorStatus(
    403,
    "Forbidden",
    "There is no WorkerAccess of this name that this key opens, or it is over: each is good for five minutes, and for a command only "
    "once. Run `kubectl rayspan` again.",
)


def target_cluster(request: AccessRequest, grant: Grant, pod: Raw | None) -> str | ErrorStatus:
    """The worker cluster in which the pod runs that a request is about; before anything is read there."""
    if (request.namespace, request.pod) != (grant.namespace, grant.pod):
        return _forbidden(f"WorkerAccess {grant.name} is for pod {printable(grant.pod)}, not for {request.pod}.")
    if not pod or uid_of(pod) != grant.pod_uid:
        return _not_found(
            f"Pod {grant.namespace}/{grant.pod} is not there any more, or is another one by now: look again."
        )
    cluster = slot_cluster(pod)
    if not cluster:
        return _not_found(f"Pod {grant.namespace}/{grant.pod} has no place in a worker cluster; use kubectl itself.")
    if not NAME_PATTERN.fullmatch(cluster):
        return _not_found(
            f"Pod {grant.namespace}/{grant.pod}: annotation {names.SLOT_ANNOTATION} names a worker cluster {printable(cluster)}, which none can be "
            "called: let its controller make it anew."
        )
    return cluster


def remote_pod_mismatch(grant: Grant, remote_pod: Raw | None, manager: str, cluster: str) -> ErrorStatus | None:
    """Why what stands in the worker cluster under the pod's name is not this pod's copy; None if it is. `manager`: who we are."""
    ours = remote_pod is not None and label(remote_pod, names.MANAGER_LABEL) == manager
    if remote_pod is None or not ours or label(remote_pod, names.POD_UID_LABEL) != grant.pod_uid:
        # The same where somebody else's pod has the name: nobody learns by asking whose pods stand there.
        return _not_found(f"Pod {grant.namespace}/{grant.pod} has no copy in {cluster} that is its own; look again.")
    return None


def subresource_mismatch(request: AccessRequest, grant: Grant) -> ErrorStatus | None:
    """Why a request for a subresource of the pod is not the one that is granted; None if it is."""
    if request.resource == grant.subresource:
        return None
    return _forbidden(f"WorkerAccess {grant.name} is for {grant.subresource}, not for {request.resource}.")


def log_query(grant: Grant, query: Iterable[tuple[str, str]]) -> Query | ErrorStatus:
    """The query of a request for a log, as it may go on."""
    said = tuple(query)
    odd = next((key for key, value in said if key not in _LOG_PARAMETERS or len(value) > _MAX_VALUE_LENGTH), None)
    if odd is not None:
        return _forbidden(f"{printable(odd)} cannot be asked of a worker's log here; leave it out.")
    if len({key for key, _ in said}) < len(said):
        return ErrorStatus(400, "BadRequest", "The query says something twice; say it once.")
    asked_for = dict(said).get("container", "")
    if grant.container and asked_for != grant.container:
        return _forbidden(f"WorkerAccess {grant.name} is for container {printable(grant.container)}; name it by -c.")
    return said


def stream_query(grant: Grant) -> Query:
    """The query of a command, which is the grant's; of ports none, for the client names them in the stream."""
    if grant.subresource != EXEC:
        return ()
    streams = {"stdin": grant.stdin, "stdout": True, "stderr": not grant.tty, "tty": grant.tty}
    container = (("container", grant.container),) if grant.container else ()
    return (
        *container,
        *(("command", word) for word in grant.command),
        *((k, "true") for k, on in streams.items() if on),
    )


def accepted_protocols(grant: Grant, offered: Iterable[str]) -> Sequence[str]:
    """Those of the protocols that a client offers which are passed on, in its order; none: it is too old."""
    known = _PROTOCOLS[grant.subresource == EXEC]
    return [one for one in dict.fromkeys(offered) if one in known]


def worker_error(cluster: str, grant: Grant, status: int, message: str = "") -> ErrorStatus:
    """What a worker cluster's refusal means to who asks, and what it said where that is about the container."""
    if status == 403:
        what, role = ("logs", names.LOGS_ROLE) if grant.subresource == LOG else ("exec", names.EXEC_ROLE)
        return _forbidden(
            f"{cluster} does not let the manager have pods/{grant.subresource} in namespace {grant.namespace}. Its administrator "
            f"applies worker-{what}.yaml there once, and allows it by `kubectl -n {grant.namespace} create rolebinding {role} --clusterrole={role} "
            f"--serviceaccount={names.SYSTEM_NAMESPACE}:{names.WORKER_ACCOUNT}` (docs/logs.md)."
        )
    if status == 401:
        return _bad_gateway(f"{cluster} does not know the manager any more: its login has ended.")
    if status == 204:  # as an API server says it of a pod without a node
        return ErrorStatus(400, "BadRequest", f"{cluster}: pod {grant.pod} has no node yet, so it has printed nothing.")
    if status in (400, 404):
        why = printable(message, MAX_ITEM_LENGTH) or "there is no such container, or it has not started"
        return ErrorStatus(status, "BadRequest", f"{cluster}: {why}")
    return _bad_gateway(f"{cluster} answered {status}.")


def unreachable_error(cluster: str, reason: str) -> ErrorStatus:
    """That a worker cluster does not answer, or cannot be logged in to; `why` is a part of a sentence."""
    return _bad_gateway(f"{cluster} cannot be asked: {reason}.")


def _forbidden(message: str) -> ErrorStatus:
    return ErrorStatus(403, "Forbidden", message)


def _not_found(message: str) -> ErrorStatus:
    return ErrorStatus(404, "NotFound", message)


def _bad_gateway(message: str) -> ErrorStatus:
    return ErrorStatus(502, "BadGateway", message)
