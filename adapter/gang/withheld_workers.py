"""Workers of a running gang for which no capacity is reserved for a while, because they were not created on their last.

The manager cluster refuses their pods, or none of the clusters created them. The fault is theirs: all clusters stay
open to the gang's other workers. Their wait ends early with its cause, when KubeRay has created other manager pods.
uncreated_workers.py decides who is withheld; shell/observe/transient_state.py keeps the notes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from adapter.actions import WithheldWorkers
from adapter.gang.drain_order import GangWorkers
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import GroupShare, Placement, Share
from adapter.objects.unstructured import Raw, uid_of
from adapter.objects.worker_pod import slot_share, worker_group_of


def workers_to_withhold(workers: GangWorkers, shares: Iterable[Share]) -> WithheldWorkers:
    """The workers of shares without a remote pod."""
    pods, missing = set[str](), list[GroupShare]()
    for share in shares:
        for group in share.groups:
            on_share = _pods_of(workers, share, group)
            if len(on_share) < group.count and group.hosts > 1:
                on_share = []  # KubeRay replaces all hosts of a replica that lacks one, again and again
            pods |= {uid_of(pod) for pod in on_share}
            missing += [replace(group, count=group.count - len(on_share))] if len(on_share) < group.count else []
    return WithheldWorkers(frozenset(pods), tuple(missing))


def _pods_of(workers: GangWorkers, share: Share, group: GroupShare) -> list[Raw]:
    key = workers.placement.share_key(share)
    return [pod for pod in workers.pods_with_slot if slot_share(pod) == key and worker_group_of(pod) == group.name]


def withheld_pods(placement: Placement, workers: GangWorkers, notes: Iterable[WithheldWorkers]) -> list[Raw]:
    """The manager pods that are withheld now: they have no slot on a share of the plan."""
    uids = frozenset[str]().union(*(note.pods for note in notes))
    shares = set(map(placement.share_key, placement.active_shares))
    return [pod for pod in workers.living_pods if uid_of(pod) in uids and slot_share(pod) not in shares]


def count_withheld(
    placement: Placement, workers: GangWorkers, notes: Iterable[WithheldWorkers], wanted_workers: Mapping[str, int]
) -> dict[str, int]:
    """How many workers of each group are withheld now; of those without a manager pod only as many as are missing."""
    notes = tuple(notes)
    counts = Counter(map(worker_group_of, withheld_pods(placement, workers, notes)))
    living, groups = Counter(map(worker_group_of, workers.living_pods)), [group for n in notes for group in n.missing]
    hosts = {group.name: group.hosts for group in groups}
    for name, count in _sum_by_group(groups).items():
        missing = max(wanted_workers.get(name, 0) - living[name], 0)
        counts[name] += min(count, -(-missing // hosts[name]) * hosts[name])
    return {name: count for name, count in counts.items() if count}


def withheld_after_plan(gang: Gang, newly_withheld: WithheldWorkers | None) -> dict[str, int]:
    """How many workers of each group a plan leaves out, with those that were not withheld before."""
    counts, workers = Counter(gang.pods.withheld_workers), gang.pods.workers
    if newly_withheld and workers:
        counts.update(worker_group_of(pod) for pod in workers.living_pods if uid_of(pod) in newly_withheld.pods)
        counts += _sum_by_group(newly_withheld.missing)
    return dict(counts)


def _sum_by_group(groups: Iterable[GroupShare]) -> Counter[str]:
    counts = Counter[str]()
    for group in groups:
        counts[group.name] += group.count
    return counts


def without_withheld(workers: GangWorkers, pods: Iterable[Raw], count: int) -> GangWorkers:
    """The gang without its withheld workers, which need no slot for now."""
    uids = set(map(uid_of, pods))
    others = [pod for pod in workers.pods if uid_of(pod) not in uids]
    return replace(workers, pods=others, desired_workers=max(workers.desired_workers - count, 0))
