"""How is each action on a gang done: its plan, its shares, its admission check, its place in the queue?

Nothing is decided here, apart from what Planning answers to a Plan. Every write either names the uid that it is meant for or
creates under a name that only its own attempt can have, so doing it twice, or after a crash, changes nothing more. A share's
PodGroup is created once, or found as an earlier try of ours left it, and goes with its anchor.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime
from typing import Any

from adapter import names
from adapter.actions import (
    Deactivate,
    DeletePlacement,
    DeleteShare,
    DeleteSharePods,
    Plan,
    Reactivate,
    Reserve,
    RetargetPlacement,
    SetCheck,
    UpdatePlacementStatus,
)
from adapter.objects.placement import Placement
from adapter.objects.reservation import Reservation
from adapter.objects.reservation import parse_reservation as read_reservation
from adapter.objects.unstructured import Raw, format_time, key_of, meta, uid_of
from adapter.objects.workload import Workload
from adapter.planning import rounds
from adapter.rewrite import group_workload
from adapter.shell import metrics
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import PARALLEL_REQUESTS, ApiError, Client, Unreachable
from adapter.shell.kube.resources import POD_GROUPS
from adapter.shell.observe.dry_run_answers import DryRunAnswers
from adapter.shell.observe.transient_state import TransientState
from adapter.shell.planning.plans import GangPlanner
from adapter.shell.write.create_object import create_or_get

# Deletions of one share's pods on their way: half of what a client sends to a cluster in parallel, so that those who make pods
# there get their turn meanwhile.
DELETIONS_AT_ONCE = PARALLEL_REQUESTS // 2


class GangWriter:
    """Writes Workloads and Placements in the manager, and shares in the worker clusters."""

    def __init__(
        self,
        manager: ManagerCache,
        fleet: Fleet,
        planner: GangPlanner,
        transient: TransientState,
        dry_run_answers: DryRunAnswers,
    ) -> None:
        self._manager, self._fleet, self._planner = manager, fleet, planner
        self._transient, self._dry_run_answers = transient, dry_run_answers

    async def write_plan(self, action: Plan) -> None:
        """Plan a gang, and write its Placement, unless the plan says nothing new, or clusters that it takes are to be asked first."""
        version, now = self._fleet.capacity_versions.version, datetime.now(UTC)
        with metrics.PLAN_DURATION.time():
            body, made, settles, alone = await self._planner.plan_round(action, now)
        if self._manager.unreachable_reason:  # since it was begun: what it was made of is not to be believed
            raise Unreachable(self._manager.unreachable_reason)
        if self._dry_run_answers.defers_plan(action.workload, made.untested):
            return
        # NB: it pauses on its way, and another plan must not read the stores before they show this one's Placement: the looks
        # therefore make one plan at a time.
        before = action.placement
        if before is None:
            raw = await self._manager.client.create(resources.PLACEMENTS.path(action.workload.namespace), body)
        elif rounds.is_unchanged(action, before, body["spec"]):
            self._transient.note_plan(before.uid, version, settles, now if alone else None)
            return
        else:
            path = resources.PLACEMENTS.path(before.namespace, before.name)
            # Of this very version: a plan of who led before, and comes late, must not overwrite the one that stands.
            raw = await self._manager.client.merge_patch(
                path, {"metadata": _version_precondition(before), "spec": body["spec"]}
            )
        self._transient.note_plan(uid_of(raw), version, settles, now if alone else None)
        self._manager.placements.put(raw)

    async def retarget_placement(self, action: RetargetPlacement) -> None:
        """Let a Placement stand for another slice of its elastic job; what it was planned for is to be planned anew then."""
        place, work = action.placement, action.workload
        spec: dict[str, Any] = {
            "workload": {"name": work.name, "uid": work.uid},
            "attempt": work.attempt,
            "wanted": action.wanted_workers,
        }
        if action.drops_shares:
            spec = {"shares": [], "lost": None}
        path = resources.PLACEMENTS.path(place.namespace, place.name)
        raw = await self._manager.client.merge_patch(path, {"metadata": _version_precondition(place), "spec": spec})
        self._transient.planned_versions.pop(place.uid, None)
        self._manager.placements.put(raw)

    async def reserve_share(self, action: Reserve) -> None:
        """Make a share; what its cluster's API server refuses is remembered as the gang's reason."""
        try:
            await self._create_share(action)
            self._transient.note_share_accepted(action.placement, action.share.cluster)
        except ApiError as refusal:  # not trouble of ours: the gang waits with this reason, and tries again
            why = f"its API server refuses the share: {refusal.message or refusal.reason}"
            self._transient.note_share_refused(action.placement, action.share.cluster, why)

    async def _create_share(self, action: Reserve) -> None:
        member, namespace, target = (
            self._fleet.connected_cache(action.share.cluster),
            action.placement.namespace,
            action.target,
        )
        anchor = await create_or_get(
            member.client, resources.CONFIG_MAPS, group_workload.build_anchor(target, namespace)
        )
        body = group_workload.build_workload(
            target,
            namespace,
            action.groups,
            uid_of(anchor),
            priority=action.priority,
            dry_run_templates=action.dry_run_templates,
        )
        # Before any pod can name it, and before quota is held that it may not use.
        if group := group_workload.build_pod_group(body, target, starts=action.starts_gang):
            await ensure_pod_group(member.client, group)
        member.workloads.put(await create_or_get(member.client, resources.WORKLOADS, body))

    async def delete_share_pods(self, action: DeleteSharePods) -> None:
        """Delete pods of a share; what its cluster's API server refuses is remembered, as with the share itself."""
        await self._note_refusal(action.reservation, self._delete_all_pods(action))

    async def delete_share(self, action: DeleteShare) -> None:
        """Delete a share; what its cluster's API server refuses is remembered, so that it holds up nobody."""
        await self._note_refusal(action.reservation, self._delete_share_objects(action.reservation))

    async def _note_refusal(self, reservation: Reservation, deletion: Awaitable[None]) -> None:
        try:
            await deletion
        except ApiError as refusal:
            if not refusal.is_transient:
                self._transient.undeleted_shares[reservation.uid] = refusal.message or refusal.reason
            raise
        self._transient.undeleted_shares.pop(reservation.uid, None)

    async def _delete_all_pods(self, action: DeleteSharePods) -> None:
        """All are tried, whatever becomes of one; the first trouble is raised."""
        client, at_once = (
            self._fleet.connected_cache(action.reservation.cluster).client,
            asyncio.Semaphore(DELETIONS_AT_ONCE),
        )

        async def delete(pod: Mapping[str, Any]) -> None:
            async with at_once:
                await client.delete(resources.PODS.path(*key_of(pod)), uid_of(pod))

        done = await asyncio.gather(*map(delete, action.pods), return_exceptions=True)
        for trouble in done:
            if isinstance(trouble, BaseException):
                raise trouble

    async def _delete_share_objects(self, reservation: Reservation) -> None:
        """Delete its anchor, with all that it owns, and its Workload."""
        client = self._fleet.connected_cache(reservation.cluster).client
        if reservation.anchor_uid:
            await client.delete(
                resources.CONFIG_MAPS.path(reservation.namespace, reservation.name), reservation.anchor_uid
            )
        await client.delete(resources.WORKLOADS.path(reservation.namespace, reservation.name), reservation.uid)

    async def set_check(self, action: SetCheck) -> None:
        """Write our entry of a Workload's admission checks, after one more look at the shares it relies on."""
        for trouble in await asyncio.gather(
            *map(self._verify_share, action.reservations_to_verify), return_exceptions=True
        ):
            if isinstance(trouble, BaseException):
                raise trouble
        work = action.workload
        entry = {
            "name": action.check,
            "state": action.state,
            "message": action.message,
            "lastTransitionTime": format_time(datetime.now(UTC)),
            **({"podSetUpdates": list(action.podset_updates)} if action.podset_updates else {}),
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
        self._manager.workloads.put(await self._manager.client.apply(path, body, names.FIELD_MANAGER))

    async def _verify_share(self, share: Reservation) -> None:
        client = self._fleet.connected_cache(share.cluster).client
        raw = await client.get(resources.WORKLOADS.path(share.namespace, share.name))
        found = read_reservation(share.cluster, raw)
        if not found.admitted or found.deleting or found.uid != share.uid:
            raise Unreachable(f"the share in {share.cluster} is not admitted any more")

    async def deactivate(self, action: Deactivate) -> None:
        """Make a Workload inactive, so that others get its turn."""
        now, count = datetime.now(UTC), str(action.workload.deactivations + 1)
        self._transient.note_deactivated(
            action.workload, now
        )  # before anybody can hear of it and take what it gathered
        since = format_time(now)
        await self._set_active(
            action.workload, False, {names.DEACTIVATED_AT_ANNOTATION: since, names.DEACTIVATIONS_ANNOTATION: count}
        )

    async def reactivate(self, action: Reactivate) -> None:
        """Make a Workload that stepped aside active again."""
        await self._set_active(action.workload, True, {names.DEACTIVATED_AT_ANNOTATION: None})

    async def _set_active(self, workload: Workload, active: bool, annotations: dict[str, str | None]) -> None:
        """Write both in one patch: a Workload that is inactive on our account says so, whenever we die."""
        metadata = {"uid": workload.uid, "resourceVersion": workload.resource_version, "annotations": annotations}
        path = resources.WORKLOADS.path(workload.namespace, workload.name)
        body = {"metadata": metadata, "spec": {"active": active}}
        self._manager.workloads.put(await self._manager.client.merge_patch(path, body))

    async def update_placement_status(self, action: UpdatePlacementStatus) -> None:
        """Write a Placement's status."""
        place = action.placement
        path = resources.PLACEMENTS.path(place.namespace, place.name, "status")
        body = {"metadata": _version_precondition(place), "status": action.status}
        self._manager.placements.put(await self._manager.client.merge_patch(path, body))

    async def delete_placement(self, action: DeletePlacement) -> None:
        """Delete a Placement."""
        place = action.placement
        await self._manager.client.delete(resources.PLACEMENTS.path(place.namespace, place.name), place.uid)


def _version_precondition(placement: Placement) -> dict[str, str]:
    """What a write on a Placement is meant for: that very object, as it was when the write was decided on."""
    return {"uid": placement.uid, "resourceVersion": placement.resource_version}


async def ensure_pod_group(client: Client, body: Raw) -> None:
    """Make a PodGroup, unless it stands; raises ApiError with a sentence when it cannot be had."""
    key = key_of(body)
    try:
        await client.create(POD_GROUPS.path(key[0]), body)
    except ApiError as error:
        taken = error.already_exists and not _belongs_to_share(await client.get(POD_GROUPS.path(*key)), body)
        said = "there is another one of that name" if taken else error.message
        if taken or not error.already_exists:
            raise ApiError(
                error.status, error.reason, group_workload.pod_group_error(key, error.status, said)
            ) from None


def _belongs_to_share(pod_group: Raw, body: Raw) -> bool:
    """Whether it goes when this share does: one of somebody else, or of an earlier anchor of this share, may go before."""
    owners = meta(pod_group).get("ownerReferences") or ()
    return meta(body)["ownerReferences"][0] in owners and not meta(pod_group).get("deletionTimestamp")
