"""What happens next to a worker pod: every clause with the facts that make it apply, and a small world of faults.

The rewriter and the mirror have their own tests; here it counts whether a copy is made, for whom, and when it goes.
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
from adapter.objects.reservation import Reservation, parse_reservation
from adapter.objects.specs import PodMapping
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.worker_pod import (
    Slot,
    is_planned_slot,
    planned_slots,
    slot_cluster,
    slot_of,
    without_template_slots,
)
from adapter.objects.workload import Job, parse_workload
from adapter.rewrite import copied_objects, rewriter
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target
from adapter.shell.observe.slots import PendingAssignments, SlotObserver
from adapter.worker import status_mirror, template_slots
from adapter.worker.cluster_loss import ClusterLoss
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
    found = [parse_reservation(cluster, each) for cluster, each in raw.items()]
    return {each.key: each for each in found}


ADMITTED = shares(east=SHARE, west=SHARE)
EVICTED = shares(east=make_reservation(PLACE_RAW, conditions=[names.EVICTED]), west=SHARE)
SEEN = {cluster: target(cluster) for cluster in ("east", "west")}


def worker(pod: Raw | None, remotes: Mapping[str, Raw] | None = None, **more: Any) -> Worker:
    """The facts about a pod in its place, with all that it needs to be dispatched."""
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


# --- the objects that the table speaks of ----------------------------------------------------------------------------

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
STRANGER = make_copy(make_pod(uid="an-earlier-one", slot=EAST0))
STRANGER_LEAVING = make_copy(make_pod(uid="an-earlier-one", slot=EAST0), deleting=True)
GONE, OVER = "its pod in the manager cluster is gone", "its pod in the manager cluster ended"
ELSEWHERE = "its pod holds a slot in another cluster"
OTHER_GROUP = make_pod(placement=NAME, group="gpu")
CAME_EAST = make_pod(placement=NAME, index="0", listed="east/1/role-workers/2 west/1/role-workers/2")
CAME_SECOND = make_pod(placement=NAME, index="1", listed="east/1/role-workers/2 west/1/role-workers/2")
CAME_NORTH = make_pod(placement=NAME, index="0", listed="north/1/role-workers/2")
EAST_AVOIDED = parse_placement(make_placement(WORK, excluded={"east": 60}))
UNPLANNED = make_pod(placement=NAME, slot="north/1/role-workers/0")


def body(slot: Slot, pod: Raw = SLOTTED, total: int = 2) -> Raw:
    return rewriter.remote_pod(
        pod,
        head=HeadAddress.from_pod(pod, HEAD),
        target=target(slot.cluster),
        role="role-workers",
        total=total,
        slot=str(slot),
        anchor_uid=f"anchor-of-{NAME}-1",
    )


def mirrored(pod: Raw, copy: Raw, cluster: str = "east") -> PatchPodStatus:
    patch = status_mirror.status_patch(pod, copy, cluster)
    assert patch
    return PatchPodStatus(pod, patch)


def settled(pod: Raw, copy: Raw) -> Raw:
    """The pod after its copy's state was written."""
    return {**pod, "status": pod["status"] | mirrored(pod, copy).body["status"]}


def lost(pod: Raw, cluster: str = "east") -> PatchPodStatus:
    text = f"The pod in worker cluster {cluster} was deleted or evicted there."
    patch = status_mirror.failed_patch(pod, reason="RemotePodGone", message=text, now=make.stamp(5))
    assert patch
    return PatchPodStatus(pod, patch)


QUIET = ClusterLoss("cannot be seen since 0", lost_since=at(0), given_up_at=at(60), ray_node_alive=None)
LATE = replace(QUIET, given_up_at=at(5))
WEST_ONLY = {"west": target("west")}
STALE = make_copy(OUT)
STALE["metadata"]["annotations"][names.HEAD_IP_ANNOTATION] = "10.12.0.4"


def unknown(pod: Raw) -> Raw:
    patch = status_mirror.unknown_patch(pod, "east", QUIET.reason, make.stamp(0))
    assert patch
    return patch


def settled_unknown(pod: Raw) -> Raw:
    """The pod after it was written that nothing is known of its copy."""
    return {**pod, "status": pod["status"] | unknown(pod)["status"]}


def given_up(pod: Raw, text: str) -> PatchPodStatus:
    patch = status_mirror.failed_patch(pod, reason="WorkerLost", message=text, now=make.stamp(5))
    assert patch
    return PatchPodStatus(pod, patch)


def stuck(pod: Raw, why: str = ".") -> PatchPodStatus:
    text = f"The pod in worker cluster east is being deleted, and did not end in time; its node may be lost{why}"
    patch = status_mirror.failed_patch(pod, reason="RemotePodStuck", message=text, now=make.stamp(60))
    assert patch
    return PatchPodStatus(pod, patch)


UNKNOWN_OUT = unknown(OUT)
FOREIGN = EmitEvent(
    JOB,
    names.EventReason.REMOTE_POD_CONFLICT,
    "Pod train-abc-worker-0 carries the label rayspan.dev/placement but belongs to no RayCluster of this job, "
    "so it is left alone; remove the label from its template.",
    warning=True,
)


def loose(pod: Raw, **spec: Any) -> Raw:
    """The pod with other fields in its spec."""
    return {**pod, "spec": pod["spec"] | spec}


def not_held(why: str) -> EmitEvent:
    about = Job("v1", "Pod", make.NAMESPACE, NEW["metadata"]["name"], NEW["metadata"]["uid"])
    text = (
        f"{why}, so the manager's nodes may run this pod, and it gets no copy in a worker cluster; leave schedulingGates and "
        "nodeSelector of the template to Rayspan, and delete the pod: KubeRay makes another one."
    )
    return EmitEvent(about, names.EventReason.POD_NOT_GATED, text, warning=True)


@dataclass(frozen=True)
class Case:
    id: str
    why: str
    given: Worker
    want: Sequence[Action]
    seconds: float = 5


