"""What do `where`, `why` and `watch` read of a job, with nothing but the rights that whoever sees its namespace has?

Each kind is read once, by name, label or namespace: never the pods of a whole cluster. A RayService is no job, and its RayClusters are: that
which serves and that of an upgrade, each of which is read so.
"""

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adapter import names
from adapter.cli import common
from adapter.cli.common import TROUBLE, USAGE, complain
from adapter.cli.manager_reader import Look
from adapter.diagnosis.job_facts import Facts, placement_of, pods_of, ray_cluster_name, workload_of
from adapter.objects.admissioncheck import our_checks, read_check
from adapter.objects.rayjob import Unusable
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import (
    ADMISSION_CHECKS,
    LOCAL_QUEUES,
    PLACEMENTS,
    PODS,
    RAY_CLUSTERS,
    RAY_JOBS,
    RAY_SERVICES,
    WORKER_CLUSTERS,
    WORKLOADS,
)  # fmt: skip
from adapter.shell.kube.user_kubeconfig import default_namespace

_KINDS = {
    "rayjob": ("RayJob", RAY_JOBS),
    "raycluster": ("RayCluster", RAY_CLUSTERS),
    "rayservice": (names.RAY_SERVICE, RAY_SERVICES),
}
# What of a RayService's status names a RayCluster, in the order in which they are told.
_RELEASES = {"active": "activeServiceStatus", "pending": "pendingServiceStatus"}


class Unread(Unusable):
    """A job that was not found, where not all that it may be could be read: it may be there."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody asked about: a job, or a RayService with its RayClusters by what they are to it."""

    jobs: Sequence[Facts]
    service: Raw | None = None
    releases: Sequence[str] = ()  # of each job: active, or pending


def attempt(given: argparse.Namespace, tell: Callable[[Client, Asked], Awaitable[int]]) -> int:
    """Read the job and tell of it; returns the exit code. Trouble is one sentence on the standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        return asyncio.run(_attempt(given, tell))
    except Unusable as error:
        return complain(str(error), USAGE)
    except (BadLogin, Unreachable) as error:
        return complain(f"The manager cluster cannot be asked: {error}", TROUBLE)
    except ApiError as error:
        return complain(common.refused(error), TROUBLE)
    except ValueError as error:
        return complain(f"{given.job}: {error}.", USAGE)


def namespace(given: argparse.Namespace) -> str:
    """Where the job is."""
    return given.namespace or default_namespace(given.kubeconfig, given.context)


def identity(asked: Asked) -> tuple[str, str]:
    """Which one was found: as `rayjob/NAME`, by which it is found again, and its uid."""
    if asked.service is not None:
        return f"rayservice/{key_of(asked.service)[1]}", uid_of(asked.service)
    (facts,) = asked.jobs
    return f"{facts.kind.lower()}/{facts.name}", uid_of(facts.job)


async def _attempt(given: argparse.Namespace, tell: Callable[[Client, Asked], Awaitable[int]]) -> int:
    client = await Client.of_user(given.kubeconfig, given.context)
    try:
        found = await common.told(
            read(Look(client), namespace(given), given.job), "Waiting for the manager cluster ..."
        )
        return await tell(client, found)
    finally:
        await client.close()


async def read(look: Look, where: str, word: str) -> Asked:
    """Everything of one job, or of the RayClusters of a RayService; raises Unusable where there is no such job, as
    Unread where it may be there."""
    kind, job = await _job(look, where, word)
    if kind != names.RAY_SERVICE:
        return Asked((await _facts(look, where, kind, job),))
    status = job.get("status") or {}
    named = {
        release: str((status.get(field) or {}).get("rayClusterName") or "") for release, field in _RELEASES.items()
    }
    found = {one: await look.one(RAY_CLUSTERS, name, where) for one, name in named.items() if name}
    there = {release: ray_cluster for release, ray_cluster in found.items() if ray_cluster}
    return Asked([await _facts(look, where, "RayCluster", one) for one in there.values()], job, tuple(there))


async def _facts(look: Look, namespace: str, kind: str, job: Raw) -> Facts:
    selector = {"labelSelector": f"{names.JOB_UID_LABEL}={uid_of(job)}"}
    workload = workload_of(job, await look.all(WORKLOADS, namespace, **selector))
    bare = Facts(kind, job)
    queue = await look.one(LOCAL_QUEUES, bare.queue, namespace) if bare.queue else {}
    placement = placement_of(workload, job, kind, await look.all(PLACEMENTS, namespace))
    ray_cluster, pods = await _pods(look, namespace, kind, job)
    clusters = {key_of(one)[1]: one for one in await look.all(WORKER_CLUSTERS)}
    checks = our_checks(map(read_check, await look.all(ADMISSION_CHECKS)))
    return Facts(kind, job, workload, placement, ray_cluster, pods, queue, clusters, checks, look.unread)


async def _job(look: Look, namespace: str, word: str) -> tuple[str, Raw]:
    said, slash, name = word.partition("/")
    kinds = [said.lower().removesuffix("s").removesuffix(".ray.io")] if slash else list(_KINDS)
    if not set(kinds) <= set(_KINDS) or (slash and not name):
        raise Unusable(f"{word} names no job: it must be NAME, rayjob/NAME, raycluster/NAME or rayservice/NAME.")
    for kind, resource in (_KINDS[one] for one in kinds):
        if job := await look.one(resource, name or word, namespace):
            return kind, job
    refused = [look.unread[r.plural] for _, r in (_KINDS[one] for one in kinds) if r.plural in look.unread]
    what = " or ".join(filter(None, (", ".join(_KINDS[one][0] for one in kinds[:-1]), _KINDS[kinds[-1]][0])))
    trouble = Unread if refused else Unusable
    raise trouble(" ".join([f"Namespace {namespace} has no {what} {name or word} that you may see.", *refused]))


async def _pods(look: Look, namespace: str, kind: str, job: Raw) -> tuple[Raw, tuple[Raw, ...]]:
    """The RayCluster of the job, and its pods."""
    name = ray_cluster_name(job, kind)
    if not name:
        return {}, ()
    ray_cluster: Any = job if kind == "RayCluster" else await look.one(RAY_CLUSTERS, name, namespace)
    selector = {"labelSelector": f"{names.RAY_GCS_CLUSTER_LABEL}={name}"}
    return ray_cluster, pods_of(ray_cluster, await look.all(PODS, namespace, **selector))
