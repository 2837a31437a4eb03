"""The rules for one worker pod: each with the facts that make it apply, and a simulation with faults.

The rewriter and the status mirror have their own tests. These tests cover when remote pods are created and deleted.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapter import names
from adapter.actions import Action, AssignSlot, CreatePod, DeletePod, EmitEvent, PatchPodStatus, RequeueAfter
from adapter.objects import unstructured as facts
from adapter.objects.placement import ShareKey, parse_placement
from adapter.objects.references import Reference, find_in_spec
from adapter.objects.replica import open_slots
from adapter.objects.reservation import Reservation, parse_reservation
from adapter.objects.specs import PodMapping
from adapter.objects.topology_request import TopologyRequest
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.worker_pod import (
    Slot,
    is_planned_slot,
    slot_cluster,
    slot_of,
    without_template_slots,
)
from adapter.objects.workload import Job, parse_workload
from adapter.rewrite import copied_objects, rewriter
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target
from adapter.shell.observe.slots import PendingAssignments, SlotObserver
from adapter.worker import manager_pod_status, template_slots
from adapter.worker.cluster_loss import ClusterLoss, loss_of_cluster
from adapter.worker.dispatch import RULES, decide, first_rule, worker_state
from adapter.worker.template_slots import TemplateSlotFacts
from adapter.worker.worker_facts import HeadFacts, Worker
from tests.unit import builders as make
from tests.unit.builders import at, make_copy, make_placement, make_pod, make_reservation, make_workload
from tests.unit.fact_builders import make_worker, with_facts
from tests.unit.stores import Sight, fill

POD_GONE, SLOT_ELSEWHERE = names.OrphanReason.POD_GONE, names.OrphanReason.SLOT_ELSEWHERE
WORK = make_workload()
PLACE_RAW = make_placement(WORK)
PLACE = parse_placement(PLACE_RAW)
NAME = PLACE.name
JOB = parse_workload(WORK).job
assert JOB
SHARE = make_reservation(PLACE_RAW)
HEAD = "10.12.0.5"


def target(cluster: str) -> Target:
    return Target(
        cluster=cluster,
        zone=cluster,
        queue=make.QUEUE,
        manager="mgr",
        workload="rayjob-train",
        workload_uid="uid-of-rayjob-train",
        placement=NAME,
        share=f"{NAME}-1",
        round=1,
    )


def shares(**raw: Raw) -> dict[ShareKey, Reservation]:
    reservations = [parse_reservation(cluster, workload) for cluster, workload in raw.items()]
    return {reservation.key: reservation for reservation in reservations}


ADMITTED = shares(east=SHARE, west=SHARE)
EVICTED = shares(east=make_reservation(PLACE_RAW, conditions=[names.EVICTED]), west=SHARE)
SEEN = {cluster: target(cluster) for cluster in ("east", "west")}


def worker(pod: Raw | None, remotes: Mapping[str, Raw] | None = None, **more: Any) -> Worker:
    """The facts about a pod, with all that it needs to be dispatched."""
    plain: Raw = {
        "placement": PLACE,
        "job": JOB,
        "owns_pod": True,
        "head": HEAD,
        "reservations": ADMITTED,
        "targets": SEEN,
        "taken": (),
    }
    known = plain | more
    head = HeadFacts(HeadAddress.from_pod(pod or {}, known.pop("head")), pod=None, mirrors={})
    return make_worker(pod=pod, remote_pods=remotes or {}, head=head, **known)


# --- the objects of the table ---------------------------------------------------------------------------------------

EAST, WEST = ShareKey("east", 1), ShareKey("west", 1)
EAST0, EAST1 = (Slot(EAST, "role-workers", index) for index in (0, 1))
WEST0, WEST1 = (Slot(WEST, "role-workers", index) for index in (0, 1))
NEW = make_pod(placement=NAME)
SLOTTED = make_pod(placement=NAME, slot=EAST0)
OUT = make_pod(placement=NAME, slot=EAST0, dispatched=True)
COPY, LEAVING, BROKEN = make_copy(OUT), make_copy(OUT, deleting=True), make_copy(OUT, phase="Failed")
_TAINT = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByTaintManager",
    "message": "Taint manager: deleting due to NoExecute taint",
}
TAINTED = {**LEAVING, "status": {**LEAVING["status"], "conditions": [_TAINT]}}
STARTING = make_copy(SLOTTED, phase="Pending")
_WAITS = {"name": "ray-worker", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
IMAGELESS = {**STARTING, "status": {"phase": "Pending", "containerStatuses": [_WAITS]}}
GOING, FAILED = (
    make_pod(placement=NAME, slot=EAST0, deleting=True),
    make_pod(placement=NAME, slot=EAST0, phase="Failed"),
)
_ENDED = "The job is finished, so the pod in worker cluster east was deleted and its quota is free."
JOB_FINISHED = (
    manager_pod_status.finished_patch(OUT, reason=names.JOB_FINISHED, message=_ENDED, now=make.stamp(5)) or {}
)
FINISHED = {**OUT, "status": {**OUT["status"], **JOB_FINISHED["status"]}}
STRANGER = make_copy(make_pod(uid="an-earlier-one", slot=EAST0))
STRANGER_LEAVING = make_copy(make_pod(uid="an-earlier-one", slot=EAST0), deleting=True)
GONE, OVER = "its pod in the manager cluster is gone", "its pod in the manager cluster ended"
ELSEWHERE = "its pod holds a slot in another cluster"
OTHER_GROUP = make_pod(placement=NAME, group="gpu")
CAME_EAST = make_pod(placement=NAME, index="0", listed="east/1/role-workers/2 west/1/role-workers/2")
CAME_SECOND = make_pod(placement=NAME, index="1", listed="east/1/role-workers/2 west/1/role-workers/2")
CAME_NORTH = make_pod(placement=NAME, index="0", listed="north/1/role-workers/2")
EAST_AVOIDED = parse_placement(make_placement(WORK, excluded={"east": 60}))
FURTHER_ROUND = replace(PLACE, first_round_of_plan=1)  # of a job that runs, and not placed yet
SINGLE_WORKERS = replace(
    FURTHER_ROUND, shares=tuple(replace(share, single_worker=True) for share in FURTHER_ROUND.shares)
)
UNPLANNED = make_pod(placement=NAME, slot="north/1/role-workers/0")
OTHER_ROUND = make_pod(placement=NAME, slot="east/7/role-workers/0", dispatched=True)


def body(slot: Slot, pod: Raw = SLOTTED) -> Raw:
    return rewriter.remote_pod(
        pod,
        head=HeadAddress.from_pod(pod, HEAD),
        target=target(slot.cluster),
        role="role-workers",
        slot=str(slot),
        anchor_uid=f"anchor-of-{NAME}-1",
    )


def mirrored(pod: Raw, copy: Raw, cluster: str = "east") -> PatchPodStatus:
    patch = manager_pod_status.status_patch(pod, copy, cluster)
    assert patch
    return PatchPodStatus(pod, patch)


def settled(pod: Raw, copy: Raw) -> Raw:
    """The pod after the state of its remote pod was mirrored."""
    return {**pod, "status": pod["status"] | mirrored(pod, copy).body["status"]}


def lost(pod: Raw, cluster: str = "east") -> PatchPodStatus:
    text = f"The pod in worker cluster {cluster} was deleted or evicted there."
    patch = manager_pod_status.failed_patch(pod, reason="RemotePodGone", message=text, now=make.stamp(5))
    assert patch
    return PatchPodStatus(pod, patch)


UNREACHABLE = ClusterLoss("is unreachable since 0", lost_since=at(0), given_up_at=at(60), ray_node_alive=None)
LOST = replace(UNREACHABLE, given_up_at=at(5))
UNREGISTERED = loss_of_cluster(None, None, timeout=timedelta(minutes=5))
WEST_ONLY = {"west": target("west")}
STALE = make_copy(OUT)
STALE["metadata"]["annotations"][names.HEAD_IP_ANNOTATION] = "10.12.0.4"


def unknown(pod: Raw) -> Raw:
    patch = manager_pod_status.unknown_patch(pod, "east", UNREACHABLE.reason, make.stamp(0))
    assert patch
    return patch


def settled_unknown(pod: Raw) -> Raw:
    """The pod after its Unknown status was written."""
    return {**pod, "status": pod["status"] | unknown(pod)["status"]}


def given_up(pod: Raw, text: str) -> PatchPodStatus:
    patch = manager_pod_status.failed_patch(pod, reason="WorkerLost", message=text, now=make.stamp(5))
    assert patch
    return PatchPodStatus(pod, patch)


def stuck(pod: Raw, cause: str = ".") -> PatchPodStatus:
    text = f"The pod in worker cluster east is being deleted, and did not end in time; its node may be lost{cause}"
    patch = manager_pod_status.failed_patch(pod, reason="RemotePodStuck", message=text, now=make.stamp(60))
    assert patch
    return PatchPodStatus(pod, patch)


UNKNOWN_OUT = unknown(OUT)
FOREIGN = EmitEvent(
    JOB,
    names.EventReason.REMOTE_POD_CONFLICT,
    "Pod train-abc-worker-0 carries the label rayspan.dev/placement but belongs to no RayCluster of this job, so it "
    "is ignored; remove the label from its template.",
    warning=True,
)


WORKER_FAILING = EmitEvent(
    JOB,
    names.EventReason.WORKER_FAILING,
    manager_pod_status.trouble_message(IMAGELESS, "east"),
    warning=True,
)


def loose(pod: Raw, **spec: Any) -> Raw:
    """The pod with other fields in its spec."""
    return {**pod, "spec": pod["spec"] | spec}


def not_held(cause: str) -> EmitEvent:
    about = Job("v1", "Pod", make.NAMESPACE, NEW["metadata"]["name"], NEW["metadata"]["uid"])
    text = (
        f"{cause}, so the manager's nodes may run this pod, and it gets no remote pod; do not change schedulingGates "
        "and nodeSelector of the template, and delete the pod: KubeRay creates another one."
    )
    return EmitEvent(about, names.EventReason.POD_NOT_GATED, text, warning=True)


@dataclass(frozen=True)
class Case:
    id: str
    reason: str
    given: Worker
    want: Sequence[Action]
    seconds: float = 5


CASES = [
    Case("the remote pod of a missing manager pod is deleted",
         "an orphan occupies a slot",
         worker(None, {"east": COPY}),
         [DeletePod("east", COPY, GONE, POD_GONE)]),
    Case("the remote pods of a missing manager pod are deleted in every cluster",
         "a crash may have left two",
         worker(None, {"east": COPY, "west": COPY}),
         [DeletePod("east", COPY, GONE, POD_GONE), DeletePod("west", COPY, GONE, POD_GONE)]),
    Case("an ended remote pod of a missing manager pod is deleted",
         "its logs cannot be read by the manager pod's name any more",
         worker(None, {"east": BROKEN}),
         [DeletePod("east", BROKEN, GONE, POD_GONE)]),
    Case("an orphan that is being deleted is not deleted again",
         "one write is enough",
         worker(None, {"east": LEAVING}),
         []),
    Case("the remote pod of an earlier pod of the same name is deleted",
         "the name is equal, the uid is not",
         worker(NEW, {"east": STRANGER}, taken=[EAST0]),
         [DeletePod("east", STRANGER, GONE, POD_GONE), AssignSlot(NEW, "east", EAST1)]),
    Case("a slot with an orphan on it is not used",
         "two pods on one slot request more than is reserved",
         worker(SLOTTED, {"east": STRANGER}),
         [DeletePod("east", STRANGER, GONE, POD_GONE)]),
    Case("the pod's own remote pod stays",
         "it is the desired state",
         worker(settled(OUT, COPY), {"east": COPY}),
         []),
    Case("the pod's own remote pod outside of the slot's cluster is deleted",
         "no plan counts it there",
         worker(settled(OUT, COPY), {"east": COPY, "west": COPY}),
         [DeletePod("west", COPY, ELSEWHERE, SLOT_ELSEWHERE)]),
    Case("a remote pod outside of the slot's cluster is not deleted twice",
         "one write is enough",
         worker(settled(OUT, COPY), {"east": COPY, "west": LEAVING}),
         []),
    Case("a remote pod outside of the slot's cluster is deleted without a Placement",
         "the slot alone says where it belongs",
         worker(OUT, {"west": COPY}, placement=None),
         [DeletePod("west", COPY, ELSEWHERE, SLOT_ELSEWHERE)]),
    Case("the slot's cluster is compared as a whole word",
         "east-2 is not east",
         worker(make_pod(placement=NAME, slot="east-2/1/role-workers/0"), {"east": COPY}, owns_pod=None),
         [DeletePod("east", COPY, ELSEWHERE, SLOT_ELSEWHERE)]),
    Case("the remote pod of a pod without a slot stays",
         "nothing shows that it belongs elsewhere",
         worker(NEW, {"east": COPY}, placement=None),
         []),
    Case("the remote pod of a pod that is being deleted is deleted",
         "KubeRay scales down",
         worker(GOING, {"east": COPY}),
         [DeletePod("east", COPY, OVER)]),
    Case("the remote pod of an ended pod is deleted",
         "something else failed the pod in the manager cluster",
         worker(FAILED, {"east": COPY}),
         [DeletePod("east", COPY, OVER)]),
    Case("a remote pod that is being deleted is not deleted again",
         "one write is enough",
         worker(GOING, {"east": LEAVING}),
         []),
    Case("an ended remote pod of an ended pod stays for its logs",
         "it is deleted with the manager pod",
         worker(FAILED, {"east": BROKEN}),
         []),
    Case("an ended pod gets no slot and no remote pod",
         "KubeRay replaces it",
         worker(FAILED),
         []),
    Case("a pod that is being deleted gets no slot",
         "podgc removes gated pods",
         worker(make_pod(placement=NAME, deleting=True)),
         []),
    Case("the remote pod of a deleted pod is deleted without a Placement",
         "an evicted Workload's pods are deleted like that",
         worker(GOING, {"east": COPY}, placement=None),
         [DeletePod("east", COPY, OVER)]),
    Case("a remote pod of a deleted pod outside of the slot's cluster is deleted once",
         "one write is enough",
         worker(GOING, {"west": COPY}),
         [DeletePod("west", COPY, OVER)]),
    Case("a worker of a finished job is not ready once its remote pod is gone",
         "KubeRay may keep the RayCluster for days",
         worker(OUT, placement=None, finished=True),
         [PatchPodStatus(OUT, JOB_FINISHED)]),
    Case("a worker that shows its finished job is not written again",
         "one write is enough",
         worker(FINISHED, placement=None, finished=True),
         []),
    Case("a worker of a finished job keeps its state while its remote pod ends",
         "it may still write its logs",
         worker(OUT, {"east": LEAVING}, placement=None, finished=True),
         []),
    Case("a worker of a finished job in an unreachable cluster keeps its state",
         "its remote pod may still run",
         worker(OUT, placement=None, finished=True, reachable=False),
         []),
    Case("a worker that was never dispatched stays gated after its job",
         "it had no remote pod",
         worker(SLOTTED, placement=None, finished=True),
         []),
    Case("a pod of another RayCluster says nothing of a finished job",
         "a label is easily forged",
         worker(OUT, placement=None, finished=True, owns_pod=False),
         []),
    Case("no remote pod is created without a Placement",
         "no attempt, no quota",
         worker(SLOTTED, placement=None),
         []),
    Case("orphans are deleted without a Placement",
         "the uid alone shows that they are orphans",
         worker(NEW, {"west": STRANGER}, placement=None),
         [DeletePod("west", STRANGER, GONE, POD_GONE)]),
    Case("a pod of another RayCluster is left alone, with an event",
         "a label is easily forged",
         worker(NEW, owns_pod=False),
         [FOREIGN]),
    Case("a pod of another RayCluster with a slot is left alone, with an event",
         "annotations are forged as easily",
         worker(SLOTTED, owns_pod=False),
         [FOREIGN]),
    Case("a pod of another RayCluster gets no event without a job",
         "an event needs an object",
         worker(NEW, owns_pod=False, job=None),
         []),
    Case("a pod of an unknown RayCluster gets no event",
         "the RayCluster is not in the cache yet, or was deleted before its pods",
         worker(NEW, owns_pod=None),
         []),
    Case("a pod of an unknown RayCluster gets no remote pod",
         "it may not be ours",
         worker(SLOTTED, owns_pod=None),
         []),
    Case("a pod of an unknown RayCluster without its remote pod is not failed",
         "it is about to be deleted anyway",
         worker(OUT, owns_pod=None),
         []),
    Case("the status of a remote pod is not mirrored for an unknown RayCluster",
         "it may not be ours",
         worker(OUT, {"east": COPY}, owns_pod=None),
         []),
    Case("orphans of a pod of an unknown RayCluster are deleted",
         "the uid alone shows that they are orphans",
         worker(NEW, {"west": STRANGER}, owns_pod=None),
         [DeletePod("west", STRANGER, GONE, POD_GONE)]),
    Case("the remote pod of an ended pod of an unknown RayCluster is deleted",
         "a RayCluster is often deleted before its pods",
         worker(GOING, {"east": COPY}, owns_pod=None),
         [DeletePod("east", COPY, OVER)]),
    Case("a pod without the manager's quota gets no slot",
         "its quota may never come",
         worker(loose(NEW, schedulingGates=[{"name": names.ELASTIC_GATE}])),
         []),
    Case("a pod without the dispatch gate gets no slot",
         "the manager's scheduler may take it",
         worker(loose(NEW, schedulingGates=[{"name": "kueue.x-k8s.io/topology"}])),
         [not_held("spec.schedulingGates lacks rayspan.dev/dispatch")]),
    Case("a pod without scheduling gates gets no remote pod",
         "it would run twice, once without quota",
         worker(loose(SLOTTED, schedulingGates=None)),
         [not_held("spec.schedulingGates lacks rayspan.dev/dispatch")]),
    Case("a pod without the node selector of remote pods gets no remote pod",
         "if its gate is removed, it runs in the manager cluster",
         worker(loose(SLOTTED, nodeSelector={"rayspan.dev/remote": "no"})),
         [not_held("spec.nodeSelector lacks rayspan.dev/remote: only")]),
    Case("a pod on a node of the manager cluster gets no remote pod",
         "it runs already",
         worker(loose(SLOTTED, nodeName="node-1")),
         [not_held("spec.nodeName is node-1")]),
    Case("orphans of a pod without the node selector are deleted",
         "they are of an earlier pod",
         worker(loose(NEW, nodeSelector=None), {"west": STRANGER}),
         [DeletePod("west", STRANGER, GONE, POD_GONE), not_held("spec.nodeSelector lacks rayspan.dev/remote: only")]),
    Case("a pod whose gate was removed later keeps its remote pod",
         "the node selector keeps it pending, and its worker runs remotely",
         worker(settled(loose(OUT, schedulingGates=None), COPY), {"east": COPY}),
         []),
    Case("a pod gets the first free slot",
         "in the order of the plan",
         worker(NEW),
         [AssignSlot(NEW, "east", EAST0)]),
    Case("a pod gets the next free slot of the same cluster",
         "one cluster after the other",
         worker(NEW, taken=[EAST0]),
         [AssignSlot(NEW, "east", EAST1)]),
    Case("a pod gets a slot of the next cluster when the first is full",
         "one cluster after the other",
         worker(NEW, taken=[EAST0, EAST1]),
         [AssignSlot(NEW, "west", WEST0)]),
    Case("a pod gets a freed slot between occupied ones",
         "replacements go where their predecessor was",
         worker(NEW, taken=[EAST0, WEST0]),
         [AssignSlot(NEW, "east", EAST1)]),
    Case("a pod waits when all slots are occupied",
         "no more is reserved",
         worker(NEW, taken=[EAST0, EAST1, WEST0, WEST1]),
         []),
    Case("a pod of a group outside of the plan waits",
         "it has no share",
         worker(OTHER_GROUP),
         []),
    Case("a group's name is compared in lower case",
         "Kueue names the podset so",
         worker(make_pod(placement=NAME, group="Workers")),
         [AssignSlot(make_pod(placement=NAME, group="Workers"), "east", EAST0)]),
    Case("a written slot that another pod holds too is replaced",
         "two writers raced, and no remote pod was created yet",
         worker(SLOTTED, taken=[EAST0]),
         [AssignSlot(SLOTTED, "east", EAST1)]),
    Case("a doubly held slot is kept once its remote pod runs",
         "the copy is what runs",
         worker(settled(OUT, COPY), {"east": COPY}, taken=[EAST0]),
         []),
    Case("a doubly held slot is kept while its cluster is unreachable",
         "a remote pod may exist there",
         worker(SLOTTED, taken=[EAST0], targets={"west": target("west")}),
         []),
    Case("a doubly held slot in an unreachable cluster is replaced if no create was sent",
         "no remote pod can exist there",
         worker(SLOTTED, taken=[EAST0], targets={"west": target("west")}, may_exist_unobserved=False),
         [AssignSlot(SLOTTED, "west", WEST0)]),
    Case("a doubly held slot is kept while a create has no answer",
         "the remote pod may still appear",
         worker(SLOTTED, taken=[EAST0], unanswered=True),
         [CreatePod("east", JOB, PLACE, EAST, SLOTTED, body(EAST0))]),
    Case("a template slot in an excluded cluster is kept while a create has no answer",
         "a second remote pod is worse than one in an excluded cluster",
         worker(CAME_EAST, placement=EAST_AVOIDED, unanswered=True),
         [CreatePod("east", JOB, EAST_AVOIDED, EAST, CAME_EAST, body(EAST0, CAME_EAST))]),
    Case("a slot outside of the plan is replaced although a create has no answer",
         "its share is deleted, with everything on it",
         worker(UNPLANNED, unanswered=True),
         [AssignSlot(UNPLANNED, "east", EAST0)]),
    Case("a planned slot in an unreachable cluster is kept if no create was sent",
         "its cluster may be reachable again in a moment",
         worker(SLOTTED, targets={"west": target("west")}, may_exist_unobserved=False, loss=UNREACHABLE),
         [RequeueAfter(timedelta(seconds=55))]),
    Case("a slot beyond its share's count in an unreachable cluster is kept",
         "a remote pod may exist there",
         worker(make_pod(placement=NAME, slot="east/1/role-workers/9"), targets={"west": target("west")}),
         []),
    Case("a slot in a cluster outside of the plan is replaced",
         "nothing is reserved for it",
         worker(UNPLANNED),
         [AssignSlot(UNPLANNED, "east", EAST0)]),
    Case("a slot in an unreachable cluster outside of the plan is replaced",
         "it need not be a cluster of the fleet",
         worker(UNPLANNED, targets={"east": target("east")}),
         [AssignSlot(UNPLANNED, "east", EAST0)]),
    Case("a slot of a withdrawn round is kept while its cluster is unreachable",
         "a remote pod may run there, although its create has no answer",
         worker(UNPLANNED, targets={"east": target("east")}, unanswered=True, loss=UNREACHABLE),
         [RequeueAfter(timedelta(seconds=55))]),
    Case("a slot of a withdrawn round is replaced once its cluster counts as lost",
         "a new manager pod would get another one, too",
         worker(UNPLANNED, targets={"east": target("east")}, unanswered=True, loss=LOST),
         [AssignSlot(UNPLANNED, "east", EAST0)]),
    Case("a template slot in an unreachable cluster outside of the plan is replaced",
         "it is of the first round, which was placed",
         worker(CAME_NORTH, targets={"east": target("east")}, loss=UNREACHABLE),
         [AssignSlot(CAME_NORTH, "east", EAST0)]),
    Case("a slot of a further round gets no remote pod before the round is placed",
         "the round may be withdrawn with its admitted shares",
         worker(SLOTTED, placement=FURTHER_ROUND),
         []),
    Case("a slot of a further round gets a remote pod once the round is placed",
         "its shares stay",
         worker(SLOTTED, placement=replace(FURTHER_ROUND, placed_round=1)),
         [CreatePod("east", JOB, replace(FURTHER_ROUND, placed_round=1), EAST, SLOTTED, body(EAST0))]),
    Case("a share of one worker waits for no other share of its round",
         "it is kept when others are not admitted",
         worker(SLOTTED, placement=SINGLE_WORKERS),
         [CreatePod("east", JOB, SINGLE_WORKERS, EAST, SLOTTED, body(EAST0))]),
    Case("a slot in a cluster that is not registered any more is replaced",
         "no remote pod there can be observed again",
         worker(UNPLANNED, targets={"east": target("east")}, loss=UNREGISTERED),
         [AssignSlot(UNPLANNED, "east", EAST0)]),
    Case("a template slot is used without a write",
         "it is recorded since the pod exists",
         worker(CAME_EAST),
         [CreatePod("east", JOB, PLACE, EAST, CAME_EAST, body(EAST0, CAME_EAST))]),
    Case("a template slot is used although an earlier slot is free",
         "a pod is not moved for the order",
         worker(CAME_SECOND),
         [CreatePod("east", JOB, PLACE, EAST, CAME_SECOND, body(EAST1, CAME_SECOND))]),
    Case("a template slot that another pod holds is replaced",
         "KubeRay reused the replica index",
         worker(CAME_EAST, taken=[EAST0]),
         [AssignSlot(CAME_EAST, "east", EAST1)]),
    Case("a pod without its template slot waits when no slot is free",
         "the other pod will be deleted",
         worker(CAME_EAST, taken=[EAST0, EAST1, WEST0, WEST1]),
         []),
    Case("a pod that lost its template slot retries while no slot is free",
         "the pod that was about to take that slot may fail to, without an event",
         worker(NEW, taken=[EAST0, EAST1, WEST0, WEST1], lost_template_slot=True),
         [RequeueAfter(timedelta(seconds=5))]),
    Case("a pod that lost its template slot gets a free slot without a retry",
         "the write enqueues it",
         worker(NEW, lost_template_slot=True),
         [AssignSlot(NEW, "east", EAST0)]),
    Case("a withheld pod takes no free slot",
         "the slots are for workers that may be created",
         worker(NEW, withheld_for=timedelta(minutes=9)),
         [RequeueAfter(timedelta(minutes=9))]),
    Case("a template slot of a share that is deleted is replaced",
         "templates keep the first plan",
         worker(CAME_NORTH),
         [AssignSlot(CAME_NORTH, "east", EAST0)]),
    Case("a template slot in an excluded cluster is replaced by a better one",
         "no plan chose that cluster knowing the exclusion",
         worker(CAME_EAST, placement=EAST_AVOIDED),
         [AssignSlot(CAME_EAST, "west", WEST0)]),
    Case("a template slot in an excluded cluster is kept when no other is free",
         "a write would change nothing",
         worker(CAME_EAST, placement=EAST_AVOIDED, taken=[WEST0, WEST1]),
         [CreatePod("east", JOB, EAST_AVOIDED, EAST, CAME_EAST, body(EAST0, CAME_EAST))]),
    Case("a written slot in an excluded cluster is kept",
         "it was chosen after the exclusion",
         worker(SLOTTED, placement=EAST_AVOIDED),
         [CreatePod("east", JOB, EAST_AVOIDED, EAST, SLOTTED, body(EAST0))]),
    Case("a template slot in an excluded cluster is kept once its remote pod exists",
         "an exclusion does not move a running worker",
         worker(CAME_EAST, {"east": make_copy(CAME_EAST)}, placement=EAST_AVOIDED),
         [mirrored(CAME_EAST, make_copy(CAME_EAST))]),
    Case("no slot is assigned in an unreachable cluster",
         "the pod would wait until it is reachable",
         worker(NEW, targets={"west": target("west")}),
         [AssignSlot(NEW, "west", WEST0)]),
    Case("no slot is assigned in a draining cluster",
         "workers there must leave",
         worker(NEW, draining={"east"}),
         [AssignSlot(NEW, "west", WEST0)]),
    Case("a slot in an excluded cluster is assigned last",
         "a worker did not start there",
         worker(NEW, placement=EAST_AVOIDED),
         [AssignSlot(NEW, "west", WEST0)]),
    Case("a slot in an excluded cluster is assigned when no other is free",
         "its node may be back",
         worker(NEW, placement=EAST_AVOIDED, taken=[EAST0, WEST0, WEST1]),
         [AssignSlot(NEW, "east", EAST1)]),
    Case("no slot in an excluded cluster is assigned while a free slot elsewhere is in an unreachable cluster",
         "that cluster may be reachable again in a moment; the worker would not start here either",
         worker(NEW, placement=EAST_AVOIDED, targets={"east": target("east")}),
         [RequeueAfter(timedelta(seconds=55))]),
    Case("a template slot in an excluded cluster waits while a free slot elsewhere is in an unreachable cluster",
         "the same worker would start late a second time",
         worker(CAME_EAST, placement=EAST_AVOIDED, targets={"east": target("east")}),
         [RequeueAfter(timedelta(seconds=55))]),
    Case("a slot in an excluded cluster is assigned when the free slots elsewhere are in a draining cluster",
         "workers there must leave",
         worker(NEW, placement=EAST_AVOIDED, draining={"west"}),
         [AssignSlot(NEW, "east", EAST0)]),
    Case("a slot in a cluster whose exclusion has expired is assigned in order",
         "the order of the plan holds again",
         worker(NEW, placement=parse_placement(make_placement(WORK, excluded={"east": 5}))),
         [AssignSlot(NEW, "east", EAST0)]),
    Case("no slot is assigned on a withdrawn round",
         "its quota is being returned",
         worker(NEW, placement=parse_placement(make_placement(WORK, withdrawn=1))),
         []),
    Case("a dispatched pod outside of the plan is not dispatched again",
         "KubeRay replaces it once the cluster is reachable",
         worker(make_pod(placement=NAME, slot="north/1/role-workers/0", dispatched=True)),
         []),
    Case("no remote pod is created in an unreachable cluster",
         "one may exist there already",
         worker(SLOTTED, targets={"west": target("west")}),
         []),
    Case("a dispatched pod in an unreachable cluster is not failed",
         "API link lost is not data path lost",
         worker(OUT, targets={"west": target("west")}),
         []),
    Case("the status of a dispatched pod in an unreachable cluster becomes Unknown",
         "people see it with kubectl",
         worker(OUT, targets=WEST_ONLY, loss=UNREACHABLE),
         [PatchPodStatus(OUT, UNKNOWN_OUT), RequeueAfter(timedelta(seconds=55))]),
    Case("the status of a pod without a remote pod in an unreachable cluster stays",
         "nothing was known before",
         worker(SLOTTED, targets=WEST_ONLY, loss=UNREACHABLE),
         [RequeueAfter(timedelta(seconds=55))]),
    Case("the Unknown status is written once",
         "a write costs the manager",
         worker(settled_unknown(OUT), targets=WEST_ONLY, loss=UNREACHABLE),
         [RequeueAfter(timedelta(seconds=55))]),
    Case("a worker in a lost cluster is failed",
         "KubeRay replaces it where there is capacity",
         worker(OUT, targets=WEST_ONLY, loss=LOST),
         [given_up(OUT, "Given up: worker cluster east is unreachable since 0.")]),
    Case("a worker without a remote pod in a lost cluster is failed",
         "it would wait for ever",
         worker(SLOTTED, targets=WEST_ONLY, loss=LOST),
         [given_up(SLOTTED, "Given up: worker cluster east is unreachable since 0.")]),
    Case("a worker in a lost cluster is kept while Ray's head has its node alive",
         "API link lost is not data path lost",
         worker(settled_unknown(OUT), targets=WEST_ONLY, loss=replace(LOST, ray_node_alive=True)),
         []),
    Case("a worker in an unreachable cluster is failed at once when Ray's head lost its node",
         "Ray runs nothing there any more",
         worker(OUT, targets=WEST_ONLY, loss=replace(UNREACHABLE, ray_node_alive=False)),
         [given_up(OUT, "Ray's head lost the node, and worker cluster east is unreachable since 0.")]),
    Case("an unreachable Ray head is reported on the job",
         "lost workers are noticed late meanwhile",
         worker(settled_unknown(OUT), targets=WEST_ONLY, loss=replace(UNREACHABLE, head_problem="No token.")),
         [EmitEvent(JOB, names.EventReason.HEAD_UNREACHABLE, "No token.", warning=True),
          RequeueAfter(timedelta(seconds=55))]),
    Case("an unreachable Ray head is not reported once the worker is lost",
         "it is too late to matter",
         worker(OUT, targets=WEST_ONLY, loss=replace(LOST, head_problem="No token.")),
         [given_up(OUT, "Given up: worker cluster east is unreachable since 0.")]),
    Case("the status of a remote pod is mirrored again after its cluster was unreachable",
         "the copy says what it is",
         worker(settled_unknown(OUT), {"east": COPY}),
         [mirrored(settled_unknown(OUT), COPY)]),
    Case("a pod whose remote pod vanished while its cluster was unreachable is failed",
         "the remote pod was seen before",
         worker(settled_unknown(OUT)),
         [lost(settled_unknown(OUT))]),
    Case("a remote pod with an earlier address of the head is deleted",
         "it would connect to an address without a head",
         worker(settled(OUT, STALE), {"east": STALE}),
         [DeletePod("east", STALE, "the head moved from 10.12.0.4 to 10.12.0.5")]),
    Case("a remote pod with an earlier address of the head stays while the head has none",
         "the head may get the earlier address again",
         worker(settled(OUT, STALE), {"east": STALE}, head=""),
         []),
    Case("a pod whose remote pod does not end in time is failed",
         "its node is lost, and KubeRay must replace the worker",
         worker(settled(OUT, LEAVING), {"east": LEAVING}),
         [stuck(settled(OUT, LEAVING))], seconds=60),
    Case("a pod whose remote pod does not end in time is failed with the cause that its cluster reports",
         "people look here",
         worker(settled(OUT, TAINTED), {"east": TAINTED}),
         [stuck(settled(OUT, TAINTED), ": Taint manager: deleting due to NoExecute taint")], seconds=60),
    Case("a pod whose remote pod still has time to end is requeued",
         "clocks differ, kubelets are busy, and no event follows",
         worker(settled(OUT, LEAVING), {"east": LEAVING}),
         [RequeueAfter(timedelta(seconds=1))], seconds=59),
    Case("the status of a running remote pod is mirrored",
         "KubeRay and people look here",
         worker(OUT, {"east": COPY}),
         [mirrored(OUT, COPY)]),
    Case("the status of a failed remote pod is mirrored",
         "so KubeRay replaces it",
         worker(OUT, {"east": BROKEN}),
         [mirrored(OUT, BROKEN)]),
    Case("the status of a new running remote pod is mirrored",
         "if it vanishes later, it counts as lost",
         worker(SLOTTED, {"east": COPY}),
         [mirrored(SLOTTED, COPY)]),
    Case("a remote pod that still starts after 2 s is not mirrored yet",
         "one write instead of two",
         worker(SLOTTED, {"east": STARTING}),
         [RequeueAfter(timedelta(seconds=3))], seconds=2),
    Case("a remote pod that still starts after 5 s is mirrored",
         "people look here",
         worker(SLOTTED, {"east": STARTING}),
         [mirrored(SLOTTED, STARTING)]),
    Case("a remote pod that still starts waits longer while its gang creates pods",
         "the gang waits for those pods, not for this status",
         worker(SLOTTED, {"east": STARTING}, creating_pods=True),
         [RequeueAfter(timedelta(seconds=5))]),
    Case("a remote pod that still starts after 29 s waits one more second while its gang creates pods",
         "people look here",
         worker(SLOTTED, {"east": STARTING}, creating_pods=True),
         [RequeueAfter(timedelta(seconds=1))], seconds=29),
    Case("a remote pod that still starts after 30 s is mirrored although its gang creates pods",
         "a large gang needs 30 s; single pods may be created all day",
         worker(SLOTTED, {"east": STARTING}, creating_pods=True),
         [mirrored(SLOTTED, STARTING)], seconds=30),
    Case("a running remote pod is mirrored although its gang creates pods",
         "KubeRay waits for it",
         worker(SLOTTED, {"east": COPY}, creating_pods=True),
         [mirrored(SLOTTED, COPY)]),
    Case("a remote pod that starts is mirrored when its creation time is in the future",
         "its age is unknown",
         worker(SLOTTED, {"east": STARTING}),
         [mirrored(SLOTTED, STARTING)], seconds=-1),
    Case("a remote pod that cannot start is mirrored at once, with an event",
         "its user must act",
         worker(SLOTTED, {"east": IMAGELESS}),
         [mirrored(SLOTTED, IMAGELESS), WORKER_FAILING],
         seconds=2),
    Case("a remote pod that cannot start is mirrored while its gang creates pods",
         "its user must act",
         worker(SLOTTED, {"east": IMAGELESS}, creating_pods=True),
         [mirrored(SLOTTED, IMAGELESS), WORKER_FAILING]),
    Case("the status of a remote pod is mirrored without its share",
         "the remote pod still runs",
         worker(OUT, {"east": COPY}, reservations={}),
         [mirrored(OUT, COPY)]),
    Case("a failed remote pod on a lost share is not mirrored if the gang restarts",
         "KubeRay would create a worker, and miss it when the RayCluster is resumed",
         worker(OUT, {"east": BROKEN}, reservations=EVICTED, restarts_on_share_loss=True),
         []),
    Case("a failed remote pod on a lost share is mirrored if the gang does not restart",
         "the other workers run on",
         worker(OUT, {"east": BROKEN}, reservations=EVICTED),
         [mirrored(OUT, BROKEN)]),
    Case("a failed remote pod on an admitted share is mirrored although the gang restarts on share loss",
         "a worker that fails is replaced",
         worker(OUT, {"east": BROKEN}, restarts_on_share_loss=True),
         [mirrored(OUT, BROKEN)]),
    Case("a terminating remote pod on a lost share is mirrored",
         "people look here",
         worker(OUT, {"east": LEAVING}, reservations=EVICTED, restarts_on_share_loss=True),
         [mirrored(OUT, LEAVING), RequeueAfter(timedelta(seconds=55))]),
    Case("a vanished remote pod on a lost share is not reported if the gang restarts",
         "its share was evicted, or deleted by hand",
         worker(OUT, reservations=shares(west=SHARE), restarts_on_share_loss=True),
         []),
    Case("a vanished remote pod on a share outside of the plan is reported",
         "the gang did not restart for this share",
         worker(OTHER_ROUND, reservations=ADMITTED, restarts_on_share_loss=True),
         [lost(OTHER_ROUND)]),
    Case("a pod whose remote pod vanished is failed",
         "no second remote pod: KubeRay creates a new manager pod",
         worker(OUT),
         [lost(OUT)]),
    Case("a pod whose remote pod vanished before its first status is failed",
         "this process knows that it created it",
         worker(SLOTTED, created=True),
         [lost(SLOTTED)]),
    Case("a pod whose remote pod vanished is failed although an orphan has its name",
         "the uid counts",
         worker(OUT, {"east": STRANGER_LEAVING}),
         [lost(OUT)]),
    Case("a remote pod outside of the slot's cluster does not replace a vanished one",
         "the slot decides the cluster",
         worker(OUT, {"west": COPY}),
         [DeletePod("west", COPY, ELSEWHERE, SLOT_ELSEWHERE), lost(OUT)]),
    Case("a pod with a slot on an admitted share gets its remote pod",
         "the purpose of all rules",
         worker(SLOTTED),
         [CreatePod("east", JOB, PLACE, EAST, SLOTTED, body(EAST0))]),
    Case("a pod of a deleted job gets no remote pod",
         "the job's shares stay until their last worker is deleted, so they would stay for ever",
         worker(SLOTTED, deleted=True),
         []),
    Case("no remote pod is created while one exists in another cluster",
         "that one is deleted first: never two at a time",
         worker(SLOTTED, {"west": COPY}),
         [DeletePod("west", COPY, ELSEWHERE, SLOT_ELSEWHERE)]),
    Case("a pod of an unknown job gets its remote pod, without a job for events",
         "an event needs an object",
         worker(SLOTTED, job=None),
         [CreatePod("east", None, PLACE, EAST, SLOTTED, body(EAST0))]),
    Case("no remote pod is created while an orphan has its name",
         "the name is in use there",
         worker(SLOTTED, {"east": STRANGER_LEAVING}),
         []),
    Case("no remote pod is created on a share that is not admitted",
         "a pod without quota",
         worker(SLOTTED, reservations=shares(east=make_reservation(PLACE_RAW, admitted=False))),
         []),
    Case("no remote pod is created without a reservation",
         "a pod without an anchor",
         worker(SLOTTED, reservations=shares(west=SHARE)),
         []),
    Case("no remote pod is created while the head has no address",
         "its raylet could not join",
         worker(SLOTTED, head=""),
         []),
    Case("an orphan in another cluster does not prevent the remote pod",
         "names are per cluster",
         worker(SLOTTED, {"west": STRANGER_LEAVING}),
         [CreatePod("east", JOB, PLACE, EAST, SLOTTED, body(EAST0))]),
]  # fmt: skip


def _rule(facts: Worker, seconds: float) -> str:
    """The name of the rule that applies."""
    return first_rule(worker_state(facts, at(seconds))).name


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{_rule(case.given, case.seconds)}: {case.id}")
def test_decide(case: Case) -> None:
    assert decide(case.given, at(case.seconds)) == list(case.want), case.reason


def test_every_rule_has_a_case() -> None:
    assert {_rule(case.given, case.seconds) for case in CASES} == {rule.name for rule in RULES}


def test_the_names_of_rules_are_unique() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_share_of_two_groups_does_not_count_empty_slots() -> None:
    """Kueue would call a group with fewer pods than its total count not ready, and evict it."""
    mixed = make_placement(make_workload(groups={"workers": 1, "gpu": 3}), shares={"east": {"workers": 1, "gpu": 3}})
    actions = decide(worker(SLOTTED, placement=parse_placement(mixed)), at(5))
    assert actions == [CreatePod("east", JOB, parse_placement(mixed), EAST, SLOTTED, body(EAST0))]
    (creation,) = actions
    assert isinstance(creation, CreatePod)
    assert creation.body["metadata"]["annotations"][names.GROUP_TOTAL_ANNOTATION] == "1"


def test_zone_settings_of_a_user_are_reported_when_the_remote_pod_is_created() -> None:
    """The template wins over the WorkerCluster. The event on the job explains an unexpected zone."""
    env = [{"name": "RAY_NODE_ZONE", "value": "mars"}]
    pod = loose(SLOTTED, containers=[{"name": "ray", "env": env}])
    event, create = decide(worker(pod), at(5))
    assert isinstance(event, EmitEvent) and isinstance(create, CreatePod)
    assert (event.regarding, event.reason, event.warning) == (JOB, "ZoneSettingsKept", False)
    assert event.message.startswith("The worker template sets RAY_NODE_ZONE, which overrides the values ")
    assert [type(action) for action in decide(worker(pod, job=None), at(5))] == [CreatePod]


def test_ray_node_labels_come_from_the_flavor_of_the_role() -> None:
    """The labels of the WorkerCluster win over the flavor's. The flavor of another role does not matter."""
    ray_labels = {"role-workers": {"ray.io/market-type": "spot", "a": "flavor"}, "role-gpu": {"b": "other"}}
    reservations = {key: replace(share, ray_labels=ray_labels) for key, share in ADMITTED.items()}
    targets = {**SEEN, "east": replace(SEEN["east"], labels={"a": "cluster"})}
    pod = loose(SLOTTED, containers=[{"name": "ray-worker"}])
    (create,) = decide(worker(pod, reservations=reservations, targets=targets), at(5))
    assert isinstance(create, CreatePod)
    env = {variable["name"]: variable["value"] for variable in create.body["spec"]["containers"][0]["env"]}
    labels = json.loads(env["RAY_OVERRIDE_LABELS"])
    assert (labels["ray.io/market-type"], labels["a"], "b" in labels) == ("spot", "cluster", False)