CASES = [
    Case("a copy without a pod goes",
         "an orphan holds a slot",
         worker(None, {"east": COPY}),
         [DeletePod("east", COPY, GONE, POD_GONE)]),
    Case("in every cluster",
         "a crash may have left two",
         worker(None, {"east": COPY, "west": COPY}),
         [DeletePod("east", COPY, GONE, POD_GONE), DeletePod("west", COPY, GONE, POD_GONE)]),
    Case("also one that ended",
         "nobody will read its logs by the pod's name",
         worker(None, {"east": BROKEN}),
         [DeletePod("east", BROKEN, GONE, POD_GONE)]),
    Case("one that goes already is not deleted again",
         "one write is enough",
         worker(None, {"east": LEAVING}),
         []),
    Case("the copy of an earlier pod of that name goes",
         "the name is the same, the uid is not",
         worker(NEW, {"east": STRANGER}, taken=[EAST0]),
         [DeletePod("east", STRANGER, GONE, POD_GONE), AssignSlot(NEW, "east", EAST1)]),
    Case("its slot is not free meanwhile",
         "two pods on one slot ask more than is reserved",
         worker(SLOTTED, {"east": STRANGER}),
         [DeletePod("east", STRANGER, GONE, POD_GONE)]),
    Case("the copy of the pod itself stays",
         "that is what is wanted",
         worker(settled(OUT, COPY), {"east": COPY}),
         []),
    Case("a copy of the pod itself in a cluster that is not its slot's goes",
         "no plan counts it there",
         worker(settled(OUT, COPY), {"east": COPY, "west": COPY}),
         [DeletePod("west", COPY, ELSEWHERE, SLOT_ELSEWHERE)]),
    Case("that one is not deleted twice either",
         "one write is enough",
         worker(settled(OUT, COPY), {"east": COPY, "west": LEAVING}),
         []),
    Case("it needs no Placement to be wrong",
         "the slot alone says where it belongs",
         worker(OUT, {"west": COPY}, placement=None),
         [DeletePod("west", COPY, ELSEWHERE, SLOT_ELSEWHERE)]),
    Case("a slot's cluster is its whole first word",
         "east-2 is not east",
         worker(make_pod(placement=NAME, slot="east-2/1/role-workers/0"), {"east": COPY}, owns_pod=None),
         [DeletePod("east", COPY, ELSEWHERE, SLOT_ELSEWHERE)]),
    Case("the copy of a pod without a slot is left",
         "nothing says that it belongs elsewhere",
         worker(NEW, {"east": COPY}, placement=None),
         []),
    Case("the copy of a pod that is being deleted goes",
         "KubeRay scales down",
         worker(GOING, {"east": COPY}),
         [DeletePod("east", COPY, OVER)]),
    Case("so does that of one that ended",
         "somebody else failed it here",
         worker(FAILED, {"east": COPY}),
         [DeletePod("east", COPY, OVER)]),
    Case("one that goes already is not deleted again",
         "one write is enough",
         worker(GOING, {"east": LEAVING}),
         []),
    Case("one that ended too stays for its logs",
         "until the pod goes",
         worker(FAILED, {"east": BROKEN}),
         []),
    Case("a pod that ended gets no slot and no copy",
         "KubeRay replaces it",
         worker(FAILED),
         []),
    Case("a pod that is being deleted gets none either",
         "podgc has the last word on gated pods",
         worker(make_pod(placement=NAME, deleting=True)),
         []),
    Case("the Placement need not stand for this",
         "an evicted Workload's pods go like that",
         worker(GOING, {"east": COPY}, placement=None),
         [DeletePod("east", COPY, OVER)]),
    Case("a copy in a cluster that is not its slot's is deleted once",
         "one write is enough",
         worker(GOING, {"west": COPY}),
         [DeletePod("west", COPY, OVER)]),
    Case("without a Placement nothing is made",
         "no attempt, no quota",
         worker(SLOTTED, placement=None),
         []),
    Case("orphans go all the same",
         "they need no plan to be wrong",
         worker(NEW, {"west": STRANGER}, placement=None),
         [DeletePod("west", STRANGER, GONE, POD_GONE)]),
    Case("a pod of another RayCluster is left alone, aloud",
         "a label is easily forged",
         worker(NEW, owns_pod=False),
         [FOREIGN]),
    Case("with a slot too",
         "annotations as well",
         worker(SLOTTED, owns_pod=False),
         [FOREIGN]),
    Case("where there is no job nobody is told",
         "an event needs an object",
         worker(NEW, owns_pod=False, job=None),
         []),
    Case("of a pod whose RayCluster is not known nothing is said",
         "it is not heard of yet, or deleted before its pods",
         worker(NEW, owns_pod=None),
         []),
    Case("and it gets no copy",
         "it may not be ours",
         worker(SLOTTED, owns_pod=None),
         []),
    Case("nor is it failed",
         "it is going anyway",
         worker(OUT, owns_pod=None),
         []),
    Case("nor does it say what its copy says",
         "it may not be ours",
         worker(OUT, {"east": COPY}, owns_pod=None),
         []),
    Case("its orphans go all the same",
         "the uid alone says so",
         worker(NEW, {"west": STRANGER}, owns_pod=None),
         [DeletePod("west", STRANGER, GONE, POD_GONE)]),
    Case("and its copy when it ends",
         "a RayCluster is often deleted before its pods",
         worker(GOING, {"east": COPY}, owns_pod=None),
         [DeletePod("east", COPY, OVER)]),
    Case("a pod without the manager's quota gets no slot",
         "its quota may never come",
         worker(loose(NEW, schedulingGates=[{"name": names.ELASTIC_GATE}])),
         []),
    Case("a pod without the gate gets no slot",
         "the manager's scheduler may take it",
         worker(loose(NEW, schedulingGates=[{"name": "kueue.x-k8s.io/topology"}])),
         [not_held("spec.schedulingGates lacks rayspan.dev/dispatch")]),
    Case("nor a copy",
         "it would run twice, once on no quota",
         worker(loose(SLOTTED, schedulingGates=None)),
         [not_held("spec.schedulingGates lacks rayspan.dev/dispatch")]),
    Case("nor does one without the lock",
         "whoever opens its gate lets it run here",
         worker(loose(SLOTTED, nodeSelector={"rayspan.dev/remote": "no"})),
         [not_held("spec.nodeSelector lacks rayspan.dev/remote: only")]),
    Case("nor one that is bound to a node here",
         "it runs already",
         worker(loose(SLOTTED, nodeName="node-1")),
         [not_held("spec.nodeName is node-1")]),
    Case("its orphans go all the same",
         "they are of an earlier pod",
         worker(loose(NEW, nodeSelector=None), {"west": STRANGER}),
         [DeletePod("west", STRANGER, GONE, POD_GONE), not_held("spec.nodeSelector lacks rayspan.dev/remote: only")]),
    Case("one whose gate was opened later keeps its copy",
         "the lock holds it, and its worker runs there",
         worker(settled(loose(OUT, schedulingGates=None), COPY), {"east": COPY}),
         []),
    Case("a pod takes the first free slot",
         "in the order of the plan",
         worker(NEW),
         [AssignSlot(NEW, "east", EAST0)]),
    Case("and then the next",
         "one cluster after the other",
         worker(NEW, taken=[EAST0]),
         [AssignSlot(NEW, "east", EAST1)]),
    Case("and then the next cluster",
         "one cluster after the other",
         worker(NEW, taken=[EAST0, EAST1]),
         [AssignSlot(NEW, "west", WEST0)]),
    Case("a slot in the middle that came free is taken",
         "replacements go where their predecessor was",
         worker(NEW, taken=[EAST0, WEST0]),
         [AssignSlot(NEW, "east", EAST1)]),
    Case("one pod too many waits",
         "no more is reserved",
         worker(NEW, taken=[EAST0, EAST1, WEST0, WEST1]),
         []),
    Case("a group that is not in the plan waits",
         "it has no share",
         worker(OTHER_GROUP),
         []),
    Case("a group's name is compared in lower case",
         "Kueue names the podset so",
         worker(make_pod(placement=NAME, group="Workers")),
         [AssignSlot(make_pod(placement=NAME, group="Workers"), "east", EAST0)]),
    Case("a slot that another pod holds too is given up",
         "two writers met, and nothing was made of it yet",
         worker(SLOTTED, taken=[EAST0]),
         [AssignSlot(SLOTTED, "east", EAST1)]),
    Case("not once something was made of it",
         "the copy is what runs",
         worker(settled(OUT, COPY), {"east": COPY}, taken=[EAST0]),
         []),
    Case("nor while its cluster cannot be seen",
         "something may stand there",
         worker(SLOTTED, taken=[EAST0], targets={"west": target("west")}),
         []),
    Case("but for one of which nobody can have sent a copy",
         "nothing can stand there",
         worker(SLOTTED, taken=[EAST0], targets={"west": target("west")}, may_exist_unobserved=False),
         [AssignSlot(SLOTTED, "west", WEST0)]),
    Case("nor is one for which a copy was asked without an answer",
         "it may come to stand there",
         worker(SLOTTED, taken=[EAST0], unanswered=True),
         [CreatePod("east", JOB, PLACE, EAST, SLOTTED, body(EAST0))]),
    Case("also not for a better one",
         "a second copy is worse than one in a cluster that is left out",
         worker(CAME_EAST, placement=EAST_AVOIDED, unanswered=True),
         [CreatePod("east", JOB, EAST_AVOIDED, EAST, CAME_EAST, body(EAST0, CAME_EAST))]),
    Case("but where nothing is planned for it",
         "its share goes, and what stands on it goes along",
         worker(UNPLANNED, unanswered=True),
         [AssignSlot(UNPLANNED, "east", EAST0)]),
    Case("which keeps a slot that is planned",
         "its cluster may come back in a moment",
         worker(SLOTTED, targets={"west": target("west")}, may_exist_unobserved=False, loss=QUIET),
         [RequeueAfter(timedelta(seconds=55))]),
    Case("nor is one that its cluster's share does not have",
         "something may stand there all the same",
         worker(make_pod(placement=NAME, slot="east/1/role-workers/9"), targets={"west": target("west")}),
         []),
    Case("a slot in a cluster that is not in the plan is given up",
         "nobody reserves anything for it",
         worker(UNPLANNED),
         [AssignSlot(UNPLANNED, "east", EAST0)]),
    Case("whether or not that cluster can be seen",
         "it need not be one of ours",
         worker(UNPLANNED, targets={"east": target("east")}),
         [AssignSlot(UNPLANNED, "east", EAST0)]),
    Case("a slot that the pod came with needs no write",
         "its record is as old as the pod",
         worker(CAME_EAST),
         [CreatePod("east", JOB, PLACE, EAST, CAME_EAST, body(EAST0, CAME_EAST))]),
    Case("nor a free slot that comes earlier",
         "it is not moved for the order",
         worker(CAME_SECOND),
         [CreatePod("east", JOB, PLACE, EAST, CAME_SECOND, body(EAST1, CAME_SECOND))]),
    Case("one that another pod holds is given up",
         "KubeRay gave its number again",
         worker(CAME_EAST, taken=[EAST0]),
         [AssignSlot(CAME_EAST, "east", EAST1)]),
    Case("and waited for where none is free",
         "the other one goes",
         worker(CAME_EAST, taken=[EAST0, EAST1, WEST0, WEST1]),
         []),
    Case("and looked for again and again where none is free and its own is not its own",
         "who was about to take that may fail to, and nobody hears of it",
         worker(NEW, taken=[EAST0, EAST1, WEST0, WEST1], lost_template_slot=True),
         [RequeueAfter(timedelta(seconds=5))]),
    Case("not once one is",
         "the write wakes it",
         worker(NEW, lost_template_slot=True),
         [AssignSlot(NEW, "east", EAST0)]),
    Case("one of a share that is not any more is given up",
         "templates keep what was planned first",
         worker(CAME_NORTH),
         [AssignSlot(CAME_NORTH, "east", EAST0)]),
    Case("one where workers of this gang may not start is given up for a better one",
         "nobody chose it there",
         worker(CAME_EAST, placement=EAST_AVOIDED),
         [AssignSlot(CAME_EAST, "west", WEST0)]),
    Case("and kept where there is none",
         "a write would change nothing",
         worker(CAME_EAST, placement=EAST_AVOIDED, taken=[WEST0, WEST1]),
         [CreatePod("east", JOB, EAST_AVOIDED, EAST, CAME_EAST, body(EAST0, CAME_EAST))]),
    Case("one that was written there is kept",
         "it was chosen with that known",
         worker(SLOTTED, placement=EAST_AVOIDED),
         [CreatePod("east", JOB, EAST_AVOIDED, EAST, SLOTTED, body(EAST0))]),
    Case("one with a copy is kept, too",
         "who runs is not moved by this",
         worker(CAME_EAST, {"east": make_copy(CAME_EAST)}, placement=EAST_AVOIDED),
         [mirrored(CAME_EAST, make_copy(CAME_EAST))]),
    Case("no slot is given out in a cluster that cannot be seen",
         "the pod would wait there for as long as that takes",
         worker(NEW, targets={"west": target("west")}),
         [AssignSlot(NEW, "west", WEST0)]),
    Case("nor in one that is drained",
         "who runs there is to leave",
         worker(NEW, draining={"east"}),
         [AssignSlot(NEW, "west", WEST0)]),
    Case("one in a cluster that the plan leaves out is taken last",
         "a worker did not start there",
         worker(NEW, placement=parse_placement(make_placement(WORK, excluded={"east": 60}))),
         [AssignSlot(NEW, "west", WEST0)]),
    Case("but rather than none",
         "its node may be back",
         worker(NEW, placement=parse_placement(make_placement(WORK, excluded={"east": 60})), taken=[EAST0, WEST0, WEST1]),
         [AssignSlot(NEW, "east", EAST1)]),
    Case("and not any more when that is over",
         "the order of the plan holds again",
         worker(NEW, placement=parse_placement(make_placement(WORK, excluded={"east": 5}))),
         [AssignSlot(NEW, "east", EAST0)]),
    Case("nor on a round that is withdrawn",
         "its quota is given back",
         worker(NEW, placement=parse_placement(make_placement(WORK, withdrawn=1))),
         []),
    Case("what was made of a slot outside the plan is not made again",
         "KubeRay shall replace it once the cluster can be asked",
         worker(make_pod(placement=NAME, slot="north/1/role-workers/0", dispatched=True)),
         []),
    Case("a silent cluster gets nothing",
         "it may hold the copy already",
         worker(SLOTTED, targets={"west": target("west")}),
         []),
    Case("nor is its copy given up",
         "API link lost is not data path lost",
         worker(OUT, targets={"west": target("west")}),
         []),
    Case("it is said that nothing is known of its copy",
         "people see it with kubectl",
         worker(OUT, targets=WEST_ONLY, loss=QUIET),
         [PatchPodStatus(OUT, UNKNOWN_OUT), RequeueAfter(timedelta(seconds=55))]),
    Case("not of a copy that was never seen",
         "nothing was known before",
         worker(SLOTTED, targets=WEST_ONLY, loss=QUIET),
         [RequeueAfter(timedelta(seconds=55))]),
    Case("once, and not again at each look",
         "a write costs the manager",
         worker(settled_unknown(OUT), targets=WEST_ONLY, loss=QUIET),
         [RequeueAfter(timedelta(seconds=55))]),
    Case("after its time the worker is given up",
         "KubeRay replaces it where there is room",
         worker(OUT, targets=WEST_ONLY, loss=LATE),
         [given_up(OUT, "Given up: worker cluster east cannot be seen since 0.")]),
    Case("also one whose copy was never seen",
         "it would wait for ever",
         worker(SLOTTED, targets=WEST_ONLY, loss=LATE),
         [given_up(SLOTTED, "Given up: worker cluster east cannot be seen since 0.")]),
    Case("not while Ray's head hears from its node",
         "API link lost is not data path lost",
         worker(settled_unknown(OUT), targets=WEST_ONLY, loss=replace(LATE, ray_node_alive=True)),
         []),
    Case("at once when the head has lost it",
         "Ray runs nothing there any more",
         worker(OUT, targets=WEST_ONLY, loss=replace(QUIET, ray_node_alive=False)),
         [given_up(OUT, "Ray's head lost the node, and worker cluster east cannot be seen since 0.")]),
    Case("that the head cannot be asked is said to who can put it right",
         "lost workers are found late meanwhile",
         worker(settled_unknown(OUT), targets=WEST_ONLY, loss=replace(QUIET, head_problem="No token.")),
         [EmitEvent(JOB, names.EventReason.HEAD_UNREACHABLE, "No token.", warning=True), RequeueAfter(timedelta(seconds=55))]),
    Case("not once the worker is given up",
         "it is too late to matter",
         worker(OUT, targets=WEST_ONLY, loss=replace(LATE, head_problem="No token.")),
         [given_up(OUT, "Given up: worker cluster east cannot be seen since 0.")]),
    Case("what was silent is seen again",
         "the copy says what it is",
         worker(settled_unknown(OUT), {"east": COPY}),
         [mirrored(settled_unknown(OUT), COPY)]),
    Case("and what went meanwhile is told as gone",
         "it was seen before the silence",
         worker(settled_unknown(OUT)),
         [lost(settled_unknown(OUT))]),
    Case("a copy made with another head's address goes",
         "it would dial an address where nobody answers",
         worker(settled(OUT, STALE), {"east": STALE}),
         [DeletePod("east", STALE, "the head moved from 10.12.0.4 to 10.12.0.5")]),
    Case("not before the head has an address again",
         "it may come back under the same one",
         worker(settled(OUT, STALE), {"east": STALE}, head=""),
         []),
    Case("a copy that should be gone, and is not, fails the pod",
         "its node is lost: KubeRay shall replace the worker",
         worker(settled(OUT, LEAVING), {"east": LEAVING}),
         [stuck(settled(OUT, LEAVING))], seconds=60),
    Case("with the cause, where its cluster gave one",
         "people look here",
         worker(settled(OUT, TAINTED), {"east": TAINTED}),
         [stuck(settled(OUT, TAINTED), ": Taint manager: deleting due to NoExecute taint")], seconds=60),
    Case("not before it had its time",
         "clocks differ, and kubelets are busy; and then nobody tells of it",
         worker(settled(OUT, LEAVING), {"east": LEAVING}),
         [RequeueAfter(timedelta(seconds=1))], seconds=59),
    Case("what the copy says the pod says",
         "KubeRay and people look here",
         worker(OUT, {"east": COPY}),
         [mirrored(OUT, COPY)]),
    Case("also its end",
         "so KubeRay replaces it",
         worker(OUT, {"east": BROKEN}),
         [mirrored(OUT, BROKEN)]),
    Case("a copy that was just made is told of",
         "its absence later means lost",
         worker(SLOTTED, {"east": COPY}),
         [mirrored(SLOTTED, COPY)]),
    Case("one that just starts is told of when it runs",
         "one write instead of two",
         worker(SLOTTED, {"east": STARTING}),
         [RequeueAfter(timedelta(seconds=3))], seconds=2),
    Case("or takes its time",
         "people look here",
         worker(SLOTTED, {"east": STARTING}),
         [mirrored(SLOTTED, STARTING)]),
    Case("which is more while others are made",
         "they are waited for, and this is not",
         worker(SLOTTED, {"east": STARTING}, creating_pods=True),
         [RequeueAfter(timedelta(seconds=5))]),
    Case("but not for ever",
         "people look here",
         worker(SLOTTED, {"east": STARTING}, creating_pods=True),
         [RequeueAfter(timedelta(seconds=1))], seconds=29),
    Case("as long as a large gang takes",
         "others may come one by one all day",
         worker(SLOTTED, {"east": STARTING}, creating_pods=True),
         [mirrored(SLOTTED, STARTING)], seconds=30),
    Case("one that runs is told of whoever is made",
         "KubeRay waits for it",
         worker(SLOTTED, {"east": COPY}, creating_pods=True),
         [mirrored(SLOTTED, COPY)]),
    Case("or by a clock that is ahead",
         "nobody knows when it was made",
         worker(SLOTTED, {"east": STARTING}),
         [mirrored(SLOTTED, STARTING)], seconds=-1),
    Case("or cannot start",
         "its user has to do something",
         worker(SLOTTED, {"east": IMAGELESS}),
         [mirrored(SLOTTED, IMAGELESS), EmitEvent(JOB, names.EventReason.WORKER_FAILING, status_mirror.trouble_message(IMAGELESS, "east"), warning=True)],
         seconds=2),
    Case("while others are made, too",
         "its user has to do something",
         worker(SLOTTED, {"east": IMAGELESS}, creating_pods=True),
         [mirrored(SLOTTED, IMAGELESS), EmitEvent(JOB, names.EventReason.WORKER_FAILING, status_mirror.trouble_message(IMAGELESS, "east"), warning=True)]),
    Case("where its share went meanwhile too",
         "the copy is what runs",
         worker(OUT, {"east": COPY}, reservations={}),
         [mirrored(OUT, COPY)]),
    Case("the end of a copy whose share is lost is not told where the whole gang starts again",
         "KubeRay would make a worker, and miss it when the RayCluster is resumed",
         worker(OUT, {"east": BROKEN}, reservations=EVICTED, restarts_on_share_loss=True),
         []),
    Case("only there",
         "the others run on",
         worker(OUT, {"east": BROKEN}, reservations=EVICTED),
         [mirrored(OUT, BROKEN)]),
    Case("only of a share that is lost",
         "a worker that fails is replaced",
         worker(OUT, {"east": BROKEN}, restarts_on_share_loss=True),
         [mirrored(OUT, BROKEN)]),
    Case("of a copy that goes in such a share all is told",
         "people look here",
         worker(OUT, {"east": LEAVING}, reservations=EVICTED, restarts_on_share_loss=True),
         [mirrored(OUT, LEAVING), RequeueAfter(timedelta(seconds=55))]),
    Case("nor is it told that a copy vanished where the whole gang starts again",
         "its share was evicted, or deleted by hand",
         worker(OUT, reservations=shares(west=SHARE), restarts_on_share_loss=True),
         []),
    Case("but where the plan has no such share any more",
         "the gang did not start again for this one",
         worker(make_pod(placement=NAME, slot="east/7/role-workers/0", dispatched=True), reservations=ADMITTED, restarts_on_share_loss=True),
         [lost(make_pod(placement=NAME, slot="east/7/role-workers/0", dispatched=True))]),
    Case("a copy that vanished fails the pod",
         "never a second one: KubeRay makes a new pod",
         worker(OUT),
         [lost(OUT)]),
    Case("also one that the manager was not told of yet",
         "whoever made it knows",
         worker(SLOTTED, created=True),
         [lost(SLOTTED)]),
    Case("also when another of its name stands there",
         "the uid counts",
         worker(OUT, {"east": STRANGER_LEAVING}),
         [lost(OUT)]),
    Case("a copy elsewhere does not make up for it",
         "the slot says where it belongs",
         worker(OUT, {"west": COPY}),
         [DeletePod("west", COPY, ELSEWHERE, SLOT_ELSEWHERE), lost(OUT)]),
    Case("a pod with a slot on an admitted share gets its copy",
         "this is what all is for",
         worker(SLOTTED),
         [CreatePod("east", JOB, PLACE, EAST, SLOTTED, body(EAST0))]),
    Case("of a job that goes nothing is made any more",
         "its shares stand until their last worker is gone, and would never go",
         worker(SLOTTED, deleted=True),
         []),
    Case("a copy in another cluster does not stand for it",
         "that one goes first: never two at a time",
         worker(SLOTTED, {"west": COPY}),
         [DeletePod("west", COPY, ELSEWHERE, SLOT_ELSEWHERE)]),
    Case("of a job that is not known nobody hears of a refusal",
         "an event needs an object",
         worker(SLOTTED, job=None),
         [CreatePod("east", None, PLACE, EAST, SLOTTED, body(EAST0))]),
    Case("an orphan of its name goes first",
         "the name is taken over there",
         worker(SLOTTED, {"east": STRANGER_LEAVING}),
         []),
    Case("a share that is not admitted holds it back",
         "a pod without quota",
         worker(SLOTTED, reservations=shares(east=make_reservation(PLACE_RAW, admitted=False))),
         []),
    Case("so does one that does not stand",
         "a pod without an anchor",
         worker(SLOTTED, reservations=shares(west=SHARE)),
         []),
    Case("so does a head without an address",
         "its raylet would have nobody to join",
         worker(SLOTTED, head=""),
         []),
    Case("another cluster's orphan does not",
         "names are per cluster",
         worker(SLOTTED, {"west": STRANGER_LEAVING}),
         [CreatePod("east", JOB, PLACE, EAST, SLOTTED, body(EAST0))]),
]  # fmt: skip


