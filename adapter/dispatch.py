"""What happens next to one worker pod: the manager's pod, its copies in the worker clusters, actions out.

The manager's pod is what is wanted, a remote pod of the same name is what is. The rule that holds through every fault:
a remote pod whose manager pod (same uid) is gone goes; a manager pod whose remote copy vanished is reported Failed, so
that KubeRay replaces it; a copy is made only for a pod that holds a slot on an admitted share, and never a second time.
Clusters that cannot be seen are left alone: what runs there counts as running, until it counts as lost.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from adapter import headaddress, headmirror, mirror, names, refusal, rewriter, trouble, zone
from adapter import reservation as holding
from adapter.actions import Action, AssignSlot, CreatePod, DeletePod, LookAgain, MirrorHead, PatchStatus, Say
from adapter.facts import (
    GroupShare,
    Job,
    Placement,
    Raw,
    Reservation,
    Share,
    annotation,
    condition,
    label,
    meta,
    moment,
    share_key,
    timestamp,
    uid_of,
)
from adapter.target import Target

# Why a copy goes, where nothing stands for it; the metrics know these apart.
POD_GONE = "its pod in the manager cluster is gone"
SLOT_ELSEWHERE = "its pod holds a slot in another cluster"


# A copy whose image is at hand runs within a second or two, in a large gang within five, and then one write says all; before
# that there is nothing in it that anybody waits for. The write that is spared is a third of all writes to the manager.
SETTLES_IN = timedelta(seconds=5)
# Longer than a kubelet takes after the grace period, and than clocks of two clusters differ.
STUCK_AFTER = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Silence:
    """A worker cluster that cannot be seen, as it concerns one pod."""

    why: str
    since: datetime | None  # first loss; None: not known yet
    until: datetime | None  # when its workers count as lost; None: never
    alive: bool | None  # what the head's GCS says of the pod's Ray node; None: it cannot be asked, or does not know


@dataclass(frozen=True, slots=True)
class Worker:
    """Everything that the fate of one worker pod depends on."""

    pod: Raw | None
    remotes: Mapping[str, Raw]  # cluster -> pod of that name with our manager label
    placement: Placement | None
    job: Job | None
    belongs: bool | None  # to the RayCluster that the Placement's Workload admitted; None: its RayCluster is not known
    head: str  # address of the head, empty while it has none
    reservations: Mapping[tuple[str, int], Reservation]  # by cluster and round, as far as clusters can be seen
    targets: Mapping[str, Target]  # for clusters that can be seen
    taken: Collection[str]  # slots held by other pods of the Placement, here or there; known where `wants_slot`
    draining: Collection[str] = ()  # clusters that get no new pods, and whose pods move away
    silence: Silence | None = None  # of the cluster of the pod's slot; None while it can be seen
    made: bool = False  # whether this process made its copy, of which the manager may not be told yet
    head_pod: Raw | None = None  # the head itself, None while it has no address
    # cluster that mirrors heads -> what it has of this one's mirror
    head_mirrors: Mapping[str, headmirror.Standing] = field(default_factory=dict)
    pull_secrets: tuple[Raw, ...] = ()  # that the pod's template names, as written there


def decide(worker: Worker, now: datetime) -> list[Action]:
    """Say what to do next for one worker pod."""
    pod = worker.pod
    # 1. Copies of a pod that is gone, or of an earlier pod of this name, are orphans.
    orphans: list[Action] = [
        DeletePod(cluster, remote, POD_GONE)
        for cluster, remote in worker.remotes.items()
        if (pod is None or label(remote, names.POD_UID_LABEL) != uid_of(pod)) and not leaving(remote)
    ]
    slot = annotation(pod, names.SLOT_ANNOTATION) if pod else ""
    orphans += [
        DeletePod(cluster, remote, SLOT_ELSEWHERE)
        for cluster, remote in worker.remotes.items()
        if pod and slot and label(remote, names.POD_UID_LABEL) == uid_of(pod)
        if not slot.startswith(f"{cluster}/") and not leaving(remote) and not leaving(pod) and not ended(pod)
    ]
    if pod is None:
        return orphans
    # 2. A pod that is being deleted or has ended wants no copy that still runs.
    if leaving(pod) or ended(pod):
        over = "its pod in the manager cluster ended"
        own = {c: r for c, r in worker.remotes.items() if label(r, names.POD_UID_LABEL) == uid_of(pod)}
        return orphans + [DeletePod(c, r, over) for c, r in own.items() if not leaving(r) and not ended(r)]
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
    cluster, number = share_key(slot)
    seen = cluster in worker.targets or cluster not in {share.cluster for share in placement.live}
    if not slot or (seen and not worker.made and wants_slot(pod, worker.remotes)):
        planned = slots(placement, pod)
        if slot not in planned or slot in worker.taken:
            free = next((free for free in planned if free not in worker.taken and _open(worker, free)), "")
            return [AssignSlot(pod, share_key(free)[0], free)] if free else []
    # 5. Nothing is known of a cluster that cannot be seen.
    if cluster not in worker.targets:
        return _unseen(pod, cluster, worker.silence, now) if worker.silence else []
    remote, reservation = worker.remotes.get(cluster), worker.reservations.get((cluster, number))
    mirrors = _mirrors(worker, pod, cluster, reservation)
    # 6. The copy stands: what happens to it happens to the pod.
    if remote is not None and label(remote, names.POD_UID_LABEL) == uid_of(pod):
        mirrored = _mirrored(worker.job, pod, remote, cluster, now)
        going = _ending(remote, now) or _replaced(worker, cluster, remote)
        return _stuck(pod, remote, cluster, now) or mirrors + mirrored + going
    # 7. The copy stood and is gone: KubeRay shall replace the worker.
    if worker.made or _dispatched(pod):
        return _failed(pod, "RemotePodGone", _gone(pod, cluster), now)
    # 8. An orphan of this name, or a copy elsewhere, is still leaving, the share does not stand, or the head has no address yet: wait.
    share = next((s for s in placement.live if (s.cluster, placement.round_of(s)) == (cluster, number)), None)
    elsewhere = any(label(r, names.POD_UID_LABEL) == uid_of(pod) for r in worker.remotes.values())
    if remote is not None or elsewhere or reservation is None or not reservation.admitted or not worker.head:
        return []
    if share is None:
        return []
    body = _copy(worker, pod, reservation, share, slot)
    if why := refusal.of_copy(body["spec"]) or _beyond(body, reservation, slot):
        text = f"A worker for {cluster} is not made: {why}."
        return [Say(worker.job, "WorkerTrouble", text, warning=True)] if worker.job else []
    made = CreatePod(cluster, worker.job, pod, body, rewriter.referred(pod, worker.pull_secrets))
    return [*_kept(worker.job, pod, worker.targets[cluster]), *mirrors, made]


def _beyond(body: Raw, reservation: Reservation, slot: str) -> str:
    """What a copy asks for beyond its share: Kueue lets the pods of a group run by role and number alone."""
    held = reservation.templates.get(slot.split("/")[2])
    more = holding.excess(body["spec"], held) if held else ""
    return more and (
        f"it asks for {more}, which is not what quota is held for; whatever adds to the template's requests, such as sidecars "
        "of KubeRay's operator or a resize, must stand in the template"
    )


def _mirrored(job: Job | None, pod: Raw, remote: Raw, cluster: str, now: datetime) -> list[Action]:
    """Say of the pod what its copy says, if that is news; of one that just starts only when it does, or takes its time."""
    patch = mirror.status_patch(pod, remote, cluster)
    if not patch:
        return []
    said, left = _told(job, remote, cluster), _starting(remote, now)
    if left and not said and not _dispatched(pod):
        return [LookAgain(left)]
    return [PatchStatus(pod, patch), *said]


def _starting(remote: Raw, now: datetime) -> timedelta:
    """For how long a copy that is pending may well run in a moment; nothing by a clock of which that cannot be told."""
    created = moment(meta(remote).get("creationTimestamp"))
    if created is None or (remote.get("status") or {}).get("phase") not in (None, "Pending"):
        return timedelta(0)
    left = created + SETTLES_IN - now
    return left if timedelta(0) < left <= SETTLES_IN else timedelta(0)


def _mirrors(worker: Worker, pod: Raw, cluster: str, reservation: Reservation | None) -> list[Action]:
    """What makes the head's name resolve there: made before the first worker, and kept true while its share stands."""
    standing, service = worker.head_mirrors.get(cluster), headaddress.service(pod)
    if standing is None or service is None or reservation is None or reservation.deleting:
        return []
    target = replace(worker.targets[cluster], share=reservation.name)
    lacks = headmirror.lacking(service, worker.head_pod, standing, target, reservation.anchor_uid)
    return [MirrorHead(cluster, worker.job, pod, body) for body in lacks]


