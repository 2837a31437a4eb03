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
from adapter.objects.placement import placement
from adapter.objects.unstructured import Raw, key_of, label, meta, uid_of
from adapter.shell import metrics
from adapter.shell.clusters.indexes import by_reserved_workload
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.worker_cache import Member
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.kube.pagination import listed
from adapter.shell.kube.resources import CONFIG_MAPS
from adapter.shell.supervise import each, failed

log = logging.getLogger(__name__)

# How long after its share was to be made, or went, an anchor is looked at: until then its gang has taken note.
BEREFT_SECONDS = 5.0
# What the anchors of one namespace may take of memory while they are gone through: some five thousand, each with its owner's names.
SWEPT_BYTES = 16 * 2**20


async def look(member: Member | None, namespace: str, name: str, manager: Manager) -> float | None:
    """Delete the anchor of a share that is not there, unless it is wanted; returns after how many seconds to ask once more."""
    if member is None or member.workloads.get((namespace, name)):
        return None
    if member.why_silent:
        return BEREFT_SECONDS
    try:
        anchor = await member.client.get(CONFIG_MAPS.path(namespace, name))
    except ApiError as error:
        if (
            error.missing or error.status == 403
        ):  # a namespace that is not open to us any more goes, or is its owner's to tidy
            return None
        raise
    _must_be_seen(member, manager)
    if _stands(anchor, member, manager):
        return BEREFT_SECONDS
    if label(anchor, names.CLUSTER_LABEL) == member.name:
        await _delete(anchor, member)
    return None


async def run(seen: Callable[[], Mapping[str, Member]], manager: Manager, manager_id: str) -> None:
    """Sweep every cluster that can be seen, again and again, until cancelled; who has just started may have crashed before."""
    turns: dict[Member, int] = {}
    while True:
        if not manager.lost:
            turns = {member: turns.get(member, -1) + 1 for member in seen().values()}
            await asyncio.gather(
                *(_sweep(one, manager, manager_id) for one, turn in turns.items() if orphan_anchors.due(turn))
            )
        await asyncio.sleep(orphan_anchors.SETTLED.total_seconds())


async def _sweep(member: Member, manager: Manager, manager_id: str) -> None:
    """Delete anchors that stand for nothing, in every namespace in which there can be one."""
    for namespace in sorted({key_of(queue)[0] for queue in member.local_queues}):
        try:
            await _namespace(member, namespace, manager, manager_id)
        except ApiError as refusal:  # not opened to us: there is nothing of ours in it
            log.debug("cluster=%s namespace=%s not swept: %s", member.name, namespace, refusal)
        except Unreachable:
            return
        except Exception as error:  # what it says may be anything, and must not end the sweeps of the others
            failed("anchors", error, f"{member.name} {namespace}")


async def _namespace(member: Member, namespace: str, manager: Manager, manager_id: str) -> None:
    # Without copies, which go with their anchors: what they hold may come to many megabytes.
    ours = f"{names.MANAGER_LABEL}={manager_id},{names.CLUSTER_LABEL}={member.name},!{names.COPY_LABEL}"
    room = member.aside(SWEPT_BYTES).room(CONFIG_MAPS.plural)
    found, _ = await listed(member.client, CONFIG_MAPS.path(namespace), trim.frame, room, labelSelector=ours)
    _must_be_seen(member, manager)
    for anchor, goes in each("anchors", found, lambda one: _forlorn(one, member, manager)):
        if goes:
            await _delete(anchor, member)


def _forlorn(anchor: Raw, member: Member, manager: Manager) -> bool:
    if meta(anchor).get("ownerReferences"):
        return False  # a copy all the same, whose label somebody took
    return not _stands(anchor, member, manager) and orphan_anchors.settled(anchor, datetime.now(UTC))


async def _delete(anchor: Raw, member: Member) -> None:
    log.info("cluster=%s anchor %s/%s stands for nothing; deleting it", member.name, *key_of(anchor))
    await member.client.delete(CONFIG_MAPS.path(*key_of(anchor)), uid_of(anchor))
    metrics.ORPHANS.labels(member.name, metrics.NO_SHARE).inc()


def _must_be_seen(member: Member, manager: Manager) -> None:
    """Raise Unreachable where what is known of either cluster counts no more since an answer was asked for: it may have been dropped."""
    member.must_be_seen()
    if manager.lost:
        raise Unreachable(manager.lost)


def _stands(anchor: Raw, member: Member, manager: Manager) -> bool:
    placements = manager.placements.group(by_reserved_workload(anchor))
    return orphan_anchors.stands(anchor, member.name, member.workloads.get(key_of(anchor)), map(placement, placements))