def _rule(facts: Worker, seconds: float) -> str:
    """The name of the rule that applies."""
    return first_rule(worker_state(facts, at(seconds))).name


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{_rule(case.given, case.seconds)}: {case.id}")
def test_decide(case: Case) -> None:
    assert decide(case.given, at(case.seconds)) == list(case.want), case.why


def test_every_rule_has_its_cases() -> None:
    assert {_rule(case.given, case.seconds) for case in CASES} == {rule.name for rule in RULES}


def test_no_two_rules_have_one_name() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_the_total_of_a_share_counts_all_its_groups() -> None:
    """Kueue's group has one total for the cluster, whatever the roles."""
    mixed = make_placement(make_workload(groups={"workers": 1, "gpu": 3}), shares={"east": {"workers": 1, "gpu": 3}})
    found = decide(worker(SLOTTED, placement=parse_placement(mixed)), at(5))
    assert found == [CreatePod("east", JOB, parse_placement(mixed), EAST, SLOTTED, body(EAST0, total=4))]


def test_what_a_user_set_of_the_place_is_said_once_the_copy_is_made() -> None:
    """It wins over what the WorkerCluster says; whoever wonders why a zone is wrong finds it on the job."""
    env = [{"name": "RAY_NODE_ZONE", "value": "mars"}]
    pod = loose(SLOTTED, containers=[{"name": "ray", "env": env}])
    said, made = decide(worker(pod), at(5))
    assert isinstance(said, EmitEvent) and isinstance(made, CreatePod)
    assert (said.regarding, said.reason, said.warning) == (JOB, "ZoneSettingsKept", False)
    assert said.message.startswith("The worker template sets RAY_NODE_ZONE, so its Ray nodes ")
    assert [type(one) for one in decide(worker(pod, job=None), at(5))] == [CreatePod]


