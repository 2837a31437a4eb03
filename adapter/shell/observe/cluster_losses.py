"""Polls RayClusters' heads for the Ray nodes in unreachable clusters that they are still connected to.

worker/head_polling.py schedules polls; worker/cluster_loss.py decides what answers mean.
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
from adapter.relay import relay_network
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_placement, by_ray_cluster
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.observe import head_client
from adapter.shell.observe.head_client import HeadAnswer, HeadClient
from adapter.shell.supervise import contain_errors, read_each
from adapter.worker import cluster_loss, head_polling, ray_nodes
from adapter.worker.cluster_loss import ClusterLoss
from adapter.worker.head_polling import HeadId, HeadPollState

log = logging.getLogger(__name__)

# How often pods and heads are read: with five thousand pods and an unreachable cluster, a read takes 8 ms.
REFRESH_SECONDS = 1.0

LossListener = Callable[[Raw], None]


class ClusterLosses:
    def __init__(self, manager: ManagerCache, fleet: Fleet) -> None:
        self._manager, self._fleet = manager, fleet
        # By RayCluster: pod name -> whether the head hears from its node, None until it answers; and the answer's time.
        self._live_nodes: dict[Key, ray_nodes.Answer] = {}
        # Why heads will not answer before a user corrects something.
        self._head_problems: dict[Key, str] = {}
        self._heads: dict[HeadId, Raw] = {}
        self._poll_schedule: dict[HeadId, HeadPollState] = {}
        self._in_flight: dict[HeadId, HeadPollState] = {}
        self._poll_done = asyncio.Event()
        # The pods in unreachable clusters.
        self._pods_by_ray_cluster: Mapping[Key, list[Raw]] = {}

    def given_up_clusters(self, clusters: Iterable[str], timeout: timedelta, now: datetime) -> dict[str, str]:
        """The clusters whose workers count as lost unless Ray still hears from them, with the reason."""
        return cluster_loss.given_up_clusters({name: self._cluster_silence(name, timeout) for name in clusters}, now)

    def silence_of_pod(self, cluster: str, pod: Raw, timeout: timedelta) -> ClusterLoss | None:
        """The loss of a pod; None while its cluster is reachable."""
        nodes, _ = self._live_nodes.get(_ray_cluster_key(pod), (None, 0.0))
        return cluster_loss.loss_of_pod(
            self._cluster_silence(cluster, timeout), pod, nodes, self._head_problems.get(_ray_cluster_key(pod), "")
        )

    def is_node_dead(self, pod: Raw) -> bool:
        """Whether the head reports a pod's node as dead; False without a report."""
        nodes, _ = self._live_nodes.get(_ray_cluster_key(pod), (None, 0.0))
        return (nodes or {}).get(key_of(pod)[1]) is False

    def _cluster_silence(self, cluster: str, timeout: timedelta) -> ClusterLoss | None:
        raw, reason = self._manager.worker_clusters.by_name(cluster), self._fleet.unreachable_reasons().get(cluster)
        return cluster_loss.loss_of_cluster(raw, reason, timeout=timeout)

    async def run(self, listener: LossListener) -> None:
        """Poll heads while clusters are unreachable; `listener` gets each pod whose state changed."""
        loop = asyncio.get_running_loop()
        self._in_flight.clear()  # of an earlier run that failed
        async with head_client.open_client(self._manager) as client, asyncio.TaskGroup() as tasks:
            while True:
                self._refresh_heads(listener)
                refresh_at = loop.time() + REFRESH_SECONDS
                while loop.time() < refresh_at:
                    for head in head_polling.heads_to_poll(self._poll_schedule, self._in_flight, loop.time()):
                        self._in_flight[head] = self._poll_schedule[head]
                        tasks.create_task(self._poll_head(client, head, self._heads[head], listener))
                    self._poll_done.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(refresh_at):
                            await self._poll_done.wait()

    def _refresh_heads(self, listener: LossListener) -> None:
        now, before = asyncio.get_running_loop().time(), self._live_nodes
        self._pods_by_ray_cluster = self._unreachable_pods()
        heads = {key: self._live_head(pods) for key, pods in self._pods_by_ray_cluster.items()}
        self._heads = {(*key, uid_of(head)): head for key, head in heads.items() if head}
        self._poll_schedule = {head: self._poll_schedule.get(head, HeadPollState()) for head in self._heads}
        polled = [key for key, head in heads.items() if key in before or head is None]
        self._live_nodes = {
            key: ray_nodes.newest_answer(None, before.get(key, ray_nodes.NO_NODES), now) for key in polled
        }
        self._head_problems = {key: reason for key, reason in self._head_problems.items() if heads.get(key)}
        for key in polled:
            if before.get(key, (None,))[0] != self._live_nodes[key][0]:
                self._notify_pods(key, listener)

    def _unreachable_pods(self) -> Mapping[Key, list[Raw]]:
        """The pods in unreachable clusters; none while the manager is unreachable too."""
        unreachable, pods = self._fleet.unreachable(), defaultdict[Key, list[Raw]](list)
        for pod in self._manager.pods if unreachable and not self._manager.unreachable_reason else ():
            with contain_errors("losses", key_of(pod)):
                if slot_cluster(pod) in unreachable:
                    pods[_ray_cluster_key(pod)].append(pod)
        return pods

    def _live_head(self, pods: Iterable[Raw]) -> Raw | None:
        """The head; an ended one does not count, because another pod may have its address now."""
        heads = read_each(
            "losses", pods, lambda pod: raycluster.find_head(pod, self._manager.heads.by_index(by_ray_cluster(pod)))
        )
        return next((head for _, head in heads if head and not has_ended(head)), None)

    async def _poll_head(self, client: HeadClient, head: HeadId, pod: Raw, listener: LossListener) -> None:
        answer = HeadAnswer()
        try:
            answer = await client.poll_nodes(pod)
        except Exception as error:  # the answer is a user's and may be anything
            if not self._in_flight[head].failures:
                log.info(
                    "head %s/%s does not report which nodes it is connected to: %s", *key_of(pod), type(error).__name__
                )
        finally:
            del self._in_flight[head]
            self._poll_done.set()
        if head in self._poll_schedule:
            self._note_answer(head, answer, listener)

    def _note_answer(self, head: HeadId, answer: HeadAnswer, listener: LossListener) -> None:
        now, key = asyncio.get_running_loop().time(), head_polling.ray_cluster_key(head)
        before, answer = (
            (self._live_nodes.get(key), self._head_problems.get(key, "")),
            self._only_own_nodes(head, answer),
        )
        self._poll_schedule[head] = head_polling.state_after_poll(
            self._poll_schedule[head], answer.nodes is not None, now
        )
        # A head that denies the request will not answer within a minute.
        previous = before[0] or (ray_nodes.NO_NODES if answer.problem else None)
        self._live_nodes[key] = ray_nodes.newest_answer(answer.nodes, previous, now)
        self._head_problems[key] = answer.problem
        if before[0] is None or (before[0][0], before[1]) != (self._live_nodes[key][0], answer.problem):
            self._notify_pods(key, listener)

    def _only_own_nodes(self, head: HeadId, answer: HeadAnswer) -> HeadAnswer:
        """The answer by pod name, without the nodes of other pods, which may be many."""
        if answer.nodes is None:
            return answer
        pods = self._pods_by_ray_cluster.get(head_polling.ray_cluster_key(head), ())
        siblings = (pod for gang in {by_placement(pod) for pod in pods} for pod in self._manager.pods.by_index(gang))
        network = relay_network.network_of_head(self._heads[head])
        own = {key_of(pod)[1]: cluster_loss.ray_node_address(pod, network) for pod in pods}
        known = {cluster_loss.ray_node_address(pod, network) for pod in (self._heads[head], *siblings)}
        return replace(answer, nodes=ray_nodes.states_of_pods(answer.nodes, answer.clusters, own, known))

    def _notify_pods(self, key: Key, listener: LossListener) -> None:
        for pod in self._pods_by_ray_cluster.get(key, ()):
            listener(pod)


def _ray_cluster_key(pod: Raw) -> Key:
    return key_of(pod)[0], label(pod, names.RAY_GCS_CLUSTER_LABEL)
