"""`rayspan preflight`: tests with short-lived pods whether workers could join from the worker clusters.

It uses the user's rights in the manager cluster, and in a worker cluster those of its WorkerCluster's kubeconfig, which
the controller uses too. Exit code 0: ready; 3: not ready; 2: wrong command line; 1: the manager cluster does not
answer, or the preflight was stopped.
"""

import argparse
import asyncio
import logging
import signal
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from adapter import names
from adapter.cli import common, event_loop
from adapter.cli.common import EXIT_ERROR, EXIT_OK, EXIT_USAGE, print_error
from adapter.cli.preflight import run, table
from adapter.cli.terminal import print_text
from adapter.objects.unstructured import Raw, key_of
from adapter.preflight import evaluation, named_there, reachability
from adapter.preflight.preflight_facts import Finding, NamedAnswer
from adapter.preflight.reachability import Reachability
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import WORKER_CLUSTERS

EXIT_NOT_READY = 3


def main(args: argparse.Namespace) -> int:
    """Run the preflight and return the exit code; an error is one sentence on standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # our own messages replace its warnings
    try:
        return event_loop.run_command(_run_preflight(args))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return print_error(
            "Stopped before it was finished. Its pods are removed, except those that are named above.", EXIT_ERROR
        )
    except run.InvalidPreflight as error:
        return print_error(str(error), EXIT_USAGE)
    except (BadLogin, Unreachable) as error:
        return print_error(f"The manager cluster cannot be reached: {error}", EXIT_ERROR)
    except ApiError as error:
        return print_error(_error_message(error), EXIT_ERROR)


async def _run_preflight(args: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    # SIGTERM removes the probe pods, as Ctrl-C does.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        request = await run.read_request(client, args)
        clusters = await run.read_worker_clusters(client, args.worker_cluster)
        sides = await run.inspect_and_probe(client, clusters, request, args.timeout.total_seconds())
        findings = evaluation.evaluate_clusters(list(sides.values()), request)
        results = {name: reachability.cluster_reachability(name, sides, findings) for name in clusters}
        reachabilities = {name: result for name, result in results.items() if result}
        _print_result(args.output, list(sides.values()), request, findings, reachabilities)
        for name, result in reachabilities.items():
            await _write_reachability(client, clusters[name], result)
        for name, raw in clusters.items():
            if sides[name].has_namespace and not sides[name].api_error:
                await _write_names(client, raw, sides[name].named, findings)
    finally:
        await client.close()
    return EXIT_OK if evaluation.is_ready(findings) else EXIT_NOT_READY


async def _write_reachability(client: Client, raw: Raw, result: Reachability) -> None:
    patch = reachability.status_patch(raw, result, datetime.now(UTC))
    await _write_condition(client, key_of(raw)[1], names.REACHABLE, patch, names.PREFLIGHT_FIELD_MANAGER)


async def _write_names(client: Client, raw: Raw, answers: Sequence[NamedAnswer], findings: Iterable[Finding]) -> None:
    if patch := named_there.status_patch(raw, answers, findings, datetime.now(UTC)):
        manager = names.PREFLIGHT_NAMES_FIELD_MANAGER
        await _write_condition(client, key_of(raw)[1], names.NAMES_EXIST, patch, manager)


async def _write_condition(client: Client, name: str, kind: str, patch: Mapping[str, Any], manager: str) -> None:
    try:
        await client.apply(WORKER_CLUSTERS.path(name=name, sub="status"), patch, manager)
    except (ApiError, Unreachable) as error:
        print_error(f"WorkerCluster {name}: its condition {kind} could not be written: {error}.", EXIT_ERROR)


def _print_result(output: str, *result: Any) -> None:
    if output == "table":
        print_text(table.render(*result))
    else:
        print_text(common.format_document(table.build_document(*result), output))


def _error_message(error: ApiError) -> str:
    if error.status == 401:
        return common.UNKNOWN_USER
    if error.status == 403:
        return f"A preflight needs an administrator's rights in the manager cluster: {error.message}"
    if error.not_found:
        return "There are no WorkerClusters: Rayspan is not installed in this cluster."
    return error.message or str(error)
