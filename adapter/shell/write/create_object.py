"""Creates an object in a worker cluster, or adopts the object that an earlier request of ours created.

It changes no existing object.
"""

from adapter import names
from adapter.objects.unstructured import Raw, key_of
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.resources import Resource

NAME_TAKEN = "NameTaken"  # reason of our own ApiError


async def create_or_get(client: Client, resource: Resource, body: Raw) -> Raw:
    """Create an object, or return the existing one if it is ours; raise ApiError 409 if it is not."""
    namespace, name = key_of(body)
    try:
        return await client.create(resource.path(namespace), body)
    except ApiError as error:
        if not error.already_exists:
            raise
    existing = await client.get(resource.path(namespace, name))
    _require_same_origin(resource, existing, body)
    return existing


async def get_or_create(client: Client, resource: Resource, body: Raw) -> Raw:
    """Like create_or_get for an object that usually exists: a ResourceQuota counts a create of what exists."""
    existing = await client.find(resource.path(*key_of(body)))
    if existing is None:
        return await create_or_get(client, resource, body)
    _require_same_origin(resource, existing, body)
    return existing


def _require_same_origin(resource: Resource, existing: Raw, body: Raw) -> None:
    """Raise ApiError 409 if an existing object is not the one of ours that `body` describes."""
    namespace, name = key_of(body)
    labels = body["metadata"].get("labels") or {}
    # The cluster's name is compared too: if an API server is registered under two names, objects of the other name must
    # not be adopted.
    origin = (names.MANAGER_LABEL, names.CLUSTER_LABEL, names.WORKLOAD_UID_LABEL, names.POD_UID_LABEL)
    if any((existing["metadata"].get("labels") or {}).get(key) != labels.get(key) for key in origin):
        raise ApiError(409, NAME_TAKEN, f"{resource.plural} {namespace}/{name} exists there and is not ours")
