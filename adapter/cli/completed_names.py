"""Reads the names that a shell completes, with the user's own rights; what cannot be read soon has no names."""

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from adapter import names
from adapter.cli import event_loop
from adapter.cli.completion import CompletedKind, Scope
from adapter.cli.job_reader import JOB_KINDS
from adapter.objects.raycluster import kuberay_owner
from adapter.objects.unstructured import UNREADABLE, Raw, key_of, meta
from adapter.shell.kube import resources, user_kubeconfig
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import Resource

_SECONDS: Final = 3.0  # a shell does nothing else meanwhile
# A name goes into the user's command line, and an API server may answer with any text.
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]*")
_RESOURCES: Final[Mapping[CompletedKind, Resource]] = {
    "namespaces": resources.NAMESPACES,
    "pods": resources.PODS,
    "queues": resources.LOCAL_QUEUES,
    "workerclusters": resources.WORKER_CLUSTERS,
}
_FAILURES: Final = (ApiError, BadLogin, Unreachable, TimeoutError, OSError, *UNREADABLE)


def read_names(kind: CompletedKind, scope: Scope) -> list[str]:
    """The names of a kind in the scope of a command line; jobs as `kind/NAME`."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)
    try:
        texts = (
            user_kubeconfig.context_names(scope.kubeconfig)
            if kind == "contexts"
            else event_loop.run_command(_list_names(kind, scope))
        )
    except _FAILURES:
        return []
    return [text for text in texts if _SAFE_NAME.fullmatch(text)]


async def _list_names(kind: CompletedKind, scope: Scope) -> list[str]:
    client = await Client.for_user(scope.kubeconfig, scope.context)
    try:
        async with asyncio.timeout(_SECONDS):
            namespace = scope.namespace or user_kubeconfig.default_namespace(scope.kubeconfig, scope.context)
            return await (_list_jobs(client, namespace) if kind == "jobs" else _list_kind(client, kind, namespace))
    finally:
        await client.close()


async def _list_kind(client: Client, kind: CompletedKind, namespace: str) -> list[str]:
    resource = _RESOURCES[kind]
    selectors = {"labelSelector": f"{names.RAY_NODE_TYPE_LABEL}=worker"} if kind == "pods" else {}
    path = resource.path(namespace if resource.namespaced else "")
    return [key_of(raw)[1] for raw in (await list_all(client, path, _without_content, **selectors))[0]]


async def _list_jobs(client: Client, namespace: str) -> list[str]:
    lists = await asyncio.gather(*(_list_job_kind(client, namespace, word) for word in JOB_KINDS))
    return [name for listed in lists for name in listed]


async def _list_job_kind(client: Client, namespace: str, word: str) -> list[str]:
    """The jobs of one kind that no other job owns; none where the user may not list them."""
    _, resource = JOB_KINDS[word]
    try:
        objects, _ = await list_all(client, resource.path(namespace), _without_content)
    except ApiError:
        return []
    jobs = (raw for raw in objects if not kuberay_owner(raw, ("RayJob", names.RAY_SERVICE)))
    return [f"{word}/{name}" for _, name in map(key_of, jobs) if name]


def _without_content(raw: Any) -> Raw:
    return {"metadata": meta(raw)}
