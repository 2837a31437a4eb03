"""Finds what would be deleted with the account's namespace in the worker cluster, whatever its kind.

The kinds are the API server's own, from its discovery, so that a claim or a custom resource counts as well.
"""

from collections.abc import Container, Mapping
from http import HTTPStatus
from typing import Any, Final

from adapter import names
from adapter.admission import cluster_claim
from adapter.cli.membership import membership_objects
from adapter.objects.unstructured import key_of
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import LEASES, Resource

# Kubernetes writes these into each namespace by itself, or about its objects.
_IGNORED_PLURALS: Final = {"events"}
_NAMESPACE_DEFAULTS: Final = {
    ("serviceaccounts", "default"),
    ("configmaps", names.ROOT_CA_CONFIG_MAP),
    ("configmaps", "openshift-service-ca.crt"),
    ("secrets", names.WORKER_ACCOUNT),  # the token of an earlier version
}


async def retention_reason(client: Client) -> str:
    """Why the namespace has to be kept, as a clause with one object as an example; empty if it holds no other objects.

    Objects that cannot be read count as other objects.
    """
    own_objects, path = _own_objects(), "/apis"
    try:
        for version in await _api_versions(client):
            path = f"/api/{version}" if version == "v1" else f"/apis/{version}"
            for resource in _listed_resources(version, await client.get(path)):
                path = resource.path(names.SYSTEM_NAMESPACE)
                if name := await _other_name(client, resource, own_objects):
                    return f"it holds {resource.plural}/{name}"
    except (ApiError, Unreachable) as error:
        return f"{path} cannot be read: {error}"
    return ""


async def _other_name(client: Client, resource: Resource, own_objects: Container[tuple[str, str]]) -> str:
    """The name of an object of this kind that is not of the account; empty if there is none."""
    try:
        objects, _ = await list_all(client, resource.path(names.SYSTEM_NAMESPACE))
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:  # the kind was deleted meanwhile
            return ""
        raise
    object_names = (key_of(body)[1] for body in objects)
    return next((name for name in object_names if not _is_own(resource.plural, name, own_objects)), "")


def _is_own(plural: str, name: str, own_objects: Container[tuple[str, str]]) -> bool:
    return (plural, name) in own_objects or (plural == LEASES.plural and cluster_claim.is_lease_name(name))


def _own_objects() -> set[tuple[str, str]]:
    account_objects = {
        (membership_objects.RESOURCES_BY_KIND[body["kind"]].plural, key_of(body)[1])
        for body in membership_objects.account_objects()
    }
    return account_objects | _NAMESPACE_DEFAULTS


async def _api_versions(client: Client) -> list[str]:
    """The preferred version of each API group."""
    groups = (await client.get("/apis")).get("groups") or ()
    return ["v1", *(str((group.get("preferredVersion") or {}).get("groupVersion")) for group in groups)]


def _listed_resources(version: str, document: Mapping[str, Any]) -> list[Resource]:
    """The kinds of namespaced objects in a version's discovery document that can be listed."""
    return [Resource(version, str(kind.get("name"))) for kind in document.get("resources") or () if _is_listed(kind)]


def _is_listed(kind: Mapping[str, Any]) -> bool:
    plural = str(kind.get("name"))
    return (
        bool(kind.get("namespaced"))
        and "list" in (kind.get("verbs") or ())
        and "/" not in plural
        and plural not in _IGNORED_PLURALS
    )