@pytest.mark.parametrize(
    ("requested", "reserved", "excess"),
    [
        ({"cpu": "1"}, {"cpu": "1"}, ""),
        ({"cpu": "500m"}, {"cpu": "1", "memory": "1Gi"}, ""),
        ({"cpu": "2"}, {"cpu": "1"}, "cpu: 2 instead of 1"),
        ({"cpu": "1", "nvidia.com/gpu": "1"}, {"cpu": "1"}, "nvidia.com/gpu: 1 instead of 0"),
        ({"cpu": "1", "memory": "256Mi"}, {"cpu": "1"}, ""),  # KubeRay's init container has no reservation
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1"}, "memory: 1Gi instead of 0"),
    ],
)
def test_a_pod_that_requests_more_than_is_reserved_is_not_created(
    requested: dict[str, str], reserved: dict[str, str], excess: str
) -> None:
    """Kueue ungates the pods of a share by role and count, so only this check notices."""

    def pod_spec(amounts: dict[str, str]) -> dict[str, Any]:
        return {"containers": [{"name": "ray-worker", "resources": {"requests": amounts}}]}

    templates = {"role-workers": {"spec": pod_spec(reserved)}}
    reservations = {key: replace(share, templates=templates) for key, share in ADMITTED.items()}
    (action,) = decide(worker(loose(SLOTTED, **pod_spec(requested)), reservations=reservations), at(5))
    if excess:
        assert isinstance(action, EmitEvent)
        assert f"it requests {excess}, for which no quota is held" in action.message
    else:
        assert isinstance(action, CreatePod)


