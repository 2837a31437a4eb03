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
from adapter.cli.common import DONE, TROUBLE, USAGE, complain
from adapter.cli.preflight import run, table
from adapter.objects.unstructured import Raw, key_of
from adapter.preflight import evaluation, reachability
from adapter.preflight.reachability import Reachability
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import WORKER_CLUSTERS

NOT_READY = 3


def main(given: argparse.Namespace) -> int:
    """Try, print, and return the exit code; trouble is one sentence on the standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        return asyncio.run(_run(given))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return complain("Stopped before it was done; its pods are removed, unless it says otherwise above.", TROUBLE)
    except run.Unusable as error:
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
        asked = await run.asked(client, given)
        clusters = await run.clusters(client, given.worker_cluster)
        sides = await run.tried(client, clusters, asked, given.timeout.total_seconds())
        findings = evaluation.judge(list(sides.values()), asked)
        found = {name: reachability.reachable(name, sides, findings) for name in clusters}
        reached = {name: one for name, one in found.items() if one}
        _print(given.output, list(sides.values()), asked, findings, reached)
        for name, one in reached.items():
            await _write(client, clusters[name], one)
    finally:
        await client.close()
    return DONE if evaluation.ready(findings) else NOT_READY


async def _write(client: Client, raw: Raw, found: Reachability) -> None:
    name = key_of(raw)[1]
    try:
        path = WORKER_CLUSTERS.path(name=name, sub="status")
        await client.apply(path, reachability.status(raw, found, datetime.now(UTC)), names.PREFLIGHT_MANAGER)
    except (ApiError, Unreachable) as error:
        complain(f"WorkerCluster {name}: its condition {names.REACHABLE} could not be written: {error}.", TROUBLE)


def _print(given: str, *found: Any) -> None:
    if given == "table":
        print(table.render(*found), end="", flush=True)
    else:
        print(common.written(table.document(*found), given), end="", flush=True)


def _explained(error: ApiError) -> str:
    if error.status == 401:
        return common.UNKNOWN_USER
    if error.status == 403:
        return f"A preflight needs an administrator's rights in the manager cluster: {error.message}"
    if error.missing:
        return "There are no WorkerClusters: Rayspan is not installed in this cluster."
    return error.message or str(error)
