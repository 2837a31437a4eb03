"""The token for requests to a Ray head, and the messages for a head that requires one and does not get it.

A head gets only the token that its own pod is started with, from KubeRay's spec.authOptions or from its user. So no pod
learns a token that its kubelet has not given it. No Secret is read here, and no message quotes one.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.references import SECRET, Reference
from adapter.objects.unstructured import Raw, key_of

# The variable and the header of a token, as in KubeRay (kuberay:controllers/ray/utils/constant.go,
# kuberay:controllers/ray/utils/dashboardclient). Ray also reads `authorization`, but so does any other server at that
# address.
_TOKEN_ENV = names.RAY_TOKEN_ENV
_TOKEN_HEADER = "x-ray-authorization"
_MAX_TOKEN_LENGTH = 4096  # characters: KubeRay's have 44, and servers reject headers of more than 8 KiB


@dataclass(frozen=True, slots=True)
class TokenSource:
    """A key of a Secret, or a value in the head's pod."""

    secret: Reference | None = None
    key: str = ""
    value: str = field(default="", repr=False)


def token_source(head: Raw) -> TokenSource | None:
    """The source of the token of the head's first container.

    KubeRay takes that container for Ray's (kuberay:controllers/ray/utils/constant.go, RayContainerIndex).
    """
    containers: Sequence[Raw] = (head.get("spec") or {}).get("containers") or ({},)
    entries = [entry for entry in containers[0].get("env") or () if entry.get("name") == _TOKEN_ENV]
    if not entries:
        return None
    # Of several entries the last counts.
    secret_ref = (entries[-1].get("valueFrom") or {}).get("secretKeyRef") or {}
    if secret_ref.get("name") and secret_ref.get("key"):
        return TokenSource(Reference(SECRET, str(secret_ref["name"])), str(secret_ref["key"]))
    return TokenSource(value=str(entries[-1]["value"])) if entries[-1].get("value") else None


def decode_token(secret: Raw, key: str) -> str:
    try:
        return base64.b64decode((secret.get("data") or {}).get(key) or "", validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def auth_headers(token: str) -> Mapping[str, str]:
    """The headers of a request with the token. Raises ValueError, which quotes nothing, if the token is invalid."""
    stripped = token.strip()  # Ray strips it, too
    if not stripped or len(stripped) > _MAX_TOKEN_LENGTH or not (stripped.isascii() and stripped.isprintable()):
        raise ValueError("no token")
    return {_TOKEN_HEADER: f"Bearer {stripped}"}


def forbidden_message(source: TokenSource, namespace: str) -> str:
    return (
        f"the controller may not read {source.secret} in namespace {namespace}, which holds its token; bind "
        f"ClusterRole {names.COPIED_OBJECTS_ROLE} to ServiceAccount {names.CONTROLLER_ACCOUNT} of namespace "
        f"{names.SYSTEM_NAMESPACE} there"
    )


def missing_secret_message(source: TokenSource, namespace: str) -> str:
    return f"{source.secret} with its token does not exist in namespace {namespace}; create it again as it was"


def invalid_token_message(source: TokenSource) -> str:
    if source.secret is None:
        return f"env {_TOKEN_ENV} of its container is not a valid token; set it to one line of printable ASCII"
    return f"key {source.key} of {source.secret} holds no valid token; set it to one line of printable ASCII"


def unauthorized_message(source: TokenSource | None, status: int) -> str:
    if source is None:
        return (
            f"it answers {status}, and its container has no token in env {_TOKEN_ENV}; set spec.authOptions.mode of "
            "the RayCluster to token, so that KubeRay sets it"
        )
    location = f"key {source.key} of {source.secret}" if source.secret else f"env {_TOKEN_ENV} of its container"
    return (
        f"it answers {status} to the token in {location}; if that changed since the head was started, restore the old "
        "one, or start the job again"
    )


def head_not_asked_message(head: Raw, reason: str) -> str:
    """A message for the job's user, equal for all workers; `reason` is one of the messages above."""
    return (
        f"Ray's head {key_of(head)[1]} does not report which workers it is still connected to: {reason}. Until it "
        "does, workers in an unreachable cluster count as lost only after the policy's workerLostTimeout."
    )
