"""How is each action on a worker pod done: its slot, its head's mirror, its copy, its status?

Nothing is decided here. A cluster that does not want what a worker needs is remembered, so that the share goes elsewhere, and
the owner is told; what stands in a cluster under our name and is not ours is left alone.
"""

import asyncio
from collections import defaultdict

from adapter import names
from adapter.actions import AssignSlot, CreatePod, DeletePod, EmitEvent, MirrorHead, PatchPodStatus
from adapter.objects import api_messages
from adapter.objects.reason import clause
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.rewrite import service_mirror
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.kube.store import version_of
from adapter.shell.observe.source_objects import SourceUnavailable
from adapter.shell.observe.transient_state import TransientState
from adapter.shell.write.copies import ObjectCopier
from adapter.shell.write.create_object import NAME_TAKEN, create_or_get
from adapter.shell.write.events import EventRecorder

# What a cluster answers whose webhooks, policies or quotas do not want a pod. Not 401 and 429, which pass, and not 409: there
# is a pod of that name.
_REFUSALS = (400, 403, 404, 422)


class PodWriter:
    """Writes worker pods in the manager, and their copies in the worker clusters."""

    def __init__(
        self,
        manager: ManagerCache,
        fleet: Fleet,
        recorder: EventRecorder,
        transient: TransientState,
        copier: ObjectCopier,
    ) -> None:
        self._manager, self._fleet, self._recorder, self._transient, self._copier = (
            manager,
            fleet,
            recorder,
            transient,
            copier,
        )
        self._mirror_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by cluster

    async def assign_slot(self, action: AssignSlot) -> None:
        """Give a pod of the manager its slot, unless somebody changed the pod meanwhile."""
        namespace, name = key_of(action.pod)
        body = {
            "metadata": {
                "uid": uid_of(action.pod),
                "resourceVersion": action.pod["metadata"]["resourceVersion"],
                "labels": {names.CLUSTER_LABEL: action.cluster},
                "annotations": {names.SLOT_ANNOTATION: str(action.slot)},
            }
        }
        # By the subresource, which takes metadata too (k8s:registry/core/pod/strategy.go): no webhook for pods is asked, such as
        # Kueue's, and a controller that may patch the status alone cannot change what a pod of a user runs.
        self._manager.pods.put(
            await self._manager.client.merge_patch(resources.PODS.path(namespace, name, "status"), body)
        )

    async def mirror_head(self, action: MirrorHead) -> None:
        """Make or change one object of the mirror of a head's Service."""
        member = self._fleet.connected_cache(action.cluster)
        try:
            async with self._mirror_locks[action.cluster]:  # one after the other: all workers of a head want the same
                member.require_reachable()
                await write_head_mirror(member, action.body)
        except ApiError as refusal:
            if refusal.status in _REFUSALS or refusal.reason == NAME_TAKEN:
                await self._note_refused(action, "the mirror of the head's Service", refusal)
            raise

    async def _note_refused(self, action: MirrorHead | CreatePod, subject: str, refusal: ApiError) -> None:
        """Note that a cluster does not want what a worker needs, so that its share goes elsewhere, and tell its owner."""
        if action.regarding:
            why, uid = _message_without_name(action.pod, refusal), uid_of(action.pod)
            self._transient.note_pod_refused(
                action.placement, action.share_key, uid, f"the cluster refuses its pods: {why}"
            )
            text = f"worker cluster {action.cluster} refuses {subject}: {why}"
            await self._recorder.emit_event(
                EmitEvent(action.regarding, names.EventReason.REMOTE_POD_REJECTED, text, warning=True)
            )

    async def create_pod(self, action: CreatePod) -> None:
        """Make a pod's copy, and before it what it refers to."""
        member = self._fleet.connected_cache(action.cluster)
        self._transient.sent_pods.add(uid_of(action.pod))  # whether or not an answer comes
        self._transient.creations_in_flight += 1
        try:
            await self._copier.ensure_copies(member, action.references, action.body)
            member.pods.put(await self._create_remote_pod(member, action))
        except ApiError as refusal:
            if refusal.status in _REFUSALS:
                await self._note_refused(action, "pods of the job", refusal)
            elif refusal.status >= 500:  # one of its webhooks does not answer, say
                await self._report_trouble(action, _message_without_name(action.pod, refusal))
            raise
        except SourceUnavailable as absent:
            raise Unreachable(await self._report_trouble(action, str(absent))) from None
        finally:
            self._transient.creations_in_flight -= 1
        self._transient.created_pods.add(uid_of(action.pod))
        self._transient.note_pod_accepted(action.placement, action.share_key)

    async def _create_remote_pod(self, cache: WorkerClusterCache, action: CreatePod) -> Raw:
        """Make it, and remember while no answer says whether it stands: whatever the watch shows, it may."""
        uid = uid_of(action.pod)
        self._transient.unanswered_pods.add(uid)
        try:
            made = await create_or_get(cache.client, resources.PODS, action.body)
        except ApiError as refusal:
            # A webhook that is down for long must not keep a worker where it cannot start.
            if refusal.status < 500 or api_messages.wrote_nothing(refusal.message):
                self._transient.unanswered_pods.discard(uid)
            raise
        self._transient.unanswered_pods.discard(uid)
        return made

    async def _report_trouble(self, action: CreatePod, reason: str) -> str:
        """Tell the owner why a worker is not made, in words that are the same for its siblings; returns the sentence."""
        text = f"A worker for {action.cluster} is not made: {clause(reason)}."
        if action.regarding:
            await self._recorder.emit_event(
                EmitEvent(action.regarding, names.EventReason.WORKER_FAILING, text, warning=True)
            )
        return text

    async def delete_pod(self, action: DeletePod) -> None:
        """Delete a copy."""
        namespace, name = key_of(action.pod)
        client = self._fleet.connected_cache(action.cluster).client
        await client.delete(resources.PODS.path(namespace, name), uid_of(action.pod))

    async def patch_status(self, action: PatchPodStatus) -> None:
        """Bring a pod's status in the manager up to date with its copy's."""
        namespace, name = key = key_of(action.pod)
        path = resources.PODS.path(namespace, name, "status")
        self._manager.pending_status_patches[key] = action.body
        try:
            self._manager.pods.put(await self._manager.client.merge_patch(path, action.body))
        except ApiError as error:
            if not (
                error.not_found or error.is_conflict
            ):  # deleted, or another pod by now: then there is nothing to tell
                raise
        finally:
            self._manager.pending_status_patches.pop(key, None)


def _message_without_name(pod: Raw, refusal: ApiError) -> str:
    """What was said of a pod, without its name, since its siblings hear the same."""
    return refusal.message.replace(key_of(pod)[1], "*")


async def write_head_mirror(cache: WorkerClusterCache, body: Raw) -> None:
    """Make or change one object of a head's mirror, unless more than its owners was changed since this was decided: then it is looked
    at again.

    Raises ApiError where mirrors may not be read, for nobody could keep it true.
    """
    if cache.unmirrored_reason:
        raise ApiError(403, "Forbidden", cache.unmirrored_reason)
    resource, store = {
        "Service": (resources.SERVICES, cache.services),
        "EndpointSlice": (resources.ENDPOINT_SLICES, cache.slices),
    }[body["kind"]]
    there = store.get(key_of(body)) or {}
    if version_of(there) != version_of(body):
        upon = service_mirror.rebase_write(body, there) if there else None
        if upon is None:
            return
        body = upon
    if not version_of(body):
        store.put(await create_or_get(cache.client, resource, body))
        return
    try:
        store.put(await cache.client.merge_patch(resource.path(*key_of(body)), body))
    except ApiError as error:
        if not error.not_found:  # its deletion will be heard of
            raise
