"""Since when can a worker cluster not be seen, when do its workers count as lost, and does Ray still hear from them?

The first loss stands in the WorkerCluster's status, so a restart of ours, or a link that comes and goes, does not start
the clock anew. While a cluster is silent, the heads of the RayClusters with workers there are asked which nodes they
hear from: Ray's own word counts for more than our link. Who is given up is decided in dispatch.py and running.py.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import aiohttp

from adapter import names, raynodes
from adapter.dispatch import Silence
from adapter.facts import Key, Raw, annotation, key_of, label, meta, moment, share_key
from adapter.shell.fleet import Fleet
from adapter.shell.home import Home, by_ray_cluster

log = logging.getLogger(__name__)

# Ray takes about a minute to give a node up: asked six times in that, we are at most ten seconds later than it.
ASK_SECONDS = 10.0
_TIMEOUT = aiohttp.ClientTimeout(total=5)
_LARGEST = 16 << 20  # bytes of an answer: a thousand nodes take about one; whoever sends more is no dashboard
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Losses:
    """What is known of worker clusters that cannot be seen."""

    def __init__(self, home: Home, fleet: Fleet) -> None:
        self._home, self._fleet = home, fleet
        self._alive: dict[Key, dict[str, bool]] = {}  # by RayCluster: node address -> whether its head hears from it

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
        address = str((pod.get("status") or {}).get("podIP") or "")
        alive = self._alive.get(_ray_cluster(pod), {}).get(address)
        return Silence(found.why, found.since, found.until, alive)

    def _silence(self, cluster: str, timeout: timedelta) -> Silence | None:
        raw = self._home.worker_clusters.named(cluster)
        if raw is None:
            return Silence("is not registered any more", None, _LONG_AGO, None)
        if cluster not in self._fleet.silent():
            return None
        since = moment((raw.get("status") or {}).get("lostSince"))
        if since is None:
            return Silence("cannot be seen", None, None, None)
        return Silence(f"cannot be seen since {since:%H:%M:%S} UTC", since, since + timeout, None)

    async def run(self, heard: Callable[[Raw], None]) -> None:
        """Ask heads for as long as clusters are silent, until cancelled; `heard` is told of each pod with news."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            while True:
                await asyncio.sleep(ASK_SECONDS)
                pods = [] if self._home.lost else self._unseen()
                heads = {_ray_cluster(pod): head for pod in pods if (head := self._head(pod))}
                answers = await asyncio.gather(*(self._ask(session, head) for head in heads.values()))
                before, self._alive = self._alive, dict(zip(heads, answers, strict=True))
                for pod in pods:
                    if before.get(_ray_cluster(pod)) != self._alive.get(_ray_cluster(pod)):
                        heard(pod)

    def _unseen(self) -> list[Raw]:
        silent = self._fleet.silent()
        if not silent:
            return []
        return [pod for pod in self._home.pods if share_key(annotation(pod, names.SLOT_ANNOTATION))[0] in silent]

    def _head(self, pod: Raw) -> Raw | None:
        heads = self._home.heads.group(by_ray_cluster(pod))
        return next((head for head in heads if not meta(head).get("deletionTimestamp")), None)

    async def _ask(self, session: aiohttp.ClientSession, head: Raw) -> dict[str, bool]:
        """Which nodes a head hears from; nothing when it cannot be asked: a token may be wanted, or a policy in the way."""
        address = (head.get("status") or {}).get("podIP")
        if not address:
            return {}
        host = f"[{address}]" if ":" in address else address
        try:
            url = f"http://{host}:{raynodes.dashboard_port(head)}{raynodes.PATH}"
            async with session.get(url, params={"limit": "10000"}, allow_redirects=False) as answer:
                return raynodes.alive(json.loads(await answer.content.read(_LARGEST))) if answer.status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            log.info("head %s/%s does not tell which nodes it hears from: %s", *key_of(head), type(error).__name__)
            return {}


def _ray_cluster(pod: Raw) -> Key:
    return key_of(pod)[0], label(pod, names.RAY_GCS_CLUSTER_LABEL)
