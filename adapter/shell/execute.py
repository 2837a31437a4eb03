"""How is each action done: one function for each, and nothing decided.

Every write either names the uid that it is meant for or creates under a name that only its own attempt can have, so
doing it twice, or after a crash, changes nothing more. Answers go back into the stores, for the next decision should
not have to wait for the watch.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from adapter import names, reservation
from adapter.actions import (
    Action,
    AssignSlot,
    CreatePod,
    DeletePod,
    Forget,
    LookAgain,
    MirrorHead,
    PatchStatus,
    Plan,
    Record,
    Rejoin,
    Release,
    Reserve,
    Say,
    SetCheck,
    Yield,
)
from adapter.facts import Placement, Raw, Workload, annotation, key_of, share_key, timestamp, uid_of
from adapter.facts import reservation as read_reservation
from adapter.shell import metrics, resources
from adapter.shell.client import ApiError, Client, Unreachable
from adapter.shell.copier import Copier
from adapter.shell.events import Announcer
from adapter.shell.fleet import Fleet
from adapter.shell.home import Home
from adapter.shell.member import Member
from adapter.shell.memory import Memory
from adapter.shell.observe import Observer
from adapter.shell.planning import Planning
from adapter.shell.sources import Absent
from adapter.shell.store import version

log = logging.getLogger(__name__)

# What a cluster answers whose webhooks, policies or quotas do not want a pod. Not 401 and 429, which pass, and not 409: there
# is a pod of that name.
_REFUSALS = (400, 403, 404, 422)
NAME_TAKEN = "NameTaken"  # of an ApiError of ours: there is an object of that name, and it is not ours


class Executor:
    """Does actions; raises ApiError or Unreachable when one could not be done."""

    def __init__(self, home: Home, fleet: Fleet, observer: Observer, announcer: Announcer) -> None:
        self._home, self._fleet, self._observer, self._announcer = home, fleet, observer, announcer
        self.memory = Memory()
        self.copier = Copier(home, fleet, observer)
        self._planning = Planning(home, fleet, observer, self.memory)
        self._mirroring: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by cluster
        self._do: dict[type, Callable[[Any], Awaitable[None]]] = {
            Plan: self._plan,
            Reserve: self._reserve,
            Release: self._release,
            SetCheck: self._set_check,
            Yield: self._yield,
            Rejoin: self._rejoin,
            Record: self._record,
            Forget: self._forget,
            Say: self._say,
            AssignSlot: self._assign,
            MirrorHead: self._mirror_head,
            CreatePod: self._create_pod,
            DeletePod: self._delete_pod,
            PatchStatus: self._patch_status,
        }

    async def do(self, action: Action) -> None:
        """Do one action."""
        if not isinstance(action, LookAgain):
            await self._do[type(action)](action)

    def _member(self, name: str) -> Member:
        member = self._fleet.members().get(name)
        if member is None:
            raise Unreachable(f"worker cluster {name} is not connected")
        return member

    @property
    def _local(self) -> Client:
        return self._home.client

    async def _plan(self, action: Plan) -> None:
        version = self._fleet.room_version
        with metrics.DECISION.time():
            body, _, settles = self._planning.body(action, datetime.now(UTC))
        # NB: no await between reading the stores and this write being on its way would still let another plan read the
        # old stores; the engine therefore runs one plan at a time.
        before = action.placement
        if before is None:
            raw = await self._local.create(resources.PLACEMENTS.path(action.workload.namespace), body)
        elif _as_before(before, body["spec"], action):
            self._note(before.uid, version, settles)
            return
        else:
            path = resources.PLACEMENTS.path(before.namespace, before.name)
            raw = await self._local.merge(path, {"metadata": {"uid": before.uid}, "spec": body["spec"]})
        self._note(uid_of(raw), version, settles)
        self._home.placements.put(raw)

    def _note(self, uid: str, version: int, settles: datetime | None) -> None:
        self.memory.planned[uid] = version
        self.memory.settles.pop(uid, None)
        if settles:
            self.memory.settles[uid] = settles

    async def _reserve(self, action: Reserve) -> None:
        try:
            await self._make_share(action)
            self.memory.accept(action.placement, action.share.cluster)
        except ApiError as refusal:  # not trouble of ours: the gang waits with this reason, and tries again
            why = f"its API server refuses the share: {refusal.message or refusal.reason}"
            self.memory.refuse(action.placement, action.share.cluster, why)

    async def _make_share(self, action: Reserve) -> None:
        member, work, place = self._member(action.share.cluster), action.workload, action.placement
        target = self._observer.target(member, work, place, place.round_of(action.share))
        anchor = await _create(member.client, resources.CONFIG_MAPS, reservation.anchor(target, work.namespace))
        templates = {podset.name: podset.template for podset in work.podsets}
        body = reservation.group_workload(
            target,
            work.namespace,
            [(group.name, group.count, templates[group.name]) for group in action.share.groups],
            uid_of(anchor),
            priority=work.priority,
        )
        member.workloads.put(await _create(member.client, resources.WORKLOADS, body))

    async def _release(self, action: Release) -> None:
        found = action.reservation
        client = self._member(found.cluster).client
        if found.anchor_uid:
            await client.delete(resources.CONFIG_MAPS.path(found.namespace, found.name), found.anchor_uid)
        await client.delete(resources.WORKLOADS.path(found.namespace, found.name), found.uid)

    async def _set_check(self, action: SetCheck) -> None:
        for share in action.verify:
            client = self._member(share.cluster).client
            raw = await client.get(resources.WORKLOADS.path(share.namespace, share.name))
            found = read_reservation(share.cluster, raw)
            if not found.admitted or found.deleting or found.uid != share.uid:
                raise Unreachable(f"the share in {share.cluster} is not admitted any more")
        work = action.workload
        entry = {
            "name": action.check,
            "state": action.state,
            "message": action.message,
            "lastTransitionTime": timestamp(datetime.now(UTC)),
            **({"podSetUpdates": list(action.updates)} if action.updates else {}),
        }
        body = {
            "apiVersion": names.KUEUE_API_VERSION,
            "kind": "Workload",
            "metadata": {
                "name": work.name,
                "namespace": work.namespace,
                "uid": work.uid,
                "resourceVersion": work.resource_version,  # a late answer must not poison the next attempt
            },
            "status": {"admissionChecks": [entry]},
        }
        path = resources.WORKLOADS.path(work.namespace, work.name, "status")
        self._home.workloads.put(await self._local.apply(path, body, names.FIELD_MANAGER))

    async def _yield(self, action: Yield) -> None:
        now, count = datetime.now(UTC), str(action.workload.yields + 1)
        self.memory.step_aside(action.workload, now)  # before anybody can hear of it and take what it gathered
        since = timestamp(now)
        await self._activate(action.workload, False, {names.YIELDED_ANNOTATION: since, names.YIELDS_ANNOTATION: count})

    async def _rejoin(self, action: Rejoin) -> None:
        await self._activate(action.workload, True, {names.YIELDED_ANNOTATION: None})

    async def _activate(self, work: Workload, active: bool, annotations: dict[str, str | None]) -> None:
        """Write both in one patch: a Workload that is inactive on our account says so, whenever we die."""
        metadata = {"uid": work.uid, "resourceVersion": work.resource_version, "annotations": annotations}
        path = resources.WORKLOADS.path(work.namespace, work.name)
        body = {"metadata": metadata, "spec": {"active": active}}
        self._home.workloads.put(await self._local.merge(path, body))

    async def _record(self, action: Record) -> None:
        place = action.placement
        path = resources.PLACEMENTS.path(place.namespace, place.name, "status")
        body = {"metadata": {"uid": place.uid}, "status": action.status}
        self._home.placements.put(await self._local.merge(path, body))

    async def _forget(self, action: Forget) -> None:
        place = action.placement
        await self._local.delete(resources.PLACEMENTS.path(place.namespace, place.name), place.uid)

    async def _say(self, action: Say) -> None:
        try:
            await self._announcer.say(action.about, action.reason, action.message, warning=action.warning)
        except (ApiError, Unreachable) as trouble:  # what is said must not hold up what is done
            log.warning("event %s on %s %s: %s", action.reason, action.about.kind, action.about.name, trouble)

    async def _assign(self, action: AssignSlot) -> None:
        namespace, name = key_of(action.pod)
        body = {
            "metadata": {
                "uid": uid_of(action.pod),
                "resourceVersion": action.pod["metadata"]["resourceVersion"],
                "labels": {names.CLUSTER_LABEL: action.cluster},
                "annotations": {names.SLOT_ANNOTATION: action.slot},
            }
        }
        self._home.pods.put(await self._local.merge(resources.PODS.path(namespace, name), body))

    async def _mirror_head(self, action: MirrorHead) -> None:
        member = self._member(action.cluster)
        try:
            async with self._mirroring[action.cluster]:  # one after the other: all workers of a head want the same
                member.must_be_seen()
                await mirror_head(member, action.body)
        except ApiError as refusal:
            if refusal.status in _REFUSALS or refusal.reason == NAME_TAKEN:
                await self._refused(action, "the mirror of the head's Service", refusal)
            raise

    async def _refused(self, action: MirrorHead | CreatePod, what: str, refusal: ApiError) -> None:
        """Note that a cluster does not want what a worker needs, so that its share goes elsewhere, and tell its owner: without the
        pod's name, since its siblings hear the same."""
        place = self._observer.placement_of(action.pod)
        if action.about and place:
            share = share_key(annotation(action.pod, names.SLOT_ANNOTATION))
            why = refusal.message.replace(key_of(action.pod)[1], "*")
            self.memory.refuse_pod(place, share, f"the cluster refuses its pods: {why}")
            text = f"worker cluster {action.cluster} refuses {what}: {why}"
            await self._say(Say(action.about, "PodRefused", text, warning=True))

    async def _create_pod(self, action: CreatePod) -> None:
        member = self._member(action.cluster)
        try:
            await self.copier.ensure(member, action.references, action.body)
            member.pods.put(await _create(member.client, resources.PODS, action.body))
        except ApiError as refusal:
            if refusal.status in _REFUSALS:
                await self._refused(action, "pods of the job", refusal)
            raise
        except Absent as absent:  # without the pod's name, since its siblings lack the same
            text = f"A worker for {action.cluster} is not made: {absent}."
            if action.about:
                await self._say(Say(action.about, "WorkerTrouble", text, warning=True))
            raise Unreachable(text) from None
        self.memory.made.add(uid_of(action.pod))
        if place := self._observer.placement_of(action.pod):
            self.memory.accept_pod(place, share_key(annotation(action.pod, names.SLOT_ANNOTATION)))

    async def _delete_pod(self, action: DeletePod) -> None:
        namespace, name = key_of(action.pod)
        client = self._member(action.cluster).client
        await client.delete(resources.PODS.path(namespace, name), uid_of(action.pod))

    async def _patch_status(self, action: PatchStatus) -> None:
        namespace, name = key_of(action.pod)
        path = resources.PODS.path(namespace, name, "status")
        try:
            self._home.pods.put(await self._local.merge(path, action.body))
        except ApiError as error:
            if not (error.missing or error.conflict):  # deleted, or another pod by now: then there is nothing to tell
                raise


