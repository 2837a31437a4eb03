"""`rayspan preflight`: could workers join from the worker clusters? Tries it with short-lived pods, and tells what would keep them from it.

It asks with two kinds of rights: those of its user in the manager cluster, and those of each WorkerCluster's own kubeconfig there, which
are the controller's. Exit code 0: all is well; 3: something would keep workers from joining; 2: the command line is wrong; 1: the
manager cluster could not be asked, or the preflight was stopped.
"""

import argparse
import asyncio
import json
import logging
import secrets
import signal
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from adapter import api, names, preflight, preflighttable, reachable
from adapter.cli import asking
from adapter.cli.asking import DONE, TROUBLE, USAGE, complain
from adapter.facts import Raw, key_of
from adapter.probing import Run
from adapter.reachable import Reachability
from adapter.shell import inspection, logins
from adapter.shell.client import ApiError, BadLogin, Client, Unreachable, default_namespace
from adapter.shell.probes import Probes
from adapter.shell.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    DEPLOYMENTS,
    LOCAL_QUEUES,
    NAMESPACES,
    WORKER_CLUSTERS,
)
from adapter.sides import MANAGER, Asked, Side

NOT_READY = 3

DESCRIPTION = """\
Tries whether workers could join from the worker clusters: rights, namespace, LocalQueue and image there, DNS, and whether pods of all
clusters reach each other, how fast, and with the same clock. Short-lived pods do that, two in each cluster, in the namespace where jobs
would run. The result becomes the condition Reachable of the WorkerClusters.

You need an administrator's rights in the manager cluster: to read the worker clusters' kubeconfigs in rayspan-system, to run pods, and to
write the status of WorkerClusters. In the worker clusters the rights of those kubeconfigs are used, which are the controller's.
"""
EPILOG = """\
example:
  kubectl rayspan preflight
  kubectl rayspan preflight --cluster east -n research --queue ray --image rayproject/ray:2.60.0

Each way between two clusters is tried on one high port. Ray's nodes choose ports of their own, so all must be open; the one that is
tried stands for them, because no list of well-known ports holds it.

exit code: 0 all is well, 3 something would keep workers from joining, 2 the command line is wrong, 1 anything else
"""


class Unusable(ValueError):
    """The command line asks for what is not there; the text is a sentence."""


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options to the command line."""
    verb = verbs.add_parser(
        "preflight",
        help="try whether workers could join from the worker clusters",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.add_argument(
        "--cluster",
        action="append",
        default=[],
        metavar="WORKERCLUSTER",
        help="only this one, and the manager; repeat (default: all)",
    )
    verb.add_argument("-n", "--namespace", default="", help="where jobs would run (default: the context's)")
    verb.add_argument(
        "--queue",
        action="append",
        default=[],
        help="LocalQueue that must be there; repeat (default: those of the namespace whose jobs Rayspan dispatches)",
    )
    verb.add_argument(
        "--image", default="", help="what the pods run, with python3 in it (default: the controller's own image)"
    )
    verb.add_argument(
        "--timeout",
        type=asking.duration,
        default=timedelta(seconds=60),
        help="how long a pod may take to start, and again to answer (default: 60s)",
    )
    verb.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table", help="default: table")
    asking.add_login(verb)


def main(given: argparse.Namespace) -> int:
    """Try, print, and return the exit code; trouble is one sentence on the standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        return asyncio.run(_run(given))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return complain("Stopped before it was done; its pods are removed, unless it says otherwise above.", TROUBLE)
    except Unusable as error:
        return complain(str(error), USAGE)
    except (BadLogin, Unreachable) as error:
        return complain(f"The manager cluster cannot be asked: {error}", TROUBLE)
    except ApiError as error:
        return complain(_explained(error), TROUBLE)


