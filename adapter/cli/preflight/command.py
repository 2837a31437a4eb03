"""`rayspan preflight`: could workers join from the worker clusters? Tries it with short-lived pods, and tells what would keep them from it.

It asks with two kinds of rights: those of its user in the manager cluster, and those of each WorkerCluster's own kubeconfig there, which
are the controller's. Exit code 0: all is well; 3: something would keep workers from joining; 2: the command line is wrong; 1: the
manager cluster could not be asked, or the preflight was stopped.
"""

import argparse
import asyncio
import json
import logging
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from adapter import names
from adapter.cli import common
from adapter.cli.common import DONE, TROUBLE, USAGE, complain
from adapter.cli.preflight import run, table
from adapter.objects.raw import Raw, key_of
from adapter.preflight import judge, reachable
from adapter.preflight.reachable import Reachability
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.kubeconfig import BadLogin
from adapter.shell.kube.resources import WORKER_CLUSTERS

NOT_READY = 3

DESCRIPTION = """\
Tries whether workers could join from the worker clusters: rights, namespace, LocalQueue and image there, DNS, and whether pods of all
clusters reach each other, how fast, and with the same clock. Short-lived pods do that, two in each cluster, in the namespace where jobs
would run. The result becomes the condition Reachable of the WorkerClusters.

You need an administrator's rights in the manager cluster: to read the worker clusters' kubeconfigs in rayspan-system, to run pods, and to
write the status of WorkerClusters. In the worker clusters the rights of those kubeconfigs are used, which are the controller's; the
machine that you do this on must reach the API servers that they name.
"""
EPILOG = """\
example:
  kubectl rayspan preflight
  kubectl rayspan preflight --cluster east -n research --queue ray --image rayproject/ray:2.60.0

Each way between two clusters is tried on one high port. Ray's nodes choose ports of their own, so all must be open; the one that is
tried stands for them, because no list of well-known ports holds it.

exit code: 0 all is well, 3 something would keep workers from joining, 2 the command line is wrong, 1 anything else
"""


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options to the command line."""
    verb = common.add_verb(
        verbs, "preflight", "try whether workers could join from the worker clusters", DESCRIPTION, EPILOG
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
        type=common.duration,
        default=timedelta(seconds=60),
        help="how long a pod may take to start, and again to answer (default: 60s)",
    )
    verb.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table", help="default: table")
    common.add_login(verb)


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
        clusters = await run.clusters(client, given.cluster)
        sides = await run.tried(client, clusters, asked, given.timeout.total_seconds())
        findings = judge.judge(list(sides.values()), asked)
        found = {name: reachable.reachable(name, sides, findings) for name in clusters}
        reached = {name: one for name, one in found.items() if one}
        _print(given.output, list(sides.values()), asked, findings, reached)
        for name, one in reached.items():
            await _write(client, clusters[name], one)
    finally:
        await client.close()
    return DONE if judge.ready(findings) else NOT_READY


async def _write(client: Client, raw: Raw, found: Reachability) -> None:
    name = key_of(raw)[1]
    try:
        path = WORKER_CLUSTERS.path(name=name, sub="status")
        await client.apply(path, reachable.status(raw, found, datetime.now(UTC)), names.PREFLIGHT_MANAGER)
    except (ApiError, Unreachable) as error:
        complain(f"WorkerCluster {name}: its condition {names.REACHABLE} could not be written: {error}.", TROUBLE)


def _print(given: str, *found: Any) -> None:
    if given == "table":
        print(table.render(*found), end="", flush=True)
    elif given == "json":
        print(json.dumps(table.document(*found), indent=2), flush=True)
    else:
        print(yaml.safe_dump(table.document(*found), sort_keys=False, width=160), end="", flush=True)


def _explained(error: ApiError) -> str:
    if error.status == 401:
        return common.UNKNOWN_USER
    if error.status == 403:
        return f"A preflight needs an administrator's rights in the manager cluster: {error.message}"
    if error.missing:
        return "There are no WorkerClusters: Rayspan is not installed in this cluster."
    return error.message or str(error)
