"""Finds what would be deleted with the account's namespace in the worker cluster, whatever its kind.

The kinds are the API server's own, from its discovery, so that a claim or a custom resource counts as well.
"""

from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from adapter import names
from adapter.admission import cluster_claim
from adapter.cli.membership import membership_objects
from adapter.objects.unstructured import Raw, key_of
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import LEASES, Resource


class _Kind(NamedTuple):
    group: str  # empty for the core group
    plural: str


# Kubernetes writes Events about the objects of each namespace, and the others into each namespace by itself.
_IGNORED_KINDS: Final = {_Kind("", "events"), _Kind("events.k8s.io", "events")}
_NAMESPACE_DEFAULTS: Final = {
    (_Kind("", "serviceaccounts"), "default"),
    (_Kind("", "configmaps"), names.ROOT_CA_CONFIG_MAP),
    (_Kind("", "configmaps"), "openshift-service-ca.crt"),
    (_Kind("", "secrets"), names.WORKER_ACCOUNT),  # the token of an earlier version
}


async def retention_reason(client: Client, deleted_objects: Iterable[Raw]) -> str:
    """Why the namespace has to be kept, as a clause with one object as an example; empty if it holds nothing else.

    `deleted_objects` are deleted in any case. Objects that the API server refuses to list count as others. Raises
    Unreachable.
    """
    own_objects = {(_kind_of(body), key_of(body)[1]) for body in deleted_objects} | _NAMESPACE_DEFAULTS
    path = "/apis"
    try:
        listed_kinds = set[_Kind]()
        for group, version in _group_versions(await client.get(path)):
            path = f"/api/{version}" if not group else f"/apis/{version}"
            kinds = _listed_kinds(group, await client.get(path)) - listed_kinds
            listed_kinds |= kinds
            for kind in sorted(kinds):
                path = Resource(version, kind.plural).path(names.SYSTEM_NAMESPACE)
                for name in await _object_names(client, path):
                    if not ((kind, name) in own_objects or _is_claim(kind, name)):
                        return f"it holds {kind.plural}/{name}"
    except ApiError as error:
        return f"{path} cannot be read: {error}"
    return ""


def _kind_of(body: Raw) -> _Kind:
    resource = membership_objects.RESOURCES_BY_KIND[body["kind"]]
    return _Kind(_group_of(resource.api_version), resource.plural)


def _group_of(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def _is_claim(kind: _Kind, name: str) -> bool:
    """Whether an object is the claim of a manager to this cluster, which is Rayspan's own."""
    return kind == _Kind(_group_of(LEASES.api_version), LEASES.plural) and cluster_claim.is_lease_name(name)


def _group_versions(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each API group with each of its versions, the preferred one first: a kind may have one of the others alone."""
    yield "", "v1"
    for group in document.get("groups") or ():
        versions = [group.get("preferredVersion"), *(group.get("versions") or ())]
        for version in dict.fromkeys(str(entry.get("groupVersion")) for entry in versions if entry):
            yield str(group.get("name")), version


def _listed_kinds(group: str, document: Mapping[str, Any]) -> set[_Kind]:
    """The kinds of a version's discovery document whose objects a namespace holds, and is deleted with."""
    kinds = {
        _Kind(group, str(entry.get("name")))
        for entry in document.get("resources") or ()
        if entry.get("namespaced") and {"list", "delete"} <= {*(entry.get("verbs") or ())}
    }
    return {kind for kind in kinds if "/" not in kind.plural} - _IGNORED_KINDS


async def _object_names(client: Client, path: str) -> list[str]:
    try:
        objects, _ = await list_all(client, path)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:  # the kind was deleted meanwhile
            return []
        raise
    return [key_of(body)[1] for body in objects]
