"""How is a preflight made: what is asked for, which clusters there are, and how their pods come to try each other?

The manager is asked by the rights of the user, each worker cluster by those of its own kubeconfig.
"""

import argparse
import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from adapter import names
from adapter.cli import common
from adapter.cli.common import print_error
from adapter.cli.preflight import inspection
from adapter.cli.preflight.probe_pods import ProbePods
from adapter.objects import specs
from adapter.objects.unstructured import Raw, key_of
from adapter.preflight import evaluation
from adapter.preflight.preflight_facts import MANAGER, ClusterFacts, PreflightOptions
from adapter.preflight.probe import ProbeRun
from adapter.shell.clusters import logins
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    DEPLOYMENTS,
    LOCAL_QUEUES,
    NAMESPACES,
    WORKER_CLUSTERS,
)
from adapter.shell.kube.user_kubeconfig import default_namespace


class InvalidPreflight(ValueError):
    """The command line asks for what is not there; the text is a sentence."""


async def read_request(client: Client, args: argparse.Namespace) -> PreflightOptions:
    """Say what the preflight is for, by the options and by what is in the manager; raises Unusable, or what the client raises."""
    if not args.timeout:
        raise InvalidPreflight("--timeout 0s leaves no time to start a pod; name a longer one, such as 60s.")
    namespace = args.namespace or default_namespace(args.kubeconfig, args.context)
    try:
        await client.get(NAMESPACES.path(name=namespace))
    except ApiError as error:
        if error.not_found:
            raise InvalidPreflight(
                f"There is no namespace {namespace} in the manager cluster; name one by -n."
            ) from None
        raise
    wanted = args.queue or await dispatched_queues(client, namespace)
    return PreflightOptions(namespace, wanted, args.image or await _controller_image(client))


async def dispatched_queues(client: Client, namespace: str) -> list[str]:
    """The LocalQueues of the manager's namespace whose jobs go through our check."""
    local, clusters, checks = await asyncio.gather(
        inspection.list_if_allowed(client, LOCAL_QUEUES, namespace),
        inspection.list_if_allowed(client, CLUSTER_QUEUES),
        inspection.list_if_allowed(client, ADMISSION_CHECKS),
    )
    return evaluation.dispatching_queues(local or (), clusters or (), checks or ())


async def _controller_image(client: Client) -> str:
    try:
        deployed = await client.get(DEPLOYMENTS.path(names.SYSTEM_NAMESPACE, names.DEPLOYMENT))
    except ApiError as error:
        if error.not_found:
            where = f"Deployment {names.DEPLOYMENT} in namespace {names.SYSTEM_NAMESPACE}"
            raise InvalidPreflight(f"There is no {where} whose image could be taken; name one by --image.") from None
        raise
    return str(deployed["spec"]["template"]["spec"]["containers"][0]["image"])


async def read_worker_clusters(client: Client, requested: Sequence[str]) -> dict[str, Raw]:
    """Read the WorkerClusters of those names, or all, by name; raises Unusable where there is none."""
    there = {key_of(raw)[1]: raw for raw in (await list_all(client, WORKER_CLUSTERS.path()))[0]}
    unknown = [name for name in requested if name not in there]
    if unknown or not there:
        have = f"there are {', '.join(sorted(there))}" if there else "there is none"
        raise InvalidPreflight(f"There is no WorkerCluster {unknown[0] if unknown else 'yet'}; {have}.")
    return {name: there[name] for name in sorted(requested or there)}


async def inspect_and_probe(
    client: Client, worker_clusters: Mapping[str, Raw], request: PreflightOptions, timeout_seconds: float
) -> dict[str, ClusterFacts]:
    """Look at all clusters, and let pods of those that can be used ask each other; the manager comes first."""
    async with _worker_clients(client, worker_clusters) as (clients, troubles):
        looks = [inspection.inspect_manager(client, MANAGER, request.namespace)]
        for name, theirs in clients.items():
            head, scheduler = (
                _spec_field(worker_clusters[name], "head", "address") or "PodIP",
                _spec_field(worker_clusters[name], "pods", "schedulerName"),
            )
            looks.append(inspection.inspect_worker(theirs, name, head, scheduler, request.namespace, request.queues))
        looked = await common.await_with_hint(_gather_sides(looks), "Waiting for the clusters' API servers ...")
        seen = {side.name: side for side in looked} | {name: ClusterFacts(name, why) for name, why in troubles.items()}
        sides = {name: seen[name] for name in (MANAGER, *worker_clusters)}
        able = {name: one for name, one in {MANAGER: client, **clients}.items() if _can_probe(sides[name])}
        run = ProbeRun(
            secrets.token_hex(4), request.namespace, request.image, timedelta(seconds=2 * timeout_seconds + 60)
        )
        probes = ProbePods(able, run, timeout_seconds)
        try:
            async with probes:
                await common.await_with_hint(probes.start_servers(), f"Starting pods in {', '.join(able)} ...")
                return await common.await_with_hint(
                    probes.run_clients(sides), "Waiting until they have tried to reach each other ..."
                )
        finally:
            for name, why in probes.unremoved.items():
                what = f"pods with the label {names.PROBE_LABEL}={run.id} in namespace {request.namespace} of {name}"
                print_error(
                    f"The {what} could not be removed: {why}. They end by themselves; the next preflight removes them.",
                    0,
                )


@asynccontextmanager
async def _worker_clients(
    client: Client, worker_clusters: Mapping[str, Raw]
) -> AsyncIterator[tuple[dict[str, Client], dict[str, str]]]:
    """Clients of the worker clusters, and for those that have none a sentence that says why."""
    clients, troubles = {}, {}
    try:
        for name, raw in worker_clusters.items():
            try:
                clients[name] = await _worker_client(client, name, raw)
            except (specs.InvalidSpec, BadLogin) as error:
                troubles[name] = str(error)
        yield clients, troubles
    finally:
        await asyncio.gather(*(one.close() for one in clients.values()))


async def _worker_client(client: Client, name: str, raw: Raw) -> Client:
    login = await logins.read_login_once(client, specs.parse_worker_cluster(raw))
    try:
        return await Client.from_kubeconfig(login.kubeconfig, name)
    except BadLogin as error:
        raise BadLogin(logins.unusable_message(name, login, error)) from None


async def _gather_sides(inspections: Iterable[Coroutine[Any, Any, ClusterFacts]]) -> list[ClusterFacts]:
    return await asyncio.gather(*inspections)


def _can_probe(side: ClusterFacts) -> bool:
    return not side.api_error and side.has_namespace


def _spec_field(raw: Raw, part: str, field: str) -> str:
    return str(((raw.get("spec") or {}).get(part) or {}).get(field) or "")