def test_ray_is_told_of_the_flavor_that_its_role_was_given() -> None:
    """And of what the WorkerCluster says, which wins; what another role was given is none of its business."""
    given = {"role-workers": {"ray.io/market-type": "spot", "a": "flavor"}, "role-gpu": {"b": "other"}}
    reservations = {key: replace(one, ray_labels=given) for key, one in ADMITTED.items()}
    targets = {**SEEN, "east": replace(SEEN["east"], labels={"a": "cluster"})}
    pod = loose(SLOTTED, containers=[{"name": "ray-worker"}])
    (made,) = decide(worker(pod, reservations=reservations, targets=targets), at(5))
    assert isinstance(made, CreatePod)
    env = {one["name"]: one["value"] for one in made.body["spec"]["containers"][0]["env"]}
    told = json.loads(env["RAY_OVERRIDE_LABELS"])
    assert (told["ray.io/market-type"], told["a"], "b" in told) == ("spot", "cluster", False)


@pytest.mark.parametrize(
    ("asked", "held", "said"),
    [
        ({"cpu": "1"}, {"cpu": "1"}, ""),
        ({"cpu": "500m"}, {"cpu": "1", "memory": "1Gi"}, ""),
        ({"cpu": "2"}, {"cpu": "1"}, "cpu: 2 instead of 1"),
        ({"cpu": "1", "nvidia.com/gpu": "1"}, {"cpu": "1"}, "nvidia.com/gpu: 1 instead of 0"),
        ({"cpu": "1", "memory": "256Mi"}, {"cpu": "1"}, ""),  # KubeRay's init container, for which nothing is held
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1"}, "memory: 1Gi instead of 0"),
    ],
)
def test_a_pod_that_asks_for_more_than_is_held_is_not_made(
    asked: dict[str, str], held: dict[str, str], said: str
) -> None:
    """Kueue lets the pods of a share run by role and number: nobody else would notice."""

    def pod_spec(amounts: dict[str, str]) -> dict[str, Any]:
        return {"containers": [{"name": "ray-worker", "resources": {"requests": amounts}}]}

    templates = {"role-workers": {"spec": pod_spec(held)}}
    reservations = {key: replace(one, templates=templates) for key, one in ADMITTED.items()}
    (found,) = decide(worker(loose(SLOTTED, **pod_spec(asked)), reservations=reservations), at(5))
    if said:
        assert (
            isinstance(found, EmitEvent) and f"it asks for {said}, which is not what quota is held for" in found.message
        )
    else:
        assert isinstance(found, CreatePod)