def _as_before(before: Placement, spec: Raw, action: Plan) -> bool:
    """Whether a plan says nothing new: the same shares as those that stand, and the same sentence."""
    if not before.round or before.withdrawing or len(before.excluded) != len(action.excluded):
        return False
    same = len(spec["shares"]) == len(before.shares) == len(action.kept or ())
    return same and bool(before.explanation == spec["explanation"])


async def _create(client: Client, resource: resources.Resource, body: Raw) -> Raw:
    """Create an object, or read the one that an earlier try of ours left under its name.

    An object of somebody else under the name is never touched: raises ApiError 409 with a sentence.
    """
    namespace, name = key_of(body)
    try:
        return await client.create(resource.path(namespace), body)
    except ApiError as error:
        if not error.conflict:
            raise
    found = await client.get(resource.path(namespace, name))
    wanted = body["metadata"].get("labels") or {}
    # By cluster as well: were one API server registered under two names, each would take the other's for its own.
    origin = (names.MANAGER_LABEL, names.CLUSTER_LABEL, names.WORKLOAD_UID_LABEL, names.POD_UID_LABEL)
    if any((found["metadata"].get("labels") or {}).get(key) != wanted.get(key) for key in origin):
        raise ApiError(409, NAME_TAKEN, f"{resource.plural} {namespace}/{name} exists there and is not ours")
    return found


async def mirror_head(member: Member, body: Raw) -> None:
    """Make or change one object of a head's mirror, unless it was changed since this was decided: then it is looked at again.

    Raises ApiError where mirrors may not be read, for nobody could keep it true.
    """
    if member.unmirrored:
        raise ApiError(403, "Forbidden", member.unmirrored)
    resource, store = {
        "Service": (resources.SERVICES, member.services),
        "EndpointSlice": (resources.ENDPOINT_SLICES, member.slices),
    }[body["kind"]]
    if version(store.get(key_of(body)) or {}) != version(body):
        return
    if not version(body):
        store.put(await _create(member.client, resource, body))
        return
    try:
        store.put(await member.client.merge(resource.path(*key_of(body)), body))
    except ApiError as error:
        if not error.missing:  # its deletion will be heard of
            raise
