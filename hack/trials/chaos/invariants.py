"""The invariants after a fault, and their violations. Pure: one read of all clusters in, sentences out.

What `never` lists may not occur for an instant. All else may be wrong for a while after a fault, and must be right in
the end: gangs and remote pods, and the books, which are what Placements promise, worker clusters reserve and the
manager's Workloads say. Whether two remote pods of one worker ever ran at once needs more than one read: see
hack/trials/sampler.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from adapter import names
from adapter.objects.placement import Placement, PlacementState, parse_placement
from adapter.objects.pod_requests import format_quantity, parse_quantity
from adapter.objects.unstructured import Raw, is_condition_true, label, meta, uid_of
from adapter.objects.worker_pod import slot_of
from adapter.objects.workload import Workload, parse_workload
from hack.trials import quotausage
from hack.trials.chaos.snapshot import Member, Snapshot

# The subjects of findings.
LOST = "lost"  # a worker that must run and does not
DOUBLED = "doubled"  # a worker with two remote pods
ORPHAN = "orphan"  # an object whose owner is gone
LEDGER = "ledger"  # quota that is reserved and not promised, or the reverse
RECORD = "record"  # a Workload and its Placement that contradict each other
LAB = "lab"  # the clusters, or our contact with them
CRASH = "crash"  # our controller ended without being killed
BLIND = "blind"  # a sampler did not see all

MILLICORES = 1000  # requested by each worker
_KINDS = ("pods", "shares", "anchors")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it must be, in a sentence."""

    kind: str
    text: str


def findings(snapshot: Snapshot) -> list[Finding]:
    """All that must not be so in the end."""
    return [
        *_gangs(snapshot),
        *_copies(snapshot),
        *_orphans(snapshot),
        *ledgers(snapshot),
        *records(snapshot),
        *_rejected(snapshot),
        *_leftovers(snapshot),
        *_still_leaving(snapshot),
    ]


def _gangs(snapshot: Snapshot) -> Iterator[Finding]:
    """Every gang has its head and all of its workers, and they are ready."""
    there = {meta(job)["name"]: job for job in snapshot.jobs}
    for name, count in snapshot.wanted.items():
        if name not in there or _leaving(there[name]):
            yield Finding(LOST, f"gang {name} is wanted and has no RayCluster")
            continue
        heads = [pod for pod in snapshot.heads if _gang(pod) == name]
        if [_ready(head) for head in heads] != [True]:
            yield Finding(LOST, f"gang {name} has {len(heads)} heads, and needs one that is ready")
        mine = [pod for pod in snapshot.workers if _gang(pod) == name]
        ready = sum(map(_ready, mine))
        if ready != count or len(mine) != count:
            yield Finding(LOST, f"gang {name} has {len(mine)} workers, {ready} of them ready, and shall have {count}")


def _copies(snapshot: Snapshot) -> Iterator[Finding]:
    """Each worker that holds a slot has one copy over all clusters, in the cluster of its slot, and it runs."""
    copies: dict[str, list[tuple[str, Raw]]] = {}
    for cluster, pod in _remote(snapshot, "pods"):
        copies.setdefault(label(pod, names.POD_UID_LABEL), []).append((cluster, pod))
    for worker in snapshot.workers:
        name, mine = meta(worker)["name"], copies.get(uid_of(worker), [])
        slot = slot_of(worker)
        if len(mine) > 1:
            yield Finding(DOUBLED, f"worker {name} has copies in {' and '.join(cluster for cluster, _ in mine)}")
        elif not slot:
            yield Finding(LOST, f"worker {name} has no slot")
        elif not mine:
            yield Finding(LOST, f"worker {name} holds slot {slot} and has no copy")
        elif slot.cluster != mine[0][0]:
            yield Finding(LOST, f"worker {name} holds slot {slot} and has its copy in {mine[0][0]}")
        elif not _ready(mine[0][1]):
            yield Finding(LOST, f"the copy of worker {name} in {mine[0][0]} is not ready")


