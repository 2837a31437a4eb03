"""Reads a WorkerAccess: the pod and subresource that it allows, its lifetime, and the hash of its key.

The API server has judged its creator, and it cannot be changed. Here it is only checked for its lifetime and its key.
The key itself is only in the URL of its user.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from adapter import names
from adapter.objects.unstructured import Raw, key_of, meta, parse_time, uid_of

LOG, EXEC, PORT_FORWARD = "log", "exec", "portforward"
SUBRESOURCES: Final = (LOG, EXEC, PORT_FORWARD)
# Limits the start of a stream, not its length. kubectl begins at once, and to follow a group's workers may take a
# minute.
LIFETIME: Final = timedelta(minutes=5)
# To follow the logs of a large job takes one grant for each worker, and they are deleted after five minutes. More would
# only fill etcd.
MAX_PER_NAMESPACE: Final = 500
_METADATA_FIELDS: Final = ("namespace", "name", "uid", "creationTimestamp", "deletionTimestamp")


@dataclass(frozen=True, slots=True)
class Grant:
    """The fields of one WorkerAccess."""

    namespace: str
    name: str
    uid: str
    pod: str
    pod_uid: str
    subresource: str
    container: str  # empty: any of them
    command: tuple[str, ...]
    stdin: bool
    tty: bool
    key_hash: str
    created: datetime

    @property
    def is_single_use(self) -> bool:
        """Whether the grant allows one request alone: a command must run once."""
        return self.subresource != LOG


def parse(raw: Raw) -> Grant | None:
    """The grant of an object; None for one that is being deleted or is malformed."""
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


def without_command(raw: Raw) -> Raw:
    """The parts of an object that show whether it is expired; its command, which may be long, is dropped."""
    metadata = {field: value for field, value in meta(raw).items() if field in _METADATA_FIELDS}
    spec = raw.get("spec")
    return {"metadata": metadata, "spec": {**spec, "command": []} if isinstance(spec, dict) else spec}


def grants_to_delete(grants: Iterable[Raw], now: datetime) -> Sequence[Raw]:
    """The objects that must be deleted: expired, malformed, or beyond MAX_PER_NAMESPACE newer ones in their namespace.

    Objects that are being deleted are not among them.
    """
    parsed = [(raw, parse(raw)) for raw in grants if not meta(raw).get("deletionTimestamp")]
    expired = [raw for raw, grant in parsed if grant is None or now >= grant.created + LIFETIME]
    valid = sorted(
        ((grant, raw) for raw, grant in parsed if grant is not None and now < grant.created + LIFETIME),
        key=lambda pair: (pair[0].namespace, -pair[0].created.timestamp(), pair[0].name),
    )
    by_namespace = groupby(valid, key=lambda pair: attrgetter("namespace")(pair[0]))
    return [*expired, *(raw for _, pairs in by_namespace for _, raw in [*pairs][MAX_PER_NAMESPACE:])]
