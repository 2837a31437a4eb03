"""The token for requests to a Ray head, and the messages for a head that requires one and does not get it.

A head gets the token that its own pod is started with, and no other: from KubeRay's spec.authOptions, or from its user.
So no pod learns a token from us that its kubelet has not given it. No Secret is read here, and no message quotes one.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.references import SECRET, Reference
from adapter.objects.unstructured import Raw, key_of

# As in KubeRay (kuberay:controllers/ray/utils/constant.go, kuberay:controllers/ray/utils/dashboardclient). Ray reads
# `authorization` as well, but so does any other server that may listen at the dashboard's address.
_TOKEN_ENV = "RAY_AUTH_TOKEN"
_TOKEN_HEADER = "x-ray-authorization"
_MAX_TOKEN_LENGTH = 4096  # characters: KubeRay's tokens have 44, and servers reject headers of more than 8 KiB


@dataclass(frozen=True, slots=True)
class TokenSource:
    """The source of the token of a head's container: a key of a Secret, or a value in the pod."""

    secret: Reference | None = None
    key: str = ""
    value: str = field(default="", repr=False)


def token_source(head: Raw) -> TokenSource | None:
    """The source of the token of a head's own container; None if it is started without a known one.

    KubeRay takes the first container for Ray's (kuberay:controllers/ray/utils/constant.go, RayContainerIndex).
    """
    containers: Sequence[Raw] = (head.get("spec") or {}).get("containers") or ({},)
    entries = [entry for entry in containers[0].get("env") or () if entry.get("name") == _TOKEN_ENV]
    if not entries:
        return None
    # Of several entries the last one counts.
    secret_ref = (entries[-1].get("valueFrom") or {}).get("secretKeyRef") or {}
    if secret_ref.get("name") and secret_ref.get("key"):
        return TokenSource(Reference(SECRET, str(secret_ref["name"])), str(secret_ref["key"]))
    return TokenSource(value=str(entries[-1]["value"])) if entries[-1].get("value") else None


def decode_token(secret: Raw, key: str) -> str:
    """The token in a Secret; empty if that key has none."""
    try:
        return base64.b64decode((secret.get("data") or {}).get(key) or "", validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def auth_headers(token: str) -> Mapping[str, str]:
    """The headers by which a head accepts a request.

    Raises ValueError, which quotes nothing, if the token is invalid.
    """
    stripped = token.strip()  # Ray strips it, too
    if not stripped or len(stripped) > _MAX_TOKEN_LENGTH or not (stripped.isascii() and stripped.isprintable()):
        raise ValueError("no token")
    return {_TOKEN_HEADER: f"Bearer {stripped}"}


def forbidden_message(source: TokenSource, namespace: str) -> str:
    """A message part: the controller may not read the Secret with the head's token."""
    return (
        f"the controller may not read {source.secret} in namespace {namespace}, which holds its token; bind "
        f"ClusterRole {names.COPIED_OBJECTS_ROLE} to ServiceAccount {names.CONTROLLER_ACCOUNT} of namespace "
        f"{names.SYSTEM_NAMESPACE} there"
    )


def missing_secret_message(source: TokenSource, namespace: str) -> str:
    """A message part: the Secret with the head's token does not exist."""
    return f"{source.secret} with its token does not exist in namespace {namespace}; create it again as it was"


def invalid_token_message(source: TokenSource) -> str:
    """A message part: the head is started with an invalid token."""
    if source.secret is None:
        return f"env {_TOKEN_ENV} of its container is no token; put one line of printable ASCII there"
    return f"key {source.key} of {source.secret} holds no token; put one line of printable ASCII there"


def unauthorized_message(source: TokenSource | None, status: int) -> str:
    """A message part: the head rejects the request."""
    if source is None:
        return (
            f"it answers {status}, and its container has no token in env {_TOKEN_ENV}; set spec.authOptions.mode of "
            "the RayCluster to token, and KubeRay puts it there"
        )
    location = f"key {source.key} of {source.secret}" if source.secret else f"env {_TOKEN_ENV} of its container"
    return (
        f"it answers {status} to the token in {location}; if that changed since the head was started, put the old one "
        "back, or start the job again"
    )


def head_not_asked_message(head: Raw, reason: str) -> str:
    """The message for the job's user that the head cannot be asked; equal for all of the job's workers.

    `reason` is one of the message parts above.
    """
    return (
        f"Ray's head {key_of(head)[1]} cannot be asked which workers it still hears from: {reason}. Until then, "
        "workers in a cluster that cannot be seen count as lost only when the policy's workerLostTimeout is over."
    )
