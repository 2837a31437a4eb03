"""What stands for gangs: which Placement and which live Workload, and which shares in the clusters that can be seen?

Clusters that cannot be seen show no shares. Whether a share is to stay is for gang/lifecycle.py.
"""

import functools
from dataclasses import replace
from typing import Literal

from adapter import names
from adapter.objects.placement import Placement, share_name
from adapter.objects.rayjob import job_presence
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Key, Raw, key_of, label
from adapter.objects.worker_pod import Slot, slot_share
from adapter.objects.workload import Workload
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.worker_cache import Member
from adapter.shell.supervise import each


class Shares:
    """Reads Placements, and the group Workloads that stand for them."""

    def __init__(self, manager: Manager, fleet: Fleet) -> None:
        self._manager, self._fleet = manager, fleet

    def workers_in(self, cluster: str) -> int:
        """For how many workers quota is held or asked for in a cluster: by the Placements of Workloads that are not over, or by
        what stands there, whichever is more."""
        places = (place for _, place in each("cluster", self._manager.placements, self._manager.place))
        live = (place for place in places if self.workload_of(place))
        wanted = sum(share.workers for place in live for share in place.live if share.cluster == cluster)
        member = self._fleet.members().get(cluster)
        standing = each("cluster", member.workloads if member else (), _workers)
        return max(wanted, sum(workers for _, workers in standing))

    def placement_of(self, pod: Raw) -> Placement | None:
        """The Placement that a pod is labelled with."""
        found = self._manager.placements.get((key_of(pod)[0], label(pod, names.PLACEMENT_LABEL)))
        return self._manager.place(found) if found else None

    def workload_of(self, place: Placement) -> Workload | None:
        """The Workload that a Placement stands for, while it holds quota and is not over."""
        raw = self._manager.gang((place.namespace, place.gang))
        work = self._manager.known(self._manager.work(raw)) if raw else None
        return work if work and place.stands_for(work) else None

    def leaving(self, work: Workload) -> bool:
        """Whether a Workload or its job is being deleted, which a finalizer may keep up for hours."""
        return work.deleted or self.job_of(work) == "Leaving"

    def job_of(self, work: Workload) -> Literal["There", "Leaving", "Gone"]:
        """Whether a Workload's job is there; none is missed where there is none."""
        return job_presence(work.job, self._manager.job(work.job)) if work.job else "There"

    def under(self, place: Placement, slot: Slot | None) -> list[Reservation]:
        """What stands for the share that a slot is on, none where it cannot be seen or read: asked for each worker, and an elastic job
        has a share for almost every one."""
        if slot is None:
            return []
        cluster, number = slot.share
        member = self._fleet.seen().get(cluster)
        raw = member.workloads.get((place.namespace, share_name(place.name, number))) if member else None
        if member is None or raw is None:
            return []
        readable = (one for _, one in each("share", [raw], functools.partial(_reservation, member)))
        return [one for one in readable if (one.placement, one.round) == (place.name, number)]

    def read(self, key: Key) -> tuple[list[Reservation], list[str]]:
        """What stands for a gang in the clusters that can be seen, as far as it can be read; and the clusters that show something for it
        that cannot be: no API server gives that in its right mind, so such a cluster is not to be believed about this gang."""
        found, odd, of = list[Reservation](), list[str](), "/".join(key)
        for name, member in self._fleet.seen().items():
            shown = member.workloads.group(of)
            if not shown:
                continue  # as in most of a hundred clusters
            readable = [one for _, one in each("share", shown, functools.partial(_reservation, member))]
            found += readable
            odd += [name] * (len(readable) < len(shown))
        return found, odd


def _reservation(member: Member, raw: Raw) -> Reservation:
    return _with_pods(member, member.reservation(raw))


def _workers(share: Raw) -> int:
    return sum(int(podset.get("count") or 0) for podset in share["spec"].get("podSets") or ())


def _with_pods(member: Member, found: Reservation) -> Reservation:
    """Whether an evicted share has lost its last pod before Kueue took note of it."""
    if not found.evicted or found.reserved_at is None:
        return found
    pods = member.pods.group(f"{found.namespace}/{found.placement}")
    on_it = (slot_share(pod) == found.key for pod in pods)
    return replace(found, stranded=not any(on_it))
