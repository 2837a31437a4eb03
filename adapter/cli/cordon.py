"""`rayspan cordon` and `rayspan uncordon`: may new workers go to a worker cluster?

They set fields of the WorkerCluster, and the controller does the rest. Doing it again changes nothing and says so. Exit code 0:
it is as asked; 2: the command line is wrong; 1: anything else.
"""

import argparse
import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from adapter import names
from adapter.cli import common
from adapter.cli.common import DONE, TROUBLE, complain
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import WORKER_CLUSTERS

WANTED: Mapping[str, Mapping[str, bool]] = {
    "cordon": {"cordoned": True},
    "uncordon": {"cordoned": False, "draining": False},
}


def main(given: argparse.Namespace) -> int:
    """Do it and return the exit code; trouble is one sentence on the standard error."""
    return attempt(given.cluster, _change(given))


def attempt(name: str, doing: Coroutine[Any, Any, int]) -> int:
    """Run what asks about the WorkerCluster `name`; returns its exit code, or that of the trouble that it met."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        return asyncio.run(doing)
    except (BadLogin, Unreachable) as error:
        return complain(f"The manager cluster cannot be asked: {error}", TROUBLE)
    except ApiError as error:
        return complain(_explained(error, name), TROUBLE)
    except ValueError as error:
        return complain(f"WorkerCluster {name}: {error}.", TROUBLE)


async def changed(client: Client, name: str, wanted: Mapping[str, bool]) -> bool:
    """Set fields of a WorkerCluster's spec; returns False when they were so already."""
    path = WORKER_CLUSTERS.path(name=name)
    spec = (await client.get(path)).get("spec") or {}
    if all(bool(spec.get(field)) is value for field, value in wanted.items()):
        return False
    await client.merge(path, {"spec": dict(wanted)})
    return True


async def _change(given: argparse.Namespace) -> int:
    client = await Client.of_user(given.kubeconfig, given.context)
    try:
        doing = changed(client, given.cluster, WANTED[given.verb])
        new = await common.told(doing, "Waiting for the manager cluster ...")
    finally:
        await client.close()
    print(f"workercluster/{given.cluster} {'' if new else 'already '}{given.verb}ed")
    return DONE


def _explained(error: ApiError, name: str) -> str:
    if error.status == 401:
        return common.UNKNOWN_USER
    if error.status == 403:
        command = f"kubectl create clusterrolebinding {names.DRAIN_ROLE} --clusterrole={names.DRAIN_ROLE} {common.whom(error)}"
        return f"You may not do this here; an administrator of the manager cluster allows it by `{command}`."
    if error.missing and f'"{name}"' in error.message:
        return f"There is no WorkerCluster {name}; `kubectl get workerclusters` lists those there are."
    if error.missing:
        return "There are no WorkerClusters: Rayspan is not installed in this cluster."
    return error.message or str(error)
