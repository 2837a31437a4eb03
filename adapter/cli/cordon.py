"""`rayspan cordon` and `rayspan uncordon`: set the spec of a WorkerCluster. The controller acts on it.

Both verbs are idempotent, and report when nothing changed.
"""

import argparse
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from adapter import names
from adapter.cli import common, event_loop
from adapter.cli.common import EXIT_ERROR, EXIT_OK, print_error
from adapter.cli.terminal import print_line
from adapter.objects import api_messages
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import WORKER_CLUSTERS

SPEC_FIELDS: Mapping[str, Mapping[str, bool]] = {
    "cordon": {"cordoned": True},
    "uncordon": {"cordoned": False, "draining": False},
}


def main(args: argparse.Namespace) -> int:
    """Patch the WorkerCluster; return the exit code."""
    return run_reporting_errors(args.cluster, _patch_cluster(args))


def run_reporting_errors(name: str, command: Coroutine[Any, Any, int]) -> int:
    """Run a command on the WorkerCluster `name` and return its exit code.

    If it raises, print the error to stderr and return the error's exit code.
    """
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # our own message reports what it warns of
    try:
        return event_loop.run_command(command)
    except (BadLogin, Unreachable) as error:
        return print_error(f"The manager cluster cannot be reached: {error}", EXIT_ERROR)
    except ApiError as error:
        return print_error(_error_message(error, name), EXIT_ERROR)
    except ValueError as error:
        return print_error(f"WorkerCluster {name}: {error}.", EXIT_ERROR)


async def patch_spec(client: Client, name: str, fields: Mapping[str, bool]) -> bool:
    """Set fields of a WorkerCluster's spec; return False when they already had these values."""
    path = WORKER_CLUSTERS.path(name=name)
    spec = (await client.get(path)).get("spec") or {}
    if all(bool(spec.get(field)) is value for field, value in fields.items()):
        return False
    await client.merge_patch(path, {"spec": dict(fields)})
    return True


async def _patch_cluster(args: argparse.Namespace) -> int:
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        patch = patch_spec(client, args.cluster, SPEC_FIELDS[args.verb])
        changed = await common.await_with_hint(patch, "Waiting for the manager cluster ...")
    finally:
        await client.close()
    print_line(f"workercluster/{args.cluster} {'' if changed else 'already '}{args.verb}ed")
    return EXIT_OK


def _error_message(error: ApiError, name: str) -> str:
    if error.status == 401:
        return common.UNKNOWN_USER
    if error.status == 403:
        command = (
            f"kubectl create clusterrolebinding {names.DRAIN_ROLE} --clusterrole={names.DRAIN_ROLE} "
            f"{common.rolebinding_subject(error)}"
        )
        return f"You may not do this here; an administrator of the manager cluster can allow it with `{command}`."
    if error.not_found and api_messages.names_object(error.message, name):
        return f"There is no WorkerCluster {name}; `kubectl get workerclusters` lists those that exist."
    if error.not_found:
        return "There are no WorkerClusters: Rayspan is not installed in this cluster."
    return error.message or str(error)
