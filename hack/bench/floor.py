"""`python -m hack.bench.floor FOLDER [HOW]`: the least that our protocol costs, by a bare script that decides nothing.

The orders in the folder hold for each pod its body and that of its remote pod, made by the product's own rewriter: the
same bytes as the controller's. Beside them are kubeconfigs with the controller's own rights, so that API servers treat
both alike and audit logs count both alike.

For each pod the script creates it, gated, creates its remote pod, sees it Running in a watch, and writes one status
back. It has no caches, no queue, no preconditions beyond the uid, and would not survive a crash. Its pace is what API
servers, Kueue, schedulers and fake nodes allow on this machine. It has our controller's loop and parser, and its
connections are open before it begins.

--make-only does only the first of the four. --extra-patch writes to each manager pod once more, to measure such a
write. --end deletes the RayCluster, whose pods the garbage collector takes, and all remote pods. In the end it prints
what it spent itself, as JSON.
"""

import asyncio
import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import orjson
import uvloop
from kubernetes.aio import client as kube
from kubernetes.aio import config as kube_config

from adapter import names
from adapter.objects import specs
from adapter.objects.placement import Placement
from adapter.objects.placement import parse_placement as read_placement
from adapter.objects.reservation import parse_reservation as read_reservation
from adapter.objects.unstructured import Raw, annotation, key_of, label, uid_of
from adapter.objects.worker_pod import Slot
from adapter.rewrite import rewriter
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target
from adapter.shell.kube.client import PARALLEL_REQUESTS
from adapter.shell.kube.resources import PODS, RAY_CLUSTERS
from adapter.worker import manager_pod_status
from hack.testbed import install
from hack.testbed.stage import QUEUE, Stage

HOME = "home"  # name of the manager's kubeconfig
USER = "user"  # name of the kubeconfig of the one that makes pods, as KubeRay does otherwise
WORK = "work.json"
MAKE_ONLY, EXTRA_PATCH, END = "--make-only", "--extra-patch", "--end"

_LINE = 2**21  # bytes: one event of a watch is one line
_CONNECTIONS = PARALLEL_REQUESTS + 1  # as many requests in flight as the controller's client has, plus the watch
_VERSION = "/version"  # open to all accounts and outside of all namespaces, so that it is not counted
_EXTRA = {"metadata": {"annotations": {f"{names.DOMAIN}/floor": "once more"}}}  # where a slot's record is
_BACKGROUND = {"propagationPolicy": "Background"}  # as our controller deletes
_MERGE = {"Content-Type": "application/merge-patch+json"}
_JSON = {"Content-Type": "application/json"}

Servers = Mapping[str, aiohttp.ClientSession]  # by the name of their kubeconfig


def write_orders(stage: Stage, job: str, pods: Sequence[Raw], folder: Path) -> None:
    """Write kubeconfigs and work into a folder that only we can read."""
    (folder / USER).write_text(stage.manager.kubeconfig.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / HOME).write_text(install.controller_kubeconfig(stage.manager), encoding="utf-8")
    for name in stage.clusters:
        (folder / name).write_text(install.worker_kubeconfig(stage.manager, name), encoding="utf-8")
    place = read_placement(stage.placement(job))
    orders = list(_orders(stage, pods, place))
    work = {"namespace": stage.name, "job": job, "placement": place.name, "orders": orders}
    (folder / WORK).write_text(json.dumps(work), encoding="utf-8")


def _orders(stage: Stage, wanted: Sequence[Raw], place: Placement) -> Iterator[dict[str, Any]]:
    """One for each pod, which go to the plan's slots in the order of their names; a copy lacks the uid of its pod."""
    pods = iter(sorted(wanted, key=key_of))
    (head,) = stage.manager.items("pods", stage.name, f"{names.RAY_NODE_TYPE_LABEL}={names.HEAD}")
    for share in place.shares:
        standing = stage.fleet.workers[share.cluster].get("workloads", place.name_of_share(share), stage.name)
        target = _target(stage, share.cluster, standing, place)
        anchor = read_reservation(share.cluster, standing).anchor_uid
        for group in share.groups:
            for index, pod in zip(range(group.count), pods, strict=False):
                body = rewriter.remote_pod(
                    pod, head=HeadAddress.from_pod(pod, head["status"]["podIP"]), target=target, role=group.role,
                    slot=str(Slot(place.share_key(share), group.role, index)), anchor_uid=anchor,
                )  # fmt: skip
                yield {"cluster": share.cluster, "pod": pod, "body": body}


def _target(stage: Stage, cluster: str, standing: Raw, place: Placement) -> Target:
    return Target.for_share(
        cluster,
        specs.parse_worker_cluster(stage.manager.get("workercluster", cluster)),
        queue=QUEUE,
        manager=label(standing, names.MANAGER_LABEL),
        workload=annotation(standing, names.WORKLOAD_ANNOTATION),
        workload_uid=label(standing, names.WORKLOAD_UID_LABEL),
        placement=place.name,
        round_=place.round,
    )


