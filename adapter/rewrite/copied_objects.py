"""Builds copied objects, and says which Secrets and ConfigMaps are not copied.

The shares of a job in a cluster have one copied object of each source, owned by their anchors: it is deleted with the
last of them. Its name is a digest of the job's uid, so an existing object of such a name is from an earlier write of
ours. Each reason is a fragment, or empty. No reason quotes the content of an object.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from adapter import names
from adapter.objects import references
from adapter.objects.references import SECRET, Reference
from adapter.objects.unstructured import Raw, annotation, key_of, label
from adapter.objects.workload import PodSet

# The limits of one job in a cluster, whatever the number of its shares. The API server takes up to 1 MiB in each
# object. Each object is also read once in every interval while the job runs.
MAX_OBJECTS = 32
MAX_BYTES = 4 * 2**20
# The limits of all jobs of a namespace in a cluster: a thirtieth of etcd's default size, 2 GiB.
MAX_NAMESPACE_OBJECTS = 1024
MAX_NAMESPACE_BYTES = 64 * 2**20
# An elastic job has up to 500 shares in a cluster. Not all of them own its copied objects: each new owner costs a write
# of the whole object.
MAX_OWNERS, MIN_OWNERS = 16, 8
# Types of Secrets that are not copied: they hold tokens issued by the manager. The worker cluster's own controller
# would fill in or remove the copied object.
FORBIDDEN_TYPES = ("kubernetes.io/service-account-token",)
_DATA_FIELDS = ("type", "data", "binaryData")
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_MAX_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class SourceObject:
    """The manager's object behind a reference, without its content; `size` is in bytes."""

    state: Literal["Found", "Missing", "Forbidden", "Unreadable"]
    type: str = ""
    size: int = 0
    error: str = ""  # if unreadable


MISSING, FORBIDDEN = SourceObject("Missing"), SourceObject("Forbidden")


