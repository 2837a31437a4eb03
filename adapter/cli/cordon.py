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
from adapter.cli.common import EXIT_ERROR, EXIT_OK, print_error
from adapter.objects import api_messages
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import WORKER_CLUSTERS

SPEC_FIELDS: Mapping[str, Mapping[str, bool]] = {
    "cordon": {"cordoned": True},
    "uncordon": {"cordoned": False, "draining": False},
}


def main(args: argparse.Namespace) -> int:
    """Do it and return the exit code; trouble is one sentence on the standard error."""
    return run_reporting_errors(args.cluster, _patch_cluster(args))


def run_reporting_errors(name: str, command: Coroutine[Any, Any, int]) -> int:
    """Run what asks about the WorkerCluster `name`; returns its exit code, or that of the trouble that it met."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        return asyncio.run(command)
    except (BadLogin, Unreachable) as error:
        return print_error(f"The manager cluster cannot be asked: {error}", EXIT_ERROR)
    except ApiError as error:
        return print_error(_error_message(error, name), EXIT_ERROR)
    except ValueError as error:
        return print_error(f"WorkerCluster {name}: {error}.", EXIT_ERROR)


async def patch_spec(client: Client, name: str, fields: Mapping[str, bool]) -> bool:
    """Set fields of a WorkerCluster's spec; returns False when they were so already."""
    path = WORKER_CLUSTERS.path(name=name)
    spec = (await client.get(path)).get("spec") or {}
    if all(bool(spec.get(field)) is value for field, value in fields.items()):
        return False
    await client.merge_patch(path, {"spec": dict(fields)})
    return True


async def _patch_cluster(args: argparse.Namespace) -> int:
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        doing = patch_spec(client, args.cluster, SPEC_FIELDS[args.verb])
        new = await common.await_with_hint(doing, "Waiting for the manager cluster ...")
    finally:
        await client.close()
    print(f"workercluster/{args.cluster} {'' if new else 'already '}{args.verb}ed")
    return EXIT_OK


def _error_message(error: ApiError, name: str) -> str:
    if error.status == 401:
        return common.UNKNOWN_USER
    if error.status == 403:
        command = f"kubectl create clusterrolebinding {names.DRAIN_ROLE} --clusterrole={names.DRAIN_ROLE} {common.rolebinding_subject(error)}"
        return f"You may not do this here; an administrator of the manager cluster allows it by `{command}`."
    if error.not_found and api_messages.names_object(error.message, name):
        return f"There is no WorkerCluster {name}; `kubectl get workerclusters` lists those there are."
    if error.not_found:
        return "There are no WorkerClusters: Rayspan is not installed in this cluster."
    return error.message or str(error)
