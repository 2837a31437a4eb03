"""Executes the actions on a gang: its plan, its shares, its admission check, its activation.

Every write names its object's uid, or creates an object under a name that only its own attempt can have. So repeating
the write, also after a crash, changes nothing more. A share's PodGroup is deleted with its anchor.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any

from adapter import names
from adapter.actions import (
    Deactivate,
    DeletePlacement,
    DeleteShare,
    DeleteSharePods,
    Plan,
    Reactivate,
    RecordExclusions,
    Reserve,
    RetargetPlacement,
    SetCheck,
    UpdatePlacementStatus,
)
from adapter.objects.past_exclusions import PastExclusions, format_past_exclusions
from adapter.objects.placement import Placement
from adapter.objects.reservation import Reservation
from adapter.objects.reservation import parse_reservation as read_reservation
from adapter.objects.unstructured import Raw, format_time, key_of, meta, uid_of
from adapter.objects.workload import Workload
from adapter.planning import rounds
from adapter.quota.kueue_answers import Question
from adapter.relay.relay_network import recorded_identity, with_key
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
from adapter.shell.write.relay_writer import HeadDenied, RelayWriter

log = logging.getLogger(__name__)

# Half of a client's parallel requests, to leave the rest for pod creation.
DELETIONS_AT_ONCE = PARALLEL_REQUESTS // 2
# The statuses of a denial by rights, webhooks, policies or validation.
_DENIALS = (400, 403, 413, 422)


class GangWriter:
    def __init__(
        self,
        manager: ManagerCache,
        fleet: Fleet,
        planner: GangPlanner,
        transient: TransientState,
        dry_run_answers: DryRunAnswers,
        relay: RelayWriter,
    ) -> None:
        self._relay = relay
        self._manager, self._fleet, self._planner = manager, fleet, planner
        self._transient, self._dry_run_answers = transient, dry_run_answers

    async def write_plan(self, action: Plan) -> None:
        """Write a gang's Placement, unless its plan is unchanged or needs dry runs first."""
        version, now = self._fleet.capacity_versions.version, self._manager.clock.now()
        with metrics.PLAN_DURATION.time():
            body, plan, replan_at, independent = await self._planner.plan_round(action, now)
        if self._manager.unreachable_reason:  # the plan's inputs are not reliable
            raise Unreachable(self._manager.unreachable_reason)
        if self._dry_run_answers.defers_plan(action.workload, plan.untested):
            return
        # No other plan may read the stores before they show this Placement.
        current = action.placement
        note_plan = functools.partial(
            self._transient.note_plan,
            version=version,
            replan_at=replan_at,
            independent_since=now if independent else None,
            unusable_slots=action.unusable_slots,
            withheld_workers=action.withheld_workers,
        )
        if current is None:
            raw = await self._manager.client.create(resources.PLACEMENTS.path(action.workload.namespace), body)
        elif rounds.is_unchanged(action, current, body["spec"]):
            note_plan(current.uid)
            return
        else:
            path = resources.PLACEMENTS.path(current.namespace, current.name)
            # A late plan of an earlier leader must not overwrite the current one.
            raw = await self._manager.client.merge_patch(
                path, {"metadata": _version_precondition(current), "spec": body["spec"]}
            )
        note_plan(uid_of(raw))
        if action.newly_withheld:
            self._transient.withhold_workers(uid_of(raw), action.newly_withheld, action.withheld_for)
        self._manager.placements.put(raw)
        self._record_questions(action.workload, plan.questions)

    def _record_questions(self, workload: Workload, questions: Mapping[str, Question]) -> None:
        """Let no other gang ask the same before Kueue has answered this one's share."""
        for cluster, question in questions.items():
            if member := self._fleet.caches().get(cluster):
                member.record_question((workload.namespace, workload.queue), question)

    async def retarget_placement(self, action: RetargetPlacement) -> None:
        """Point a Placement at another slice of its elastic job, which must be planned again."""
        placement, workload = action.placement, action.workload
        spec: dict[str, Any] = {
            "workload": {"name": workload.name, "uid": workload.uid},
            "attempt": workload.attempt,
            "wanted": action.wanted_workers,
        }
        if action.drops_shares:
            spec = {"shares": [], "lost": None, "waitingSince": None}
        path = resources.PLACEMENTS.path(placement.namespace, placement.name)
        raw = await self._manager.client.merge_patch(path, {"metadata": _version_precondition(placement), "spec": spec})
        self._transient.planned_versions.pop(placement.uid, None)
        self._manager.placements.put(raw)

    async def reserve_share(self, action: Reserve) -> None:
        """Create a share; its cluster's refusal becomes the reason why the gang waits."""
        try:
            await self._create_share(action)
            self._transient.note_share_accepted(action.placement, action.share.cluster)
        except ApiError as refusal:
            reason = f"its API server denies the share: {refusal.message or refusal.reason}"
            self._transient.note_share_refused(action.placement, action.share.cluster, reason)

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
        # The PodGroup comes before the Workload: any pod may name it, and without it the pods cannot use the quota.
        if group := group_workload.build_pod_group(body, target, starts=action.starts_gang):
            await ensure_pod_group(member.client, group)
        member.workloads.put(await create_or_get(member.client, resources.WORKLOADS, body))

    async def delete_share_pods(self, action: DeleteSharePods) -> None:
        await self._note_refusal(action.reservation, self._delete_all_pods(action))

    async def delete_share(self, action: DeleteShare) -> None:
        """Delete a share; a denial is recorded, and then blocks no other action."""
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
        client, at_once = (
            self._fleet.connected_cache(action.reservation.cluster).client,
            asyncio.Semaphore(DELETIONS_AT_ONCE),
        )

        async def delete(pod: Mapping[str, Any]) -> None:
            async with at_once:
                await client.delete(resources.PODS.path(*key_of(pod)), uid_of(pod))

        results = await asyncio.gather(*map(delete, action.pods), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _delete_share_objects(self, reservation: Reservation) -> None:
        client = self._fleet.connected_cache(reservation.cluster).client
        if reservation.anchor_uid:
            await client.delete(
                resources.CONFIG_MAPS.path(reservation.namespace, reservation.name), reservation.anchor_uid
            )
        await client.delete(resources.WORKLOADS.path(reservation.namespace, reservation.name), reservation.uid)

    async def set_check(self, action: SetCheck) -> None:
        """Write our admission check, after reading again the shares that it depends on."""
        for result in await asyncio.gather(
            *map(self._verify_share, action.reservations_to_verify), return_exceptions=True
        ):
            if isinstance(result, BaseException):
                raise result
        workload, version = action.workload, action.workload.resource_version
        identity = recorded_identity(action.podset_updates)
        denial: HeadDenied | None = None
        try:
            if identity:
                head_key = await self._relay.prepare_head(workload, action.check, identity)
                if not workload.elastic:  # a slice does not start if its check has other updates than its templates
                    action = replace(action, podset_updates=with_key(action.podset_updates, head_key))
        except HeadDenied as error:
            denial = error
            text = f"The job cannot use the relay: {error}. It gives its capacity back and queues again."
            action = replace(action, state=names.CHECK_RETRY, message=text, podset_updates=())
        if action.past_exclusions is not None:  # before the check, which lets Kueue end the attempt
            version = await self._write_past_exclusions(workload, action.past_exclusions)
        entry = {
            "name": action.check,
            "state": action.state,
            "message": action.message,
            "lastTransitionTime": format_time(self._manager.clock.now()),
            **({"podSetUpdates": list(action.podset_updates)} if action.podset_updates else {}),
        }
        body = {
            "apiVersion": names.KUEUE_API_VERSION,
            "kind": "Workload",
            "metadata": {
                "name": workload.name,
                "namespace": workload.namespace,
                "uid": workload.uid,
                "resourceVersion": version,  # a late answer must not affect the next attempt
            },
            "status": {"admissionChecks": [entry]},
        }
        path = resources.WORKLOADS.path(workload.namespace, workload.name, "status")
        self._manager.workloads.put(await self._manager.client.apply(path, body, names.FIELD_MANAGER))
        if denial:  # the event that follows says that the job is placed
            raise denial

    async def record_exclusions(self, action: RecordExclusions) -> None:
        await self._write_past_exclusions(action.workload, action.past_exclusions)

    async def _write_past_exclusions(self, workload: Workload, past_exclusions: PastExclusions) -> str:
        """Write the annotation; returns the Workload's version after that.

        A denial is noted, and then blocks no other action: the job must not keep its quota for the sake of a record.
        """
        annotations = {names.PAST_EXCLUSIONS_ANNOTATION: format_past_exclusions(past_exclusions)}
        metadata = {"uid": workload.uid, "resourceVersion": workload.resource_version, "annotations": annotations}
        path = resources.WORKLOADS.path(workload.namespace, workload.name)
        try:
            raw = await self._manager.client.merge_patch(path, {"metadata": metadata})
        except ApiError as refusal:
            if refusal.status not in _DENIALS or refusal.is_conflict:
                raise
            text = "Workload %s/%s: which clusters its next attempt leaves out is not recorded: %s"
            log.warning(text, workload.namespace, workload.name, refusal)
            self._transient.note_record_denied(workload.uid)
            return workload.resource_version
        self._manager.workloads.put(raw)
        return str(meta(raw).get("resourceVersion") or "")

    async def _verify_share(self, share: Reservation) -> None:
        client = self._fleet.connected_cache(share.cluster).client
        raw = await client.get(resources.WORKLOADS.path(share.namespace, share.name))
        current = read_reservation(share.cluster, raw)
        if not current.admitted or current.deleting or current.uid != share.uid:
            raise Unreachable(f"the share in {share.cluster} is not admitted any more")

    async def deactivate(self, action: Deactivate) -> None:
        now, count = self._manager.clock.now(), str(action.workload.deactivations + 1)
        # Noted before the write: no other gang may notice the deactivation first and take the capacity that this gang
        # gathered.
        self._transient.note_deactivated(action.workload, now)
        annotations: dict[str, str | None] = {
            names.DEACTIVATED_AT_ANNOTATION: format_time(now),
            names.DEACTIVATIONS_ANNOTATION: count,
        }
        if action.workload.requeued_at:  # the deactivation drops it from the conditions
            annotations[names.REQUEUED_AT_ANNOTATION] = format_time(action.workload.requeued_at)
        await self._set_active(action.workload, False, annotations)

    async def reactivate(self, action: Reactivate) -> None:
        await self._set_active(action.workload, True, {names.DEACTIVATED_AT_ANNOTATION: None})

    async def _set_active(self, workload: Workload, active: bool, annotations: dict[str, str | None]) -> None:
        """Write `active` and annotations in one patch: a deactivated Workload is marked even if the process dies."""
        metadata = {"uid": workload.uid, "resourceVersion": workload.resource_version, "annotations": annotations}
        path = resources.WORKLOADS.path(workload.namespace, workload.name)
        body = {"metadata": metadata, "spec": {"active": active}}
        self._manager.workloads.put(await self._manager.client.merge_patch(path, body))

    async def update_placement_status(self, action: UpdatePlacementStatus) -> None:
        placement = action.placement
        path = resources.PLACEMENTS.path(placement.namespace, placement.name, "status")
        body = {"metadata": _version_precondition(placement), "status": action.status}
        self._manager.placements.put(await self._manager.client.merge_patch(path, body))

    async def delete_placement(self, action: DeletePlacement) -> None:
        placement = action.placement
        await self._manager.client.delete(resources.PLACEMENTS.path(placement.namespace, placement.name), placement.uid)


def _version_precondition(placement: Placement) -> dict[str, str]:
    return {"uid": placement.uid, "resourceVersion": placement.resource_version}


async def ensure_pod_group(client: Client, body: Raw) -> None:
    """Create a PodGroup unless it exists; raises ApiError with a sentence."""
    key = key_of(body)
    try:
        await client.create(POD_GROUPS.path(key[0]), body)
    except ApiError as error:
        is_taken = error.already_exists and not _belongs_to_share(await client.get(POD_GROUPS.path(*key)), body)
        message = "there is another one of that name" if is_taken else error.message
        if is_taken or not error.already_exists:
            raise ApiError(
                error.status, error.reason, group_workload.pod_group_error(key, error.status, message)
            ) from None


def _belongs_to_share(pod_group: Raw, body: Raw) -> bool:
    """Whether a PodGroup is deleted with this share, and not before."""
    owners = meta(pod_group).get("ownerReferences") or ()
    return meta(body)["ownerReferences"][0] in owners and not meta(pod_group).get("deletionTimestamp")
