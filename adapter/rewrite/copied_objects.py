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
from adapter.objects.reservation import anchor_references, anchor_uid
from adapter.objects.unstructured import Raw, annotation, key_of, label
from adapter.objects.workload import PodSet

# Of one job, over all its worker groups. The API server takes up to 1 MiB in each object, and etcd holds 2 GiB unless it is
# told otherwise: so a hundred jobs with all that they may have fill a fifth of a worker cluster's. Each object is also one
# read in every interval, for as long as the job runs. Larger things belong into an image or into object storage.
MAX_OBJECTS = 32
MAX_BYTES = 4 * 2**20
# Tokens whose issuer is the manager; and the worker cluster's own controller would fill in, or remove, such a Secret there.
FORBIDDEN_TYPES = ("kubernetes.io/service-account-token",)
_DATA_FIELDS = ("type", "data", "binaryData")
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")  # of an object: a DNS subdomain
_MAX_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class SourceObject:
    """What the manager has under a reference, without what it holds; `size` is in bytes."""

    state: Literal["Found", "Missing", "Forbidden", "Unreadable"]
    type: str = ""
    size: int = 0
    error: str = ""  # it cannot be read, in the API server's words


MISSING, FORBIDDEN = SourceObject("Missing"), SourceObject("Forbidden")


def describe_source(raw: Raw) -> SourceObject:
    """Describe a Secret or ConfigMap of the manager."""
    encoded = [str(value) for value in (raw.get("binaryData") or {}).values()]
    plain = [str(value) for value in (raw.get("data") or {}).values()]
    if raw.get("kind") == SECRET:
        encoded, plain = plain, []
    held = sum(len(text.encode()) for text in plain) + sum(len(text) * 3 // 4 - text.count("=") for text in encoded)
    return SourceObject("Found", str(raw.get("type") or ""), held)


def invalid_name_reason(reference: Reference) -> str:
    """Say in a fragment why no object can have a reference's name, empty when one can.

    A pod may name anything as the source of a volume, for its API server only asks that there is a name
    (kubernetes:validation.go, validateSecretVolumeSource). A request that had `../../other/secrets/x` in its path would read what
    is another namespace's, so such a name is never asked for.
    """
    if len(reference.name) <= _MAX_NAME_LENGTH and _DNS_SUBDOMAIN.fullmatch(reference.name):
        return ""
    return f"{reference.kind} {reference.name[:60]!r}, which is no name that an object can have; put its name there"


def copy_name(reference: Reference, anchor_uid: str) -> str:
    """Name the copy that a share's pods use."""
    digest = hashlib.sha256(f"{reference.kind}/{reference.name}/{anchor_uid}".encode()).hexdigest()
    return f"rayspan-{digest[:32]}"


def build_copy(reference: Reference, source: Raw, pod: Raw) -> dict[str, Any]:
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
    """Say in a fragment why a template's references can never be copied, empty when they can, or may be later."""
    for reference, field in wanted.items():
        if why := invalid_name_reason(reference):
            return f"{field} is {why}" if field else why
        found = sources.get(reference)
        if found and found.type in FORBIDDEN_TYPES:
            where = f"{field} is " if field else ""
            return (
                f"{where}{reference} of type {found.type}: the token's issuer is the manager, which the other cluster does "
                "not trust; use a credential of another kind"
            )
    return ""


def over_limit_reason(wanted: Iterable[Reference], sources: Mapping[Reference, SourceObject]) -> str:
    """Say in a fragment that all references of a job are too many, or hold too much; empty when not."""
    found = {reference: sources[reference].size if reference in sources else 0 for reference in wanted}
    if len(found) > MAX_OBJECTS:
        return (
            f"its worker groups refer to {len(found)} Secrets and ConfigMaps, and at most {MAX_OBJECTS} are copied to worker "
            "clusters; put several values into one"
        )
    if sum(found.values()) > MAX_BYTES:
        largest = max(found, key=lambda reference: found[reference])
        return (
            f"the Secrets and ConfigMaps of its worker groups hold {_format_mib(sum(found.values()))}, and at most "
            f"{_format_mib(MAX_BYTES)} are copied to worker clusters; put large files, such as {largest} with "
            f"{_format_mib(found[largest])}, into the image or object storage"
        )
    return ""


def missing_reason(namespace: str, wanted: Mapping[Reference, str], sources: Mapping[Reference, SourceObject]) -> str:
    """Say in a fragment which reference a template cannot do without and does not find now; empty when there is none."""
    without = (
        (reference, field, unavailable_reason(namespace, sources.get(reference)))
        for reference, field in wanted.items()
        if field
    )
    return next((f"{field} is {reference}, {why}" for reference, field, why in without if why), "")


def podset_references(podsets: Iterable[PodSet]) -> dict[Reference, str]:
    """What worker groups refer to, each as `references.wanted` says it of a pod."""
    return {one: field for p in podsets for one, field in references.find_in_spec(p.template.get("spec") or {}).items()}


def rejection_of_podsets(podsets: Sequence[PodSet], sources: Mapping[Reference, SourceObject]) -> str:
    """Say why what worker groups refer to can never be copied: the first of them that has something of the kind, or all together
    when it is too much; a fragment, empty when it can."""
    for podset in podsets:
        if why := rejection_reason(podset_references([podset]), sources):
            return f"worker group {podset.name}: {why}"
    return over_limit_reason(podset_references(podsets), sources)


def missing_for_podsets(namespace: str, podsets: Sequence[PodSet], sources: Mapping[Reference, SourceObject]) -> str:
    """Say which object worker groups need and the manager does not have, in the same form."""
    for podset in podsets:
        if why := missing_reason(namespace, podset_references([podset]), sources):
            return f"worker group {podset.name}: {why}"
    return ""


def unavailable_reason(namespace: str, source: SourceObject | None) -> str:
    """Say why an object is not at hand now, though it may be later; empty when it is, or when that is not known."""
    if source and source.state == "Unreadable":
        return f"which cannot be read in namespace {namespace} ({source.error}); it is tried again"
    if source == FORBIDDEN:
        return _forbidden_text(namespace)
    return f"which does not exist in namespace {namespace}; create it, and the job goes on" if source == MISSING else ""


def _forbidden_text(namespace: str) -> str:
    """Say that the right to read is not given, and how an administrator gives it."""
    return (
        f"which the controller may not read in namespace {namespace}; bind ClusterRole {names.COPIED_OBJECTS_ROLE} to ServiceAccount "
        f"{names.CONTROLLER_ACCOUNT} of namespace {names.SYSTEM_NAMESPACE} there, and the job goes on"
    )


def _format_mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