@pytest.mark.parametrize(
    ("held", "now", "want"),
    [
        pytest.param({"pool": "a"}, {"pool": "b"}, {"disk": "ssd", "pool": "a"}, id="another value"),
        pytest.param({"pool": "a"}, {}, {"disk": "ssd", "pool": "a"}, id="it was taken away"),
        pytest.param({}, {"pool": "b"}, {"disk": "ssd"}, id="it is new"),
        pytest.param(None, {"pool": "b"}, {"disk": "ssd", "pool": "b"}, id="it is not known what is held"),
    ],
)
def test_a_share_keeps_the_node_selector_that_it_was_reserved_with(
    held: dict[str, str] | None, now: dict[str, str], want: dict[str, str]
) -> None:
    """Kueue chose its flavor by that. A pod that contradicts the flavor's node labels would end the whole share, with all that runs."""
    templates = {} if held is None else {"role-workers": {"spec": {"nodeSelector": held}}}
    reservations = {key: replace(one, templates=templates) for key, one in ADMITTED.items()}
    targets = {"east": replace(target("east"), pods=PodMapping(node_selector=now))}
    pod = loose(SLOTTED, nodeSelector={**SLOTTED["spec"]["nodeSelector"], "disk": "ssd"})
    (made,) = decide(worker(pod, reservations=reservations, targets=targets), at(5))
    assert isinstance(made, CreatePod) and made.body["spec"]["nodeSelector"] == want


def test_a_template_that_was_edited_after_its_job_was_admitted_gets_no_more() -> None:
    """Else its owner would have files of the worker cluster's nodes, which nobody but that cluster's admission forbids."""
    volumes = [{"name": "root", "hostPath": {"path": "/"}}]
    (said,) = decide(worker(loose(SLOTTED, volumes=volumes)), at(5))
    assert isinstance(said, EmitEvent) and "is not made: spec.volumes[root].hostPath is /: " in said.message


