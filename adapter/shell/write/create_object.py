"""How does an object of ours come to stand in a worker cluster, whatever an earlier try has left there?

An object of somebody else is never touched, and nothing that stands is changed.
"""

from adapter import names
from adapter.objects.unstructured import Raw, key_of
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.resources import Resource

NAME_TAKEN = "NameTaken"  # of an ApiError of ours: there is an object of that name, and it is not ours


async def create_or_get(client: Client, resource: Resource, body: Raw) -> Raw:
    """Create an object, or read the one that an earlier try of ours left under its name.

    An object of somebody else under the name is never touched: raises ApiError 409 with a sentence.
    """
    namespace, name = key_of(body)
    try:
        return await client.create(resource.path(namespace), body)
    except ApiError as error:
        if not error.already_exists:
            raise
    found = await client.get(resource.path(namespace, name))
    wanted = body["metadata"].get("labels") or {}
    # By cluster as well: were one API server registered under two names, each would take the other's for its own.
    origin = (names.MANAGER_LABEL, names.CLUSTER_LABEL, names.WORKLOAD_UID_LABEL, names.POD_UID_LABEL)
    if any((found["metadata"].get("labels") or {}).get(key) != wanted.get(key) for key in origin):
        raise ApiError(409, NAME_TAKEN, f"{resource.plural} {namespace}/{name} exists there and is not ours")
    return found
