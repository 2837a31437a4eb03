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
from adapter.cli.common import complain
from adapter.cli.preflight import inspection
from adapter.cli.preflight.probe_pods import Probes
from adapter.objects import specs
from adapter.objects.unstructured import Raw, key_of
from adapter.preflight import evaluation
from adapter.preflight.preflight_facts import MANAGER, Asked, Side
from adapter.preflight.probe import Run
from adapter.shell.clusters import logins
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.pagination import listed
from adapter.shell.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    DEPLOYMENTS,
    LOCAL_QUEUES,
    NAMESPACES,
    WORKER_CLUSTERS,
)
from adapter.shell.kube.user_kubeconfig import default_namespace


class Unusable(ValueError):
    """The command line asks for what is not there; the text is a sentence."""


async def asked(client: Client, given: argparse.Namespace) -> Asked:
    """Say what the preflight is for, by the options and by what is in the manager; raises Unusable, or what the client raises."""
    if not given.timeout:
        raise Unusable("--timeout 0s leaves no time to start a pod; name a longer one, such as 60s.")
    namespace = given.namespace or default_namespace(given.kubeconfig, given.context)
    try:
        await client.get(NAMESPACES.path(name=namespace))
    except ApiError as error:
        if error.missing:
            raise Unusable(f"There is no namespace {namespace} in the manager cluster; name one by -n.") from None
        raise
    wanted = given.queue or await queues(client, namespace)
    return Asked(namespace, wanted, given.image or await _image(client))


async def queues(client: Client, namespace: str) -> list[str]:
    """The LocalQueues of the manager's namespace whose jobs go through our check."""
    local, clusters, checks = await asyncio.gather(
        inspection.listed(client, LOCAL_QUEUES, namespace),
        inspection.listed(client, CLUSTER_QUEUES),
        inspection.listed(client, ADMISSION_CHECKS),
    )
    return evaluation.dispatching(local or (), clusters or (), checks or ())


async def _image(client: Client) -> str:
    try:
        deployed = await client.get(DEPLOYMENTS.path(names.SYSTEM_NAMESPACE, names.DEPLOYMENT))
    except ApiError as error:
        if error.missing:
            where = f"Deployment {names.DEPLOYMENT} in namespace {names.SYSTEM_NAMESPACE}"
            raise Unusable(f"There is no {where} whose image could be taken; name one by --image.") from None
        raise
    return str(deployed["spec"]["template"]["spec"]["containers"][0]["image"])


async def clusters(client: Client, wanted: Sequence[str]) -> dict[str, Raw]:
    """Read the WorkerClusters of those names, or all, by name; raises Unusable where there is none."""
    there = {key_of(raw)[1]: raw for raw in (await listed(client, WORKER_CLUSTERS.path()))[0]}
    unknown = [name for name in wanted if name not in there]
    if unknown or not there:
        have = f"there are {', '.join(sorted(there))}" if there else "there is none"
        raise Unusable(f"There is no WorkerCluster {unknown[0] if unknown else 'yet'}; {have}.")
    return {name: there[name] for name in sorted(wanted or there)}


async def tried(client: Client, found: Mapping[str, Raw], asked: Asked, patience: float) -> dict[str, Side]:
    """Look at all clusters, and let pods of those that can be used ask each other; the manager comes first."""
    async with _workers(client, found) as (clients, troubles):
        looks = [inspection.manager(client, MANAGER, asked.namespace)]
        for name, theirs in clients.items():
            head, scheduler = (
                _says(found[name], "head", "address") or "PodIP",
                _says(found[name], "pods", "schedulerName"),
            )
            looks.append(inspection.worker(theirs, name, head, scheduler, asked.namespace, asked.queues))
        looked = await common.told(_all(looks), "Waiting for the clusters' API servers ...")
        seen = {side.name: side for side in looked} | {name: Side(name, why) for name, why in troubles.items()}
        sides = {name: seen[name] for name in (MANAGER, *found)}
        able = {name: one for name, one in {MANAGER: client, **clients}.items() if _able(sides[name])}
        run = Run(secrets.token_hex(4), asked.namespace, asked.image, timedelta(seconds=2 * patience + 60))
        probes = Probes(able, run, patience)
        try:
            async with probes:
                await common.told(probes.start(), f"Starting pods in {', '.join(able)} ...")
                return await common.told(probes.ask(sides), "Waiting until they have tried to reach each other ...")
        finally:
            for name, why in probes.left.items():
                what = f"pods with the label {names.PROBE_LABEL}={run.id} in namespace {asked.namespace} of {name}"
                complain(
                    f"The {what} could not be removed: {why}. They end by themselves; the next preflight removes them.",
                    0,
                )


@asynccontextmanager
async def _workers(client: Client, found: Mapping[str, Raw]) -> AsyncIterator[tuple[dict[str, Client], dict[str, str]]]:
    """Clients of the worker clusters, and for those that have none a sentence that says why."""
    clients, troubles = {}, {}
    try:
        for name, raw in found.items():
            try:
                clients[name] = await _login(client, name, raw)
            except (specs.Invalid, BadLogin) as error:
                troubles[name] = str(error)
        yield clients, troubles
    finally:
        await asyncio.gather(*(one.close() for one in clients.values()))


async def _login(client: Client, name: str, raw: Raw) -> Client:
    login = await logins.once(client, specs.worker_cluster(raw))
    try:
        return await Client.from_kubeconfig(login.kubeconfig, name)
    except BadLogin as error:
        raise BadLogin(logins.unusable(name, login, error)) from None


async def _all(looks: Iterable[Coroutine[Any, Any, Side]]) -> list[Side]:
    return await asyncio.gather(*looks)


def _able(side: Side) -> bool:
    return not side.trouble and side.namespace


def _says(raw: Raw, part: str, field: str) -> str:
    return str(((raw.get("spec") or {}).get(part) or {}).get(field) or "")