@pytest.mark.parametrize(("count", "refused"), [(32, False), (33, True)])
def test_a_copy_brings_no_more_along_than_its_job_may_have(count: int, refused: bool) -> None:
    """The template may be edited after its job was admitted."""
    volumes = [{"name": f"v{n}", "secret": {"secretName": f"s{n}", "optional": True}} for n in range(count)]
    found = decide(worker(loose(SLOTTED, volumes=volumes)), at(5))
    texts = [action.message for action in found if isinstance(action, EmitEvent)]
    assert [type(action) for action in found] == [EmitEvent if refused else CreatePod]
    assert all(
        "is not made: its worker groups refer to 33 Secrets and ConfigMaps, and at most 32 " in text for text in texts
    )


def test_a_copy_is_made_with_what_it_refers_to() -> None:
    """What the pod itself names, and of pull secrets those that its template names."""
    env = [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "token", "key": "k"}}}]
    spec = {"containers": [{"name": "ray-worker", "env": env}], "imagePullSecrets": [{"name": "of-the-account"}]}
    found = decide(worker(loose(SLOTTED, **spec), pull_secrets=({"name": "registry"},)), at(5))
    (made,) = (action for action in found if isinstance(action, CreatePod))
    assert made.references == {
        Reference("Secret", "token"): "spec.containers[ray-worker].env[T].secretKeyRef",
        Reference("Secret", "registry"): "spec.imagePullSecrets",
    }
    assert {one.name for one in find_in_spec(made.body["spec"])} == {
        copied_objects.copy_name(one, f"anchor-of-{NAME}-1") for one in made.references
    }


def test_an_orphan_that_ended_goes_although_its_namesake_leaves() -> None:
    ended = make_copy(make_pod(uid="an-earlier-one", slot=EAST0), phase="Failed")
    assert decide(worker(GOING, {"east": ended}), at(5)) == [DeletePod("east", ended, GONE, POD_GONE)]


@pytest.mark.parametrize(
    "slot", ["east", "east/1", "east/1/role-workers", "/", "//", "nonsense", "east/x/role-workers/0"]
)
def test_a_slot_that_is_none_does_not_stop_the_loop(slot: str) -> None:
    """Annotations come from the user's template too."""
    decide(worker(make_pod(placement=NAME, slot=slot)), at(5))


def test_a_slot_that_the_plan_does_not_have_gets_no_copy() -> None:
    forged = make_pod(placement=NAME, slot="east/1/role-workers/99")
    assert not [a for a in decide(worker(forged), at(5)) if isinstance(a, CreatePod)]


@pytest.mark.parametrize("slot", ["east/1", "east/1/role-workers/999"])
def test_a_slot_that_a_template_made_up_is_not_used_while_a_namesake_is_leaving_elsewhere(slot: str) -> None:
    forged = make_pod(placement=NAME, slot=slot)
    namesake = make_copy(make_pod(uid="an earlier one"))
    assert not [a for a in decide(worker(forged, {"west": namesake}), at(5)) if isinstance(a, CreatePod)]


# --- slots -----------------------------------------------------------------------------------------------------------


def named(name: str, slot: Slot | str, **more: Any) -> Raw:
    """A pod of this gang, or another's."""
    return make_pod(name, slot=slot, **{"placement": NAME, **more})


def slots_taken(pods: Iterable[Raw], but: str | None) -> frozenset[Slot]:
    """What Slots.taken_by_others means, read off all pods and copies of a Placement."""
    others = (one for one in pods if but not in (facts.uid_of(one), facts.label(one, names.POD_UID_LABEL)))
    return frozenset(slot for slot in map(slot_of, others) if slot)


def copied(pod: Raw, place: str = NAME) -> Raw:
    """Its copy, as a worker cluster lists it."""
    copy = make_copy(pod)
    copy["metadata"]["labels"][names.PLACEMENT_LABEL] = place
    return copy


@pytest.mark.parametrize(
    ("here", "there", "taken"),
    [
        pytest.param([], {}, set(), id="nobody is there"),
        pytest.param([SLOTTED], {"east": copied(SLOTTED)}, set(), id="its own, here and there"),
        pytest.param([named("other", WEST0)], {}, {WEST0}, id="a pod's"),
        pytest.param([named("other", WEST0, phase="Failed")], {}, {WEST0}, id="until one that ended is gone"),
        pytest.param([], {"west": copied(named("other", WEST0))}, {WEST0}, id="a copy's whose pod is gone"),
        pytest.param([SLOTTED, named("twin", EAST0)], {}, {EAST0}, id="its own, which another has as well"),
        pytest.param(
            [SLOTTED], {"east": copied(named("twin", EAST0))}, {EAST0}, id="its own, which a copy has as well"
        ),
        pytest.param([SLOTTED], {"east": copied(make_pod(uid="x", slot=EAST0))}, {EAST0}, id="a namesake's copy"),
        pytest.param(
            [SLOTTED, named("twin", EAST0)],
            {"east": copied(SLOTTED, "an-earlier-place")},
            {EAST0},
            id="its copy is of an earlier Placement",
        ),
        pytest.param([NEW, named("x", EAST0, placement="another-place")], {}, set(), id="those of another gang"),
    ],
)
def test_a_slot_is_held_by_pods_and_copies_of_others(
    here: list[Raw], there: Mapping[str, Raw], taken: set[Slot]
) -> None:
    sight = Sight({"east": 1, "west": 1})
    fill(sight.manager.pods, *here)
    for cluster, copy in there.items():
        fill(sight.members[cluster].pods, copy)
    slots_of = SlotObserver(sight.manager, sight.fleet, PendingAssignments(), sight.memory)
    mine = facts.uid_of(SLOTTED)
    held = [one for one in (*here, *there.values()) if facts.label(one, names.PLACEMENT_LABEL) == NAME]
    assert slots_of.taken_by_others(SLOTTED) == slots_taken(held, but=mine) == taken
    assert slots_of.taken_slots(PLACE) == slots_taken(held, but=None)


CAME = make_pod("came", uid="u-came", placement=NAME, index="0", listed=str(EAST0).rpartition("/")[0] + "/1")


@pytest.mark.parametrize(
    ("others", "there", "yielded"),
    [
        pytest.param([CAME], {}, True, id="one came with it"),
        pytest.param([CAME], {"east": copied(CAME)}, False, id="whose copy stands"),
        pytest.param([CAME, named("twin", EAST0)], {}, False, id="another one has it in writing, too"),
        pytest.param(
            [CAME], {"east": copied(named("gone", EAST0, uid="u-gone"))}, False, id="a copy whose pod is gone is on it"
        ),
    ],
)
def test_a_slot_that_is_written_goes_before_one_that_a_pod_came_with(
    others: list[Raw], there: Mapping[str, Raw], yielded: bool
) -> None:
    assert slot_of(CAME) == EAST0
    sight = Sight({"east": 1, "west": 1})
    fill(sight.manager.pods, SLOTTED, *others)
    for cluster, copy in there.items():
        fill(sight.members[cluster].pods, copy)
    slots_of = SlotObserver(sight.manager, sight.fleet, PendingAssignments(), sight.memory)
    assert slots_of.outranks_others(PLACE, SLOTTED) is yielded
    assert not slots_of.outranks_others(PLACE, CAME), "who came with it"
    taken = sight.facts.worker_observer._taken_slots(SLOTTED, PLACE)
    assert (EAST0 not in taken) is yielded