def _told(job: Job | None, remote: Raw, cluster: str) -> list[Action]:
    text = trouble.sentence(remote, cluster)
    return [Say(job, "WorkerTrouble", text, warning=True)] if job and text else []


def _kept(job: Job | None, pod: Raw, target: Target) -> list[Action]:
    """What the user set of a Ray node's place, and so was left."""
    containers: Sequence[Raw] = (pod.get("spec") or {}).get("containers") or ({},)
    text = zone.kept(containers[0].get("env") or (), target)
    return [Say(job, "PlaceKept", text)] if job and text else []


def _copy(worker: Worker, pod: Raw, reservation: Reservation, share: Share, slot: str) -> Raw:
    target, role = worker.targets[share.cluster], slot.split("/")[2]
    labels = {**reservation.ray_labels.get(role, {}), **target.labels}
    return rewriter.remote_pod(
        pod,
        head=worker.head,
        target=replace(target, share=reservation.name, round=reservation.round, labels=labels),
        role=role,
        total=share.workers,
        slot=slot,
        anchor_uid=reservation.anchor_uid,
        pull_secrets=worker.pull_secrets,
    )


def _unseen(pod: Raw, cluster: str, silence: Silence, now: datetime) -> list[Action]:
    """API link lost is not data path lost: the worker counts as running until its time is over, for as long as the head
    hears from it, and no longer than until the head says that it does not."""
    late = silence.until is not None and now >= silence.until
    if silence.alive is False:
        return _failed(pod, "WorkerLost", f"Ray's head lost the node, and worker cluster {cluster} {silence.why}.", now)
    if late and not silence.alive:
        return _failed(pod, "WorkerLost", f"Given up: worker cluster {cluster} {silence.why}.", now)
    known = silence.since is not None and _dispatched(pod)
    patch = mirror.unknown_patch(pod, cluster, silence.why, timestamp(silence.since or now)) if known else None
    unknown: list[Action] = [PatchStatus(pod, patch)] if patch else []
    return [*unknown, LookAgain(silence.until - now)] if silence.until and not late else unknown


