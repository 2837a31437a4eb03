"""What does the copy of a Secret or ConfigMap look like in a worker cluster, and which ones are not copied?

A copy belongs to one share: all its pods use the same one, and it goes with the share's anchor. Its name is made of the
anchor's uid, which nobody knows before the anchor stands, so no object of somebody else has it: what is there under that
name is an earlier try of ours. No sentence here quotes what an object holds.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from adapter import names
from adapter.objects import references
from adapter.objects.references import SECRET, Reference
from adapter.objects.reservation import anchor_uid, anchors
from adapter.objects.unstructured import Raw, annotation, key_of, label
from adapter.objects.workload import PodSet

# Of one job, over all its worker groups. The API server takes up to 1 MiB in each object, and etcd holds 2 GiB unless it is
# told otherwise: so a hundred jobs with all that they may have fill a fifth of a worker cluster's. Each object is also one
# read in every interval, for as long as the job runs. Larger things belong into an image or into object storage.
MOST_OBJECTS = 32
MOST_BYTES = 4 * 2**20
# Tokens whose issuer is the manager; and the worker cluster's own controller would fill in, or remove, such a Secret there.
FORBIDDEN_TYPES = ("kubernetes.io/service-account-token",)
_DATA = ("type", "data", "binaryData")
_WORD = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_WORD}(\.{_WORD})*")  # of an object: a DNS subdomain
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Source:
    """What the manager has under a reference, without what it holds; `size` is in bytes."""

    state: Literal["Found", "Missing", "Forbidden", "Unreadable"]
    type: str = ""
    size: int = 0
    why: str = ""  # it cannot be read, in the API server's words


MISSING, FORBIDDEN = Source("Missing"), Source("Forbidden")


def source(raw: Raw) -> Source:
    """Describe a Secret or ConfigMap of the manager."""
    encoded = [str(value) for value in (raw.get("binaryData") or {}).values()]
    plain = [str(value) for value in (raw.get("data") or {}).values()]
    if raw.get("kind") == SECRET:
        encoded, plain = plain, []
    held = sum(len(text.encode()) for text in plain) + sum(len(text) * 3 // 4 - text.count("=") for text in encoded)
    return Source("Found", str(raw.get("type") or ""), held)


def nameless(reference: Reference) -> str:
    """Say in a fragment why no object can have a reference's name, empty when one can.

    A pod may name anything as the source of a volume, for its API server only asks that there is a name
    (kubernetes:validation.go, validateSecretVolumeSource). A request that had `../../other/secrets/x` in its path would read what
    is another namespace's, so such a name is never asked for.
    """
    if len(reference.name) <= _LONGEST_NAME and _NAME.fullmatch(reference.name):
        return ""
    return f"{reference.kind} {reference.name[:60]!r}, which is no name that an object can have; put its name there"


def name(reference: Reference, anchor_uid: str) -> str:
    """Name the copy that a share's pods use."""
    digest = hashlib.sha256(f"{reference.kind}/{reference.name}/{anchor_uid}".encode()).hexdigest()
    return f"rayspan-{digest[:32]}"


def copy(reference: Reference, found: Raw, pod: Raw) -> dict[str, Any]:
    """Build the copy of what was found, beside a remote pod of the share: of the same origin and with the same owner.

    Labels and annotations of the source stay at home: kubectl keeps a whole Secret in one of them. So does `immutable`, for the
    copy must be able to follow a source that is deleted and made anew.
    """
    labels = (names.MANAGER_LABEL, names.WORKLOAD_UID_LABEL, names.PLACEMENT_LABEL, names.CLUSTER_LABEL)
    annotations = (names.WORKLOAD_ANNOTATION, names.ROUND_ANNOTATION)
    return {
        "apiVersion": "v1",
        "kind": reference.kind,
        "metadata": {
            "name": name(reference, anchor_uid(pod)),
            "namespace": key_of(pod)[0],
            "labels": {**{key: label(pod, key) for key in labels}, names.COPY_LABEL: "true"},
            "annotations": {
                **{key: annotation(pod, key) for key in annotations},
                names.COPY_OF_ANNOTATION: str(reference),
            },
            "ownerReferences": anchors(pod),
        },
        **{key: found[key] for key in _DATA if key in found},
    }