def _orphans(snapshot: Snapshot) -> Iterator[Finding]:
    """Each object of ours in a worker cluster stands for something in the manager."""
    pods, gangs = (
        {uid_of(pod) for pod in snapshot.workers},
        {parse_workload(one).gang_uid for one in snapshot.workloads},
    )
    shares = {(share.cluster, p.name_of_share(share)) for p in standing(snapshot) for share in p.shares}
    for cluster, pod in _remote(snapshot, "pods"):
        if label(pod, names.POD_UID_LABEL) not in pods:
            yield Finding(ORPHAN, f"pod {meta(pod)['name']} in {cluster} has no worker in the manager")
    for kind in ("shares", "anchors"):
        for cluster, one in _remote(snapshot, kind):
            said = f"{kind[:-1]} {meta(one)['name']} in {cluster}"
            if label(one, names.WORKLOAD_UID_LABEL) not in gangs:
                yield Finding(ORPHAN, f"{said} has no Workload in the manager")
            elif (cluster, meta(one)["name"]) not in shares:
                yield Finding(ORPHAN, f"{said} is in no Placement")


def _rejected(snapshot: Snapshot) -> Iterator[Finding]:
    """A job that KubeRay rejects holds quota neither in the manager nor in a worker cluster."""
    workloads = [parse_workload(raw) for raw in snapshot.workloads]
    jobs = {work.uid: work.job.name for work in workloads if work.job}
    for work in workloads:
        if jobs.get(work.uid) in snapshot.rejected and work.holds_quota and not work.finished:
            yield Finding(LEDGER, f"job {jobs[work.uid]}, which KubeRay rejects, holds quota in the manager")
    for placement in standing(snapshot):
        if jobs.get(placement.workload_uid) in snapshot.rejected:
            name = jobs[placement.workload_uid]
            yield Finding(LEDGER, f"Placement {placement.name} is of job {name}, which KubeRay rejects")


def _leftovers(snapshot: Snapshot) -> Iterator[Finding]:
    """Nothing is left in the manager of gangs that are not wanted any more."""
    submitted = {*snapshot.wanted, *snapshot.rejected}
    for job in snapshot.jobs:
        if meta(job)["name"] not in submitted:
            yield Finding(ORPHAN, f"RayCluster {meta(job)['name']} is still there")
    for work in map(parse_workload, snapshot.workloads):
        if not work.job or work.job.name not in submitted:
            yield Finding(ORPHAN, f"Workload {work.name} in the manager is of no gang")
    uids = {uid_of(one) for one in snapshot.workloads}
    for place in map(parse_placement, snapshot.placements):
        if place.workload_uid not in uids:
            yield Finding(ORPHAN, f"Placement {place.name} has no Workload")
    for pod in snapshot.pods:
        if _gang(pod) not in snapshot.wanted:
            yield Finding(ORPHAN, f"pod {meta(pod)['name']} in the manager is of no gang")


def _still_leaving(snapshot: Snapshot) -> Iterator[Finding]:
    """Nothing is about to go."""
    here = [("the manager", pod) for pod in snapshot.pods]
    for where, raw in (*here, *(each for kind in _KINDS for each in _remote(snapshot, kind))):
        if _leaving(raw):
            yield Finding(ORPHAN, f"{meta(raw)['name']} in {where} is still leaving")


def _remote(snapshot: Snapshot, kind: str) -> Iterator[tuple[str, Raw]]:
    """The objects of a kind with their clusters."""
    for name, member in snapshot.members.items():
        listed: Mapping[str, Sequence[Raw]] = {"pods": member.pods, "shares": member.shares, "anchors": member.anchors}
        for raw in listed[kind]:
            yield name, raw


def _gang(pod: Raw) -> str:
    return label(pod, names.RAY_GCS_CLUSTER_LABEL)


def _leaving(raw: Raw) -> bool:
    return bool(meta(raw).get("deletionTimestamp"))


def _ready(pod: Raw) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and is_condition_true(pod, "Ready") and not _leaving(pod)


