"""Finds the worker cluster and the query for a request with a grant, or refuses the request with a sentence.

The pod must still be the grant's, its remote pod must belong to this pod and this manager, and the request must not
exceed the grant. The API server's service proxy drops the query of an upgraded request, so the query of a command is
made from the grant alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from adapter import names
from adapter.access.access_request import AccessRequest
from adapter.access.grant import EXEC, LOG, Grant
from adapter.objects.unstructured import MAX_ITEM_LENGTH, Raw, annotation, label, printable, uid_of
from adapter.objects.worker_pod import slot_cluster

Query = tuple[tuple[str, str], ...]
# The permitted parameters: those of k8s:pkg/apis/core/types.go, PodLogOptions, without insecureSkipTLSVerifyBackend,
# which would weaken the link between a cluster's API server and its kubelets.
_LOG_PARAMETERS: Final = frozenset(
    ("container", "follow", "limitBytes", "previous", "sinceSeconds", "sinceTime", "stream", "tailLines", "timestamps")
)
_MAX_VALUE_LENGTH = 253  # characters, as of a container's name; times are shorter
# kubectl's protocols (k8s:apimachinery/pkg/util/remotecommand/constants.go, portforward/constants.go). Other protocols
# are not forwarded: a client may put a token for the API server among them, which a worker cluster must not get.
_PROTOCOLS: Final = {
    True: ("v5.channel.k8s.io", "v4.channel.k8s.io"),
    False: ("SPDY/3.1+portforward.k8s.io",),
}


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """The reason of a refused request, as an API server's Status."""

    status: int
    reason: str
    message: str


# A missing grant, a wrong key and an expired grant have one answer, which does not reveal whether a grant exists.
NO_GRANT: Final = ErrorStatus(
    403,
    "Forbidden",
    "There is no WorkerAccess of this name that matches this key, or it has expired: each is valid for five minutes, "
    "and for a command only once. Run `kubectl rayspan` again.",
)


def target_cluster(request: AccessRequest, grant: Grant, pod: Raw | None) -> str | ErrorStatus:
    """The worker cluster of the requested pod, or a refusal; checked before any request to that cluster."""
    if (request.namespace, request.pod) != (grant.namespace, grant.pod):
        return _forbidden(f"WorkerAccess {grant.name} is for pod {printable(grant.pod)}, not for {request.pod}.")
    if not pod or uid_of(pod) != grant.pod_uid:
        return _not_found(f"Pod {grant.namespace}/{grant.pod} does not exist any more, or was replaced: try again.")
    cluster, written = slot_cluster(pod), annotation(pod, names.SLOT_ANNOTATION)
    if written and not cluster:
        return _not_found(
            f"Pod {grant.namespace}/{grant.pod}: annotation {names.SLOT_ANNOTATION} is {printable(written)}, "
            "which is not a valid slot: delete the pod, so that its controller creates it again."
        )
    if not cluster:
        return _not_found(f"Pod {grant.namespace}/{grant.pod} is not placed in a worker cluster; use kubectl itself.")
    return cluster


def remote_pod_mismatch(grant: Grant, remote_pod: Raw | None, manager: str, cluster: str) -> ErrorStatus | None:
    """The reason why the worker cluster's pod of this name is not the grant's remote pod; None if it is.

    `manager`: our cluster identity.
    """
    is_ours = remote_pod is not None and label(remote_pod, names.MANAGER_LABEL) == manager
    if remote_pod is None or not is_ours or label(remote_pod, names.POD_UID_LABEL) != grant.pod_uid:
        # The answer is the same for another owner's pod of this name, so that it does not reveal others' pods.
        return _not_found(
            f"Pod {grant.namespace}/{grant.pod} has no remote pod in {cluster} that belongs to it; try again."
        )
    return None


def subresource_mismatch(request: AccessRequest, grant: Grant) -> ErrorStatus | None:
    """The reason why a request's subresource is not the grant's; None if it is."""
    if request.resource == grant.subresource:
        return None
    return _forbidden(f"WorkerAccess {grant.name} is for {grant.subresource}, not for {request.resource}.")


def log_query(grant: Grant, query: Iterable[tuple[str, str]]) -> Query | ErrorStatus:
    """The query with which a request for a log goes to the worker cluster, or its refusal."""
    pairs = tuple(query)
    invalid = next((key for key, value in pairs if key not in _LOG_PARAMETERS or len(value) > _MAX_VALUE_LENGTH), None)
    if invalid is not None:
        return _forbidden(f"{printable(invalid)} cannot be set for a worker's log here; remove it.")
    if len({key for key, _ in pairs}) < len(pairs):
        return ErrorStatus(400, "BadRequest", "The query has a parameter twice; give it once.")
    container = dict(pairs).get("container", "")
    if grant.container and container != grant.container:
        return _forbidden(f"WorkerAccess {grant.name} is for container {printable(grant.container)}; name it with -c.")
    return pairs


def stream_query(grant: Grant) -> Query:
    """The query of a command, from the grant.

    A port-forward has no query, because the client names the ports in the stream.
    """
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
    """The client's protocols that are forwarded, in its order; none where the client is too old."""
    known = _PROTOCOLS[grant.subresource == EXEC]
    return [protocol for protocol in dict.fromkeys(offered) if protocol in known]


def worker_error(cluster: str, grant: Grant, status: int, message: str = "") -> ErrorStatus:
    """The Status for the user after a worker cluster's error; `message` is passed on if it concerns the container."""
    if status == 403:
        manifest, role = ("logs", names.LOGS_ROLE) if grant.subresource == LOG else ("exec", names.EXEC_ROLE)
        return _forbidden(
            f"{cluster} does not allow the manager to use pods/{grant.subresource} in namespace {grant.namespace}. Ask "
            f"its administrator to apply worker-{manifest}.yaml there once, and to run `kubectl -n {grant.namespace} "
            f"create rolebinding {role} --clusterrole={role} "
            f"--serviceaccount={names.SYSTEM_NAMESPACE}:{names.WORKER_ACCOUNT}` (docs/logs.md)."
        )
    if status == 401:
        return _bad_gateway(f"{cluster} does not accept the manager's credentials any more: they have expired.")
    if status == 204:  # an API server's answer for a pod without a node
        return ErrorStatus(400, "BadRequest", f"{cluster}: pod {grant.pod} has no node yet, so it has printed nothing.")
    if status in (400, 404):
        reason = printable(message, MAX_ITEM_LENGTH) or "there is no such container, or it has not started"
        return ErrorStatus(status, "BadRequest", f"{cluster}: {reason}")
    return _bad_gateway(f"{cluster} answered {status}.")


def unreachable_error(cluster: str, reason: str) -> ErrorStatus:
    """The Status where a worker cluster is unreachable or its login fails; `reason` is a part of a sentence."""
    return _bad_gateway(f"{cluster} cannot be reached: {reason}.")


def _forbidden(message: str) -> ErrorStatus:
    return ErrorStatus(403, "Forbidden", message)


def _not_found(message: str) -> ErrorStatus:
    return ErrorStatus(404, "NotFound", message)


def _bad_gateway(message: str) -> ErrorStatus:
    return ErrorStatus(502, "BadGateway", message)