def describe_source(raw: Raw) -> SourceObject:
    encoded = [str(value) for value in (raw.get("binaryData") or {}).values()]
    plain = [str(value) for value in (raw.get("data") or {}).values()]
    if raw.get("kind") == SECRET:
        encoded, plain = plain, []
    size = sum(len(text.encode()) for text in plain) + sum(len(text) * 3 // 4 - text.count("=") for text in encoded)
    return SourceObject("Found", str(raw.get("type") or ""), size)


def invalid_name_reason(reference: Reference) -> str:
    """Why a reference's name is not a valid object name.

    The API server requires only that a volume's source has some name (kubernetes:validation.go,
    validateSecretVolumeSource). If a name were `../../other/secrets/x`, the request with it in its path would read from
    another namespace.
    """
    if len(reference.name) <= _MAX_NAME_LENGTH and _DNS_SUBDOMAIN.fullmatch(reference.name):
        return ""
    return f"{reference.kind} {reference.name[:60]!r}, which is not a valid object name; use the name of an object"


def copy_name(reference: Reference, cluster: str, job_uid: str) -> str:
    digest = hashlib.sha256(f"{reference.kind}/{reference.name}/{cluster}/{job_uid}".encode()).hexdigest()
    return f"rayspan-{digest[:32]}"


def has_owners(owners: Sequence[Raw], anchors: Sequence[Raw]) -> bool:
    """Whether enough of a copied object's owners are among the anchors that exist, so that it outlives a few shares."""
    return sum(owner in anchors for owner in owners) >= min(MIN_OWNERS, len(anchors))


def choose_owners(owners: Sequence[Raw], anchors: Sequence[Raw]) -> list[Raw]:
    """The next owners of a copied object: of the last ones those that exist, then others, up to `MAX_OWNERS`."""
    existing = [owner for owner in owners if owner in anchors]
    if has_owners(owners, anchors):
        return existing
    return [*existing, *(anchor for anchor in anchors if anchor not in existing)][:MAX_OWNERS]


def build_copy(reference: Reference, source: Raw, pod: Raw, owners: Sequence[Raw]) -> dict[str, Any]:
    """Build the copied object of a source, with the origin of `pod`, a remote pod of the job, and anchors as owners.

    Labels and annotations are not copied: kubectl keeps a whole Secret in an annotation. The field `immutable` is not
    copied either, since a source may be deleted and created again.
    """
    labels = (names.MANAGER_LABEL, names.WORKLOAD_UID_LABEL, names.PLACEMENT_LABEL, names.CLUSTER_LABEL)
    return {
        "apiVersion": "v1",
        "kind": reference.kind,
        "metadata": {
            "name": copy_name(reference, label(pod, names.CLUSTER_LABEL), label(pod, names.WORKLOAD_UID_LABEL)),
            "namespace": key_of(pod)[0],
            "labels": {**{key: label(pod, key) for key in labels}, names.COPIED_OBJECT_LABEL: "true"},
            "annotations": {
                names.WORKLOAD_ANNOTATION: annotation(pod, names.WORKLOAD_ANNOTATION),
                names.COPIED_FROM_ANNOTATION: str(reference),
            },
            "ownerReferences": list(owners),
        },
        **{key: source[key] for key in _DATA_FIELDS if key in source},
    }


def rejection_reason(wanted: Mapping[Reference, str], sources: Mapping[Reference, SourceObject]) -> str:
    """Why a template's references can never be copied."""
    for reference, field in wanted.items():
        if reason := invalid_name_reason(reference):
            return f"{field} is {reason}" if field else reason
        source = sources.get(reference)
        if source and source.type in FORBIDDEN_TYPES:
            subject = f"{field} is " if field else ""
            return (
                f"{subject}{reference} of type {source.type}: the token's issuer is the manager, which the other "
                "cluster does not trust; use a credential of another kind"
            )
    return ""


def over_limit_reason(wanted: Iterable[Reference], sources: Mapping[Reference, SourceObject]) -> str:
    sizes = {reference: sources[reference].size if reference in sources else 0 for reference in wanted}
    if len(sizes) > MAX_OBJECTS:
        return (
            f"its worker groups refer to {len(sizes)} Secrets and ConfigMaps, and at most {MAX_OBJECTS} are copied to "
            "worker clusters; put several values into one"
        )
    if sum(sizes.values()) > MAX_BYTES:
        largest = max(sizes, key=lambda reference: sizes[reference])
        return (
            f"the Secrets and ConfigMaps of its worker groups hold {_format_mib(sum(sizes.values()))}, and at most "
            f"{_format_mib(MAX_BYTES)} are copied to worker clusters; put large files, such as {largest} with "
            f"{_format_mib(sizes[largest])}, into the image or object storage"
        )
    return ""


def namespace_excess_reason(namespace: str, sources: Sequence[SourceObject]) -> str:
    """Why a namespace may not have these copied objects in a cluster."""
    size = sum(source.size for source in sources)
    if len(sources) <= MAX_NAMESPACE_OBJECTS and size <= MAX_NAMESPACE_BYTES:
        return ""
    return (
        f"the jobs of namespace {namespace} would have {len(sources)} copied Secrets and ConfigMaps there with "
        f"{_format_mib(size)}, and at most {MAX_NAMESPACE_OBJECTS} and {_format_mib(MAX_NAMESPACE_BYTES)} are copied; "
        "wait until other jobs of the namespace end, or let the jobs refer to fewer and smaller objects"
    )


def missing_reason(namespace: str, wanted: Mapping[Reference, str], sources: Mapping[Reference, SourceObject]) -> str:
    """Why a reference that a template requires is unavailable now."""
    required = (
        (reference, field, unavailable_reason(namespace, sources.get(reference)))
        for reference, field in wanted.items()
        if field
    )
    return next((f"{field} is {reference}, {reason}" for reference, field, reason in required if reason), "")


def podset_references(podsets: Iterable[PodSet]) -> dict[Reference, str]:
    return {
        reference: field
        for podset in podsets
        for reference, field in references.find_in_spec(podset.template.get("spec") or {}).items()
    }


def rejection_of_podsets(podsets: Sequence[PodSet], sources: Mapping[Reference, SourceObject]) -> str:
    for podset in podsets:
        if reason := rejection_reason(podset_references([podset]), sources):
            return f"worker group {podset.name}: {reason}"
    return over_limit_reason(podset_references(podsets), sources)


def missing_for_podsets(namespace: str, podsets: Sequence[PodSet], sources: Mapping[Reference, SourceObject]) -> str:
    for podset in podsets:
        if reason := missing_reason(namespace, podset_references([podset]), sources):
            return f"worker group {podset.name}: {reason}"
    return ""


def unavailable_reason(namespace: str, source: SourceObject | None) -> str:
    """Why an object is unavailable now; empty also if it is not known whether the object is available."""
    if source and source.state == "Unreadable":
        return f"which cannot be read in namespace {namespace} ({source.error}); the controller tries again"
    if source == FORBIDDEN:
        return _forbidden_text(namespace)
    return (
        f"which does not exist in namespace {namespace}; create it, and the job continues" if source == MISSING else ""
    )


def _forbidden_text(namespace: str) -> str:
    return (
        f"which the controller may not read in namespace {namespace}; bind ClusterRole {names.COPIED_OBJECTS_ROLE} to "
        f"ServiceAccount {names.CONTROLLER_ACCOUNT} of namespace {names.SYSTEM_NAMESPACE} there, and the job continues"
    )


def _format_mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