def never(snapshot: Snapshot) -> list[Finding]:
    """All that must not be so for an instant: no queue beyond its quota, by what Workloads hold or by pods that run.

    Of pods that leave more than one look must be known, see hack/trials/sampler.py.
    """
    found = []
    for name, member in snapshot.members.items():
        if not member.queue:  # of an earlier run, and just gone
            continue
        queues = [quotausage.queue(raw) for raw in (member.queue, member.owner_queue) if raw]
        said = quotausage.beyond(queues, quotausage.reserved(member.workloads))
        said += quotausage.pods_beyond(queues, quotausage.in_use(quotausage.running(member.pods, 0.0)))
        found += [Finding(LEDGER, f"in {name} {one}") for one in said]
    return found


def ledgers(snapshot: Snapshot) -> Iterator[Finding]:
    """Each ClusterQueue's status and the quota of its Workloads must equal what the Placements promise, in CPUs."""
    for name, member in snapshot.members.items():
        promised = MILLICORES * sum(s.workers for p in standing(snapshot) for s in p.shares if s.cluster == name)
        shown = _shown(member)
        held = sum(quotausage.by_job(member.workloads, "cpu").values())
        for source, amount in (("its ClusterQueue shows", shown), ("its Workloads hold", held)):
            if amount != promised:
                promise = f"{format_quantity(promised, 'cpu')} cpu are promised in {name}"
                yield Finding(LEDGER, f"{promise}, and {source} {format_quantity(amount, 'cpu')}")


def records(snapshot: Snapshot) -> Iterator[Finding]:
    """Each gang has one admitted Workload, and that has one Placement for as many workers, which says Placed.

    Replaced Workloads of an elastic gang do not count. Before such a gang wants any worker it has no Placement.
    """
    present = [work for work in map(parse_workload, snapshot.workloads) if not (work.finished or work.replaced)]
    workloads = [work for work in present if not (work.job and work.job.name in snapshot.rejected)]
    jobs = Counter(work.job.name for work in workloads if work.job)
    admitted = {uid_of(raw) for raw in snapshot.workloads if is_condition_true(raw, names.ADMITTED)}
    for name in snapshot.wanted:
        if jobs[name] != 1:
            yield Finding(RECORD, f"gang {name} has {jobs[name]} Workloads instead of one")
    for work in workloads:
        if work.uid not in admitted or not work.holds_quota:
            yield Finding(RECORD, f"Workload {work.name} is not admitted")
        yield from _record(snapshot, work)


def _record(snapshot: Snapshot, work: Workload) -> Iterator[Finding]:
    """The contradictions between a Workload and its Placement."""
    wanted = snapshot.wanted.get(work.job.name if work.job else "")
    mine = [place for place in standing(snapshot) if place.workload_uid == work.uid]
    if wanted == 0 and not mine:
        return
    if len(mine) != 1:
        yield Finding(RECORD, f"Workload {work.name} has {len(mine)} Placements instead of one")
        return
    (place,) = mine
    state, workers = place.status.get("state"), sum(share.workers for share in place.shares)
    if state != PlacementState.PLACED:
        yield Finding(RECORD, f"Placement {place.name} says {state}: {place.status.get('reason')}")
    if wanted is not None and workers != wanted:
        yield Finding(RECORD, f"Placement {place.name} is for {workers} workers, and the gang has {wanted}")
    if work.elastic and wanted is not None and wanted != (counted := _workers(work)):
        yield Finding(RECORD, f"Workload {work.name} is for {counted} workers, and the gang has {wanted}")
    if place.attempt != work.attempt:
        yield Finding(RECORD, f"Placement {place.name} is of another attempt than its Workload's")


def _workers(work: Workload) -> int:
    """For how many workers a Workload in the manager is."""
    return sum(podset.count for podset in work.podsets if podset.name != names.HEAD)


def standing(snapshot: Snapshot) -> list[Placement]:
    """Those that still stand for something; one that has ended is a record of what was."""
    found = map(parse_placement, snapshot.placements)
    return [place for place in found if place.status.get("state") != PlacementState.ENDED]


def _shown(member: Member) -> int:
    rows = (
        row
        for flavor in (member.queue.get("status") or {}).get("flavorsReservation") or ()
        for row in flavor.get("resources") or ()
    )
    return sum(parse_quantity(row.get("total") or "0", row["name"]) for row in rows if row["name"] == "cpu")