@pytest.mark.parametrize(
    ("reserved", "current", "want"),
    [
        pytest.param({"pool": "a"}, {"pool": "b"}, {"disk": "ssd", "pool": "a"}, id="another value"),
        pytest.param({"pool": "a"}, {}, {"disk": "ssd", "pool": "a"}, id="removed later"),
        pytest.param({}, {"pool": "b"}, {"disk": "ssd"}, id="added later"),
        pytest.param(None, {"pool": "b"}, {"disk": "ssd", "pool": "b"}, id="the reserved one is unknown"),
    ],
)
def test_a_share_keeps_the_node_selector_that_it_was_reserved_with(
    reserved: dict[str, str] | None, current: dict[str, str], want: dict[str, str]
) -> None:
    """Kueue chose the flavor by it.

    A pod that contradicts the flavor's node labels would end the whole share, with its running workers.
    """
    templates = {} if reserved is None else {"role-workers": {"spec": {"nodeSelector": reserved}}}
    reservations = {key: replace(share, templates=templates) for key, share in ADMITTED.items()}
    targets = {"east": replace(target("east"), pods=PodMapping(node_selector=current))}
    pod = loose(SLOTTED, nodeSelector={**SLOTTED["spec"]["nodeSelector"], "disk": "ssd"})
    (create,) = decide(worker(pod, reservations=reservations, targets=targets), at(5))
    assert isinstance(create, CreatePod) and create.body["spec"]["nodeSelector"] == want


