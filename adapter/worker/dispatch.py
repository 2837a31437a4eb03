"""What happens next to one worker pod: the manager's pod, its copies in the worker clusters, actions out.

The manager's pod is what is wanted, a remote pod of the same name is what is. The rule that holds through every fault:
a remote pod whose manager pod (same uid) is gone goes; a manager pod whose remote copy vanished is reported Failed, so
that KubeRay replaces it; a copy is made only for a pod that holds a slot on an admitted share, and never a second time.
Clusters that cannot be seen are left alone: what runs there counts as running, until it counts as lost.
"""

from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, AssignSlot, DeletePod, LookAgain, say
from adapter.objects.placement import Placement
from adapter.objects.unstructured import Raw, key_of, meta, uid_of
from adapter.objects.worker_pod import (
    Slot,
    has_ended,
    has_template_slot,
    is_deleting,
    is_dispatched,
    is_planned_slot,
    may_get_slot,
    planned_slots,
    slot_cluster,
    slot_of,
    unlocked_reason,
    waits_for_quota,
)  # fmt: skip
from adapter.objects.workload import Job
from adapter.worker import create_pod, report
from adapter.worker.worker_facts import Worker

# Why a copy goes, where nothing stands for it; the metrics know these apart.
POD_GONE = "its pod in the manager cluster is gone"
SLOT_ELSEWHERE = "its pod holds a slot in another cluster"
# For a pod that came with a slot of the plan which is not its own for now. Who leaves it wakes the pod, but who was about to take it may fail
# to, and nobody hears of that. As few wait like this as numbers were given twice, so they may ask. Those whose share was given up may be a
# whole group: they are woken like all that have no slot.
LOOKS_AROUND = timedelta(seconds=5)


def decide(worker: Worker, now: datetime) -> list[Action]:
    """Say what to do next for one worker pod."""
    pod, orphans = worker.pod, _orphans(worker)
    if pod is None:
        return orphans
    # 2. A pod that is being deleted or has ended wants no copy that still runs.
    if is_deleting(pod) or has_ended(pod):
        over = "its pod in the manager cluster ended"
        return orphans + [
            DeletePod(c, r, over) for c, r in worker.own(pod).items() if not is_deleting(r) and not has_ended(r)
        ]
    # 3. A label is easily forged: only pods of the RayCluster that this Placement stands for are ours.
    if worker.placement is None or worker.belongs is None:
        return orphans
    if not worker.belongs:
        return [*orphans, *_foreign(worker.job, pod)]
    made = bool(worker.own(pod) or worker.made or is_dispatched(pod))
    #    The manager has no quota for it yet, so it takes nothing elsewhere.
    if waits_for_quota(pod) and not made:
        return orphans
    #    One that may run here gets neither a slot nor a copy: the worker would be there twice, once on no quota.
    if (why := unlocked_reason(pod)) and not made:
        return [*orphans, *_unheld(pod, why)]
    return [*orphans, *_place(worker, pod, worker.placement, now)]


def _orphans(worker: Worker) -> list[Action]:
    # 1. Copies of a pod that is gone, or of an earlier pod of this name, are orphans.
    pod = worker.pod
    own = {} if pod is None else worker.own(pod)
    orphans: list[Action] = [
        DeletePod(cluster, remote, POD_GONE)
        for cluster, remote in worker.remotes.items()
        if cluster not in own and not is_deleting(remote)
    ]
    slot = None if pod is None else slot_of(pod)
    if pod is None or slot is None or is_deleting(pod) or has_ended(pod):
        return orphans
    astray = {c: r for c, r in own.items() if c != slot.cluster and not is_deleting(r)}
    return orphans + [DeletePod(cluster, remote, SLOT_ELSEWHERE) for cluster, remote in astray.items()]


def _place(worker: Worker, pod: Raw, placement: Placement, now: datetime) -> list[Action]:
    slot = slot_of(pod)
    # 4. No slot of this plan: take the first free one, in the order of the plan. (An annotation may say anything: users
    #    write templates.) One that another pod holds as well (two writers met) is given up, while nothing is made of it.
    if slot is None or (
        _may_choose(worker, pod, placement) and (slot in worker.taken or not is_planned_slot(placement, pod, slot))
    ):
        free = _free_slot(worker, pod, placement, now)
        waits: list[Action] = [LookAgain(LOOKS_AROUND)] if worker.slotless else []
        return [AssignSlot(pod, free.cluster, free)] if free else waits
    if better := _better_slot(worker, pod, placement, now):
        return [AssignSlot(pod, better.cluster, better)]
    cluster = slot.cluster
    # 5. Nothing is known of a cluster that cannot be seen.
    if cluster not in worker.targets:
        return report.unseen(worker.job, pod, cluster, worker.silence, now) if worker.silence else []
    # 6. The copy stands: what happens to it happens to the pod. Unless the whole gang is about to start again.
    own = worker.own(pod).get(cluster)
    if (own is None or has_ended(own)) and _starts_again(worker, pod, placement):
        return []
    if own:
        kept = create_pod.mirrors(worker, pod, placement, slot.share) if _reads_mirrors(worker, cluster) else []
        beyond = report.beyond(own, worker.reservations.get(slot.share), slot, cluster)
        mirrored = report.mirrored(worker.job, pod, own, cluster, now, beyond, busy=worker.busy)
        going = report.ending(own, now) or _replaced(worker, cluster, own)
        return report.stuck(pod, own, cluster, now) or kept + mirrored + going
    # 7. The copy stood and is gone: KubeRay shall replace the worker.
    if worker.made or is_dispatched(pod):
        return report.gone(pod, cluster, now)
    # 8. It is to be made, as soon as nothing is in the way; of a slot that is not planned (see 4) nothing is.
    return create_pod.make(worker, pod, placement, slot) if is_planned_slot(placement, pod, slot) else []


