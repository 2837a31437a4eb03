"""Reads what shows why a worker has not joined Ray: the end of its log, and the nodes that its head knows.

Both are read with the user's rights: a log needs a WorkerAccess, the head's view the right to proxy to pods. What
cannot be read in time is left out.
"""

import argparse
import asyncio
from collections.abc import Mapping
from typing import Final

from adapter.access.grant import LOG
from adapter.cli.worker_access import grants
from adapter.diagnosis.job_facts import JobFacts, is_head
from adapter.diagnosis.join_problem import JoinEvidence
from adapter.objects.job_manifest import InvalidJob
from adapter.objects.unstructured import UNREADABLE, Raw, key_of
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import PODS

DEADLINE_SECONDS: Final = 10.0
_LOG_OPTIONS: Final = ("--tail=20", "--limit-bytes=16384")
_UNAVAILABLE: Final = (ApiError, Unreachable, TimeoutError, InvalidJob, grants.AccessUnavailable, *UNREADABLE)


async def read_evidence(
    args: argparse.Namespace, client: Client, facts: JobFacts, pod: Raw, container: str
) -> JoinEvidence:
    """The evidence on a manager pod whose worker has not joined; `container` is the one whose log says why."""
    log, node_states = await asyncio.gather(_read_log(args, client, pod, container), _read_node_states(client, facts))
    return JoinEvidence(log, node_states)


async def _read_log(args: argparse.Namespace, client: Client, pod: Raw, container: str) -> str:
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            with grants.open_access(args, client) as access:
                kubectl = await access.command_for(pod, LOG)
                return await grants.read_kubectl([*kubectl, "logs", key_of(pod)[1], "-c", container, *_LOG_OPTIONS])
    except _UNAVAILABLE:
        return ""


async def _read_node_states(client: Client, facts: JobFacts) -> Mapping[str, bool] | None:
    from adapter.worker import ray_nodes  # only a worker that has not joined needs it

    head = next((pod for pod in facts.pods if is_head(pod)), None)
    if head is None:
        return None
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            proxy = PODS.path(facts.namespace, f"{key_of(head)[1]}:{ray_nodes.dashboard_port(head)}", "proxy")
            return ray_nodes.parse_node_states(await client.get(f"{proxy}{ray_nodes.NODES_PATH}", limit="10000"))
    except _UNAVAILABLE:
        return None
