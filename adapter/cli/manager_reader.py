"""Reads the manager cluster for a user who may not read all kinds, and records the kinds that were not readable."""

from typing import Any, Final

from adapter.objects import trim
from adapter.objects.unstructured import Raw
from adapter.objects.well_formed import malformed_reason
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import Resource

# By plural: what the output lacks when the kind is not readable.
_UNREAD_NOTES: Final = {
    "workloads": "Kueue's state of the job is not shown",
    "localqueues": "whether its LocalQueue exists is not shown",
    "placements": "the placement of its workers is not shown",
    "rayclusters": "its RayCluster is not shown",
    "pods": "its pods are not shown",
    "workerclusters": "zones, and whether worker clusters are connected, are not shown",
    "admissionchecks": "which checks are Rayspan's is not known",
    "clusterqueues": "quota is not shown",
    "dispatchpolicies": "whether anything can be dispatched is not known",
    "multikueueconfigs": "whether anything can be dispatched is not known",
    "events": "whether its namespace is incomplete is not shown",
    "leases": "whether a controller leads is not known",
}


class ManagerReader:
    """Reads for one command: objects, the reasons of unread kinds, and the kinds that the API server does not have."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.unread_reasons: dict[str, str] = {}
        self.missing_kinds: set[str] = set()

    async def get_object(self, resource: Resource, name: str, namespace: str = "") -> Raw:
        """An object; empty when it does not exist or is not readable."""
        try:
            raw: dict[str, Any] = await self._client.get(resource.path(namespace, name))
        except ApiError as error:
            self._record_unread(resource, error, named=True)
            return {}
        return {} if malformed_reason(raw) else trim.without_managed_fields(raw)

    async def list_objects(self, resource: Resource, namespace: str = "", **selectors: str) -> list[Raw]:
        """The objects of a kind without managedFields; none when they are not readable."""
        objects = await self.list_whole_objects(resource, namespace, **selectors)
        return [trim.without_managed_fields(raw) for raw in objects]

    async def list_whole_objects(self, resource: Resource, namespace: str = "", **selectors: str) -> list[Raw]:
        """The objects of a kind; none when they are not readable."""
        try:
            objects, _ = await list_all(self._client, resource.path(namespace), **selectors)
        except ApiError as error:
            self._record_unread(resource, error, named=False)
            return []
        return [raw for raw in objects if not malformed_reason(raw)]

    def _record_unread(self, resource: Resource, error: ApiError, *, named: bool) -> None:
        """Record why a kind was not read; raise an error other than a missing right or kind."""
        if error.not_found and named:
            return
        if error.status not in (403, 404):
            raise error
        plural = resource.plural
        self.missing_kinds |= {plural} if error.not_found else set()
        reason = f"This cluster does not serve {plural}" if error.not_found else f"You may not read {plural} here"
        self.unread_reasons[plural] = f"{reason}: {_UNREAD_NOTES.get(plural, 'they are not shown')}."
