"""Reads a WorkerAccess: the pod and subresource that it allows, its lifetime, and the hash of its key.

The API server has checked the rights of its creator, and the object cannot be changed. Here only its lifetime and its
key are checked. The key itself is only in the user's URL.
"""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from adapter import names
from adapter.objects.unstructured import Raw, key_of, meta, parse_time, uid_of

LOG, EXEC, PORT_FORWARD = "log", "exec", "portforward"
SUBRESOURCES: Final = (LOG, EXEC, PORT_FORWARD)
# How long a grant can start a stream; the stream may last longer. kubectl starts one at once, and to start following
# all workers of a group may take a minute.
LIFETIME: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Grant:
    """The fields of one WorkerAccess."""

    namespace: str
    name: str
    uid: str
    pod: str
    pod_uid: str
    subresource: str
    container: str  # empty: any container
    command: tuple[str, ...]
    stdin: bool
    tty: bool
    key_hash: str
    created: datetime

    @property
    def is_single_use(self) -> bool:
        """Whether the grant allows only one request: a command must not run twice."""
        return self.subresource != LOG


def parse(raw: Raw) -> Grant | None:
    """The grant of an object; None if the object is being deleted or is malformed."""
    spec = raw.get("spec")
    created = parse_time(meta(raw).get("creationTimestamp"))
    if not isinstance(spec, dict) or created is None or meta(raw).get("deletionTimestamp"):
        return None
    texts = [spec.get(field, "") for field in ("pod", "podUID", "subresource", "container", "keyHash")]
    command = spec.get("command", [])
    if (
        not isinstance(command, list)
        or not all(isinstance(text, str) for text in (*texts, *command))
        or texts[2] not in SUBRESOURCES
    ):
        return None
    pod, pod_uid, subresource, container, key_hash = texts
    stdin, tty = spec.get("stdin") is True, spec.get("tty") is True
    object_key, uid = key_of(raw), uid_of(raw)
    return Grant(*object_key, uid, pod, pod_uid, subresource, container, tuple(command), stdin, tty, key_hash, created)


def manifest(pod: Raw, subresource: str, key: str, prefix: str = "kubectl-", **fields: Any) -> dict[str, Any]:
    """The manifest of a WorkerAccess for a manager pod; `fields`: container, command, stdin, tty."""
    namespace, name = key_of(pod)
    set_fields = {field: value for field, value in fields.items() if value}
    spec = {"pod": name, "podUID": uid_of(pod), "subresource": subresource, **set_fields, "keyHash": hash_key(key)}
    metadata = {"generateName": prefix, "namespace": namespace}
    return {"apiVersion": names.API_VERSION, "kind": names.WORKER_ACCESS_KIND, "metadata": metadata, "spec": spec}


def hash_key(key: str) -> str:
    """The hash of a key in a grant: SHA-256, in hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def accepts_key(grant: Grant, key: str, now: datetime) -> bool:
    """Whether a valid grant has this key; the time that the check takes reveals nothing of the key."""
    matches = hmac.compare_digest(hash_key(key).encode(), grant.key_hash.encode())
    return matches and now < grant.created + LIFETIME