@pytest.mark.parametrize("gates", [[names.ELASTIC_GATE], [names.GATE, names.ELASTIC_GATE], [names.GATE]])
def test_who_has_no_quota_in_the_manager_gets_no_slot(gates: list[str]) -> None:
    """Kueue holds a pod of an elastic job by a gate of its own until its quota is there; it is not said to run on the manager's nodes."""
    pod = {**NEW, "spec": {**NEW["spec"], "schedulingGates": [{"name": gate} for gate in gates]}}
    given = [action for action in decide(worker(pod), at(5)) if isinstance(action, AssignSlot | EmitEvent)]
    assert bool(given) is (names.ELASTIC_GATE not in gates)


def test_a_slot_that_is_just_being_given_away_is_held() -> None:
    """No store shows it before its write is answered, and two pods are looked at side by side."""
    sight, assignments = Sight({"east": 1, "west": 1}), PendingAssignments()
    slots_of = SlotObserver(sight.manager, sight.fleet, assignments, sight.memory)
    given = decide(worker(NEW), at(5))
    assignments.add(given)
    assert slots_of.taken_by_others(named("another", "")) == slots_of.taken_slots(PLACE) == {EAST0}
    assert slots_of.taken_by_others(NEW) == slots_of.taken_by_others(named("x", "", placement="another-place")) == set()
    assignments.remove(given)
    assert slots_of.taken_by_others(named("another", "")) == slots_of.taken_slots(PLACE) == set()


@given(
    st.one_of(
        st.sampled_from([str(EAST0), str(WEST0), "", "east/1", "east/2/workers/0"]),
        st.text("east/1wolkrs-0٣9", max_size=30),
    )
)
def test_a_slot_is_told_from_what_is_none_without_writing_all_down(text: str) -> None:
    assert is_planned_slot(PLACE, NEW, Slot.parse(text)) is (text in map(str, planned_slots(PLACE, NEW)))
    assert all(is_planned_slot(PLACE, NEW, slot) for slot in planned_slots(PLACE, NEW))
    first = str(next(planned_slots(PLACE, NEW)))
    for forged in (f"{first[:-1]}007", f"{first[:-1]}{'9' * 5000}", f"{first[:-1]}-1", first[:-1], f"{first[:-1]}٣"):
        assert not is_planned_slot(PLACE, NEW, Slot.parse(forged))


# --- a small world ---------------------------------------------------------------------------------------------------


class World:
    """The manager's pods and the copies in two clusters, with KubeRay, kubelets and a controller that forgets."""

    def __init__(self) -> None:
        self.pods: dict[str, Raw] = {}
        self.remote: dict[str, dict[str, Raw]] = {"east": {}, "west": {}}
        self.silent: set[str] = set()
        self.late = False  # whoever is silent now has been so for longer than the policy's timeout
        self.admitted = {"east": True, "west": True}
        self.born = 0
        self.sent: set[str] = set()  # whose copies were asked for, as far as this controller knows
        self.older: set[str] = set()  # the pods that are older than its lead
        self.mute = False  # what is asked for is done, and neither an answer nor the watch says so
        self.unanswered: set[str] = set()
        self.untold: dict[tuple[str, str], Raw] = {}  # the copies that were made so, by cluster and name
        self.draining: set[str] = set()

    def seen(self) -> dict[str, dict[str, Raw]]:
        return {cluster: pods for cluster, pods in self.remote.items() if cluster not in self.silent}

    def worker(self, name: str) -> Worker:
        pod, seen = self.standing(name), self.seen()
        uid = facts.uid_of(pod) if pod else ""
        return worker(
            pod,
            {cluster: pods[name] for cluster, pods in seen.items() if name in pods},
            targets={cluster: SEEN[cluster] for cluster in seen},
            reservations=shares(**{c: make_reservation(PLACE_RAW, admitted=self.admitted[c]) for c in seen}),
            taken=self.taken(pod) if pod else frozenset(),
            loss=self.silence(pod) if pod else None,
            may_exist_unobserved=uid in self.sent | self.older,
            unanswered=uid in self.unanswered,
            draining=self.draining,
        )

    def everyone(self) -> list[Raw]:
        return [*self.pods.values(), *(copy for pods in self.seen().values() for copy in pods.values())]

    def taken(self, pod: Raw) -> frozenset[Slot]:
        """What others hold: of whoever came with its own slot, and is to have another one, that slot does not count against one that was
        written, which Workers reads off the stores."""
        held, slot, uid = slots_taken(self.everyone(), facts.uid_of(pod)), slot_of(pod), facts.uid_of(pod)
        if template_slots.must_check_slot(pod):
            return held
        copies = [copy for pods in self.seen().values() for copy in pods.values()]
        firm = [*filter(None, map(self.standing, self.pods)), *copies]
        return held - {slot} | (slots_taken(firm, uid) & {slot})

    def standing(self, name: str) -> Raw | None:
        """The pod as it counts, which Slots reads off the stores."""
        pod, seen = self.pods.get(name), self.seen()
        if pod is None or not template_slots.must_check_slot(pod):
            return pod
        cluster, uid = slot_cluster(pod), facts.uid_of(pod)
        about = TemplateSlotFacts(
            remote_pod_created=name in seen.get(cluster, {}) and _origin(seen[cluster][name]) == uid,
            reachable=cluster in seen,
            maybe_sent=uid in self.sent | self.older,
            create_unanswered=uid in self.unanswered,
            slot_shared=slot_of(pod) in slots_taken(self.everyone(), uid),
            draining_clusters=self.draining,
        )
        return pod if template_slots.owns_slot(PLACE, pod, about) else dict(without_template_slots(pod))

    def silence(self, pod: Raw) -> ClusterLoss | None:
        cluster = slot_cluster(pod)
        until = at(0) if self.late else at(99)
        return ClusterLoss("cannot be seen", at(0), until, None) if cluster in self.silent else None

    def look(self, name: str, crash_after: int = 9) -> None:
        for action in decide(self.worker(name), at(5))[:crash_after]:
            self.do(action)

    def do(self, action: Action) -> None:
        match action:
            case AssignSlot(pod, _, slot):
                held = [slot_of(p) for n, p in self.pods.items() if n != pod["metadata"]["name"]]
                assert slot not in held, "two pods on one slot"
                assert not self.copies_of(pod), "sent elsewhere though its copy stands"
                self.pods[pod["metadata"]["name"]] = _with_slot(pod, slot)
            case CreatePod(cluster, about, _, _, pod, made):
                assert about == JOB, "nobody hears of a refusal"
                uid = facts.uid_of(pod)
                assert cluster not in self.silent, "a write to a cluster that cannot be seen"
                dispatched = facts.condition(self.pods[pod["metadata"]["name"]], names.DISPATCHED_CONDITION)
                assert not dispatched, "a second copy"
                assert self.admitted[cluster], "a copy without quota"
                assert pod["metadata"]["name"] not in self.remote[cluster], "over a pod that stands"
                assert set(self.copies_of(pod)) <= {cluster}, "a second copy in another cluster"
                copy = _with_slot(make_copy(self.pods[pod["metadata"]["name"]], phase="Pending"), slot_of(made))
                assert slot_cluster(made) == cluster
                # Asked for again it may be another one's by now, who came with it and gives it up: the copy may stand.
                assert slot_of(copy) not in self.taken(self.pods[pod["metadata"]["name"]]) or uid in self.unanswered
                assert facts.label(made, names.POD_UID_LABEL) == uid
                self.sent.add(uid)
                if self.mute:
                    self.unanswered.add(uid)
                    self.untold.setdefault((cluster, pod["metadata"]["name"]), copy)
                else:
                    self.remote[cluster][pod["metadata"]["name"]] = self.untold.pop(
                        (cluster, pod["metadata"]["name"]), copy
                    )
                    self.unanswered.discard(uid)
            case DeletePod(cluster, pod, _):
                assert cluster not in self.silent, "a write to a cluster that cannot be seen"
                found = self.remote[cluster].get(pod["metadata"]["name"])
                if found and facts.uid_of(found) == facts.uid_of(pod):
                    self.remote[cluster][pod["metadata"]["name"]] = _leaving(found)
            case PatchPodStatus(pod, patch):
                stands = [c for c in self.remote.values() if facts.uid_of(pod) in map(_origin, c.values())]
                assert patch["status"].get("reason") != "RemotePodGone" or not stands, "given up while it runs"
                before = self.pods[pod["metadata"]["name"]]
                noted = before["metadata"]["annotations"] | patch["metadata"].get("annotations", {})
                before = {**before, "metadata": before["metadata"] | {"annotations": noted}}
                self.pods[pod["metadata"]["name"]] = {**before, "status": before["status"] | patch["status"]}
            case RequeueAfter():
                pass
            case _:
                raise AssertionError(f"{action} is no business of this world")

    def copies_of(self, pod: facts.Raw) -> list[str]:
        """The clusters in which a pod's copy stands, seen or not."""
        name = pod["metadata"]["name"]
        there = [(c, pods[name]) for c, pods in self.remote.items() if name in pods]
        there += [(c, copy) for (c, n), copy in self.untold.items() if n == name]
        return [c for c, copy in there if _origin(copy) == facts.uid_of(pod)]

    def tell(self) -> None:
        """The watches say what was made, if nobody did before."""
        for (cluster, name), copy in self.untold.items():
            self.remote[cluster].setdefault(name, copy)
        self.untold = {}

    def number(self) -> str:
        """The lowest number that nobody has who stays, as KubeRay gives it: who leaves has it still."""
        stay = [pod for pod in self.pods.values() if "deletionTimestamp" not in pod["metadata"]]
        given = {facts.label(pod, names.RAY_REPLICA_INDEX_LABEL) for pod in stay}
        return next(str(number) for number in range(9) if str(number) not in given)

    def happen(self, event: str, name: str, cluster: str) -> None:
        copy = self.remote[cluster].get(name)
        match event:
            case "create" if name not in self.pods:
                self.born += 1
                numbered: Raw = {"index": self.number(), "listed": LISTED} if name in NUMBERED else {}
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
                self._befall(event, cluster)

    def _befall(self, event: str, cluster: str) -> None:
        """What happens to the controller, or to a cluster as a whole."""
        match event:
            case "lead":  # another one does, which knows nothing
                self.sent, self.older = set(), set(map(facts.uid_of, self.pods.values()))
                self.unanswered = set()
                self.tell()  # it lists what there is
            case "mute":
                self.mute = not self.mute
                if not self.mute:
                    self.tell()
            case "drain":
                self.draining ^= {cluster}
            case "silent":
                self.silent ^= {cluster}
            case "late":
                self.late = not self.late
            case "quota":
                self.admitted[cluster] = not self.admitted[cluster]

    def rest(self) -> None:
        """No more faults: KubeRay removes what ended, kubelets finish, all is looked at until nothing changes."""
        self.silent, self.admitted, self.draining, self.mute = set(), {"east": True, "west": True}, set(), False
        self.tell()
        for _ in range(20):
            for name in NAMES:
                self.look(name)
                if name in self.pods and self.pods[name]["status"]["phase"] == "Failed":
                    self.pods[name] = _leaving(self.pods[name])
                self.happen("gone", name, "east")
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
NUMBERED = NAMES[:5]  # one is of an older KubeRay
LISTED = "east/1/role-workers/2 west/1/role-workers/2"
KINDS = ["create"] * 3 + ["lead", "delete", "gone", "silent", "late", "quota", "mute", "drain", "run", "fail", "vanish"]
# Mostly one pod in one cluster, so that several things happen to the same.
PODS, WHERE = st.sampled_from([NAMES[0]] * 6 + NAMES), st.sampled_from(["east", "east", "east", "west"])
EVENTS = st.tuples(st.sampled_from(KINDS), PODS, WHERE)
LOOKS = st.tuples(PODS, st.integers(0, 3))
# Long ones: left to itself, hypothesis tries some five steps, in which little can happen twice.
SCRIPTS = st.lists(st.one_of(EVENTS, LOOKS, LOOKS), min_size=20, max_size=60)


