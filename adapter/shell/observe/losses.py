"""Since when can a worker cluster not be seen, when do its workers count as lost, and does Ray still hear from them?

The first loss stands in the WorkerCluster's status, so a restart of ours, or a link that comes and goes, does not start
the clock anew. While a cluster is silent, the heads of the RayClusters with workers there are asked which nodes they
hear from: Ray's own word counts for more than our link. Who is given up is decided in worker/report.py and gang/running.py.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import aiohttp

from adapter import names
from adapter.objects.raw import Key, Raw, key_of, label, meta, moment
from adapter.objects.workerpod import share_key, slot_of
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_ray_cluster
from adapter.shell.clusters.manager import Home
from adapter.shell.clusters.remote import FIRST_LISTS
from adapter.worker import raynodes
from adapter.worker.facts import Silence

log = logging.getLogger(__name__)

# Ray takes about a minute to give a node up: asked six times in that, we are at most ten seconds later than it.
ASK_SECONDS = 10.0
_TIMEOUT = aiohttp.ClientTimeout(total=5)
# Bytes of an answer: a thousand nodes take 600 KB; whoever sends more is no dashboard. All who are asked at the same time may.
_LARGEST = 4 << 20
# An answer counts for this long when later ones fail: a dashboard that is busy for a moment has not lost its nodes.
REMEMBERED_SECONDS = 60.0
_AT_ONCE = 20  # heads that are asked at the same time
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Losses:
    """What is known of worker clusters that cannot be seen."""

    def __init__(self, home: Home, fleet: Fleet) -> None:
        self._home, self._fleet = home, fleet
        # By RayCluster, once its head was asked: node address -> whether the head hears from it, and when it said so.
        self._alive: dict[Key, tuple[dict[str, bool], float]] = {}

    def given_up(self, clusters: Iterable[str], timeout: timedelta, now: datetime) -> dict[str, str]:
        """Those of the clusters whose workers count as lost, unless Ray still hears from them, each with the reason."""
        found = {}
        for name in clusters:
            silence = self._silence(name, timeout)
            if silence and silence.until and now >= silence.until:
                found[name] = f"the worker cluster {silence.why}"
        return found

    def silence(self, cluster: str, pod: Raw, timeout: timedelta) -> Silence | None:
        """What is to be thought of a pod with a slot in a cluster; None while that can be seen."""
        found = self._silence(cluster, timeout)
        if found is None:
            return None
        if found.since and _ray_cluster(pod) not in self._alive:
            return Silence(found.why, found.since, None, None)  # nobody is given up before Ray was asked
        address = str((pod.get("status") or {}).get("podIP") or "")
        known, _ = self._alive.get(_ray_cluster(pod), ({}, 0.0))
        return Silence(found.why, found.since, found.until, known.get(address))

    def _silence(self, cluster: str, timeout: timedelta) -> Silence | None:
        raw = self._home.worker_clusters.named(cluster)
        if raw is None:
            return Silence("is not registered any more", None, _LONG_AGO, None)
        why = self._fleet.silent().get(cluster)
        if why is None:
            return None
        since = moment((raw.get("status") or {}).get("lostSince"))
        if since is None or why.endswith(FIRST_LISTS):  # it may be well again since this process began to read it
            return Silence("cannot be seen", None, None, None)
        return Silence(f"cannot be seen since {since:%H:%M:%S} UTC", since, since + timeout, None)

    async def run(self, heard: Callable[[Raw], None]) -> None:
        """Ask heads for as long as clusters are silent, until cancelled; `heard` is told of each pod with news."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            while True:
                pods = [] if self._home.lost else self._unseen()
                before, heads = self._alive, {_ray_cluster(pod): self._head(pod) for pod in pods}
                turns = asyncio.Semaphore(_AT_ONCE)
                answers = await asyncio.gather(*(self._ask(session, head, turns) for head in heads.values()))
                now = asyncio.get_running_loop().time()
                self._alive = {key: _newest(new, before.get(key), now) for key, new in zip(heads, answers, strict=True)}
                for pod in pods:
                    if before.get(_ray_cluster(pod), (None,))[0] != self._alive[_ray_cluster(pod)][0]:
                        heard(pod)
                await asyncio.sleep(ASK_SECONDS)

    def _unseen(self) -> list[Raw]:
        silent = self._fleet.silent()
        if not silent:
            return []
        return [pod for pod in self._home.pods if share_key(slot_of(pod))[0] in silent]

    def _head(self, pod: Raw) -> Raw | None:
        heads = self._home.heads.group(by_ray_cluster(pod))
        return next((head for head in heads if not meta(head).get("deletionTimestamp")), None)

    async def _ask(
        self, session: aiohttp.ClientSession, head: Raw | None, turns: asyncio.Semaphore
    ) -> dict[str, bool] | None:
        """Which nodes a head hears from; None when it cannot be asked: a token may be wanted, or a policy in the way."""
        address = ((head or {}).get("status") or {}).get("podIP")
        if head is None or not address:
            return None
        host = f"[{address}]" if ":" in address else address
        try:
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


def _newest(
    answer: dict[str, bool] | None, before: tuple[dict[str, bool], float] | None, now: float
) -> tuple[dict[str, bool], float]:
    """An answer, or the last one for as long as it counts."""
    if answer is not None:
        return answer, now
    return before if before and now - before[1] < REMEMBERED_SECONDS else ({}, 0.0)


def _ray_cluster(pod: Raw) -> Key:
    return key_of(pod)[0], label(pod, names.RAY_GCS_CLUSTER_LABEL)
