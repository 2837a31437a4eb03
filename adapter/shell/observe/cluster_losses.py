"""Which worker clusters are silent, and which nodes there do the heads of their workers' RayClusters still hear from?

While a cluster cannot be seen, these heads are asked again and again, each on a schedule of its own (worker/head_polling.py). What is
to be thought of its silence is worker/cluster_loss.py's.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from adapter import names
from adapter.objects import raycluster
from adapter.objects.unstructured import Key, Raw, key_of, label, uid_of
from adapter.objects.worker_pod import has_ended, slot_cluster
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_ray_cluster
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.worker_cache import FIRST_LISTS
from adapter.shell.observe import head_client
from adapter.shell.observe.head_client import HeadClient, Heard
from adapter.shell.supervise import contained, each
from adapter.worker import cluster_loss, head_polling, ray_nodes
from adapter.worker.cluster_loss import Silence
from adapter.worker.head_polling import Head, Turn

log = logging.getLogger(__name__)

# Between two looks at who is to be asked: with five thousand pods one takes 8 ms, while a cluster is silent.
LOOK_SECONDS = 1.0

Tell = Callable[[Raw], None]


class Losses:
    """What is known of worker clusters that cannot be seen."""

    def __init__(self, manager: Manager, fleet: Fleet) -> None:
        self._manager, self._fleet = manager, fleet
        # By RayCluster, once its head was asked: node address -> whether the head hears from it, and when it said so.
        self._alive: dict[Key, tuple[Mapping[str, bool], float]] = {}
        self._late: dict[Key, str] = {}  # by RayCluster: why its head answers nobody before something is put right
        # Whose turn it is: those to be asked, and those that are being asked.
        self._heads: dict[Head, Raw] = {}
        self._turns: dict[Head, Turn] = {}
        self._flying: dict[Head, Turn] = {}
        self._landed = asyncio.Event()  # one of the latter is done
        self._pods: Mapping[Key, list[Raw]] = {}  # by RayCluster: the pods of clusters that cannot be seen

    def given_up(self, clusters: Iterable[str], timeout: timedelta, now: datetime) -> dict[str, str]:
        """Those of the clusters whose workers count as lost, unless Ray still hears from them, each with the reason."""
        return cluster_loss.given_up({name: self._silence(name, timeout) for name in clusters}, now)

    def of_pod(self, cluster: str, pod: Raw, timeout: timedelta) -> Silence | None:
        """What is to be thought of a pod with a slot in a cluster; None while that can be seen."""
        nodes, _ = self._alive.get(_ray_cluster(pod), (None, 0.0))
        return cluster_loss.of_pod(self._silence(cluster, timeout), pod, nodes, self._late.get(_ray_cluster(pod), ""))

    def dead(self, pod: Raw) -> bool:
        """Whether the head says that the node is dead of a pod whose cluster cannot be seen; False where it says nothing."""
        nodes, _ = self._alive.get(_ray_cluster(pod), (None, 0.0))
        return (nodes or {}).get(cluster_loss.address(pod)) is False

    def _silence(self, cluster: str, timeout: timedelta) -> Silence | None:
        raw, why = self._manager.worker_clusters.named(cluster), self._fleet.silent().get(cluster)
        return cluster_loss.of_cluster(raw, why, begun=(why or "").endswith(FIRST_LISTS), timeout=timeout)

    async def run(self, heard: Tell) -> None:
        """Ask heads for as long as clusters are silent, until cancelled; `heard` is told of each pod with news."""
        loop = asyncio.get_running_loop()
        self._flying.clear()  # of an earlier run, which a fault has ended
        async with head_client.opened(self._manager) as client, asyncio.TaskGroup() as tasks:
            while True:
                self._follow(heard)
                again = loop.time() + LOOK_SECONDS
                while loop.time() < again:
                    for head in head_polling.chosen(self._turns, self._flying, loop.time()):
                        self._flying[head] = self._turns[head]
                        tasks.create_task(self._ask(client, head, self._heads[head], heard))
                    self._landed.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(again):
                            await self._landed.wait()

    def _follow(self, heard: Tell) -> None:
        """See who is to be asked now, and forget all others. Who has no head is as good as asked."""
        now, before = asyncio.get_running_loop().time(), self._alive
        self._pods = self._unseen()
        heads = {key: self._head(pods) for key, pods in self._pods.items()}
        self._heads = {(*key, uid_of(head)): head for key, head in heads.items() if head}
        self._turns = {head: self._turns.get(head, Turn()) for head in self._heads}
        known = [key for key, head in heads.items() if key in before or head is None]
        self._alive = {key: ray_nodes.newest(None, before.get(key), now) for key in known}
        self._late = {key: why for key, why in self._late.items() if heads.get(key)}
        for key in known:
            if before.get(key, (None,))[0] != self._alive[key][0]:
                self._tell(key, heard)

    def _unseen(self) -> Mapping[Key, list[Raw]]:
        """The pods of clusters that cannot be seen, by RayCluster; none while the manager cannot be seen either."""
        silent, found = self._fleet.silent(), defaultdict[Key, list[Raw]](list)
        for pod in self._manager.pods if silent and not self._manager.lost else ():
            with contained("losses", key_of(pod)):
                if slot_cluster(pod) in silent:
                    found[_ray_cluster(pod)].append(pod)
        return found

    def _head(self, pods: Iterable[Raw]) -> Raw | None:
        """The head of these pods' RayCluster. One that has ended keeps its address in its status, and another pod may have it."""
        found = each("losses", pods, lambda pod: raycluster.head(pod, self._manager.heads.group(by_ray_cluster(pod))))
        return next((head for _, head in found if head and not has_ended(head)), None)

    async def _ask(self, client: HeadClient, head: Head, pod: Raw, heard: Tell) -> None:
        """Ask one head, and note what comes of it."""
        answer = Heard()
        try:
            answer = await client.ask(pod)
        except Exception as error:  # its user wrote what a head says
            if not self._flying[head].misses:
                log.info("head %s/%s does not tell which nodes it hears from: %s", *key_of(pod), type(error).__name__)
        finally:
            del self._flying[head]
            self._landed.set()
        if head in self._turns:  # it is to be asked still
            self._note(head, answer, heard)

    def _note(self, head: Head, answer: Heard, heard: Tell) -> None:
        now, key = asyncio.get_running_loop().time(), head_polling.ray_cluster(head)
        before, answer = (self._alive.get(key), self._late.get(key, "")), self._of_pods(key, answer)
        self._turns[head] = head_polling.after(self._turns[head], answer.nodes is not None, now)
        self._alive[key] = ray_nodes.newest(answer.nodes, before[0], now)
        self._late[key] = answer.late
        if before[0] is None or (before[0][0], before[1]) != (self._alive[key][0], answer.late):
            self._tell(key, heard)

    def _of_pods(self, key: Key, answer: Heard) -> Heard:
        """What an answer says of the pods for whose sake it was asked: the rest may be any number of nodes."""
        if answer.nodes is None:
            return answer
        there = {cluster_loss.address(pod) for pod in self._pods.get(key, ())}
        return replace(answer, nodes={node: heard for node, heard in answer.nodes.items() if node in there})

    def _tell(self, key: Key, heard: Tell) -> None:
        for pod in self._pods.get(key, ()):
            heard(pod)


def _ray_cluster(pod: Raw) -> Key:
    return key_of(pod)[0], label(pod, names.RAY_GCS_CLUSTER_LABEL)
