"""What happens next to one worker pod: the manager's pod, its copies in the worker clusters, actions out.

The manager's pod is what is wanted, a remote pod of the same name is what is. The rule that holds through every fault:
a remote pod whose manager pod (same uid) is gone goes; a manager pod whose remote copy vanished is reported Failed, so
that KubeRay replaces it; a copy is made only for a pod that holds a slot on an admitted share, and never a second time.
Clusters that cannot be seen are left alone in both directions.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from adapter import mirror, names, rewriter
from adapter.actions import Action, AssignSlot, CreatePod, DeletePod, PatchStatus, Say
from adapter.facts import Job, Placement, Raw, Reservation, annotation, is_true, label, meta, timestamp, uid_of
from adapter.target import Target

# Why a copy goes, where nothing stands for it; the metrics know these apart.
POD_GONE = "its pod in the manager cluster is gone"
SLOT_ELSEWHERE = "its pod holds a slot in another cluster"


@dataclass(frozen=True, slots=True)
class Worker:
    """Everything that the fate of one worker pod depends on."""

    pod: Raw | None
    remotes: Mapping[str, Raw]  # cluster -> pod of that name with our manager label
    placement: Placement | None
    job: Job | None
    belongs: bool | None  # to the RayCluster that the Placement's Workload admitted; None: its RayCluster is not known
    head: str  # address of the head, empty while it has none
    reservations: Mapping[str, Reservation]
    targets: Mapping[str, Target]  # for clusters that can be seen
    taken: Collection[str]  # slots held by other pods of the Placement, here or there


def decide(worker: Worker, now: datetime) -> list[Action]:
    """Say what to do next for one worker pod."""
    pod = worker.pod
    # 1. Copies of a pod that is gone, or of an earlier pod of this name, are orphans.
    orphans: list[Action] = [
        DeletePod(cluster, remote, POD_GONE)
        for cluster, remote in worker.remotes.items()
        if (pod is None or label(remote, names.POD_UID_LABEL) != uid_of(pod)) and not _leaving(remote)
    ]
    slot = annotation(pod, names.SLOT_ANNOTATION) if pod else ""
    orphans += [
        DeletePod(cluster, remote, SLOT_ELSEWHERE)
        for cluster, remote in worker.remotes.items()
        if pod and slot and label(remote, names.POD_UID_LABEL) == uid_of(pod)
        if not slot.startswith(f"{cluster}/") and not _leaving(remote) and not _leaving(pod) and not _ended(pod)
    ]
    if pod is None:
        return orphans
    # 2. A pod that is being deleted or has ended wants no copy that still runs.
    if _leaving(pod) or _ended(pod):
        over = "its pod in the manager cluster ended"
        own = {c: r for c, r in worker.remotes.items() if label(r, names.POD_UID_LABEL) == uid_of(pod)}
        return orphans + [DeletePod(c, r, over) for c, r in own.items() if not _leaving(r) and not _ended(r)]
    # 3. A label is easily forged: only pods of the RayCluster that this Placement stands for are ours.
    if worker.placement is None or worker.belongs is None:
        return orphans
    if not worker.belongs:
        return [*orphans, *_foreign(worker.job, pod)]
    return [*orphans, *_place(worker, pod, worker.placement, now)]


def _place(worker: Worker, pod: Raw, placement: Placement, now: datetime) -> list[Action]:
    slot = annotation(pod, names.SLOT_ANNOTATION)
    # 4. No slot of this plan: take the first free one, in the order of the plan. (An annotation may say anything: users
    #    write templates.) One that another pod holds as well (two writers met) is given up, while nothing is made of it.
    cluster, role = (*slot.split("/"), "")[:2]
    valid = slot in _slots(placement, pod) and slot not in worker.taken
    untouched = not worker.remotes and not is_true(pod, names.DISPATCHED_CONDITION)
    seen = cluster in worker.targets or cluster not in {share.cluster for share in placement.shares}
    if not slot or (not valid and untouched and seen):
        free = next((free for free in _slots(placement, pod) if free not in worker.taken), "")
        return [AssignSlot(pod, free.split("/", 1)[0], free)] if free else []
    # 5. Nothing is known of a cluster that cannot be seen.
    if cluster not in worker.targets:
        return []
    remote = worker.remotes.get(cluster)
    # 6. The copy stands: what happens to it happens to the pod.
    if remote is not None and label(remote, names.POD_UID_LABEL) == uid_of(pod):
        patch = mirror.status_patch(pod, remote, cluster)
        return [PatchStatus(pod, patch)] if patch else []
    # 7. The copy stood and is gone: KubeRay shall replace the worker.
    if is_true(pod, names.DISPATCHED_CONDITION):
        text = f"The pod in worker cluster {cluster} was deleted or evicted there."
        lost = mirror.failed_patch(pod, reason="RemotePodGone", message=text, now=timestamp(now))
        return [PatchStatus(pod, lost)] if lost else []
    # 8. An orphan of this name, or a copy elsewhere, is still leaving, the share does not stand, or the head has no address yet: wait.
    reservation = worker.reservations.get(cluster)
    elsewhere = any(label(r, names.POD_UID_LABEL) == uid_of(pod) for r in worker.remotes.values())
    if remote is not None or elsewhere or reservation is None or not reservation.admitted or not worker.head:
        return []
    body = rewriter.remote_pod(
        pod,
        head=worker.head,
        target=worker.targets[cluster],
        role=role,
        total=_total(placement, cluster),
        slot=slot,
        anchor_uid=reservation.anchor_uid,
    )
    return [CreatePod(cluster, worker.job, pod, body)]


def _slots(placement: Placement, pod: Raw) -> list[str]:
    """The plan's slots for the pod's worker group, in the order of the plan."""
    group = label(pod, names.RAY_GCS_GROUP_LABEL).lower()  # Kueue lower-cases it for the podset's name
    held = [(share.cluster, part) for share in placement.shares for part in share.groups if part.name == group]
    return [f"{cluster}/{part.role}/{index}" for cluster, part in held for index in range(part.count)]


def _total(placement: Placement, cluster: str) -> int:
    return sum(g.count for s in placement.shares if s.cluster == cluster for g in s.groups)


def slots_taken(pods: Iterable[Raw], *, but: str) -> frozenset[str]:
    """The slots that these pods hold, without those of the pod with that uid and of its copies; one that ended holds
    its slot until it is gone, for only then is its share of the reservation free again."""
    held = (
        annotation(pod, names.SLOT_ANNOTATION)
        for pod in pods
        if uid_of(pod) != but and label(pod, names.POD_UID_LABEL) != but
    )
    return frozenset(slot for slot in held if slot)


def _foreign(job: Job | None, pod: Raw) -> list[Action]:
    text = (
        f"Pod {meta(pod).get('name')} carries the label {names.PLACEMENT_LABEL} but belongs to no RayCluster of this job, "
        "so it is left alone; remove the label from its template."
    )
    return [Say(job, "ForeignPod", text, warning=True)] if job else []


def _leaving(raw: Raw) -> bool:
    return bool(meta(raw).get("deletionTimestamp"))


def _ended(raw: Raw) -> bool:
    return (raw.get("status") or {}).get("phase") in ("Failed", "Succeeded")