def _replaced(worker: Worker, cluster: str, remote: Raw) -> list[Action]:
    """A copy that must not stay: it goes with its grace period, in which its Ray node drains itself."""
    if leaving(remote) or ended(remote):
        return []
    made_with = annotation(remote, names.HEAD_ANNOTATION)
    follows = cluster in worker.head_mirrors and annotation(remote, names.HEAD_SERVICE_ANNOTATION)
    if worker.head and made_with and made_with != worker.head and not follows:
        return [DeletePod(cluster, remote, f"the head moved from {made_with} to {worker.head}")]
    return []


def _ending(remote: Raw, now: datetime) -> list[Action]:
    """Nobody tells of a copy that does not end, so it is looked at when its time is over."""
    ends = moment(meta(remote).get("deletionTimestamp"))
    return [LookAgain(ends + STUCK_AFTER - now)] if ends else []


def _stuck(pod: Raw, remote: Raw, cluster: str, now: datetime) -> list[Action]:
    """A copy that should be gone, and nobody ends: its node is lost, most likely. Its worker shall be replaced all the same;
    its slot is free when that cluster has removed it."""
    ends = moment(meta(remote).get("deletionTimestamp"))  # the end of its grace period
    if ends is None or now < ends + STUCK_AFTER:
        return []
    text = f"The pod in worker cluster {cluster} is being deleted, and did not end in time; its node may be lost{_why(remote)}"
    return _failed(pod, "RemotePodStuck", text, now)