def _starts_again(worker: Worker, pod: Raw, placement: Placement) -> bool:
    """Whether the pod's share is lost, and its whole gang starts again for it (gang/running.py).

    Were it said to have failed, KubeRay would replace it just before it is told to suspend the RayCluster. The replacement is
    deleted then, and KubeRay goes on expecting it (kuberay:controllers/ray/expectations/scale_expectations.go): when the
    RayCluster is resumed, its group gets no workers until the next resync, up to five minutes later.
    """
    slot = slot_of(pod)
    found = worker.reservations.get(slot.share) if slot else None
    return worker.restarts and (found is None or bool(found.eviction_message)) and is_planned_slot(placement, pod, slot)


def _may_choose(worker: Worker, pod: Raw, placement: Placement) -> bool:
    """Whether the pod has no slot yet, or may have another one than it has: not while a copy may stand in a cluster that cannot be seen,
    nor while one was asked for without an answer, which is asked for again (create.make) as long as the slot is planned."""
    slot = slot_of(pod)
    if worker.unanswered and is_planned_slot(placement, pod, slot):
        return False
    cluster = slot_cluster(pod)
    seen = cluster in worker.targets or cluster not in {share.cluster for share in placement.active_shares}
    return not slot or ((seen or not worker.sent) and not worker.made and may_get_slot(pod, worker.remotes))


def _free_slot(worker: Worker, pod: Raw, placement: Placement, now: datetime) -> Slot | None:
    """The first free slot, in the order of the plan, None when there is none; one in a cluster that the plan leaves out now only
    when there is no other: workers of this gang may not start there."""
    avoided = _avoided(placement, now)
    free = (slot for slot in planned_slots(placement, pod) if slot not in worker.taken and _open(worker, slot))
    first = next(free, None)
    if first is None or first.cluster not in avoided:
        return first
    return next((slot for slot in free if slot.cluster not in avoided), first)


def _better_slot(worker: Worker, pod: Raw, placement: Placement, now: datetime) -> Slot | None:
    """A free slot elsewhere for a pod that came with one in a cluster which the plan leaves out now: there nobody chose it. None when
    there is none, and it stays."""
    avoided = _avoided(placement, now)
    if not has_template_slot(pod) or slot_cluster(pod) not in avoided or not _may_choose(worker, pod, placement):
        return None
    free = _free_slot(worker, pod, placement, now)
    return free if free and free.cluster not in avoided else None


def _avoided(placement: Placement, now: datetime) -> set[str]:
    """The clusters in which workers of this gang may not start."""
    return {one.cluster for one in placement.exclusions if one.until > now}


def _open(worker: Worker, slot: Slot) -> bool:
    """Whether a new pod may take a slot: one that cannot be seen may be taken, and what is drained takes nobody."""
    cluster = slot.cluster
    return cluster in worker.targets and cluster not in worker.draining


def _reads_mirrors(worker: Worker, cluster: str) -> bool:
    """Whether it is known what stands there, so that it is kept true; where it is not, only who comes new is told so, by trying."""
    standing = worker.head_mirrors.get(cluster)
    return standing is not None and standing.readable


def _replaced(worker: Worker, cluster: str, remote: Raw) -> list[Action]:
    """A copy that must not stay: it goes with its grace period, in which its Ray node drains itself."""
    if is_deleting(remote) or has_ended(remote):
        return []
    left = worker.head.stale_address(remote, mirrored=_reads_mirrors(worker, cluster))
    return [DeletePod(cluster, remote, f"the head moved from {left} to {worker.head.ip}")] if left else []


def _unheld(pod: Raw, why: str) -> list[Action]:
    namespace, name = key_of(pod)
    text = (
        f"{why}, so the manager's nodes may run this pod, and it gets no copy in a worker cluster; leave schedulingGates and "
        "nodeSelector of the template to Rayspan, and delete the pod: KubeRay makes another one."
    )
    return say(Job("v1", "Pod", namespace, name, uid_of(pod)), "NotHeld", text, warning=True)


def _foreign(job: Job | None, pod: Raw) -> list[Action]:
    made_up = meta(pod).get("generateName")  # the same for all of one template, which are told of once
    text = (
        f"Pod {f'{made_up}*' if made_up else meta(pod).get('name')} carries the label {names.PLACEMENT_LABEL} but belongs to no "
        "RayCluster of this job, so it is left alone; remove the label from its template."
    )
    return say(job, "ForeignPod", text, warning=True)
