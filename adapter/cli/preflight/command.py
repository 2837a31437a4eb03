"""`rayspan preflight`: could workers join from the worker clusters? Tries it with short-lived pods, and tells what would keep them from it.

It asks with two kinds of rights: those of its user in the manager cluster, and those of each WorkerCluster's own kubeconfig there, which
are the controller's. Exit code 0: all is well; 3: something would keep workers from joining; 2: the command line is wrong; 1: the
manager cluster could not be asked, or the preflight was stopped.
"""

import argparse
import asyncio
import logging
import signal
from datetime import UTC, datetime
from typing import Any

from adapter import names
from adapter.cli import common
from adapter.cli.common import EXIT_ERROR, EXIT_OK, EXIT_USAGE, print_error
from adapter.cli.preflight import run, table
from adapter.objects.unstructured import Raw, key_of
from adapter.preflight import evaluation, reachability
from adapter.preflight.reachability import Reachability
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import WORKER_CLUSTERS

EXIT_NOT_READY = 3


def main(args: argparse.Namespace) -> int:
    """Try, print, and return the exit code; trouble is one sentence on the standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        return asyncio.run(_run_preflight(args))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return print_error(
            "Stopped before it was done; its pods are removed, unless it says otherwise above.", EXIT_ERROR
        )
    except run.InvalidPreflight as error:
        return print_error(str(error), EXIT_USAGE)
    except (BadLogin, Unreachable) as error:
        return print_error(f"The manager cluster cannot be asked: {error}", EXIT_ERROR)
    except ApiError as error:
        return print_error(_error_message(error), EXIT_ERROR)


async def _run_preflight(args: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # as Ctrl-C: what was made is removed
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        asked = await run.read_request(client, args)
        clusters = await run.read_worker_clusters(client, args.worker_cluster)
        sides = await run.inspect_and_probe(client, clusters, asked, args.timeout.total_seconds())
        findings = evaluation.evaluate_clusters(list(sides.values()), asked)
        found = {name: reachability.cluster_reachability(name, sides, findings) for name in clusters}
        reached = {name: one for name, one in found.items() if one}
        _print_result(args.output, list(sides.values()), asked, findings, reached)
        for name, one in reached.items():
            await _write_reachability(client, clusters[name], one)
    finally:
        await client.close()
    return EXIT_OK if evaluation.is_ready(findings) else EXIT_NOT_READY


async def _write_reachability(client: Client, raw: Raw, result: Reachability) -> None:
    name = key_of(raw)[1]
    try:
        path = WORKER_CLUSTERS.path(name=name, sub="status")
        await client.apply(
            path, reachability.status_patch(raw, result, datetime.now(UTC)), names.PREFLIGHT_FIELD_MANAGER
        )
    except (ApiError, Unreachable) as error:
        print_error(f"WorkerCluster {name}: its condition {names.REACHABLE} could not be written: {error}.", EXIT_ERROR)


def _print_result(output: str, *result: Any) -> None:
    if output == "table":
        print(table.render(*result), end="", flush=True)
    else:
        print(common.format_document(table.build_document(*result), output), end="", flush=True)


def _error_message(error: ApiError) -> str:
    if error.status == 401:
        return common.UNKNOWN_USER
    if error.status == 403:
        return f"A preflight needs an administrator's rights in the manager cluster: {error.message}"
    if error.not_found:
        return "There are no WorkerClusters: Rayspan is not installed in this cluster."
    return error.message or str(error)