@pytest.mark.parametrize(
    ("recorded", "current", "want"),
    [
        pytest.param({"nvidia.com/gpu": "amd.com/gpu"}, {}, "amd.com/gpu", id="removed later"),
        pytest.param({"nvidia.com/gpu": "amd.com/gpu"}, {"nvidia.com/gpu": "a.b/c"}, "amd.com/gpu", id="edited later"),
        pytest.param({}, {"nvidia.com/gpu": "amd.com/gpu"}, "nvidia.com/gpu", id="added later, or of an old release"),
    ],
)
def test_a_share_keeps_the_resource_names_that_it_was_reserved_with(
    recorded: dict[str, str], current: dict[str, str], want: str
) -> None:
    """Otherwise a replaced worker would request what its share does not hold, and never be created."""

    def pod_spec(name: str) -> dict[str, Any]:
        return {"containers": [{"name": "ray-worker", "resources": {"limits": {name: "1"}}}]}

    templates = {"role-workers": {"spec": pod_spec(want)}}
    reservations = {
        key: replace(share, templates=templates, resource_names=recorded) for key, share in ADMITTED.items()
    }
    targets = {"east": replace(target("east"), pods=PodMapping(extended_resources=current))}
    pod = loose(SLOTTED, **pod_spec("nvidia.com/gpu"))
    (create,) = decide(worker(pod, reservations=reservations, targets=targets), at(5))
    assert isinstance(create, CreatePod)
    assert create.body["spec"]["containers"][0]["resources"]["limits"] == {want: "1"}


