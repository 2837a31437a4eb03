"""How is each action on a worker pod done: its slot, its head's mirror, its copy, its status?

Nothing is decided here. A cluster that does not want what a worker needs is remembered, so that the share goes elsewhere, and
the owner is told; what stands in a cluster under our name and is not ours is left alone.
"""

import asyncio
from collections import defaultdict

from adapter import names
from adapter.actions import AssignSlot, CreatePod, DeletePod, MirrorHead, PatchStatus, Say
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.rewrite import service_mirror
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.worker_cache import Member
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.kube.store import version
from adapter.shell.observe.source_objects import Absent
from adapter.shell.observe.transient_state import Memory
from adapter.shell.write.copies import Copier
from adapter.shell.write.create_object import NAME_TAKEN, create
from adapter.shell.write.events import Announcer

# What a cluster answers whose webhooks, policies or quotas do not want a pod. Not 401 and 429, which pass, and not 409: there
# is a pod of that name.
_REFUSALS = (400, 403, 404, 422)
# What an API server says that has written nothing, with a status that else leaves that open: a webhook is asked before it writes
# (k8s:apiserver/pkg/util/webhook/error.go). One that is down for long shall not keep a worker where nobody may start.
_WROTE_NOTHING = "failed calling webhook"


class PodWriter:
    """Writes worker pods in the manager, and their copies in the worker clusters."""

    def __init__(self, manager: Manager, fleet: Fleet, announcer: Announcer, memory: Memory, copier: Copier) -> None:
        self._manager, self._fleet, self._announcer, self._memory, self._copier = (
            manager,
            fleet,
            announcer,
            memory,
            copier,
        )
        self._mirroring: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by cluster

    async def assign(self, action: AssignSlot) -> None:
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
        self._manager.pods.put(await self._manager.client.merge(resources.PODS.path(namespace, name, "status"), body))

    async def mirror_head(self, action: MirrorHead) -> None:
        """Make or change one object of the mirror of a head's Service."""
        member = self._fleet.connected(action.cluster)
        try:
            async with self._mirroring[action.cluster]:  # one after the other: all workers of a head want the same
                member.must_be_seen()
                await mirror_head(member, action.body)
        except ApiError as refusal:
            if refusal.status in _REFUSALS or refusal.reason == NAME_TAKEN:
                await self._refused(action, "the mirror of the head's Service", refusal)
            raise

    async def _refused(self, action: MirrorHead | CreatePod, what: str, refusal: ApiError) -> None:
        """Note that a cluster does not want what a worker needs, so that its share goes elsewhere, and tell its owner."""
        if action.about:
            why, uid = _of_any(action.pod, refusal), uid_of(action.pod)
            self._memory.refuse_pod(action.placement, action.share, uid, f"the cluster refuses its pods: {why}")
            text = f"worker cluster {action.cluster} refuses {what}: {why}"
            await self._announcer.tell(Say(action.about, "PodRefused", text, warning=True))

    async def create_pod(self, action: CreatePod) -> None:
        """Make a pod's copy, and before it what it refers to."""
        member = self._fleet.connected(action.cluster)
        self._memory.sent.add(uid_of(action.pod))  # whether or not an answer comes
        self._memory.making += 1
        try:
            await self._copier.ensure(member, action.references, action.body)
            member.pods.put(await self._create(member, action))
        except ApiError as refusal:
            if refusal.status in _REFUSALS:
                await self._refused(action, "pods of the job", refusal)
            elif refusal.status >= 500:  # one of its webhooks does not answer, say
                await self._trouble(action, _of_any(action.pod, refusal))
            raise
        except Absent as absent:
            raise Unreachable(await self._trouble(action, str(absent))) from None
        finally:
            self._memory.making -= 1
        self._memory.made.add(uid_of(action.pod))
        self._memory.accept_pod(action.placement, action.share)

    async def _create(self, member: Member, action: CreatePod) -> Raw:
        """Make it, and remember while no answer says whether it stands: whatever the watch shows, it may."""
        uid = uid_of(action.pod)
        self._memory.unanswered.add(uid)
        try:
            made = await create(member.client, resources.PODS, action.body)
        except ApiError as refusal:
            if refusal.status < 500 or _WROTE_NOTHING in refusal.message:
                self._memory.unanswered.discard(uid)
            raise
        self._memory.unanswered.discard(uid)
        return made

    async def _trouble(self, action: CreatePod, why: str) -> str:
        """Tell the owner why a worker is not made, in words that are the same for its siblings; returns the sentence."""
        text = f"A worker for {action.cluster} is not made: {why.removesuffix('.')}."
        if action.about:
            await self._announcer.tell(Say(action.about, "WorkerTrouble", text, warning=True))
        return text

    async def delete_pod(self, action: DeletePod) -> None:
        """Delete a copy."""
        namespace, name = key_of(action.pod)
        client = self._fleet.connected(action.cluster).client
        await client.delete(resources.PODS.path(namespace, name), uid_of(action.pod))

    async def patch_status(self, action: PatchStatus) -> None:
        """Bring a pod's status in the manager up to date with its copy's."""
        namespace, name = key = key_of(action.pod)
        path = resources.PODS.path(namespace, name, "status")
        self._manager.telling[key] = action.body
        try:
            self._manager.pods.put(await self._manager.client.merge(path, action.body))
        except ApiError as error:
            if not (error.missing or error.conflict):  # deleted, or another pod by now: then there is nothing to tell
                raise
        finally:
            self._manager.telling.pop(key, None)


def _of_any(pod: Raw, refusal: ApiError) -> str:
    """What was said of a pod, without its name, since its siblings hear the same."""
    return refusal.message.replace(key_of(pod)[1], "*")


async def mirror_head(member: Member, body: Raw) -> None:
    """Make or change one object of a head's mirror, unless more than its owners was changed since this was decided: then it is looked
    at again.

    Raises ApiError where mirrors may not be read, for nobody could keep it true.
    """
    if member.unmirrored:
        raise ApiError(403, "Forbidden", member.unmirrored)
    resource, store = {
        "Service": (resources.SERVICES, member.services),
        "EndpointSlice": (resources.ENDPOINT_SLICES, member.slices),
    }[body["kind"]]
    there = store.get(key_of(body)) or {}
    if version(there) != version(body):
        upon = service_mirror.rebased(body, there) if there else None
        if upon is None:
            return
        body = upon
    if not version(body):
        store.put(await create(member.client, resource, body))
        return
    try:
        store.put(await member.client.merge(resource.path(*key_of(body)), body))
    except ApiError as error:
        if not error.missing:  # its deletion will be heard of
            raise
