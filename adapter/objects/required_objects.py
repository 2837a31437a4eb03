"""What a pod needs of its worker cluster, and whether the WorkerCluster names it.

A pod may use a service account, a claim, a ResourceClaimTemplate or a host path of a worker cluster only if the
administrator named it there.
Of RuntimeClasses he need not name any; if he names some, a pod may use only these.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from adapter.objects.named_objects import find_object, find_path, is_beneath_writable, is_nameable_path
from adapter.objects.specs import PodMapping
from adapter.objects.unstructured import Raw, printable

_DEFAULT_ACCOUNT = "default"
_PLAIN = re.compile(r"[A-Za-z/][-A-Za-z0-9._/]*")  # with _YAML_WORDS: text that needs no quotes in YAML
_YAML_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
_MAX_REASONS = 4  # in one sentence
_MAX_NAME_LENGTH = 253  # of an object

RequiredKind = Literal[
    "serviceAccount", "serviceAccountToken", "persistentVolumeClaim", "hostPath", "runtimeClass",
    "resourceClaimTemplate",
]  # fmt: skip
_LISTS: dict[RequiredKind, tuple[str, str]] = {  # the list of spec.pods, and the key of its entries
    "serviceAccount": ("serviceAccounts", "name"),
    "serviceAccountToken": ("serviceAccounts", "name"),
    "persistentVolumeClaim": ("persistentVolumeClaims", "name"),
    "hostPath": ("hostPaths", "prefix"),
    "runtimeClass": ("runtimeClasses", "name"),
    "resourceClaimTemplate": ("resourceClaimTemplates", "name"),
}
# An example: what Kueue counts for a claim is known to the administrator alone.
_CLAIM_RESOURCES = ", resources: {example.com/gpu: 1}"


class RequiredObject(NamedTuple):
    """One object of the worker cluster that a pod names; of a token, the account that it is issued for."""

    kind: RequiredKind
    field: str  # of the pod
    name: str  # in the pod, or the path

    def __str__(self) -> str:
        if self.kind == "serviceAccountToken":
            return f"{self.field} has a serviceAccountToken"
        return f"{self.field} is {printable(self.name)}"


def account_of(spec: Raw) -> str:
    """The service account that a pod names; empty for the default account.

    `serviceAccount` is the older field, which the API server reads where the other one is empty.
    """
    name = str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "")
    return "" if name == _DEFAULT_ACCOUNT else name


def required_objects(spec: Raw) -> tuple[RequiredObject, ...]:
    """The objects that a pod with this `spec` needs of its worker cluster."""
    account = account_of(spec)
    field = "serviceAccountName" if spec.get("serviceAccountName") else "serviceAccount"
    own = [RequiredObject("serviceAccount", f"spec.{field}", account)] if account else []
    if runtime := str(spec.get("runtimeClassName") or ""):
        own.append(RequiredObject("runtimeClass", "spec.runtimeClassName", runtime))
    own += _claim_templates(spec)
    return (*own, *(needed for volume in spec.get("volumes") or () for needed in _volume_objects(volume, account)))


def _claim_templates(spec: Raw) -> Iterator[RequiredObject]:
    for claim in spec.get("resourceClaims") or ():
        if name := str(claim.get("resourceClaimTemplateName") or ""):
            field = f"spec.resourceClaims[{printable(claim.get('name'))}].resourceClaimTemplateName"
            yield RequiredObject("resourceClaimTemplate", field, name)


def _volume_objects(volume: Raw, account: str) -> Iterator[RequiredObject]:
    where = f"spec.volumes[{printable(volume.get('name'))}]"
    if claim := volume.get("persistentVolumeClaim"):
        name = str(claim.get("claimName") or "")
        yield RequiredObject("persistentVolumeClaim", f"{where}.persistentVolumeClaim", name)
    if host_path := volume.get("hostPath"):
        yield RequiredObject("hostPath", f"{where}.hostPath", str(host_path.get("path") or ""))
    sources = (volume.get("projected") or {}).get("sources") or ()
    if account and any("serviceAccountToken" in source for source in sources):
        yield RequiredObject("serviceAccountToken", f"{where}.projected", account)


def unnamed_objects(
    required: Iterable[RequiredObject], mapping: PodMapping, namespace: str
) -> tuple[RequiredObject, ...]:
    """Those of the required objects that a worker cluster's mapping does not name for a namespace."""
    return tuple(needed for needed in required if not _is_named(needed, mapping, namespace))


def _is_named(needed: RequiredObject, mapping: PodMapping, namespace: str) -> bool:
    if needed.kind == "persistentVolumeClaim":
        return find_object(mapping.claims, needed.name, namespace) is not None
    if needed.kind == "resourceClaimTemplate":
        return find_object(mapping.claim_templates, needed.name, namespace) is not None
    if needed.kind == "hostPath":
        return find_path(mapping.host_paths, needed.name, namespace) is not None
    if needed.kind == "runtimeClass":
        # A list bounds what pods may use; without one, the admission of the cluster decides.
        is_open = not mapping.runtime_classes or bool(mapping.runtime_class)
        return is_open or find_object(mapping.runtime_classes, needed.name, namespace) is not None
    # The account that replaces all others is no reason for a token with an audience of the user's choice.
    replaced = needed.kind == "serviceAccount" and mapping.service_account
    return bool(replaced) or find_object(mapping.service_accounts, needed.name, namespace) is not None


def naming_line(needed: RequiredObject, namespace: str) -> str:
    """What an administrator can write to name the object: `spec.pods.hostPaths: [{prefix: /a, namespaces: [b]}]`."""
    field, key = _LISTS[needed.kind]
    scope = f", namespaces: [{_quoted(namespace)}]" if namespace else ""
    resources = _CLAIM_RESOURCES if needed.kind == "resourceClaimTemplate" else ""
    return f"spec.pods.{field}: [{{{key}: {_quoted(needed.name)}{scope}{resources}}}]"


def naming_note(needed: RequiredObject) -> str:
    """What the administrator must know beside the line; continues a sentence."""
    is_claim = needed.kind == "resourceClaimTemplate"
    return ", with the resources that Kueue there counts for one such claim" if is_claim else ""


def can_be_named(needed: RequiredObject) -> bool:
    """Whether any WorkerCluster could name the object; no path upwards, and not the root of a node."""
    return needed.kind != "hostPath" or is_nameable_path(needed.name)


def unnamed_reason(unnamed: Iterable[RequiredObject], mapping: PodMapping, namespace: str) -> str:
    """Why a pod cannot run in one worker cluster, with the remedy; a fragment, empty if all is named."""
    needed_objects = list(unnamed)
    reasons = [f"{needed}: {_remedy(needed, mapping, namespace)}" for needed in needed_objects[:_MAX_REASONS]]
    more = len(needed_objects) - len(reasons)
    return "; ".join([*reasons, f"and {more} more"] if more else reasons)


def _remedy(needed: RequiredObject, mapping: PodMapping, namespace: str) -> str:
    if not can_be_named(needed):
        return "no WorkerCluster can name it"
    if needed.kind == "hostPath" and is_beneath_writable(mapping.host_paths, needed.name):
        return "it lies beneath a path that pods there may write to; use that path, and a subPath of the mount"
    return f"its WorkerCluster does not name it; add {naming_line(needed, namespace)} to it{naming_note(needed)}"


def _quoted(text: str) -> str:
    """A text as YAML that can be copied; quotes keep a hostile name from adding entries."""
    text = printable(text, _MAX_NAME_LENGTH)
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _YAML_WORDS
    return text if is_plain else json.dumps(text, ensure_ascii=False)
