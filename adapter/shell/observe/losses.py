"""Which worker clusters are silent, and which nodes there do the heads of their workers' RayClusters still hear from?

While a cluster cannot be seen, these heads are asked again and again. What is to be thought of its silence is
worker/silence.py's.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import aiohttp

from adapter import names
from adapter.objects import raycluster
from adapter.objects.raw import Key, Raw, key_of, label
from adapter.objects.workerpod import share_key, slot_of
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_ray_cluster
from adapter.shell.clusters.manager import Manager
from adapter.shell.clusters.member import FIRST_LISTS
from adapter.shell.guard import each
from adapter.worker import raynodes, silence
from adapter.worker.silence import Silence

log = logging.getLogger(__name__)

# Ray takes about a minute to give a node up: asked six times in that, we are at most ten seconds later than it.
ASK_SECONDS = 10.0
_TIMEOUT = aiohttp.ClientTimeout(total=5)
# Bytes of an answer: a thousand nodes take 600 KB; whoever sends more is no dashboard. All who are asked at the same time may.
_LARGEST = 4 << 20
_AT_ONCE = 20  # heads that are asked at the same time


class Losses:
    """What is known of worker clusters that cannot be seen."""

    def __init__(self, manager: Manager, fleet: Fleet) -> None:
        self._manager, self._fleet = manager, fleet
        # By RayCluster, once its head was asked: node address -> whether the head hears from it, and when it said so.
        self._alive: dict[Key, tuple[dict[str, bool], float]] = {}

    def given_up(self, clusters: Iterable[str], timeout: timedelta, now: datetime) -> dict[str, str]:
        """Those of the clusters whose workers count as lost, unless Ray still hears from them, each with the reason."""
        return silence.given_up({name: self._silence(name, timeout) for name in clusters}, now)

    def of_pod(self, cluster: str, pod: Raw, timeout: timedelta) -> Silence | None:
        """What is to be thought of a pod with a slot in a cluster; None while that can be seen."""
        nodes, _ = self._alive.get(_ray_cluster(pod), (None, 0.0))
        return silence.of_pod(self._silence(cluster, timeout), pod, nodes)

    def _silence(self, cluster: str, timeout: timedelta) -> Silence | None:
        raw, why = self._manager.worker_clusters.named(cluster), self._fleet.silent().get(cluster)
        return silence.of_cluster(raw, why, begun=(why or "").endswith(FIRST_LISTS), timeout=timeout)

    async def run(self, heard: Callable[[Raw], None]) -> None:
        """Ask heads for as long as clusters are silent, until cancelled; `heard` is told of each pod with news."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            while True:
                pods = [] if self._manager.lost else self._unseen()
                before, heads = self._alive, self._heads(pods)
                turns = asyncio.Semaphore(_AT_ONCE)
                answers = await asyncio.gather(*(self._ask(session, head, turns) for head in heads.values()))
                now = asyncio.get_running_loop().time()
                self._alive = {
                    key: raynodes.newest(new, before.get(key), now) for key, new in zip(heads, answers, strict=True)
                }
                for pod in pods:
                    if before.get(_ray_cluster(pod), (None,))[0] != self._alive[_ray_cluster(pod)][0]:
                        heard(pod)
                await asyncio.sleep(ASK_SECONDS)

    def _unseen(self) -> list[Raw]:
        silent = self._fleet.silent()
        if not silent:
            return []
        return [pod for pod in self._manager.pods if share_key(slot_of(pod))[0] in silent]

    def _heads(self, pods: Sequence[Raw]) -> dict[Key, Raw | None]:
        """The head of each RayCluster that one of these pods is of."""
        found: dict[Key, Raw | None] = {_ray_cluster(pod): None for pod in pods}
        for pod, head in each(
            "losses", pods, lambda one: raycluster.head(one, self._manager.heads.group(by_ray_cluster(one)))
        ):
            found[_ray_cluster(pod)] = found[_ray_cluster(pod)] or head
        return found

    async def _ask(
        self, session: aiohttp.ClientSession, head: Raw | None, turns: asyncio.Semaphore
    ) -> dict[str, bool] | None:
        """Which nodes a head hears from; None when it cannot be asked: a token may be wanted, or a policy in the way."""
        if head is None:
            return None
        try:
            address = head["status"]["podIP"]
            host = f"[{address}]" if ":" in address else address
            url = f"http://{host}:{raynodes.dashboard_port(head)}{raynodes.PATH}"
            async with turns, session.get(url, params={"limit": "10000"}, allow_redirects=False) as answer:
                return raynodes.alive(json.loads(await _whole(answer))) if answer.status == 200 else None
        except Exception as error:  # its user wrote what a head says
            log.info("head %s/%s does not tell which nodes it hears from: %s", *key_of(head), type(error).__name__)
            return None


async def _whole(answer: aiohttp.ClientResponse) -> bytes:
    """All of a body; raises ValueError when it is larger than _LARGEST."""
    body = bytearray()
    async for part in answer.content.iter_any():
        body += part
        if len(body) > _LARGEST:
            raise ValueError
    return bytes(body)


def _ray_cluster(pod: Raw) -> Key:
    return key_of(pod)[0], label(pod, names.RAY_GCS_CLUSTER_LABEL)