RACK = TopologyRequest("required", "rack")


@pytest.mark.parametrize(
    ("reserved", "annotations"),
    [
        pytest.param(RACK, {}, id="removed later"),
        pytest.param(RACK, {names.PREFERRED_TOPOLOGY_ANNOTATION: "block"}, id="edited later"),
        pytest.param(None, {names.REQUIRED_TOPOLOGY_ANNOTATION: "rack"}, id="added later"),
    ],
)
def test_a_remote_pod_has_the_topology_request_of_its_share(
    reserved: TopologyRequest | None, annotations: dict[str, str]
) -> None:
    """Otherwise Kueue there would not schedule it."""
    requests = {"role-workers": reserved} if reserved else {}
    reservations = {key: replace(share, topology_requests=requests) for key, share in ADMITTED.items()}
    pod = loose(SLOTTED)
    pod["metadata"] = {**pod["metadata"], "annotations": {**pod["metadata"]["annotations"], **annotations}}
    (create,) = decide(worker(pod, reservations=reservations), at(5))
    assert isinstance(create, CreatePod)
    made = {key: text for key, text in create.body["metadata"]["annotations"].items() if "topology" in key}
    assert made == (reserved.pod_annotation if reserved else {})


def test_a_template_edited_after_admission_gets_no_host_path() -> None:
    """Otherwise its owner could read files of the worker cluster's nodes, which only admission there forbids."""
    volumes = [{"name": "root", "hostPath": {"path": "/"}}]
    (event,) = decide(worker(loose(SLOTTED, volumes=volumes)), at(5))
    assert isinstance(event, EmitEvent) and "is not created: spec.volumes[root].hostPath is /: " in event.message