async def _run(given: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # as Ctrl-C: what was made is removed
    client = await Client.of_user(given.kubeconfig, given.context)
    try:
        asked = await _asked(client, given)
        clusters = await _clusters(client, given.cluster)
        sides = await _tried(client, clusters, asked, given.timeout.total_seconds())
        findings = preflight.judge(list(sides.values()), asked)
        found = {name: reachable.reachable(name, sides, findings) for name in clusters}
        reached = {name: one for name, one in found.items() if one}
        _print(given.output, list(sides.values()), asked, findings, reached)
        for name, one in reached.items():
            await _write(client, clusters[name], one)
    finally:
        await client.close()
    return DONE if preflight.ready(findings) else NOT_READY


async def _asked(client: Client, given: argparse.Namespace) -> Asked:
    if not given.timeout:
        raise Unusable("--timeout 0s leaves no time to start a pod; name a longer one, such as 60s.")
    namespace = given.namespace or default_namespace(given.kubeconfig, given.context)
    try:
        await client.get(NAMESPACES.path(name=namespace))
    except ApiError as error:
        if error.missing:
            raise Unusable(f"There is no namespace {namespace} in the manager cluster; name one by -n.") from None
        raise
    queues = given.queue or await _queues(client, namespace)
    return Asked(namespace, queues, given.image or await _image(client))


async def _queues(client: Client, namespace: str) -> list[str]:
    """The LocalQueues of the manager's namespace whose jobs go through our check."""
    local, queues, checks = await asyncio.gather(
        inspection.listed(client, LOCAL_QUEUES, namespace),
        inspection.listed(client, CLUSTER_QUEUES),
        inspection.listed(client, ADMISSION_CHECKS),
    )
    return preflight.dispatching(local or (), queues or (), checks or ())


async def _image(client: Client) -> str:
    try:
        found = await client.get(DEPLOYMENTS.path(names.SYSTEM_NAMESPACE, names.DEPLOYMENT))
    except ApiError as error:
        if error.missing:
            where = f"Deployment {names.DEPLOYMENT} in namespace {names.SYSTEM_NAMESPACE}"
            raise Unusable(f"There is no {where} whose image could be taken; name one by --image.") from None
        raise
    return str(found["spec"]["template"]["spec"]["containers"][0]["image"])


async def _clusters(client: Client, wanted: Sequence[str]) -> dict[str, Raw]:
    there = {key_of(raw)[1]: raw for raw in (await client.get(WORKER_CLUSTERS.path())).get("items") or ()}
    unknown = [name for name in wanted if name not in there]
    if unknown or not there:
        have = f"there are {', '.join(sorted(there))}" if there else "there is none"
        raise Unusable(f"There is no WorkerCluster {unknown[0] if unknown else 'yet'}; {have}.")
    return {name: there[name] for name in sorted(wanted or there)}


async def _tried(client: Client, clusters: Mapping[str, Raw], asked: Asked, patience: float) -> dict[str, Side]:
    """Look at all clusters, and let pods of those that can be used ask each other; the manager comes first."""
    async with _workers(client, clusters) as (clients, troubles):
        looks = [inspection.manager(client, MANAGER)]
        for name, theirs in clients.items():
            looks.append(inspection.worker(theirs, name, _head(clusters[name]), asked.namespace, asked.queues))
        looked = await asking.told(_all(looks), "Waiting for the clusters' API servers ...")
        seen = {side.name: side for side in looked} | {name: Side(name, why) for name, why in troubles.items()}
        sides = {name: seen[name] for name in (MANAGER, *clusters)}
        able = {name: one for name, one in {MANAGER: client, **clients}.items() if _able(sides[name])}
        run = Run(secrets.token_hex(4), asked.namespace, asked.image, timedelta(seconds=2 * patience + 60))
        probes = Probes(able, run, patience)
        try:
            async with probes:
                await asking.told(probes.start(), f"Starting pods in {', '.join(able)} ...")
                return await asking.told(probes.ask(sides), "Waiting until they have tried to reach each other ...")
        finally:
            for name, why in probes.left.items():
                what = f"pods with the label {names.PROBE_LABEL}={run.id} in namespace {asked.namespace} of {name}"
                complain(
                    f"The {what} could not be removed: {why}. They end by themselves; the next preflight removes them.",
                    0,
                )


@asynccontextmanager
async def _workers(
    client: Client, clusters: Mapping[str, Raw]
) -> AsyncIterator[tuple[dict[str, Client], dict[str, str]]]:
    """Clients of the worker clusters, and for those that have none a sentence that says why."""
    clients, troubles = {}, {}
    try:
        for name, raw in clusters.items():
            try:
                clients[name] = await _login(client, name, raw)
            except (api.Invalid, BadLogin) as error:
                troubles[name] = str(error)
        yield clients, troubles
    finally:
        await asyncio.gather(*(one.close() for one in clients.values()))


async def _login(client: Client, name: str, raw: Raw) -> Client:
    login = await logins.once(client, api.worker_cluster(raw))
    try:
        return await Client.from_kubeconfig(login.kubeconfig, name)
    except BadLogin as error:
        raise BadLogin(logins.unusable(login, error)) from None


async def _all(looks: Iterable[Coroutine[Any, Any, Side]]) -> list[Side]:
    return await asyncio.gather(*looks)


def _able(side: Side) -> bool:
    return not side.trouble and side.namespace


def _head(raw: Raw) -> str:
    return str(((raw.get("spec") or {}).get("head") or {}).get("address") or "PodIP")


async def _write(client: Client, raw: Raw, found: Reachability) -> None:
    name = key_of(raw)[1]
    try:
        path = WORKER_CLUSTERS.path(name=name, sub="status")
        await client.apply(path, reachable.status(raw, found, datetime.now(UTC)), names.PREFLIGHT_MANAGER)
    except (ApiError, Unreachable) as error:
        complain(f"WorkerCluster {name}: its condition {names.REACHABLE} could not be written: {error}.", TROUBLE)


def _print(given: str, *found: Any) -> None:
    if given == "table":
        print(preflighttable.render(*found), end="", flush=True)
    elif given == "json":
        print(json.dumps(preflighttable.document(*found), indent=2), flush=True)
    else:
        print(yaml.safe_dump(preflighttable.document(*found), sort_keys=False, width=160), end="", flush=True)


def _explained(error: ApiError) -> str:
    if error.status == 401:
        return asking.UNKNOWN_USER
    if error.status == 403:
        return f"A preflight needs an administrator's rights in the manager cluster: {error.message}"
    if error.missing:
        return "There are no WorkerClusters: Rayspan is not installed in this cluster."
    return error.message or str(error)
