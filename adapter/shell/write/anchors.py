"""Deletes anchors without a share; no watch shows anchors.

An anchor is written before its group Workload. If the cluster denies the Workload, or a user deletes it, the anchor is
reconciled by name. Sweeps find anchors of a process that died between the two writes.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from adapter import names
from adapter.gang import orphan_anchors
from adapter.objects import trim
from adapter.objects.placement import parse_placement
from adapter.objects.unstructured import Raw, key_of, label, meta, uid_of
from adapter.shell import metrics
from adapter.shell.clusters.indexes import by_reserved_workload
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import CONFIG_MAPS
from adapter.shell.supervise import read_each, report_failure

log = logging.getLogger(__name__)

# The delay of a requeue: after it, the share's gang has been reconciled.
RECHECK_SECONDS = 5.0
# The memory for the anchors of one namespace: some five thousand, each with its owner's names.
SWEPT_BYTES = 16 * 2**20


async def reconcile_anchor(
    cache: WorkerClusterCache | None, namespace: str, name: str, manager: ManagerCache
) -> float | None:
    """Delete an unneeded anchor of a missing share; return the seconds until the requeue."""
    if cache is None or cache.workloads.get((namespace, name)):
        return None
    if cache.unreachable_reason or not cache.namespace_shares.is_complete(namespace):
        return RECHECK_SECONDS
    try:
        anchor = await cache.client.get(CONFIG_MAPS.path(namespace, name))
    except ApiError as error:
        # The anchor is deleted, or its namespace is not open to us any more and the namespace's owner must clean it up.
        if error.not_found or error.status == 403:
            return None
        raise
    _require_complete(cache, manager, namespace)
    if _is_needed(anchor, cache, manager):
        return RECHECK_SECONDS
    if label(anchor, names.CLUSTER_LABEL) == cache.name:
        await _delete_anchor(anchor, cache)
    return None


async def run(
    reachable: Callable[[], Mapping[str, WorkerClusterCache]], manager: ManagerCache, manager_id: str
) -> None:
    """Sweep every reachable cluster periodically."""
    turns: dict[WorkerClusterCache, int] = {}
    while True:
        if not manager.unreachable_reason:
            turns = {member: turns.get(member, -1) + 1 for member in reachable().values()}
            await asyncio.gather(
                *(
                    _sweep_cluster(member, manager, manager_id)
                    for member, turn in turns.items()
                    if orphan_anchors.is_sweep_due(turn)
                )
            )
        await asyncio.sleep(orphan_anchors.SETTLED_AFTER.total_seconds())


async def _sweep_cluster(cache: WorkerClusterCache, manager: ManagerCache, manager_id: str) -> None:
    for namespace in sorted({key_of(queue)[0] for queue in cache.local_queues}):
        try:
            await _sweep_namespace(cache, namespace, manager, manager_id)
        except ApiError as refusal:  # the namespace is not open to us, so it has no object of ours
            log.debug("cluster=%s namespace=%s not swept: %s", cache.name, namespace, refusal)
        except Unreachable:
            if cache.unreachable_reason or manager.unreachable_reason:
                return
        except Exception as error:  # must not end the sweeps of other clusters
            report_failure("anchors", error, f"{cache.name} {namespace}")


async def _sweep_namespace(cache: WorkerClusterCache, namespace: str, manager: ManagerCache, manager_id: str) -> None:
    # Copied objects are deleted with their anchors, and may be many megabytes.
    ours = f"{names.MANAGER_LABEL}={manager_id},{names.CLUSTER_LABEL}={cache.name},!{names.COPIED_OBJECT_LABEL}"
    quota = cache.extra_budget(SWEPT_BYTES).new_quota(CONFIG_MAPS.plural)
    anchors, _ = await list_all(
        cache.client, CONFIG_MAPS.path(namespace), trim.metadata_only, quota, labelSelector=ours
    )
    _require_complete(cache, manager, namespace)
    for anchor, is_orphan in read_each("anchors", anchors, lambda raw: _is_orphan(raw, cache, manager)):
        if is_orphan:
            await _delete_anchor(anchor, cache)


def _is_orphan(anchor: Raw, cache: WorkerClusterCache, manager: ManagerCache) -> bool:
    if meta(anchor).get("ownerReferences"):
        return False  # a copied object whose label was removed
    return not _is_needed(anchor, cache, manager) and orphan_anchors.is_settled(anchor, cache.clock.now())


async def _delete_anchor(anchor: Raw, cache: WorkerClusterCache) -> None:
    log.info("cluster=%s anchor %s/%s stands for nothing; deleting it", cache.name, *key_of(anchor))
    await cache.client.delete(CONFIG_MAPS.path(*key_of(anchor)), uid_of(anchor))
    metrics.ORPHANS.labels(cache.name, names.OrphanReason.NO_SHARE).inc()


def _require_complete(cache: WorkerClusterCache, manager: ManagerCache, namespace: str) -> None:
    """Raise Unreachable if a cluster became unreachable since the request: its cache may have been dropped.

    So may the objects of the namespace in one of both.
    """
    cache.require_reachable()
    if manager.unreachable_reason:
        raise Unreachable(manager.unreachable_reason)
    for shares in (cache.namespace_shares, manager.namespace_shares):
        if reason := shares.reason(namespace):
            raise Unreachable(f"namespace {namespace} {reason.text}")


def _is_needed(anchor: Raw, cache: WorkerClusterCache, manager: ManagerCache) -> bool:
    placements = manager.placements.by_index(by_reserved_workload(anchor))
    return orphan_anchors.is_in_use(
        anchor, cache.name, cache.workloads.get(key_of(anchor)), map(parse_placement, placements)
    )