@pytest.mark.parametrize(("count", "refused"), [(32, False), (33, True)])
def test_a_remote_pod_refers_to_no_more_objects_than_its_job_may(count: int, refused: bool) -> None:
    """The template may be edited after its job was admitted."""
    volumes = [{"name": f"v{n}", "secret": {"secretName": f"s{n}", "optional": True}} for n in range(count)]
    actions = decide(worker(loose(SLOTTED, volumes=volumes)), at(5))
    texts = [action.message for action in actions if isinstance(action, EmitEvent)]
    assert [type(action) for action in actions] == [EmitEvent if refused else CreatePod]
    assert all(
        "is not created: its worker groups refer to 33 Secrets and ConfigMaps, and at most 32 " in text
        for text in texts
    )


def test_a_remote_pod_is_created_with_its_references() -> None:
    """All references of the pod, but only those pull secrets that its template has."""
    env = [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "token", "key": "k"}}}]
    spec = {"containers": [{"name": "ray-worker", "env": env}], "imagePullSecrets": [{"name": "of-the-account"}]}
    actions = decide(worker(loose(SLOTTED, **spec), pull_secrets=({"name": "registry"},)), at(5))
    (create,) = (action for action in actions if isinstance(action, CreatePod))
    assert create.references == {
        Reference("Secret", "token"): "spec.containers[ray-worker].env[T].secretKeyRef",
        Reference("Secret", "registry"): "spec.imagePullSecrets",
    }
    assert {reference.name for reference in find_in_spec(create.body["spec"])} == {
        copied_objects.copy_name(reference, "east", facts.label(create.body, names.WORKLOAD_UID_LABEL))
        for reference in create.references
    }


def test_an_ended_orphan_is_deleted_although_its_namesake_is_being_deleted() -> None:
    ended = make_copy(make_pod(uid="an-earlier-one", slot=EAST0), phase="Failed")
    assert decide(worker(GOING, {"east": ended}), at(5)) == [DeletePod("east", ended, GONE, POD_GONE)]


@pytest.mark.parametrize(
    "slot", ["east", "east/1", "east/1/role-workers", "/", "//", "nonsense", "east/x/role-workers/0"]
)
def test_an_invalid_slot_raises_nothing(slot: str) -> None:
    """A user's template may set the annotation."""
    decide(worker(make_pod(placement=NAME, slot=slot)), at(5))


def test_a_slot_outside_of_the_plan_gets_no_remote_pod() -> None:
    forged = make_pod(placement=NAME, slot="east/1/role-workers/99")
    assert not [action for action in decide(worker(forged), at(5)) if isinstance(action, CreatePod)]


@pytest.mark.parametrize("slot", ["east/1", "east/1/role-workers/999"])
def test_a_forged_slot_gets_no_remote_pod_while_a_namesake_is_being_deleted_elsewhere(slot: str) -> None:
    forged = make_pod(placement=NAME, slot=slot)
    namesake = make_copy(make_pod(uid="an earlier one"))
    actions = decide(worker(forged, {"west": namesake}), at(5))
    assert not [action for action in actions if isinstance(action, CreatePod)]


# --- slots -----------------------------------------------------------------------------------------------------------


def named(name: str, slot: Slot | str, **more: Any) -> Raw:
    """A pod of this gang, or of another placement."""
    return make_pod(name, slot=slot, **{"placement": NAME, **more})


def slots_taken(pods: Iterable[Raw], but: str | None) -> frozenset[Slot]:
    """What SlotObserver.taken_by_others means, computed from all pods and remote pods of a placement."""
    others = (pod for pod in pods if but not in (facts.uid_of(pod), facts.label(pod, names.POD_UID_LABEL)))
    return frozenset(slot for slot in map(slot_of, others) if slot)


def copied(pod: Raw, placement: str = NAME) -> Raw:
    """Its remote pod, as a worker cluster lists it."""
    copy = make_copy(pod)
    copy["metadata"]["labels"][names.PLACEMENT_LABEL] = placement
    return copy


@pytest.mark.parametrize(
    ("pods", "remote_pods", "taken"),
    [
        pytest.param([], {}, set(), id="no other pods"),
        pytest.param([SLOTTED], {"east": copied(SLOTTED)}, set(), id="the pod itself and its remote pod"),
        pytest.param([named("other", WEST0)], {}, {WEST0}, id="another pod"),
        pytest.param([named("other", WEST0, phase="Failed")], {}, {WEST0}, id="an ended pod that still exists"),
        pytest.param([], {"west": copied(named("other", WEST0))}, {WEST0}, id="a remote pod without its manager pod"),
        pytest.param([SLOTTED, named("twin", EAST0)], {}, {EAST0}, id="another pod with the same slot"),
        pytest.param([SLOTTED], {"east": copied(named("twin", EAST0))}, {EAST0}, id="a remote pod with the same slot"),
        pytest.param(
            [SLOTTED], {"east": copied(make_pod(uid="x", slot=EAST0))}, {EAST0}, id="the remote pod of a namesake"
        ),
        pytest.param(
            [SLOTTED, named("twin", EAST0)],
            {"east": copied(SLOTTED, "an-earlier-place")},
            {EAST0},
            id="the own remote pod has an earlier placement",
        ),
        pytest.param([NEW, named("x", EAST0, placement="another-place")], {}, set(), id="a pod of another gang"),
    ],
)
def test_pods_and_remote_pods_of_others_hold_slots(
    pods: list[Raw], remote_pods: Mapping[str, Raw], taken: set[Slot]
) -> None:
    sight = Sight({"east": 1, "west": 1})
    fill(sight.manager.pods, *pods)
    for cluster, remote_pod in remote_pods.items():
        fill(sight.members[cluster].pods, remote_pod)
    slots = SlotObserver(sight.manager, sight.fleet, PendingAssignments(), sight.memory)
    own_uid = facts.uid_of(SLOTTED)
    holders = [pod for pod in (*pods, *remote_pods.values()) if facts.label(pod, names.PLACEMENT_LABEL) == NAME]
    assert slots.taken_by_others(SLOTTED) == slots_taken(holders, but=own_uid) == taken
    assert slots.taken_slots(PLACE) == slots_taken(holders, but=None)


