"""Which token is a Ray head shown, and what is said while it answers nobody for want of one?

A head is shown what its own pod is started with, and nothing else: what KubeRay's spec.authOptions made of its container, or
what its user wrote there. So no pod learns from us what its kubelet has not told it. Nothing here reads a Secret, and no
sentence quotes one.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.references import SECRET, Reference
from adapter.objects.unstructured import Raw, key_of

# As KubeRay names both (kuberay:controllers/ray/utils/constant.go, kuberay:controllers/ray/utils/dashboardclient). Ray reads
# `authorization` as well, but so does whatever else may listen where a user says that the dashboard is.
_TOKEN_ENV = "RAY_AUTH_TOKEN"
_TOKEN_HEADER = "x-ray-authorization"
_MAX_TOKEN_LENGTH = 4096  # characters: KubeRay's own has 44, and a server refuses a header of more than 8 KiB


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Where a head's container has its token from: a key of a Secret, or the pod itself."""

    secret: Reference | None = None
    key: str = ""
    value: str = field(default="", repr=False)


def token_source(head: Raw) -> TokenSource | None:
    """Where a head's own container has its token from; None: it is started with none that we know of.

    KubeRay takes the first container for Ray's (kuberay:controllers/ray/utils/constant.go, RayContainerIndex).
    """
    containers: Sequence[Raw] = (head.get("spec") or {}).get("containers") or ({},)
    entries = [entry for entry in containers[0].get("env") or () if entry.get("name") == _TOKEN_ENV]
    if not entries:
        return None
    pointer = (entries[-1].get("valueFrom") or {}).get("secretKeyRef") or {}  # of several the last one counts
    if pointer.get("name") and pointer.get("key"):
        return TokenSource(Reference(SECRET, str(pointer["name"])), str(pointer["key"]))
    return TokenSource(value=str(entries[-1]["value"])) if entries[-1].get("value") else None


def decode_token(secret: Raw, key: str) -> str:
    """The token in a Secret, empty when it has none under that key."""
    try:
        return base64.b64decode((secret.get("data") or {}).get(key) or "", validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def auth_headers(token: str) -> Mapping[str, str]:
    """What to send with a question, so that the head answers; raises ValueError, which quotes nothing, for what is no token."""
    bare = token.strip()  # as Ray does with what it reads
    if not bare or len(bare) > _MAX_TOKEN_LENGTH or not (bare.isascii() and bare.isprintable()):
        raise ValueError("no token")
    return {_TOKEN_HEADER: f"Bearer {bare}"}


def forbidden_message(source: TokenSource, namespace: str) -> str:
    """Say in a fragment that the Secret with a head's token may not be read."""
    return (
        f"the controller may not read {source.secret} in namespace {namespace}, which holds its token; bind ClusterRole "
        f"{names.COPIED_OBJECTS_ROLE} to ServiceAccount {names.CONTROLLER_ACCOUNT} of namespace {names.SYSTEM_NAMESPACE} there"
    )


def missing_secret_message(source: TokenSource, namespace: str) -> str:
    """Say in a fragment that there is no Secret with a head's token."""
    return f"{source.secret} with its token does not exist in namespace {namespace}; create it again as it was"


def invalid_token_message(source: TokenSource) -> str:
    """Say in a fragment that what a head is started with is no token."""
    if source.secret is None:
        return f"env {_TOKEN_ENV} of its container is no token; put one line of printable ASCII there"
    return f"key {source.key} of {source.secret} holds no token; put one line of printable ASCII there"


def unauthorized_message(source: TokenSource | None, status: int) -> str:
    """Say in a fragment that a head refuses to answer."""
    if source is None:
        return (
            f"it answers {status}, and its container has no token in env {_TOKEN_ENV}; set spec.authOptions.mode of the RayCluster "
            "to token, and KubeRay puts it there"
        )
    whose = f"key {source.key} of {source.secret}" if source.secret else f"env {_TOKEN_ENV} of its container"
    return (
        f"it answers {status} to the token in {whose}; if that changed since the head was started, put the old one back, or "
        "start the job again"
    )


def head_not_asked_message(head: Raw, reason: str) -> str:
    """Say what follows from a fragment of those above, for the user of the job; the same for all of its workers."""
    return (
        f"Ray's head {key_of(head)[1]} cannot be asked which workers it still hears from: {reason}. Until then, workers in a "
        "cluster that cannot be seen count as lost only when the policy's workerLostTimeout is over."
    )
