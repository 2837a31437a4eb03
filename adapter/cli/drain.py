"""`rayspan drain`: move the workers out of a worker cluster, and show how far that is.

It sets spec.draining and then only watches: the controller moves the workers, whether anybody watches or not. So it may be
stopped and started again at any time. Exit code 0: the cluster is empty (or is not waited for); 2: the command line is wrong;
1: anything else.
"""

import argparse
import asyncio
import json
import sys

from adapter import names
from adapter.cli import common, cordon
from adapter.cli.common import DONE, TROUBLE, complain
from adapter.gang.drain_order import Stay, document, news, stays, total
from adapter.objects.unstructured import Key, Raw, condition, meta, uid_of
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.pagination import listed
from adapter.shell.kube.resources import PLACEMENTS, PODS, WORKER_CLUSTERS

# Between two looks at four small lists. A worker takes ten times as long to leave, and a person sees no delay.
PAUSE_SECONDS = 1.0
UNSEEN_LOOKS = 3  # the controller needs less than one when it runs

_UNSEEN = f"the controller has not seen the drain yet: see `kubectl -n {names.SYSTEM_NAMESPACE} get pods`"


def main(given: argparse.Namespace) -> int:
    """Start the drain, watch it, and return the exit code; trouble is one sentence on the standard error."""
    name = given.cluster
    code = cordon.attempt(name, _begin(given))
    if code != DONE or given.wait == "false":
        return code
    try:
        return cordon.attempt(name, _watch(given))
    except KeyboardInterrupt:
        return complain(f"No longer watching. {_goes_on(name)}", TROUBLE)


async def _begin(given: argparse.Namespace) -> int:
    client = await Client.of_user(given.kubeconfig, given.context)
    try:
        doing = cordon.changed(client, given.cluster, {"draining": True})
        new = await common.told(doing, "Waiting for the manager cluster ...")
    finally:
        await client.close()
    if given.output == "text":
        print(f"workercluster/{given.cluster} {'' if new else 'already '}draining", flush=True)
    return DONE


async def _watch(given: argparse.Namespace) -> int:
    client = await Client.of_user(given.kubeconfig, given.context)
    watch = Watch(client, given.cluster, programs=given.output == "json")
    try:
        async with asyncio.timeout(given.timeout.total_seconds() or None):
            return await watch.run()
    except TimeoutError:
        return complain(f"The time is up, and {watch.left}. {_goes_on(given.cluster)}", TROUBLE)
    finally:
        await client.close()


class Watch:
    """Looks at what is left in a worker cluster, and tells each change once."""

    def __init__(self, client: Client, name: str, *, programs: bool = False) -> None:
        """`programs`: what is printed is for them, a document a line."""
        self._client, self._name, self._programs = client, name, programs
        self._printed = ""
        self._found: dict[Key, Stay] = {}
        self._silent = False
        self._unseen = 0  # looks in which nothing was left, but the controller did not know yet

    @property
    def left(self) -> str:
        """What is left, as a part of a sentence."""
        return f"it still has {total(self._found)}" if self._found else _UNSEEN

    async def run(self) -> int:
        """Look again and again until there is an exit code."""
        while True:
            code = await self._look()
            if code is not None:
                return code
            await asyncio.sleep(PAUSE_SECONDS)

    async def _look(self) -> int | None:
        try:
            cluster, pods, placements = await self._read()
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError) and error.status < 500 and error.status != 429:
                raise
            self._lost(error)
            return None
        self._silent = False
        now = stays(self._name, pods, placements)
        self._tell(now)
        self._found = now
        return self._ended(cluster)

    def _tell(self, now: dict[Key, Stay]) -> None:
        if not self._programs:
            for line in news(self._found, now):
                print(line, flush=True)
        elif (line := json.dumps(document(self._name, now))) != self._printed:
            print(line, flush=True)
            self._printed = line

    async def _read(self) -> tuple[Raw, list[Raw], list[Raw]]:
        cluster = await self._client.get(WORKER_CLUSTERS.path(name=self._name))
        # Where one is that came with its place is written in it with the first news of its copy, so it is found before or after that.
        new, _ = await listed(
            self._client, PODS.path(), labelSelector=f"{names.PLACEMENT_LABEL},!{names.CLUSTER_LABEL}"
        )
        placed, _ = await listed(self._client, PODS.path(), labelSelector=f"{names.CLUSTER_LABEL}={self._name}")
        placements, _ = await listed(self._client, PLACEMENTS.path())
        return cluster, list({uid_of(pod): pod for pod in [*new, *placed]}.values()), placements

    def _lost(self, error: Exception) -> None:
        if not self._silent:
            print(f"The manager cluster cannot be asked: {error}; asking again ...", file=sys.stderr)
        self._silent = True

    def _ended(self, cluster: Raw) -> int | None:
        if not (cluster.get("spec") or {}).get("draining"):
            sentence = f"Somebody stopped the drain of {self._name}"
            return complain(f"{sentence}, and it still has {total(self._found)}.", TROUBLE)
        if self._found:
            return None
        # Until the controller knows of the drain, a plan that it just made may still send workers here.
        if condition(cluster, names.CONNECTED).get("observedGeneration") == meta(cluster).get("generation"):
            if not self._programs:
                print(f"workercluster/{self._name} drained", flush=True)
            return DONE
        self._unseen += 1
        if self._unseen == UNSEEN_LOOKS:
            print(f"Nothing is left, but {_UNSEEN} ...", file=sys.stderr)
        return None


def _goes_on(name: str) -> str:
    return f"{name} goes on draining; `kubectl rayspan drain {name}` watches again, and `kubectl rayspan uncordon {name}` stops it."