def refusal(wanted: Mapping[Reference, str], known: Mapping[Reference, Source]) -> str:
    """Say in a fragment why a template's references can never be copied, empty when they can, or may be later."""
    for reference, field in wanted.items():
        if why := nameless(reference):
            return f"{field} is {why}" if field else why
        found = known.get(reference)
        if found and found.type in FORBIDDEN_TYPES:
            where = f"{field} is " if field else ""
            return (
                f"{where}{reference} of type {found.type}: the token's issuer is the manager, which the other cluster does "
                "not trust; use a credential of another kind"
            )
    return ""


def too_much(wanted: Iterable[Reference], known: Mapping[Reference, Source]) -> str:
    """Say in a fragment that all references of a job are too many, or hold too much; empty when not."""
    found = {reference: known[reference].size if reference in known else 0 for reference in wanted}
    if len(found) > MOST_OBJECTS:
        return (
            f"its worker groups refer to {len(found)} Secrets and ConfigMaps, and at most {MOST_OBJECTS} are copied to worker "
            "clusters; put several values into one"
        )
    if sum(found.values()) > MOST_BYTES:
        largest = max(found, key=lambda reference: found[reference])
        return (
            f"the Secrets and ConfigMaps of its worker groups hold {_mib(sum(found.values()))}, and at most "
            f"{_mib(MOST_BYTES)} are copied to worker clusters; put large files, such as {largest} with "
            f"{_mib(found[largest])}, into the image or object storage"
        )
    return ""


def absent(namespace: str, wanted: Mapping[Reference, str], known: Mapping[Reference, Source]) -> str:
    """Say in a fragment which reference a template cannot do without and does not find now; empty when there is none."""
    without = (
        (reference, field, lack(namespace, known.get(reference))) for reference, field in wanted.items() if field
    )
    return next((f"{field} is {reference}, {why}" for reference, field, why in without if why), "")


def wanted_by(podsets: Iterable[PodSet]) -> dict[Reference, str]:
    """What worker groups refer to, each as `references.wanted` says it of a pod."""
    return {one: field for p in podsets for one, field in references.wanted(p.template.get("spec") or {}).items()}


def refusal_of_groups(podsets: Sequence[PodSet], known: Mapping[Reference, Source]) -> str:
    """Say why what worker groups refer to can never be copied: the first of them that has something of the kind, or all together
    when it is too much; a fragment, empty when it can."""
    for podset in podsets:
        if why := refusal(wanted_by([podset]), known):
            return f"worker group {podset.name}: {why}"
    return too_much(wanted_by(podsets), known)


def absent_of_groups(namespace: str, podsets: Sequence[PodSet], known: Mapping[Reference, Source]) -> str:
    """Say which object worker groups need and the manager does not have, in the same form."""
    for podset in podsets:
        if why := absent(namespace, wanted_by([podset]), known):
            return f"worker group {podset.name}: {why}"
    return ""


def lack(namespace: str, found: Source | None) -> str:
    """Say why an object is not at hand now, though it may be later; empty when it is, or when that is not known."""
    if found and found.state == "Unreadable":
        return f"which cannot be read in namespace {namespace} ({found.why}); it is tried again"
    if found == FORBIDDEN:
        return _may_not(namespace)
    return f"which does not exist in namespace {namespace}; create it, and the job goes on" if found == MISSING else ""


def _may_not(namespace: str) -> str:
    """Say that the right to read is not given, and how an administrator gives it."""
    return (
        f"which the controller may not read in namespace {namespace}; bind ClusterRole {names.COPIES_ROLE} to ServiceAccount "
        f"{names.CONTROLLER_ACCOUNT} of namespace {names.SYSTEM_NAMESPACE} there, and the job goes on"
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
