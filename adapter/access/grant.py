"""What does a WorkerAccess allow: which pod, what of it, until when, and to whoever shows which key?

The API server has judged who created it, and nobody can change it. What is read here is only whether it is still good, and whether
the key is the one whose hash it has: the key itself stands nowhere but in the URL of who uses it.
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
# For the start of what it allows, not for its length: kubectl begins at once, and a group's workers may take a minute to be followed.
LIFETIME: Final = timedelta(minutes=5)
# In one namespace. Who follows the logs of a large job has one for each worker, and they are gone five minutes later; more would only
# fill etcd.
MAX_PER_NAMESPACE: Final = 500
_METADATA_FIELDS: Final = ("namespace", "name", "uid", "creationTimestamp", "deletionTimestamp")


@dataclass(frozen=True, slots=True)
class Grant:
    """One WorkerAccess, as far as it can be read."""

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
        """Whether it serves for one request alone: a command is to run once."""
        return self.subresource != LOG


def parse(raw: Raw) -> Grant | None:
    """The grant that an object is; None for one that is being deleted, or cannot be read."""
    spec = raw.get("spec")
    created = parse_time(meta(raw).get("creationTimestamp"))
    if not isinstance(spec, dict) or created is None or meta(raw).get("deletionTimestamp"):
        return None
    texts = [spec.get(field, "") for field in ("pod", "podUID", "subresource", "container", "keyHash")]
    command = spec.get("command", [])
    if (
        not isinstance(command, list)
        or not all(isinstance(one, str) for one in (*texts, *command))
        or texts[2] not in SUBRESOURCES
    ):
        return None
    pod, pod_uid, subresource, container, key_hash = texts
    stdin, tty = spec.get("stdin") is True, spec.get("tty") is True
    place, uid = key_of(raw), uid_of(raw)
    return Grant(*place, uid, pod, pod_uid, subresource, container, tuple(command), stdin, tty, key_hash, created)


def manifest(pod: Raw, subresource: str, key: str, prefix: str = "kubectl-", **fields: Any) -> dict[str, Any]:
    """A WorkerAccess for one pod of the manager, as it is to be created; `more`: container, command, stdin, tty."""
    namespace, name = key_of(pod)
    said = {field: value for field, value in fields.items() if value}
    spec = {"pod": name, "podUID": uid_of(pod), "subresource": subresource, **said, "keyHash": hash_key(key)}
    metadata = {"generateName": prefix, "namespace": namespace}
    return {"apiVersion": names.API_VERSION, "kind": names.WORKER_ACCESS_KIND, "metadata": metadata, "spec": spec}


def hash_key(key: str) -> str:
    """What a grant says of its key: SHA-256, in hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def accepts_key(grant: Grant, key: str, now: datetime) -> bool:
    """Whether the key is that of a grant that is still good; how long that takes tells nothing of the key."""
    fits = hmac.compare_digest(hash_key(key).encode(), grant.key_hash.encode())
    return fits and now < grant.created + LIFETIME


def without_command(raw: Raw) -> Raw:
    """As much of an object as says whether it is over; what its command is does not."""
    about = {field: value for field, value in meta(raw).items() if field in _METADATA_FIELDS}
    spec = raw.get("spec")
    return {"metadata": about, "spec": {**spec, "command": []} if isinstance(spec, dict) else spec}


def grants_to_delete(grants: Iterable[Raw], now: datetime) -> Sequence[Raw]:
    """Those of the objects that are to be deleted: too old, not to be read, or older than as many others of their namespace as it may
    have. Of one that is being deleted nothing more can be done."""
    standing = [(one, parse(one)) for one in grants if not meta(one).get("deletionTimestamp")]
    old = [raw for raw, grant in standing if grant is None or now >= grant.created + LIFETIME]
    good = sorted(
        ((grant, raw) for raw, grant in standing if grant is not None and now < grant.created + LIFETIME),
        key=lambda pair: (pair[0].namespace, -pair[0].created.timestamp(), pair[0].name),
    )
    by_namespace = groupby(good, key=lambda pair: attrgetter("namespace")(pair[0]))
    return [*old, *(raw for _, some in by_namespace for _, raw in [*some][MAX_PER_NAMESPACE:])]
