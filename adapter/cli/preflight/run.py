"""Runs a preflight: reads its options and the WorkerClusters, inspects all clusters, and probes between their pods.

`inspection` reads the facts of a cluster; `probe_pods` runs the probes.
"""

import argparse
import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from adapter import names
from adapter.admission import cluster_identity
from adapter.cli import common
from adapter.cli.common import print_error
from adapter.cli.preflight import inspection, named_objects
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
    """The command line names something that does not exist, or leaves no time; the text is a sentence."""


async def read_request(client: Client, args: argparse.Namespace) -> PreflightOptions:
    """Complete the options from the manager cluster; raises InvalidPreflight, or what the client raises."""
    if not args.timeout:
        raise InvalidPreflight("--timeout 0s leaves no time to start a pod; name a longer one, such as 60s.")
    namespace = args.namespace or default_namespace(args.kubeconfig, args.context)
    try:
        await client.get(NAMESPACES.path(name=namespace))
    except ApiError as error:
        if error.not_found:
            raise InvalidPreflight(
                f"There is no namespace {namespace} in the manager cluster; name one with -n."
            ) from None
        raise
    queues = args.queue or await dispatched_queues(client, namespace)
    return PreflightOptions(namespace, queues, args.image or await _controller_image(client))


async def dispatched_queues(client: Client, namespace: str) -> list[str]:
    """The LocalQueues of the namespace in the manager cluster that have a check of ours."""
    local_queues, cluster_queues, checks = await asyncio.gather(
        inspection.list_if_allowed(client, LOCAL_QUEUES, namespace),
        inspection.list_if_allowed(client, CLUSTER_QUEUES),
        inspection.list_if_allowed(client, ADMISSION_CHECKS),
    )
    return evaluation.dispatching_queues(local_queues or (), cluster_queues or (), checks or ())


async def _controller_image(client: Client) -> str:
    try:
        deployment = await client.get(DEPLOYMENTS.path(names.SYSTEM_NAMESPACE, names.DEPLOYMENT))
    except ApiError as error:
        if error.not_found:
            title = f"Deployment {names.DEPLOYMENT} in namespace {names.SYSTEM_NAMESPACE}"
            raise InvalidPreflight(f"There is no {title} whose image could be used; name one with --image.") from None
        raise
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


async def read_worker_clusters(client: Client, requested: Sequence[str]) -> dict[str, Raw]:
    """Read the requested WorkerClusters, or all, by name; raises InvalidPreflight if one is missing or none exists."""
    existing = {key_of(raw)[1]: raw for raw in (await list_all(client, WORKER_CLUSTERS.path()))[0]}
    unknown = [name for name in requested if name not in existing]
    if unknown or not existing:
        choice = f"there are {', '.join(sorted(existing))}" if existing else "there is none"
        raise InvalidPreflight(f"There is no WorkerCluster {unknown[0] if unknown else 'yet'}; {choice}.")
    return {name: existing[name] for name in sorted(requested or existing)}


async def inspect_and_probe(
    client: Client, worker_clusters: Mapping[str, Raw], request: PreflightOptions, timeout_seconds: float
) -> dict[str, ClusterFacts]:
    """Inspect all clusters, and probe between those that can run pods; the manager comes first in the result."""
    run = ProbeRun(secrets.token_hex(4), request.namespace, request.image, timedelta(seconds=2 * timeout_seconds + 60))
    async with _worker_clients(client, worker_clusters) as (clients, login_errors):
        inspections = [inspection.inspect_manager(client, MANAGER, request.namespace)]
        for name, worker_client in clients.items():
            inspections.append(_inspect_worker(worker_client, worker_clusters[name], request, run))
        results = await common.await_with_hint(_gather_sides(inspections), "Waiting for the clusters' API servers ...")
        side_by_name = {side.name: side for side in results} | {
            name: ClusterFacts(name, error) for name, error in login_errors.items()
        }
        sides = {name: side_by_name[name] for name in (MANAGER, *worker_clusters)}
        probe_clients = {
            name: cluster_client
            for name, cluster_client in {MANAGER: client, **clients}.items()
            if _can_probe(sides[name])
        }
        probes = ProbePods(probe_clients, run, timeout_seconds)
        try:
            async with probes:
                await common.await_with_hint(probes.start_servers(), f"Starting pods in {', '.join(probe_clients)} ...")
                return await common.await_with_hint(
                    probes.run_clients(sides), "Waiting until they have tested their connections ..."
                )
        finally:
            for name, error in probes.unremoved.items():
                pods_title = (
                    f"pods with the label {names.PROBE_LABEL}={run.id} in namespace {request.namespace} of {name}"
                )
                print_error(
                    f"The {pods_title} could not be removed: {error}. "
                    "They end by themselves; the next preflight removes them.",
                    0,
                )


async def _inspect_worker(client: Client, raw: Raw, request: PreflightOptions, run: ProbeRun) -> ClusterFacts:
    record, spec = cluster_identity.identity_record(raw, [raw]), specs.parse_worker_cluster(raw)
    side = await inspection.inspect_worker(
        client, record, spec.head.address, spec.pods.scheduler, request.namespace, request.queues
    )
    side = replace(side, relay_address=spec.network.address)
    return replace(side, named=await named_objects.find_named(client, spec.pods, run)) if _can_probe(side) else side


@asynccontextmanager
async def _worker_clients(
    client: Client, worker_clusters: Mapping[str, Raw]
) -> AsyncIterator[tuple[dict[str, Client], dict[str, str]]]:
    """Clients of the worker clusters by name, and for each cluster without a client a sentence why."""
    clients, login_errors = {}, {}
    try:
        for name, raw in worker_clusters.items():
            try:
                clients[name] = await _worker_client(client, name, raw)
            except (specs.InvalidSpec, BadLogin) as error:
                login_errors[name] = str(error)
        yield clients, login_errors
    finally:
        await asyncio.gather(*(worker_client.close() for worker_client in clients.values()))


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
