"""Builds copied objects, and says which Secrets and ConfigMaps are not copied.

A copied object belongs to one share: all pods of the share use it, and it is deleted with the share's anchor. Its name
contains the anchor's uid, which is unknown before the anchor exists. An object of that name is therefore from an
earlier attempt of ours. No message here quotes the content of an object.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from adapter import names
from adapter.objects import references
from adapter.objects.references import SECRET, Reference
from adapter.objects.reservation import anchor_references, anchor_uid
from adapter.objects.unstructured import Raw, annotation, key_of, label
from adapter.objects.workload import PodSet

# The limits of one job, over all its worker groups. The API server takes up to 1 MiB in each object, and etcd holds
# 2 GiB by default: a hundred jobs at the limit fill a fifth of a worker cluster's etcd. Each object is also read once
# in every interval while the job runs. Larger data belongs in an image or in object storage.
MAX_OBJECTS = 32
MAX_BYTES = 4 * 2**20
# Tokens issued by the manager. The worker cluster's own controller would fill in or remove such a Secret.
FORBIDDEN_TYPES = ("kubernetes.io/service-account-token",)
_DATA_FIELDS = ("type", "data", "binaryData")
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_MAX_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class SourceObject:
    """The state of the manager's object behind a reference, without its content; `size` is in bytes."""

    state: Literal["Found", "Missing", "Forbidden", "Unreadable"]
    type: str = ""
    size: int = 0
    error: str = ""  # the API server's message, where the object is unreadable


MISSING, FORBIDDEN = SourceObject("Missing"), SourceObject("Forbidden")


def describe_source(raw: Raw) -> SourceObject:
    """Describe a Secret or ConfigMap of the manager."""
    encoded = [str(value) for value in (raw.get("binaryData") or {}).values()]
    plain = [str(value) for value in (raw.get("data") or {}).values()]
    if raw.get("kind") == SECRET:
        encoded, plain = plain, []
    size = sum(len(text.encode()) for text in plain) + sum(len(text) * 3 // 4 - text.count("=") for text in encoded)
    return SourceObject("Found", str(raw.get("type") or ""), size)


def invalid_name_reason(reference: Reference) -> str:
    """Why a reference's name is not a valid object name, a fragment; empty when it is valid.

    A pod may name anything as the source of a volume: its API server only requires a name
    (kubernetes:validation.go, validateSecretVolumeSource). A request with `../../other/secrets/x` in its path would
    read from another namespace, so an invalid name is never requested.
    """
    if len(reference.name) <= _MAX_NAME_LENGTH and _DNS_SUBDOMAIN.fullmatch(reference.name):
        return ""
    return f"{reference.kind} {reference.name[:60]!r}, which is no name that an object can have; put its name there"


def copy_name(reference: Reference, anchor_uid: str) -> str:
    """Name the copied object that a share's pods use."""
    digest = hashlib.sha256(f"{reference.kind}/{reference.name}/{anchor_uid}".encode()).hexdigest()
    return f"rayspan-{digest[:32]}"


def build_copy(reference: Reference, source: Raw, pod: Raw) -> dict[str, Any]:
    """Build the copied object of a source, with the origin and the owner of `pod`, a remote pod of the share.

    Labels and annotations of the source are not copied: kubectl keeps a whole Secret in one of them. Neither is
    `immutable`: the copied object must follow a source that is deleted and created again.
    """
    labels = (names.MANAGER_LABEL, names.WORKLOAD_UID_LABEL, names.PLACEMENT_LABEL, names.CLUSTER_LABEL)
    annotations = (names.WORKLOAD_ANNOTATION, names.ROUND_ANNOTATION)
    return {
        "apiVersion": "v1",
        "kind": reference.kind,
        "metadata": {
            "name": copy_name(reference, anchor_uid(pod)),
            "namespace": key_of(pod)[0],
            "labels": {**{key: label(pod, key) for key in labels}, names.COPIED_OBJECT_LABEL: "true"},
            "annotations": {
                **{key: annotation(pod, key) for key in annotations},
                names.COPIED_FROM_ANNOTATION: str(reference),
            },
            "ownerReferences": anchor_references(pod),
        },
        **{key: source[key] for key in _DATA_FIELDS if key in source},
    }


def rejection_reason(wanted: Mapping[Reference, str], sources: Mapping[Reference, SourceObject]) -> str:
    """Why a template's references can never be copied, a fragment; empty when they can be, now or later."""
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
    """Why the references of a job are too many or too large, a fragment; empty when they are not."""
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


def missing_reason(namespace: str, wanted: Mapping[Reference, str], sources: Mapping[Reference, SourceObject]) -> str:
    """Why a reference that a template requires is unavailable now, a fragment; empty when all are available."""
    required = (
        (reference, field, unavailable_reason(namespace, sources.get(reference)))
        for reference, field in wanted.items()
        if field
    )
    return next((f"{field} is {reference}, {reason}" for reference, field, reason in required if reason), "")


def podset_references(podsets: Iterable[PodSet]) -> dict[Reference, str]:
    """The references of worker groups, as `references.find_in_spec` returns them for a pod."""
    return {
        reference: field
        for podset in podsets
        for reference, field in references.find_in_spec(podset.template.get("spec") or {}).items()
    }


def rejection_of_podsets(podsets: Sequence[PodSet], sources: Mapping[Reference, SourceObject]) -> str:
    """Why the references of worker groups can never be copied, a fragment; empty when they can be.

    It is about the first group with such a reference, or about all groups together when they are over a limit.
    """
    for podset in podsets:
        if reason := rejection_reason(podset_references([podset]), sources):
            return f"worker group {podset.name}: {reason}"
    return over_limit_reason(podset_references(podsets), sources)


def missing_for_podsets(namespace: str, podsets: Sequence[PodSet], sources: Mapping[Reference, SourceObject]) -> str:
    """Why an object that worker groups require is unavailable in the manager, a fragment; empty when all are there."""
    for podset in podsets:
        if reason := missing_reason(namespace, podset_references([podset]), sources):
            return f"worker group {podset.name}: {reason}"
    return ""


def unavailable_reason(namespace: str, source: SourceObject | None) -> str:
    """Why an object is unavailable now, though it may be available later; empty when it is available or unknown."""
    if source and source.state == "Unreadable":
        return f"which cannot be read in namespace {namespace} ({source.error}); it is tried again"
    if source == FORBIDDEN:
        return _forbidden_text(namespace)
    return f"which does not exist in namespace {namespace}; create it, and the job goes on" if source == MISSING else ""


def _forbidden_text(namespace: str) -> str:
    """Say that the right to read is missing, and how an administrator grants it."""
    return (
        f"which the controller may not read in namespace {namespace}; bind ClusterRole {names.COPIED_OBJECTS_ROLE} to "
        f"ServiceAccount {names.CONTROLLER_ACCOUNT} of namespace {names.SYSTEM_NAMESPACE} there, and the job goes on"
    )


def _format_mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