CAME = make_pod("came", uid="u-came", placement=NAME, index="0", listed=str(EAST0).rpartition("/")[0] + "/1")


@pytest.mark.parametrize(
    ("others", "remote_pods", "yielded"),
    [
        pytest.param([CAME], {}, True, id="another pod has it as its template slot"),
        pytest.param([CAME], {"east": copied(CAME)}, False, id="the remote pod of that pod exists"),
        pytest.param([CAME, named("twin", EAST0)], {}, False, id="a further pod has it as a written slot"),
        pytest.param(
            [CAME],
            {"east": copied(named("gone", EAST0, uid="u-gone"))},
            False,
            id="a remote pod without its manager pod has it",
        ),
    ],
)
def test_a_written_slot_outranks_a_template_slot(
    others: list[Raw], remote_pods: Mapping[str, Raw], yielded: bool
) -> None:
    assert slot_of(CAME) == EAST0
    sight = Sight({"east": 1, "west": 1})
    fill(sight.manager.pods, SLOTTED, *others)
    for cluster, remote_pod in remote_pods.items():
        fill(sight.members[cluster].pods, remote_pod)
    slots = SlotObserver(sight.manager, sight.fleet, PendingAssignments(), sight.memory)
    assert slots.outranks_others(PLACE, SLOTTED) is yielded
    assert not slots.outranks_others(PLACE, CAME), "a template slot outranks none"
    taken = sight.facts.worker_observer._taken_slots(SLOTTED, PLACE, None, yields_block=False)
    assert (EAST0 not in taken) is yielded


@pytest.mark.parametrize("gates", [[names.ELASTIC_GATE], [names.GATE, names.ELASTIC_GATE], [names.GATE]])
def test_a_pod_without_quota_in_the_manager_gets_no_slot(gates: list[str]) -> None:
    """Kueue's own gate holds a pod of an elastic job until its quota is reserved. Such a pod gets no event."""
    pod = {**NEW, "spec": {**NEW["spec"], "schedulingGates": [{"name": gate} for gate in gates]}}
    actions = [action for action in decide(worker(pod), at(5)) if isinstance(action, AssignSlot | EmitEvent)]
    assert bool(actions) is (names.ELASTIC_GATE not in gates)


def test_a_slot_with_a_pending_assignment_is_held() -> None:
    """No store shows the slot before its write is answered, and pods are reconciled concurrently."""
    sight, assignments = Sight({"east": 1, "west": 1}), PendingAssignments()
    slots = SlotObserver(sight.manager, sight.fleet, assignments, sight.memory)
    actions = decide(worker(NEW), at(5))
    assignments.add(actions)
    assert slots.taken_by_others(named("another", "")) == slots.taken_slots(PLACE) == {EAST0}
    assert slots.taken_by_others(NEW) == slots.taken_by_others(named("x", "", placement="another-place")) == set()
    assignments.remove(actions)
    assert slots.taken_by_others(named("another", "")) == slots.taken_slots(PLACE) == set()


@given(
    st.one_of(
        st.sampled_from([str(EAST0), str(WEST0), "", "east/1", "east/2/workers/0"]),
        st.text("east/1wolkrs-0٣9", max_size=30),
    )
)
def test_a_planned_slot_is_recognised_without_listing_all_slots(text: str) -> None:
    assert is_planned_slot(PLACE, NEW, Slot.parse(text)) is (text in map(str, open_slots(PLACE, NEW, (), None)))
    assert all(is_planned_slot(PLACE, NEW, slot) for slot in open_slots(PLACE, NEW, (), None))
    first = str(next(open_slots(PLACE, NEW, (), None)))
    for forged in (f"{first[:-1]}007", f"{first[:-1]}{'9' * 5000}", f"{first[:-1]}-1", first[:-1], f"{first[:-1]}٣"):
        assert not is_planned_slot(PLACE, NEW, Slot.parse(forged))


# --- a simulation with faults ----------------------------------------------------------------------------------------


