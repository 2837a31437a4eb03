"""How is an EndpointSlice of ours written in the manager?

With the version of what stands as a precondition, or as a new one. Where the right is missing, or a policy bounds it, the owner of
the Service is told, and nothing is tried again before the next resync: Kubernetes' own slices lead to the head meanwhile.
"""

from adapter import names
from adapter.actions import DeleteEndpointSlice, EmitEvent, PutEndpointSlice
from adapter.objects.unstructured import key_of, uid_of
from adapter.objects.workload import Job
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube.client import ApiError
from adapter.shell.kube.resources import ENDPOINT_SLICES
from adapter.shell.kube.store import version_of
from adapter.shell.write.events import EventRecorder

# What no second try changes: RBAC, an admission policy, and what the API server does not take.
_REFUSALS = (400, 403, 422)


class EndpointSliceWriter:
    """Writes EndpointSlices in the manager."""

    def __init__(self, manager: ManagerCache, recorder: EventRecorder) -> None:
        self._manager, self._recorder = manager, recorder

    async def put_slice(self, action: PutEndpointSlice) -> None:
        """Make a slice, or change the one that stands in that version."""
        namespace, name = key_of(action.body)
        client = self._manager.client
        try:
            if version_of(action.body):
                written = await client.merge_patch(ENDPOINT_SLICES.path(namespace, name), action.body)
            else:
                written = await client.create(ENDPOINT_SLICES.path(namespace), action.body)
        except ApiError as error:
            if error.already_exists:  # nobody told us of it, so it is without our label
                return await self._emit_event(
                    action.regarding, f"EndpointSlice {name} exists and is not Rayspan's; delete it"
                )
            if error.status in _REFUSALS:
                return await self._emit_event(
                    action.regarding, f"EndpointSlice {name} cannot be written ({error.message})"
                )
            if not error.not_found:  # its deletion will be heard of
                raise
        else:
            self._manager.slices.put(written)

    async def delete_slice(self, action: DeleteEndpointSlice) -> None:
        """Delete a slice."""
        namespace, name = key_of(action.endpoint_slice)
        try:
            await self._manager.client.delete(ENDPOINT_SLICES.path(namespace, name), uid_of(action.endpoint_slice))
        except ApiError as error:
            if error.status not in _REFUSALS:
                raise
            await self._emit_event(action.regarding, f"EndpointSlice {name} cannot be deleted ({error.message})")

    async def _emit_event(self, about: Job, message: str) -> None:
        text = f"{message}. Requests pass the proxy on the head; see kustomize/components/rayservice-endpoints."
        await self._recorder.emit_event(EmitEvent(about, names.EventReason.REQUESTS_VIA_HEAD, text, warning=True))