def played(script: Iterable[tuple[Any, ...]]) -> World:
    world = World()
    for step in script:
        if len(step) == 2:
            world.look(*step)
        else:
            world.happen(*step)
    return world


# One was moved to a slot before the pod came that has it by its number, and no other slot is free.
MOVED: list[tuple[Any, ...]] = [("silent", "w0", "east"), *(("create", name, "east") for name in ("w0", "w3", "w4"))]
MOVED += [("w3", 1), ("create", "w2", "east"), ("create", "w1", "east")]


@settings(max_examples=3 * settings().max_examples)
@given(SCRIPTS)
@example(MOVED)
def test_worker_clusters_converge_to_what_the_managers_pods_say(script: list[tuple[Any, ...]]) -> None:
    """While it plays, the world itself refuses second copies, writes to silent clusters and slots held twice."""
    world = played(script)
    world.rest()
    placed = {n: p for n in world.pods if (p := world.standing(n)) and slot_of(p)}
    assert len(placed) == min(len(world.pods), 4), "a slot is free and a pod waits"
    standing = {
        (c, n): facts.label(raw, names.POD_UID_LABEL) for c, pods in world.remote.items() for n, raw in pods.items()
    }
    wanted = {(slot_cluster(p), n): facts.uid_of(p) for n, p in placed.items()}
    assert standing == wanted


@given(SCRIPTS, st.sampled_from(NAMES))
def test_a_cluster_that_cannot_be_seen_gets_no_action(script: list[tuple[Any, ...]], name: str) -> None:
    world = played(script)
    world.silent = {"east", "west"}
    assert all(isinstance(action, PatchPodStatus | RequeueAfter) for action in decide(world.worker(name), at(5)))


@given(SCRIPTS, st.sampled_from(NAMES))
def test_a_pod_of_an_unknown_ray_cluster_is_left_alone_in_silence(script: list[tuple[Any, ...]], name: str) -> None:
    """As if it had no Placement: copies may go, and no word is written about the pod."""
    unknown = with_facts(played(script).worker(name), owns_pod=None)
    actions = decide(unknown, at(5))
    assert all(isinstance(action, DeletePod) for action in actions)
    assert actions == decide(replace(unknown, placement=None), at(5))


@given(SCRIPTS, st.sampled_from(NAMES))
def test_a_pod_that_does_not_belong_is_left_alone(script: list[tuple[Any, ...]], name: str) -> None:
    world = played(script)
    foreign = with_facts(world.worker(name), owns_pod=False)
    actions = decide(foreign, at(5))
    assert all(isinstance(action, EmitEvent | DeletePod) for action in actions)
    pod = foreign.pod
    live = pod is not None and "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] != "Failed"
    assert any(isinstance(action, EmitEvent) for action in actions) is live