class World:
    """Manager pods and the remote pods of two clusters, with KubeRay, kubelets and a controller that restarts."""

    def __init__(self) -> None:
        self.pods: dict[str, Raw] = {}
        self.remote: dict[str, dict[str, Raw]] = {"east": {}, "west": {}}
        self.unreachable: set[str] = set()
        self.is_lost = False  # unreachable clusters are so for longer than the policy's timeout
        self.admitted = {"east": True, "west": True}
        self.born = 0
        self.sent: set[str] = set()  # pods (uids) whose remote pods this controller created
        self.older: set[str] = set()  # pods (uids) that are older than the controller's lead
        self.mute = False  # creates succeed, but neither an answer nor the watch shows it
        self.unanswered: set[str] = set()
        self.unobserved: dict[tuple[str, str], Raw] = {}  # remote pods created while mute, by cluster and name
        self.draining: set[str] = set()

    def reachable(self) -> dict[str, dict[str, Raw]]:
        return {cluster: pods for cluster, pods in self.remote.items() if cluster not in self.unreachable}

    def worker(self, name: str) -> Worker:
        pod, reachable = self.effective_pod(name), self.reachable()
        uid = facts.uid_of(pod) if pod else ""
        return worker(
            pod,
            {cluster: pods[name] for cluster, pods in reachable.items() if name in pods},
            targets={cluster: SEEN[cluster] for cluster in reachable},
            reservations=shares(**{c: make_reservation(PLACE_RAW, admitted=self.admitted[c]) for c in reachable}),
            taken=self.taken(pod) if pod else frozenset(),
            loss=self.cluster_loss(pod) if pod else None,
            may_exist_unobserved=uid in self.sent | self.older,
            unanswered=uid in self.unanswered,
            draining=self.draining,
        )

    def all_pods(self) -> list[Raw]:
        return [*self.pods.values(), *(copy for pods in self.reachable().values() for copy in pods.values())]

    def taken(self, pod: Raw) -> frozenset[Slot]:
        """The slots of others, as SlotObserver computes them from the stores.

        The template slot of a pod that must get another one does not count against a written slot.
        """
        taken, slot, uid = slots_taken(self.all_pods(), facts.uid_of(pod)), slot_of(pod), facts.uid_of(pod)
        if template_slots.must_check_slot(pod):
            return taken
        copies = [copy for pods in self.reachable().values() for copy in pods.values()]
        firm = [*filter(None, map(self.effective_pod, self.pods)), *copies]
        return taken - {slot} | (slots_taken(firm, uid) & {slot})

    def effective_pod(self, name: str) -> Raw | None:
        """The pod with its slot as it counts; SlotObserver computes it from the stores."""
        pod, reachable = self.pods.get(name), self.reachable()
        if pod is None or not template_slots.must_check_slot(pod):
            return pod
        cluster, uid = slot_cluster(pod), facts.uid_of(pod)
        about = TemplateSlotFacts(
            remote_pod_created=name in reachable.get(cluster, {}) and _origin(reachable[cluster][name]) == uid,
            reachable=cluster in reachable,
            maybe_sent=uid in self.sent | self.older,
            create_unanswered=uid in self.unanswered,
            slot_shared=slot_of(pod) in slots_taken(self.all_pods(), uid),
            draining_clusters=self.draining,
        )
        return pod if template_slots.owns_slot(PLACE, pod, about) else dict(without_template_slots(pod))

    def cluster_loss(self, pod: Raw) -> ClusterLoss | None:
        cluster = slot_cluster(pod)
        until = at(0) if self.is_lost else at(99)
        return ClusterLoss("is unreachable", at(0), until, None) if cluster in self.unreachable else None

    def reconcile(self, name: str, crash_after: int = 9) -> None:
        for action in decide(self.worker(name), at(5))[:crash_after]:
            self.do(action)

    def do(self, action: Action) -> None:
        match action:
            case AssignSlot(pod, _, slot):
                taken = [slot_of(p) for n, p in self.pods.items() if n != pod["metadata"]["name"]]
                assert slot not in taken, "two pods on one slot"
                assert not self.copies_of(pod), "assigned elsewhere although its remote pod exists"
                self.pods[pod["metadata"]["name"]] = _with_slot(pod, slot)
            case CreatePod(cluster, about, _, _, pod, made):
                assert about == JOB, "no job for events"
                uid = facts.uid_of(pod)
                assert cluster not in self.unreachable, "a write to an unreachable cluster"
                dispatched = facts.condition(self.pods[pod["metadata"]["name"]], names.DISPATCHED_CONDITION)
                assert not dispatched, "a second remote pod"
                assert self.admitted[cluster], "a remote pod without quota"
                assert pod["metadata"]["name"] not in self.remote[cluster], "over an existing pod"
                assert set(self.copies_of(pod)) <= {cluster}, "a second remote pod in another cluster"
                copy = _with_slot(make_copy(self.pods[pod["metadata"]["name"]], phase="Pending"), slot_of(made))
                assert slot_cluster(made) == cluster
                # After an unanswered create, the remote pod may exist. Another pod may have the slot and give it up.
                assert slot_of(copy) not in self.taken(self.pods[pod["metadata"]["name"]]) or uid in self.unanswered
                assert facts.label(made, names.POD_UID_LABEL) == uid
                self.sent.add(uid)
                if self.mute:
                    self.unanswered.add(uid)
                    self.unobserved.setdefault((cluster, pod["metadata"]["name"]), copy)
                else:
                    self.remote[cluster][pod["metadata"]["name"]] = self.unobserved.pop(
                        (cluster, pod["metadata"]["name"]), copy
                    )
                    self.unanswered.discard(uid)
            case DeletePod(cluster, pod, _):
                assert cluster not in self.unreachable, "a write to an unreachable cluster"
                remote_pod = self.remote[cluster].get(pod["metadata"]["name"])
                if remote_pod and facts.uid_of(remote_pod) == facts.uid_of(pod):
                    self.remote[cluster][pod["metadata"]["name"]] = _leaving(remote_pod)
            case PatchPodStatus(pod, patch):
                stands = [c for c in self.remote.values() if facts.uid_of(pod) in map(_origin, c.values())]
                assert patch["status"].get("reason") != "RemotePodGone" or not stands, (
                    "failed while its remote pod exists"
                )
                before = self.pods[pod["metadata"]["name"]]
                noted = before["metadata"]["annotations"] | patch["metadata"].get("annotations", {})
                before = {**before, "metadata": before["metadata"] | {"annotations": noted}}
                self.pods[pod["metadata"]["name"]] = {**before, "status": before["status"] | patch["status"]}
            case RequeueAfter():
                pass
            case _:
                raise AssertionError(f"unexpected action {action}")

    def copies_of(self, pod: facts.Raw) -> list[str]:
        """The clusters with the pod's remote pod, observed or not."""
        name = pod["metadata"]["name"]
        namesakes = [(c, pods[name]) for c, pods in self.remote.items() if name in pods]
        namesakes += [(c, copy) for (c, n), copy in self.unobserved.items() if n == name]
        return [c for c, copy in namesakes if _origin(copy) == facts.uid_of(pod)]

    def show_unobserved(self) -> None:
        """The watches show the remote pods that were created while mute."""
        for (cluster, name), copy in self.unobserved.items():
            self.remote[cluster].setdefault(name, copy)
        self.unobserved = {}

    def next_index(self) -> str:
        """The lowest replica index that no pod has, apart from those being deleted, as KubeRay assigns it."""
        stay = [pod for pod in self.pods.values() if "deletionTimestamp" not in pod["metadata"]]
        indexes = {facts.label(pod, names.RAY_REPLICA_INDEX_LABEL) for pod in stay}
        return next(str(index) for index in range(9) if str(index) not in indexes)

    def apply(self, event: str, name: str, cluster: str) -> None:
        copy = self.remote[cluster].get(name)
        match event:
            case "create" if name not in self.pods:
                self.born += 1
                numbered: Raw = {"index": self.next_index(), "listed": LISTED} if name in NUMBERED else {}
                self.pods[name] = make_pod(name, uid=f"u{self.born}", placement=NAME, **numbered)
            case "delete" if name in self.pods:
                self.pods[name] = _leaving(self.pods[name])
            case "gone" if name in self.pods and "deletionTimestamp" in self.pods[name]["metadata"]:
                del self.pods[name]
            case "run" | "fail" if copy:
                phase = "Running" if event == "run" else "Failed"
                self.remote[cluster][name] = {**copy, "status": {"phase": phase}}
            case "vanish" if copy:
                del self.remote[cluster][name]
            case _:
                self._apply_fault(event, cluster)

    def _apply_fault(self, event: str, cluster: str) -> None:
        """Apply an event that concerns the controller or a whole cluster."""
        match event:
            case "lead":  # another replica leads, without this one's memory
                self.sent, self.older = set(), set(map(facts.uid_of, self.pods.values()))
                self.unanswered = set()
                self.show_unobserved()  # its first lists show all pods
            case "mute":
                self.mute = not self.mute
                if not self.mute:
                    self.show_unobserved()
            case "drain":
                self.draining ^= {cluster}
            case "unreachable":
                self.unreachable ^= {cluster}
            case "lost":
                self.is_lost = not self.is_lost
            case "quota":
                self.admitted[cluster] = not self.admitted[cluster]

    def settle(self) -> None:
        """End all faults and reconcile until nothing changes: KubeRay deletes ended pods, kubelets finish."""
        self.unreachable, self.admitted, self.draining, self.mute = set(), {"east": True, "west": True}, set(), False
        self.show_unobserved()
        for _ in range(20):
            for name in NAMES:
                self.reconcile(name)
                if name in self.pods and self.pods[name]["status"]["phase"] == "Failed":
                    self.pods[name] = _leaving(self.pods[name])
                self.apply("gone", name, "east")
                for pods in self.remote.values():
                    if name in pods and "deletionTimestamp" in pods[name]["metadata"]:
                        del pods[name]


def _origin(copy: Raw) -> str:
    return facts.label(copy, names.POD_UID_LABEL)


def _leaving(raw: facts.Raw) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], "deletionTimestamp": make.stamp()}}


def _with_slot(pod: facts.Raw, slot: Slot | None) -> Raw:
    return {
        **pod,
        "metadata": pod["metadata"]
        | {"annotations": pod["metadata"]["annotations"] | {names.SLOT_ANNOTATION: str(slot or "")}},
    }


NAMES = [f"w{number}" for number in range(6)]  # two more than there are slots
NUMBERED = NAMES[:5]  # the other one is of a KubeRay without replica indexes
LISTED = "east/1/role-workers/2 west/1/role-workers/2"
KINDS = ["create"] * 3 + [
    "lead",
    "delete",
    "gone",
    "unreachable",
    "lost",
    "quota",
    "mute",
    "drain",
    "run",
    "fail",
    "vanish",
]
# Mostly one pod in one cluster, so that it gets several events.
PODS, WHERE = st.sampled_from([NAMES[0]] * 6 + NAMES), st.sampled_from(["east", "east", "east", "west"])
EVENTS = st.tuples(st.sampled_from(KINDS), PODS, WHERE)
RECONCILES = st.tuples(PODS, st.integers(0, 3))
# Hypothesis alone tries about five steps, which hardly ever repeat an event.
SCRIPTS = st.lists(st.one_of(EVENTS, RECONCILES, RECONCILES), min_size=20, max_size=60)


def run_script(script: Iterable[tuple[Any, ...]]) -> World:
    world = World()
    for step in script:
        if len(step) == 2:
            world.reconcile(*step)
        else:
            world.apply(*step)
    return world


# A pod was assigned the template slot of a pod that was created later, and no other slot is free.
MOVED: list[tuple[Any, ...]] = [
    ("unreachable", "w0", "east"),
    *(("create", name, "east") for name in ("w0", "w3", "w4")),
]
MOVED += [("w3", 1), ("create", "w2", "east"), ("create", "w1", "east")]


@settings(max_examples=3 * settings().max_examples)
@given(SCRIPTS)
@example(MOVED)
def test_worker_clusters_converge_to_what_the_managers_pods_say(script: list[tuple[Any, ...]]) -> None:
    """The world itself asserts: no second remote pod, no write to an unreachable cluster, no slot held twice."""
    world = run_script(script)
    world.settle()
    placed = {n: p for n in world.pods if (p := world.effective_pod(n)) and slot_of(p)}
    assert len(placed) == min(len(world.pods), 4), "a pod waits although a slot is free"
    standing = {
        (c, n): facts.label(raw, names.POD_UID_LABEL) for c, pods in world.remote.items() for n, raw in pods.items()
    }
    wanted = {(slot_cluster(p), n): facts.uid_of(p) for n, p in placed.items()}
    assert standing == wanted


@given(SCRIPTS, st.sampled_from(NAMES))
def test_an_unreachable_cluster_gets_no_action(script: list[tuple[Any, ...]], name: str) -> None:
    world = run_script(script)
    world.unreachable = {"east", "west"}
    assert all(isinstance(action, PatchPodStatus | RequeueAfter) for action in decide(world.worker(name), at(5)))


@given(SCRIPTS, st.sampled_from(NAMES))
def test_a_pod_of_an_unknown_ray_cluster_is_left_alone_without_an_event(
    script: list[tuple[Any, ...]], name: str
) -> None:
    """As if it had no Placement: remote pods may be deleted, and nothing is written about the pod."""
    unknown_owner = with_facts(run_script(script).worker(name), owns_pod=None)
    actions = decide(unknown_owner, at(5))
    assert all(isinstance(action, DeletePod) for action in actions)
    assert actions == decide(replace(unknown_owner, placement=None), at(5))


@given(SCRIPTS, st.sampled_from(NAMES))
def test_a_pod_of_another_ray_cluster_is_left_alone_with_an_event(script: list[tuple[Any, ...]], name: str) -> None:
    world = run_script(script)
    foreign = with_facts(world.worker(name), owns_pod=False)
    actions = decide(foreign, at(5))
    assert all(isinstance(action, EmitEvent | DeletePod) for action in actions)
    pod = foreign.pod
    live = pod is not None and "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] != "Failed"
    assert any(isinstance(action, EmitEvent) for action in actions) is live