async def run(folder: Path, how: str = "") -> dict[str, float]:
    """Do all orders, or with END undo them; returns CPU seconds and megabytes."""
    work = orjson.loads((folder / WORK).read_bytes())
    orders: dict[str, list[Raw]] = defaultdict(list)
    for order in work["orders"]:
        orders[order["cluster"]].append(order)
    async with AsyncExitStack() as stack:
        servers = {name: await stack.enter_async_context(_server(folder / name)) for name in (USER, HOME, *orders)}
        await asyncio.gather(*map(_warm, servers.values()))
        begun = time.process_time()
        await (_end(servers, work, orders) if how == END else _begin(servers, work, orders, how))
        return {
            "cpu_s": time.process_time() - begun,
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


async def _warm(server: aiohttp.ClientSession) -> None:
    """Open every connection: a request at once on each, for one that stands already would be taken again."""
    await asyncio.gather(*(_send(server, "GET", _VERSION) for _ in range(_CONNECTIONS)))


async def _begin(servers: Servers, work: Raw, orders: Mapping[str, list[Raw]], how: str) -> None:
    """Make all pods, and unless that is somebody else's work their copies, and write back that they run."""
    async with asyncio.TaskGroup() as tasks:
        for cluster, mine in orders.items():
            left: dict[str, Raw] = {}
            if how != MAKE_ONLY:
                tasks.create_task(_mirror(servers[HOME], servers[cluster], work, cluster, left, len(mine)))
            for order in mine:
                tasks.create_task(_make(servers, work["namespace"], order, left, how))


async def _end(servers: Servers, work: Raw, orders: Mapping[str, list[Raw]]) -> None:
    """Delete the RayCluster, and at once each remote pod, which has no other owner to delete it."""
    namespace = work["namespace"]
    async with asyncio.TaskGroup() as tasks:
        ray_cluster = RAY_CLUSTERS.path(namespace, work["job"])
        tasks.create_task(_send(servers[USER], "DELETE", ray_cluster, _BACKGROUND, _JSON))
        for cluster, mine in orders.items():
            for order in mine:
                copy = PODS.path(namespace, order["body"]["metadata"]["name"])
                tasks.create_task(_send(servers[cluster], "DELETE", copy, _BACKGROUND, _JSON))


async def _make(servers: Servers, namespace: str, order: Raw, left: dict[str, Raw], how: str) -> None:
    """Make one pod, and its copy unless that is somebody else's work."""
    pod = await _send(servers[USER], "POST", PODS.path(namespace), order["pod"], _JSON)
    name = pod["metadata"]["name"]
    if how == EXTRA_PATCH:
        pod = await _send(servers[HOME], "PATCH", PODS.path(namespace, name, "status"), _EXTRA, _MERGE)
    if how != MAKE_ONLY:
        left[name] = pod
        order["body"]["metadata"]["labels"][names.POD_UID_LABEL] = uid_of(pod)
        await _send(servers[order["cluster"]], "POST", PODS.path(namespace), order["body"], _JSON)


async def _mirror(
    home: aiohttp.ClientSession,
    server: aiohttp.ClientSession,
    work: Raw,
    cluster: str,
    left: dict[str, Raw],
    count: int,
) -> None:
    """Write back the status of each copy in one cluster as soon as it is Running, until all are."""
    async with asyncio.TaskGroup() as tasks:
        async for copy in _copies(server, work):
            name = copy["metadata"]["name"]
            if name in left and (copy.get("status") or {}).get("phase") == "Running":
                patch = manager_pod_status.status_patch(left.pop(name), copy, cluster)
                path = PODS.path(work["namespace"], name, "status")
                tasks.create_task(_send(home, "PATCH", path, patch, _MERGE))
                count -= 1
            if not count:
                return


async def _copies(server: aiohttp.ClientSession, work: Raw) -> AsyncIterator[Raw]:
    """Each remote pod as it is and as it changes.

    An API server ends the watch of a slow reader: then all come again.
    """
    params = {"watch": "true", "labelSelector": f"{names.PLACEMENT_LABEL}={work['placement']}"}
    while True:
        async with server.get(PODS.path(work["namespace"]), params=params) as answer:
            answer.raise_for_status()
            while line := await answer.content.readline():
                yield orjson.loads(line)["object"]


async def _send(
    server: aiohttp.ClientSession, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> Raw:
    sent = None if body is None else orjson.dumps(body)
    async with server.request(method, path, data=sent, headers=headers) as answer:
        said = await answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {said[:300].decode(errors='replace')}")
        return cast(Raw, orjson.loads(said))


@asynccontextmanager
async def _server(kubeconfig: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """One API server."""
    settings: Any = kube.Configuration()
    await kube_config.load_kube_config(str(kubeconfig), client_configuration=settings)
    headers = {"User-Agent": "floor"}
    async with kube.ApiClient(settings) as api:
        await api.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
        connector = aiohttp.TCPConnector(ssl=api.rest_client.ssl_context, limit=_CONNECTIONS)
        async with aiohttp.ClientSession(
            settings.host, connector=connector, headers=headers, read_bufsize=_LINE, timeout=aiohttp.ClientTimeout(None)
        ) as session:
            yield session


if __name__ == "__main__":
    print(json.dumps(uvloop.run(run(Path(sys.argv[1]), *sys.argv[2:]))))
