"""Looks in a worker cluster for what its WorkerCluster names, with the rights of its account, and stores nothing there.

`adapter.preflight.named_there` says how, and judges the answers.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from adapter.objects import api_messages
from adapter.objects.specs import PodMapping
from adapter.preflight import probe
from adapter.preflight.named_there import MAX_NAMES, named_in_cluster, trial_pod
from adapter.preflight.preflight_facts import NamedAnswer, NamedKind, NamedThere
from adapter.preflight.probe import ProbeRun
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import CLAIM_TEMPLATES, CLAIMS, PODS, Resource

# Of the API server's admission plugins ServiceAccount, RuntimeClass and Priority.
_MISSING_WORDS: Final = ("not found", "no PriorityClass with name")
_READ_KINDS: Final[Mapping[NamedKind, tuple[Resource, str]]] = {  # with the word for many of them
    "claim": (CLAIMS, "claims"),
    "ResourceClaimTemplate": (CLAIM_TEMPLATES, "ResourceClaimTemplates"),
}
_DENIALS: Final = (400, 403, 404, 422)  # of admission; other errors say nothing of the pod


async def find_named(client: Client, mapping: PodMapping, run: ProbeRun) -> tuple[NamedAnswer, ...]:
    """An answer for each name that counts for the namespace of the run."""
    named = named_in_cluster(mapping, run.namespace)
    if not named:
        return ()
    plain = probe.trial_pod(run)
    plain_denial = await _plain_denial(client, run, plain)
    answers = await asyncio.gather(*(_find(client, run, entry, plain, plain_denial) for entry in named[:MAX_NAMES]))
    too_many = f"more than {MAX_NAMES} names"
    return (*answers, *(NamedAnswer(entry, "unknown", too_many) for entry in named[MAX_NAMES:]))


async def _find(
    client: Client, run: ProbeRun, entry: NamedThere, plain: dict[str, Any], plain_denial: str
) -> NamedAnswer:
    try:
        if entry.kind in _READ_KINDS:
            return await _read(client, run, entry)
        if entry.kind == "scheduler":
            return await _find_scheduler(client, entry)
        if plain_denial:
            return NamedAnswer(entry, "unknown", f"a plain pod is denied there: {plain_denial}")
        denial = await _denial(client, run, trial_pod(plain, entry))
    except (ApiError, Unreachable) as error:
        return NamedAnswer(entry, "unknown", str(error))
    if denial and not any(words in denial for words in _MISSING_WORDS):  # of a quota or a webhook, for example
        return NamedAnswer(entry, "unknown", f"a pod with it is denied there: {denial}")
    return NamedAnswer(entry, "missing" if denial else "exists", denial)


async def _plain_denial(client: Client, run: ProbeRun, plain: dict[str, Any]) -> str:
    try:
        return await _denial(client, run, plain)
    except (ApiError, Unreachable) as error:
        return str(error)


async def _denial(client: Client, run: ProbeRun, pod: dict[str, Any]) -> str:
    """Why the cluster denies a pod; empty if it accepts it."""
    try:
        await client.dry_run_create(PODS.path(run.namespace), pod)
    except ApiError as error:
        if error.status not in _DENIALS:
            raise
        return error.message or str(error)
    return ""


async def _read(client: Client, run: ProbeRun, entry: NamedThere) -> NamedAnswer:
    resource, plural = _READ_KINDS[entry.kind]
    try:
        await client.get(resource.path(run.namespace, entry.name))
    except ApiError as error:
        if error.not_found and api_messages.names_object(error.message, entry.name):
            return NamedAnswer(entry, "missing")
        if error.not_found:
            return NamedAnswer(entry, "unknown", f"the API server there has no {resource.api_version} {plural}")
        if api_messages.lacks_right(error.message, "get"):
            return NamedAnswer(entry, "unknown", f"the WorkerCluster's account may not get {plural}")
        raise
    return NamedAnswer(entry, "exists")


async def _find_scheduler(client: Client, entry: NamedThere) -> NamedAnswer:
    """A running pod shows that its scheduler worked."""
    selector = f"spec.schedulerName={entry.name},status.phase=Running"
    pods = (await client.get(PODS.path(), fieldSelector=selector, limit="1")).get("items")
    return NamedAnswer(entry, "exists") if pods else NamedAnswer(entry, "unknown", "no pod there runs by it")
