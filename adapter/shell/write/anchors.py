"""What is left behind that no watch shows: anchors without a share.

An anchor is written before its group Workload. A cluster that refuses the Workload, or somebody who deletes it there, leaves a
ConfigMap that may stand for nothing soon: it is looked at by name. A process that dies between the two writes leaves one of
which nobody knows: that is what sweeps are for. Shares and pods need neither: their watches show them, and their own keys
decide on them.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

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

# How long after its share was to be made, or went, an anchor is looked at: until then its gang has taken note.
RECHECK_SECONDS = 5.0
# What the anchors of one namespace may take of memory while they are gone through: some five thousand, each with its owner's names.
SWEPT_BYTES = 16 * 2**20


async def reconcile_anchor(
    cache: WorkerClusterCache | None, namespace: str, name: str, manager: ManagerCache
) -> float | None:
    """Delete the anchor of a share that is not there, unless it is wanted; returns after how many seconds to ask once more."""
    if cache is None or cache.workloads.get((namespace, name)):
        return None
    if cache.unreachable_reason:
        return RECHECK_SECONDS
    try:
        anchor = await cache.client.get(CONFIG_MAPS.path(namespace, name))
    except ApiError as error:
        if (
            error.not_found or error.status == 403
        ):  # a namespace that is not open to us any more goes, or is its owner's to tidy
            return None
        raise
    _require_reachable(cache, manager)
    if _is_needed(anchor, cache, manager):
        return RECHECK_SECONDS
    if label(anchor, names.CLUSTER_LABEL) == cache.name:
        await _delete_anchor(anchor, cache)
    return None


async def run(
    reachable: Callable[[], Mapping[str, WorkerClusterCache]], manager: ManagerCache, manager_id: str
) -> None:
    """Sweep every cluster that can be seen, again and again, until cancelled; who has just started may have crashed before."""
    turns: dict[WorkerClusterCache, int] = {}
    while True:
        if not manager.unreachable_reason:
            turns = {member: turns.get(member, -1) + 1 for member in reachable().values()}
            await asyncio.gather(
                *(
                    _sweep_cluster(one, manager, manager_id)
                    for one, turn in turns.items()
                    if orphan_anchors.is_sweep_due(turn)
                )
            )
        await asyncio.sleep(orphan_anchors.SETTLED_AFTER.total_seconds())


async def _sweep_cluster(cache: WorkerClusterCache, manager: ManagerCache, manager_id: str) -> None:
    """Delete anchors that stand for nothing, in every namespace in which there can be one."""
    for namespace in sorted({key_of(queue)[0] for queue in cache.local_queues}):
        try:
            await _sweep_namespace(cache, namespace, manager, manager_id)
        except ApiError as refusal:  # not opened to us: there is nothing of ours in it
            log.debug("cluster=%s namespace=%s not swept: %s", cache.name, namespace, refusal)
        except Unreachable:
            return
        except Exception as error:  # what it says may be anything, and must not end the sweeps of the others
            report_failure("anchors", error, f"{cache.name} {namespace}")


async def _sweep_namespace(cache: WorkerClusterCache, namespace: str, manager: ManagerCache, manager_id: str) -> None:
    # Without copies, which go with their anchors: what they hold may come to many megabytes.
    ours = f"{names.MANAGER_LABEL}={manager_id},{names.CLUSTER_LABEL}={cache.name},!{names.COPIED_OBJECT_LABEL}"
    room = cache.extra_budget(SWEPT_BYTES).new_quota(CONFIG_MAPS.plural)
    found, _ = await list_all(cache.client, CONFIG_MAPS.path(namespace), trim.metadata_only, room, labelSelector=ours)
    _require_reachable(cache, manager)
    for anchor, goes in read_each("anchors", found, lambda one: _is_orphan(one, cache, manager)):
        if goes:
            await _delete_anchor(anchor, cache)


def _is_orphan(anchor: Raw, cache: WorkerClusterCache, manager: ManagerCache) -> bool:
    if meta(anchor).get("ownerReferences"):
        return False  # a copy all the same, whose label somebody took
    return not _is_needed(anchor, cache, manager) and orphan_anchors.is_settled(anchor, datetime.now(UTC))


async def _delete_anchor(anchor: Raw, cache: WorkerClusterCache) -> None:
    log.info("cluster=%s anchor %s/%s stands for nothing; deleting it", cache.name, *key_of(anchor))
    await cache.client.delete(CONFIG_MAPS.path(*key_of(anchor)), uid_of(anchor))
    metrics.ORPHANS.labels(cache.name, names.OrphanReason.NO_SHARE).inc()


def _require_reachable(cache: WorkerClusterCache, manager: ManagerCache) -> None:
    """Raise Unreachable where what is known of either cluster counts no more since an answer was asked for: it may have been dropped."""
    cache.require_reachable()
    if manager.unreachable_reason:
        raise Unreachable(manager.unreachable_reason)


def _is_needed(anchor: Raw, cache: WorkerClusterCache, manager: ManagerCache) -> bool:
    placements = manager.placements.by_index(by_reserved_workload(anchor))
    return orphan_anchors.is_in_use(
        anchor, cache.name, cache.workloads.get(key_of(anchor)), map(parse_placement, placements)
    )
