"""Plays KubeRay, which replaces workers, and Kueue, which admits gangs, in the fleet's fault benches.

They act at once, unlike the real ones, so the time measured beside them is the controller's. Each does only what its
bench needs.
"""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

from adapter import names
from adapter.objects.unstructured import Raw, format_time, key_of, label, uid_of
from adapter.objects.worker_pod import has_ended
from adapter.shell.kube import resources
from hack.bench import fleetinput
from hack.bench.fleetapi import Cluster
from hack.bench.fleetgang import CHECK, Gang
from hack.bench.fleetinput import CPUS
from hack.bench.fleetworld import World

# Old enough that no gang is as young as another's reconcile, and less than the ten minutes after which a gang holds
# capacity.
_OLDEST = timedelta(minutes=4)
_APART = timedelta(seconds=1)  # API servers tell whole seconds


class KubeRay:
    """Has a new pod in the place of each worker that failed, under the number that is free again."""

    def __init__(self, world: World, gang: Gang) -> None:
        self._world, self._gang = world, gang
        self._gone, self._again = set[str](), Counter[int]()
        world.manager.follow(resources.PODS, self._heard)

    def _heard(self, _: Cluster, pod: Raw) -> None:
        if has_ended(pod) and uid_of(pod) not in self._gone:
            self._gone.add(uid_of(pod))
            asyncio.get_running_loop().call_soon(self._replace, pod)

    def _replace(self, pod: Raw) -> None:
        self._again[number := number_of(pod)] += 1
        self._world.manager.remove(resources.PODS, key_of(pod))
        self._world.manager.put(resources.PODS, self._gang.gated(number, self._again[number]))


def number_of(pod: Raw) -> int:
    """KubeRay's number of a worker."""
    return int(label(pod, names.RAY_REPLICA_INDEX_LABEL))


class Crowd:
    """Gangs that wait for capacity, the oldest first, and Kueue: an admitted share takes all that was free."""

    def __init__(self, world: World, gangs: int, workers: int) -> None:
        self.gangs = [Gang(number, workers, world.size.names, "") for number in range(gangs)]
        self._world = world
        since = datetime.now(UTC) - _OLDEST
        for number, gang in enumerate(self.gangs):
            created = since + min(_APART * number, _OLDEST)
            for resource, raw in gang.waiting(created):
                world.manager.put(resource, raw)
        for name in world.size.names:
            world.clusters[name].put(resources.CLUSTER_QUEUES, fleetinput.queue(CPUS))
            world.clusters[name].listen(resources.WORKLOADS, self._admit)

    def free(self, cluster: str, cpus: int) -> None:
        """Have so many CPUs free in a worker cluster."""
        self._world.clusters[cluster].put(resources.CLUSTER_QUEUES, fleetinput.queue(CPUS - cpus))

    def waits(self) -> bool:
        """Whether each gang was planned, and told that it waits."""
        told = (check_of(work) for work in self._world.manager.all(resources.WORKLOADS))
        return all(check["message"] or check["state"] == names.CHECK_READY for check in told)

    def _admit(self, cluster: Cluster, share: Raw) -> None:
        now = format_time(datetime.now(UTC))
        kinds = names.QUOTA_RESERVED, names.ADMITTED
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds]
        roles = [{"name": one["name"], "flavors": {}} for one in share["spec"]["podSets"]]
        status = {"conditions": conditions, "admission": {"clusterQueue": "all", "podSetAssignments": roles}}
        cluster.put(resources.WORKLOADS, {**share, "status": status})
        cluster.put(resources.CLUSTER_QUEUES, fleetinput.queue(CPUS))


def check_of(work: Raw) -> Raw:
    """Our check's state on a gang's Workload."""
    found: Raw = next(one for one in work["status"]["admissionChecks"] if one["name"] == CHECK)
    return found
