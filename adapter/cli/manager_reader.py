"""How is the manager cluster looked at by a user who may not read everything? Each kind once; what may not be read is told, and the rest is shown."""

from typing import Any, Final

from adapter.objects import trim
from adapter.objects.unstructured import Raw
from adapter.objects.well_formed import malformed_reason
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import Resource

# What is not shown where a kind may not be read.
_UNREAD_NOTES: Final = {
    "workloads": "what Kueue says of the job is not shown",
    "localqueues": "whether its LocalQueue is there is not shown",
    "placements": "what was decided for its workers is not shown",
    "rayclusters": "its RayCluster is not shown",
    "pods": "its pods are not shown",
    "workerclusters": "zones, and whether worker clusters are connected, are not shown",
    "admissionchecks": "which checks are Rayspan's is not known",
    "clusterqueues": "quota is not shown",
    "dispatchpolicies": "whether anything can be dispatched is not known",
    "multikueueconfigs": "whether anything can be dispatched is not known",
    "leases": "whether a controller leads is not known",
}


class ManagerReader:
    """One look at the manager cluster, with the kinds that could not be read and why, and which of these it does not have."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.unread_reasons: dict[str, str] = {}
        self.missing_kinds: set[str] = set()

    async def get_object(self, resource: Resource, name: str, namespace: str = "") -> Raw:
        """An object, empty when it is not there or may not be read."""
        try:
            found: dict[str, Any] = await self._client.get(resource.path(namespace, name))
        except ApiError as refusal:
            self._record_unread(resource, refusal, named=True)
            return {}
        return {} if malformed_reason(found) else trim.without_managed_fields(found)

    async def list_objects(self, resource: Resource, namespace: str = "", **selectors: str) -> list[Raw]:
        """The objects of a kind, none when they may not be read."""
        try:
            found, _ = await list_all(self._client, resource.path(namespace), **selectors)
        except ApiError as refusal:
            self._record_unread(resource, refusal, named=False)
            return []
        return [trim.without_managed_fields(one) for one in found if not malformed_reason(one)]

    def _record_unread(self, resource: Resource, refusal: ApiError, *, named: bool) -> None:
        """Remember why a kind was not read; anything but a missing right or kind is trouble of the whole look."""
        if refusal.not_found and named:
            return
        if refusal.status not in (403, 404):
            raise refusal
        what = resource.plural
        self.missing_kinds |= {what} if refusal.not_found else set()
        why = f"This cluster knows no {what}" if refusal.not_found else f"You may not read {what} here"
        self.unread_reasons[what] = f"{why}: {_UNREAD_NOTES.get(what, 'they are not shown')}."
