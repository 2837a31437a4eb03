"""Writes our EndpointSlices in the manager cluster.

If RBAC or a policy forbids a write, an event on the Service's owner reports the denial, and the next resync retries.
Meanwhile Kubernetes' own slices lead to the head.
"""

from adapter import names
from adapter.actions import DeleteEndpointSlice, EmitEvent, PutEndpointSlice
from adapter.objects.unstructured import key_of, uid_of, version_of
from adapter.objects.workload import Job
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube.client import ApiError
from adapter.shell.kube.resources import ENDPOINT_SLICES
from adapter.shell.write.events import EventRecorder

# The statuses of a denial by RBAC or an admission policy, or of an invalid object: a retry would not help.
_REFUSALS = (400, 403, 422)


class EndpointSliceWriter:
    def __init__(self, manager: ManagerCache, recorder: EventRecorder) -> None:
        self._manager, self._recorder = manager, recorder

    async def put_slice(self, action: PutEndpointSlice) -> None:
        namespace, name = key_of(action.body)
        client = self._manager.client
        try:
            if version_of(action.body):
                written = await client.merge_patch(ENDPOINT_SLICES.path(namespace, name), action.body)
            else:
                written = await client.create(ENDPOINT_SLICES.path(namespace), action.body)
        except ApiError as error:
            if error.already_exists:  # the watch did not show it, so it lacks our label
                return await self._emit_event(
                    action.regarding, f"EndpointSlice {name} exists and is not Rayspan's; delete it"
                )
            if error.status in _REFUSALS:
                return await self._emit_event(
                    action.regarding, f"EndpointSlice {name} cannot be written ({error.message})"
                )
            if not error.not_found:  # the watch will report its deletion
                raise
        else:
            self._manager.slices.put(written)

    async def delete_slice(self, action: DeleteEndpointSlice) -> None:
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
