"""Executes the actions on a worker pod: its slot, its head's mirror, its remote pod, its status.

A worker cluster's refusal is recorded, so that the share goes elsewhere, and an event on the owner reports it.
"""

import asyncio
from collections import defaultdict

from adapter import names
from adapter.actions import AssignSlot, CreatePod, DeletePod, EmitEvent, MirrorHead, PatchPodStatus
from adapter.objects import api_messages
from adapter.objects.reason import clause
from adapter.objects.unstructured import Raw, key_of, uid_of, version_of
from adapter.relay.relayed_worker import RelayedWorker
from adapter.rewrite import service_mirror
from adapter.rewrite.denied_containers import denied_containers
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.observe.source_objects import SourceUnavailable
from adapter.shell.observe.transient_state import TransientState
from adapter.shell.supervise import contain_errors
from adapter.shell.write.copies import ObjectCopier
from adapter.shell.write.create_object import NAME_TAKEN, create_or_get
from adapter.shell.write.events import EventRecorder
from adapter.shell.write.relay_writer import RelayWriter

# The statuses of a denial by webhooks, policies or quotas. 401 and 429 pass by themselves, and 409 means that a pod of
# that name exists.
_REFUSALS = (400, 403, 404, 422)


class PodWriter:
    def __init__(
        self,
        manager: ManagerCache,
        fleet: Fleet,
        recorder: EventRecorder,
        transient: TransientState,
        copier: ObjectCopier,
        relay: RelayWriter,
    ) -> None:
        self._manager, self._fleet, self._recorder, self._transient, self._copier = (
            manager,
            fleet,
            recorder,
            transient,
            copier,
        )
        self._relay = relay
        self._mirror_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by cluster

    async def assign_slot(self, action: AssignSlot) -> None:
        """Write the slot onto a manager pod, unless the pod has changed."""
        namespace, name = key_of(action.pod)
        body = {
            "metadata": {
                "uid": uid_of(action.pod),
                "resourceVersion": action.pod["metadata"]["resourceVersion"],
                "labels": {names.CLUSTER_LABEL: action.cluster},
                "annotations": {names.SLOT_ANNOTATION: str(action.slot)},
            }
        }
        # The status subresource takes metadata too (k8s:registry/core/pod/strategy.go) and calls no webhook for pods,
        # such as Kueue's. A controller that may patch only the status cannot change what a user's pod runs.
        self._manager.pods.put(
            await self._manager.client.merge_patch(resources.PODS.path(namespace, name, "status"), body)
        )

    async def mirror_head(self, action: MirrorHead) -> None:
        member = self._fleet.connected_cache(action.cluster)
        try:
            async with self._mirror_locks[action.cluster]:  # all workers of a head need the same mirror
                member.require_reachable()
                await write_head_mirror(member, action.body)
        except ApiError as refusal:
            if refusal.status in _REFUSALS or refusal.reason == NAME_TAKEN:
                await self._note_refused(action, "the mirror of the head's Service", refusal)
            raise

    async def _note_refused(self, action: MirrorHead | CreatePod, subject: str, refusal: ApiError) -> None:
        if action.regarding:
            message, uid = _message_without_name(action.pod, refusal), uid_of(action.pod)
            message += denied_containers(action.body, refusal.message)
            self._transient.note_pod_refused(
                action.placement, action.share_key, uid, f"the cluster denies its pods: {message}"
            )
            text = f"worker cluster {action.cluster} denies {subject}: {message}"
            await self._recorder.emit_event(
                EmitEvent(action.regarding, names.EventReason.REMOTE_POD_REJECTED, text, warning=True)
            )

    async def create_pod(self, action: CreatePod) -> None:
        """Create a remote pod, after the copied objects that it refers to."""
        member = self._fleet.connected_cache(action.cluster)
        if action.relay:
            await self._prepare_manager(action, action.relay)
        self._transient.sent_pods.add(uid_of(action.pod))  # even without an answer
        self._transient.creations_in_flight += 1
        try:
            await self._copier.ensure_copies(member, action.references, action.body)
            if action.relay:
                await self._relay.prepare_worker(member, action.relay, action.body)
            member.pods.put(await self._create_remote_pod(member, action))
        except ApiError as refusal:
            if refusal.status in _REFUSALS:
                await self._note_refused(action, "pods of the job", refusal)
            elif refusal.status >= 500:  # a webhook does not answer, for example
                await self._report_trouble(action, _message_without_name(action.pod, refusal))
            raise
        except SourceUnavailable as error:
            raise Unreachable(await self._report_trouble(action, str(error))) from None
        finally:
            self._transient.creations_in_flight -= 1
        self._transient.created_pods.add(uid_of(action.pod))
        if action.relay:
            with contain_errors("relay", action.cluster):
                await self._relay.hand_over_secret(member, action.relay, member.pods.get(key_of(action.body)) or {})
        self._transient.note_pod_accepted(action.placement, action.share_key)

    async def _prepare_manager(self, action: CreatePod, relay: RelayedWorker) -> None:
        try:
            await self._relay.prepare_manager(relay)
        except ApiError as denial:  # no worker cluster is to blame
            reason = f"the manager cluster denies what the relay needs: {denial.message or denial.reason}"
            raise Unreachable(await self._report_trouble(action, reason)) from None

    async def _create_remote_pod(self, cache: WorkerClusterCache, action: CreatePod) -> Raw:
        """Create the remote pod; the manager pod is among the unanswered until a response shows whether it exists."""
        uid = uid_of(action.pod)
        self._transient.unanswered_pods.add(uid)
        try:
            remote_pod = await create_or_get(cache.client, resources.PODS, action.body)
        except ApiError as refusal:
            # A webhook that is down must not tie a worker to a cluster where it cannot start.
            if refusal.status < 500 or api_messages.wrote_nothing(refusal.message):
                self._transient.unanswered_pods.discard(uid)
            raise
        self._transient.unanswered_pods.discard(uid)
        return remote_pod

    async def _report_trouble(self, action: CreatePod, reason: str) -> str:
        """Report why a worker is not created, in the same words for all workers of a job; return the sentence."""
        text = f"A worker for {action.cluster} is not created: {clause(reason)}."
        if action.regarding:
            await self._recorder.emit_event(
                EmitEvent(action.regarding, names.EventReason.WORKER_FAILING, text, warning=True)
            )
        return text

    async def delete_pod(self, action: DeletePod) -> None:
        namespace, name = key_of(action.pod)
        client = self._fleet.connected_cache(action.cluster).client
        await client.delete(resources.PODS.path(namespace, name), uid_of(action.pod))

    async def patch_status(self, action: PatchPodStatus) -> None:
        namespace, name = key = key_of(action.pod)
        path = resources.PODS.path(namespace, name, "status")
        self._manager.pending_status_patches[key] = action.body
        try:
            self._manager.pods.put(await self._manager.client.merge_patch(path, action.body))
        except ApiError as error:
            # A deleted or replaced pod needs no status.
            if not (error.not_found or error.is_conflict):
                raise
        finally:
            self._manager.pending_status_patches.pop(key, None)


def _message_without_name(pod: Raw, refusal: ApiError) -> str:
    """The message without the pod's name, so that it is the same for all workers."""
    return refusal.message.replace(key_of(pod)[1], "*")


async def write_head_mirror(cache: WorkerClusterCache, body: Raw) -> None:
    """Create or change an object of a head's mirror, unless more than its owners changed since the decision.

    Raises ApiError where mirrors may not be read, and so could not be kept up to date.
    """
    if cache.unmirrored_reason:
        raise ApiError(403, "Forbidden", cache.unmirrored_reason)
    resource, store = {
        "Service": (resources.SERVICES, cache.services),
        "EndpointSlice": (resources.ENDPOINT_SLICES, cache.slices),
    }[body["kind"]]
    current = store.get(key_of(body)) or {}
    if version_of(current) != version_of(body):
        rebased = service_mirror.rebase_write(body, current) if current else None
        if rebased is None:
            return
        body = rebased
    if not version_of(body):
        store.put(await create_or_get(cache.client, resource, body))
        return
    try:
        store.put(await cache.client.merge_patch(resource.path(*key_of(body)), body))
    except ApiError as error:
        if not error.not_found:  # the watch will report its deletion
            raise
