"""What must be true when a fault is over, and which of it is not? Pure: one look at all clusters in, sentences out.

All of it may be so for a while after a fault, and must be gone in the end. Quota and records are compared in accounts.py;
whether two copies of one worker ever ran at the same time needs more than one look: see lives.py.
"""

from collections.abc import Iterator, Mapping, Sequence

from adapter import names
from adapter.objects.placement import placement
from adapter.objects.raw import Raw, is_true, label, meta, uid_of
from adapter.objects.workerpod import slot_of
from adapter.objects.workload import workload
from hack.trials.chaos import accounts
from hack.trials.chaos.finding import DOUBLED, LOST, ORPHAN, Finding
from hack.trials.chaos.look import Sight


def findings(sight: Sight) -> list[Finding]:
    """All that must not be so in the end."""
    return [
        *_gangs(sight),
        *_copies(sight),
        *_orphans(sight),
        *accounts.ledgers(sight),
        *accounts.records(sight),
        *_leftovers(sight),
        *_still_leaving(sight),
    ]


def _gangs(sight: Sight) -> Iterator[Finding]:
    """Every gang has its head and all of its workers, and they are ready."""
    there = {meta(job)["name"]: job for job in sight.jobs}
    for name, count in sight.wanted.items():
        if name not in there or _leaving(there[name]):
            yield Finding(LOST, f"gang {name} is wanted and has no RayCluster")
            continue
        heads = [pod for pod in sight.heads if _gang(pod) == name]
        if [_ready(head) for head in heads] != [True]:
            yield Finding(LOST, f"gang {name} has {len(heads)} heads, and needs one that is ready")
        mine = [pod for pod in sight.workers if _gang(pod) == name]
        ready = sum(map(_ready, mine))
        if ready != count or len(mine) != count:
            yield Finding(LOST, f"gang {name} has {len(mine)} workers, {ready} of them ready, and shall have {count}")


def _copies(sight: Sight) -> Iterator[Finding]:
    """Each worker that holds a slot has one copy over all clusters, in the cluster of its slot, and it runs."""
    copies: dict[str, list[tuple[str, Raw]]] = {}
    for cluster, pod in _remote(sight, "pods"):
        copies.setdefault(label(pod, names.POD_UID_LABEL), []).append((cluster, pod))
    for worker in sight.workers:
        name, mine = meta(worker)["name"], copies.get(uid_of(worker), [])
        slot = slot_of(worker)
        if len(mine) > 1:
            yield Finding(DOUBLED, f"worker {name} has copies in {' and '.join(cluster for cluster, _ in mine)}")
        elif not slot:
            yield Finding(LOST, f"worker {name} has no slot")
        elif not mine:
            yield Finding(LOST, f"worker {name} holds slot {slot} and has no copy")
        elif not slot.startswith(f"{mine[0][0]}/"):
            yield Finding(LOST, f"worker {name} holds slot {slot} and has its copy in {mine[0][0]}")
        elif not _ready(mine[0][1]):
            yield Finding(LOST, f"the copy of worker {name} in {mine[0][0]} is not ready")


def _orphans(sight: Sight) -> Iterator[Finding]:
    """Each object of ours in a worker cluster stands for something in the manager."""
    pods, gangs = {uid_of(pod) for pod in sight.workers}, {uid_of(one) for one in sight.workloads}
    shares = {(share.cluster, p.name_of(share)) for p in accounts.standing(sight) for share in p.shares}
    for cluster, pod in _remote(sight, "pods"):
        if label(pod, names.POD_UID_LABEL) not in pods:
            yield Finding(ORPHAN, f"pod {meta(pod)['name']} in {cluster} has no worker in the manager")
    for kind in ("shares", "anchors"):
        for cluster, one in _remote(sight, kind):
            said = f"{kind[:-1]} {meta(one)['name']} in {cluster}"
            if label(one, names.WORKLOAD_UID_LABEL) not in gangs:
                yield Finding(ORPHAN, f"{said} has no Workload in the manager")
            elif (cluster, meta(one)["name"]) not in shares:
                yield Finding(ORPHAN, f"{said} is in no Placement")


def _leftovers(sight: Sight) -> Iterator[Finding]:
    """Nothing is left in the manager of gangs that are not wanted any more."""
    for job in sight.jobs:
        if meta(job)["name"] not in sight.wanted:
            yield Finding(ORPHAN, f"RayCluster {meta(job)['name']} is still there")
    for work in map(workload, sight.workloads):
        if not work.job or work.job.name not in sight.wanted:
            yield Finding(ORPHAN, f"Workload {work.name} in the manager is of no gang")
    uids = {uid_of(one) for one in sight.workloads}
    for place in map(placement, sight.placements):
        if place.workload_uid not in uids:
            yield Finding(ORPHAN, f"Placement {place.name} has no Workload")
    for pod in sight.pods:
        if _gang(pod) not in sight.wanted:
            yield Finding(ORPHAN, f"pod {meta(pod)['name']} in the manager is of no gang")


def _still_leaving(sight: Sight) -> Iterator[Finding]:
    """Nothing is about to go."""
    here = [("the manager", pod) for pod in sight.pods]
    for where, raw in (*here, *(each for kind in _KINDS for each in _remote(sight, kind))):
        if _leaving(raw):
            yield Finding(ORPHAN, f"{meta(raw)['name']} in {where} is still leaving")


_KINDS = ("pods", "shares", "anchors")


def _remote(sight: Sight, kind: str) -> Iterator[tuple[str, Raw]]:
    """The objects of a kind with their clusters."""
    for name, member in sight.members.items():
        listed: Mapping[str, Sequence[Raw]] = {"pods": member.pods, "shares": member.shares, "anchors": member.anchors}
        for raw in listed[kind]:
            yield name, raw


def _gang(pod: Raw) -> str:
    return label(pod, names.RAY_GCS_CLUSTER_LABEL)


def _leaving(raw: Raw) -> bool:
    return bool(meta(raw).get("deletionTimestamp"))


def _ready(pod: Raw) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and is_true(pod, "Ready") and not _leaving(pod)