def _failed(pod: Raw, reason: str, text: str, now: datetime) -> list[Action]:
    patch = mirror.failed_patch(pod, reason=reason, message=text, now=timestamp(now))
    return [PatchStatus(pod, patch)] if patch else []


def _gone(pod: Raw, cluster: str) -> str:
    return f"The pod in worker cluster {cluster} was deleted or evicted there{_why(pod)}"


def _why(pod: Raw) -> str:
    """Why a copy went or goes, as it last said itself: Kueue, the kubelet and whoever evicts write a condition before they stop a pod."""
    said = (condition(pod, kind).get("message") for kind in ("TerminationTarget", "DisruptionTarget"))
    return next((f": {text}" for text in said if text), ".")


def _dispatched(pod: Raw) -> bool:
    """Whether the copy was seen once."""
    return bool(condition(pod, names.DISPATCHED_CONDITION))


def _open(worker: Worker, slot: str) -> bool:
    """Whether a new pod may take a slot: one that cannot be seen may be taken, and what is drained takes nobody."""
    cluster = share_key(slot)[0]
    return cluster in worker.targets and cluster not in worker.draining


def wants_slot(pod: Raw, remotes: Mapping[str, Raw]) -> bool:
    """Whether a pod may get a slot, or another one: as long as nothing was made of it, and when it has none at all."""
    return not annotation(pod, names.SLOT_ANNOTATION) or not (remotes or _dispatched(pod))


def slots(placement: Placement, pod: Raw) -> list[str]:
    """The slots of the wanted shares for the pod's worker group, in the order of the plan."""
    held = [(share, part) for share in placement.live for part in share.groups if part.name == group_of(pod)]
    return [slot for share, part in held for slot in slots_on(placement, share, part)]


def slots_on(placement: Placement, share: Share, group: GroupShare) -> list[str]:
    """The slots of one worker group on one share."""
    return [f"{share.cluster}/{placement.round_of(share)}/{group.role}/{index}" for index in range(group.count)]


def group_of(pod: Raw) -> str:
    """A pod's worker group as a Placement names it: Kueue lower-cases it for the podset's name."""
    return label(pod, names.RAY_GCS_GROUP_LABEL).lower()


def slots_taken(pods: Iterable[Raw], *, but: str | None = None) -> frozenset[str]:
    """The slots that these pods hold, without those of the pod with the uid `but` and of its copies; one that ended holds
    its slot until it is gone, for only then is its share of the reservation free again."""
    held = (
        annotation(pod, names.SLOT_ANNOTATION)
        for pod in pods
        if but is None or (uid_of(pod) != but and label(pod, names.POD_UID_LABEL) != but)
    )
    return frozenset(slot for slot in held if slot)


def _foreign(job: Job | None, pod: Raw) -> list[Action]:
    text = (
        f"Pod {meta(pod).get('name')} carries the label {names.PLACEMENT_LABEL} but belongs to no RayCluster of this job, "
        "so it is left alone; remove the label from its template."
    )
    return [Say(job, "ForeignPod", text, warning=True)] if job else []


def leaving(raw: Raw) -> bool:
    """Whether a pod is being deleted."""
    return bool(meta(raw).get("deletionTimestamp"))


def ended(raw: Raw) -> bool:
    """Whether a pod is over."""
    return (raw.get("status") or {}).get("phase") in ("Failed", "Succeeded")
