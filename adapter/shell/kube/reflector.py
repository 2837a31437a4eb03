"""Keeps a store up to date: list, watch, resume, and list again when the server cannot resume or was unreachable.

A watch may stay silent for a minute and a half after a cut link is whole again, so a probe decides whether the cluster
is reachable. After a loss of contact, cached objects do not count until they are listed again. Loops end only by
cancellation, and report losses to their owner.

A cluster whose etcd was restored from a backup counts its versions from an earlier one. A watch from a later version
stays silent until the cluster reaches that version again (docs/upstream.md, "A restored etcd"). So before a watch
resumes, the cluster is asked for its version; if that is older than the store's, everything is listed again.

An event that is too large to be read makes its namespace incomplete (`namespace_shares.py`), and the watch goes on. If
its namespace is unknown, everything is listed again, but not often.

A restored connection may lead to another cluster. So a follower may require proof of the cluster identity: before a
list, before a watch resumes, and with each probe.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapter.objects import well_formed
from adapter.objects.unstructured import UNREADABLE, Raw, key_of, mapping_field, parse_version
from adapter.shell import metrics
from adapter.shell.kube import pagination, response_limits
from adapter.shell.kube.client import ApiError, Client, ResponseTooLarge, Unreachable, UnusableCluster
from adapter.shell.kube.memory_budget import WORKER_CLUSTER_BYTES, BudgetExceeded, MemoryBudget, MemoryQuota
from adapter.shell.kube.namespace_shares import NamespaceShares
from adapter.shell.kube.pagination import OversizedObject
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.response_limits import OversizedLine
from adapter.shell.kube.store import Listing, Store
from adapter.shell.rate_limit import TokenBucket

log = logging.getLogger(__name__)

WATCH_SECONDS = "240"  # well below any proxy's idle limit
# After this silence a watch is resumed, which costs little. Bookmarks come about once a minute, so the connection may
# be dead.
SILENCE_SECONDS = 90.0
# The pause before the next watch. It doubles when the server ends a watch early; a watch that lasted resets it.
FIRST_BACKOFF, LAST_BACKOFF = 0.1, 15.0

# The pause before a cluster beyond its memory budget is listed again. It doubles, because each list takes the memory
# once more.
FIRST_PAUSE, LAST_PAUSE = 15.0, 600.0

# The pause between two lists because of events that are too large and do not show their namespace.
RELIST_SECONDS = 300.0

# The time between probes. A cut link shows within PROBE_SECONDS + the client's time-out, early enough for a gang to
# spill within its reservation timeout. One lost packet is ignored.
PROBE_SECONDS = 5.0

# A busy server (429) is asked again. If a watch must resume, as after a cut link, the cached objects count for this
# long meanwhile; while all watches are open, they count without limit.
BUSY_SECONDS = 15.0

RESTORED = "its API server went back to an older version, as after a restore from a backup; listing everything again"

ReportProbe = Callable[[Exception | None], None]  # None for a success
VerifyIdentity = Callable[[], Awaitable[None]]  # raises WrongCluster, or the request's error


def ignore() -> None:
    """Ignore the event."""


async def accept_any_cluster() -> None:
    """Require no proof of the cluster identity."""


def already_begun() -> asyncio.Event:
    """A set event, for a kind that is followed at once."""
    begun = asyncio.Event()
    begun.set()
    return begun


@dataclass(frozen=True, slots=True)
class FollowConfig:
    """What to follow, and the callbacks; `on_result` gets an error, or None."""

    client: Client
    resource: Resource
    store: Store
    on_result: Callable[[Exception | None], None]
    namespace: str = ""
    selectors: dict[str, str] = field(default_factory=dict)  # labelSelector, fieldSelector
    on_restored: Callable[[], None] = ignore
    memory_quota: MemoryQuota = field(default_factory=lambda: MemoryBudget(WORKER_CLUSTER_BYTES).new_quota("objects"))
    verify_identity: VerifyIdentity = accept_any_cluster
    begun: asyncio.Event = field(default_factory=already_begun)  # the kind is followed once this is set
    # Bounds the log: the cluster decides how many malformed objects it sends.
    log_limit: TokenBucket = field(default_factory=lambda: TokenBucket(10, 60.0))
    # Bounds the namespaces that events make incomplete: the cluster decides which names it sends.
    skip_limit: TokenBucket = field(default_factory=lambda: TokenBucket(20, 5.0))

    def __post_init__(self) -> None:
        self.memory_quota.store = self.store

    @property
    def namespaces(self) -> NamespaceShares:
        return self.memory_quota.budget.namespaces

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace)


class ClusterRestored(Unreachable):
    """The cluster went back to an older version: cached objects no longer count."""


class WrongCluster(UnusableCluster):
    """The server that answers belongs to another cluster."""


@dataclass(slots=True)
class _WatchPosition:
    version: str = ""  # empty: list first
    last_open: float = -math.inf
    must_list: bool = False  # an event was skipped whose namespace is unknown
    next_list: float = -math.inf  # the earliest time of a list because of such an event

    def note_list(self, now: float) -> None:
        if self.must_list:
            self.must_list, self.next_list = False, now + RELIST_SECONDS

    def is_list_due(self, now: float) -> bool:
        return self.must_list and now >= self.next_list


RelistSignal = asyncio.Future[Unreachable]  # why cached objects no longer count


async def follow(config: FollowConfig, relist_signal: RelistSignal | None = None) -> None:
    """Keep a store up to date; set `relist_signal` when cached objects no longer count."""
    position, backoff, must_verify = _WatchPosition(), FIRST_BACKOFF, not config.begun.is_set()
    await config.begun.wait()
    clock = asyncio.get_running_loop().time
    while True:
        began = clock()
        try:
            is_verified, must_verify = not must_verify, True  # the caller has just verified the identity
            await _start(config, position, verified=is_verified)
            await _watch_once(config, position)
        except ApiError as error:
            _drop_traceback(error)
            if not _is_busy(error):  # a full list would load a busy server further
                position.version = ""  # expired (410) or forbidden: only a new list is reliable
            is_recent = _is_busy(error) and position.version and clock() - position.last_open < BUSY_SECONDS
            if error.status != 410 and not is_recent:
                config.on_result(error)
        except Unreachable as error:
            _drop_traceback(error)
            if isinstance(error, ClusterRestored | WrongCluster | ResponseTooLarge | BudgetExceeded):
                position.version = ""
            if (
                relist_signal
                and not relist_signal.done()
                and isinstance(error, ClusterRestored | WrongCluster | BudgetExceeded)
            ):
                relist_signal.set_result(error)
            # The list tells whose event was too large; until then, the cached objects count.
            if not (isinstance(error, ResponseTooLarge) and position.last_open > began):
                config.on_result(error)
        except (*UNREADABLE, RecursionError) as error:  # such as a proxy's answer
            log.warning("following %s: unreadable answer (%s)", config.resource.plural, type(error).__name__)
            position.version = ""
            config.on_result(Unreachable("its answer cannot be read"))
        backoff = FIRST_BACKOFF if clock() - began > LAST_BACKOFF else min(backoff * 2, LAST_BACKOFF)
        await asyncio.sleep(backoff * random.uniform(0.5, 1.0))


def _drop_traceback(error: Exception) -> None:
    """Drop an error's frames, which hold half a list: errors are stored while the fault lasts."""
    error.__traceback__ = error.__context__ = error.__cause__ = None


async def _start(config: FollowConfig, position: _WatchPosition, *, verified: bool) -> None:
    """Set the version to watch from."""
    if not verified:
        await config.verify_identity()
    if position.version:
        await _check_not_restored(config)
    else:
        position.version = await _list_into_store(config)
        position.note_list(asyncio.get_running_loop().time())


async def _check_not_restored(config: FollowConfig) -> None:
    """Raise ClusterRestored if the cluster is behind the store's newest version.

    A list that is requested without a version is read by quorum, so it is as new as any earlier event. One object of it
    is enough; with a label selector, the API server would search all objects for that one.
    """
    fields = {name: text for name, text in config.selectors.items() if name == "fieldSelector"}
    known = config.store.newest_version
    page = await config.client.get(config.path, limit="1", **fields)
    if 0 < parse_version(_version_text(page)) < known:
        raise ClusterRestored(RESTORED)


async def _list_into_store(config: FollowConfig) -> str:
    listing = _StoreListing(config)
    try:
        lock, takes_oversized = config.memory_quota.budget.page_lock, config.store.metered
        await pagination.read_pages(
            config.client, config.path, listing.take_page, lock, takes_oversized, **config.selectors
        )
        return await listing.finish_listing()
    except BaseException:  # a cancellation as well
        config.store.abandon_listing()
        raise


class _StoreListing:
    def __init__(self, config: FollowConfig) -> None:
        """Create it before the first request, because events that arrive later may be newer than the list."""
        self._config, self._newest_before = config, config.store.newest_version
        self._listing: Listing | None = None
        self._version = ""

    def take_page(self, items: list[Any], version: str) -> None:
        listing = self._listing = self._listing or self._begin_listing(version)
        listing.take_page(self._readable_items(items))
        self._config.namespaces.check_all()
        self._config.memory_quota.check()

    def _readable_items(self, items: list[Any]) -> list[Any]:
        """The items that can be read; the namespace of another one becomes incomplete."""
        config, oversized = self._config, [item for item in items if isinstance(item, OversizedObject)]
        for item in oversized:
            config.namespaces.drop_unreadable(key_of(item)[0], config.resource.plural)
        return [item for item in items if not isinstance(item, OversizedObject)] if oversized else items

    def _begin_listing(self, version: str) -> Listing:
        config = self._config
        if not version:
            raise Unreachable(f"its list of {config.resource.plural} has no version")
        if restored := parse_version(version) < self._newest_before:
            sentence = "%s: following %s: %s (%d, now %s)"
            log.warning(
                sentence, _cluster_title(config), config.resource.plural, RESTORED, self._newest_before, version
            )
            config.on_restored()
        self._version = version
        return config.store.begin_listing(version, restored=restored)

    async def finish_listing(self) -> str:
        if self._listing:  # unset only after an error
            for _ in self._listing.finish_in_steps():
                await asyncio.sleep(0)
            _report_malformed(self._config, self._listing.refused_count, self._listing.first_refusal)
        self._config.namespaces.check_all()
        return self._version


def _cluster_title(config: FollowConfig) -> str:
    return f"worker cluster {config.client.cluster}" if config.client.cluster else "manager cluster"


def _report_malformed(config: FollowConfig, refused: int, first_refusal: str) -> None:
    if refused:
        metrics.MALFORMED_OBJECTS.labels(config.client.cluster, config.resource.plural).inc(refused)
        sentence = "%s: %d of its %s are left out, as an API server does not write them: of the first, %s"
        if config.log_limit.try_take(time.monotonic()):
            log.warning(sentence, _cluster_title(config), refused, config.resource.plural, first_refusal)


async def _watch_once(config: FollowConfig, position: _WatchPosition) -> None:
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": WATCH_SECONDS,
        "resourceVersion": position.version,
        **config.selectors,
    }
    clock = asyncio.get_running_loop().time
    async with config.client.stream(config.path, params, SILENCE_SECONDS) as lines:
        config.on_result(None)  # not after the list: if only the watch is forbidden, the store would become stale
        try:
            async for line in lines:
                if isinstance(line, OversizedLine):
                    _skip_event(config, position, line)
                elif line:
                    position.version = _apply_event(config, orjson.loads(line), position.version)
                if position.is_list_due(clock()):
                    raise ResponseTooLarge("it sends an event that is too large to be read")
        finally:
            position.last_open = clock()


def _skip_event(config: FollowConfig, position: _WatchPosition, line: OversizedLine) -> None:
    """Make the namespace of an event that is too large incomplete, or note that everything must be listed again.

    The position stays before the event: a bookmark or the next event moves it on.
    """
    namespace, now = _namespace_of_event(line) if config.store.metered else "", time.monotonic()
    is_known = bool(namespace) and not config.namespaces.is_complete(namespace)
    if is_known or (namespace and config.skip_limit.try_take(now)):
        config.namespaces.drop_unreadable(namespace, config.resource.plural)
    elif not position.must_list:
        position.must_list = True
        if config.log_limit.try_take(now):
            sentence = "%s: an event of its %s is too large to be read; listing them again within %.0f s"
            log.warning(sentence, _cluster_title(config), config.resource.plural, RELIST_SECONDS)


def _namespace_of_event(line: OversizedLine) -> str:
    event = response_limits.parse_beginning(line)
    namespace, _ = key_of(mapping_field(event, "object"))
    return namespace if well_formed.is_namespace(namespace) else ""


def _apply_event(config: FollowConfig, event: Raw, version: str) -> str:
    kind, raw = event["type"], event["object"]
    if kind == "ERROR":
        raise ApiError(int(raw.get("code") or 500), str(raw.get("reason")), str(raw.get("message")))
    event_version = _version_text(raw) or version
    if parse_version(event_version) < parse_version(version):
        raise ClusterRestored(RESTORED)
    config.store.note_version(event_version)
    if kind != "BOOKMARK":
        problem = config.store.remove(raw) if kind == "DELETED" else config.store.put(raw)
        _report_malformed(config, 1 if problem else 0, problem)
        config.namespaces.check(key_of(raw)[0])
        config.memory_quota.check()
    return event_version


def _version_text(raw: Raw) -> str:
    metadata = raw.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else ""
    return version if isinstance(version, str) and parse_version(version) else ""


async def follow_all(
    client: Client,
    report_probe: ReportProbe,
    followed: Sequence[FollowConfig],
    on_emptied: Callable[[], None] = ignore,
    verify_identity: VerifyIdentity = accept_any_cluster,
) -> None:
    """Keep stores up to date; list everything again after the cluster was unreachable, restored, or another one.

    Beyond the memory budget, empty the stores and call `on_emptied`.
    """
    pause, clock = FIRST_PAUSE, asyncio.get_running_loop().time
    while True:
        began = clock()
        await _probe_until_answer(client, report_probe, verify_identity)
        end = await _follow_until_stale(client, report_probe, followed, verify_identity)
        if isinstance(end, WrongCluster):
            report_probe(end)
        for config in followed:
            config.on_result(end)
        if isinstance(end, ClusterRestored | WrongCluster):  # bounds how often a cluster that goes back is listed
            await asyncio.sleep(PROBE_SECONDS)
        elif isinstance(end, BudgetExceeded):
            _drop_stores(followed, on_emptied)
            pause = FIRST_PAUSE if clock() - began > LAST_PAUSE else pause
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LAST_PAUSE)


async def _follow_until_stale(
    client: Client, report_probe: ReportProbe, followed: Sequence[FollowConfig], verify_identity: VerifyIdentity
) -> Unreachable:
    relist_signal: RelistSignal = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(follow(config, relist_signal)) for config in followed]
        end = await _wait_until_stale(client, report_probe, relist_signal, verify_identity)
        for task in tasks:
            task.cancel()
    return end


def _drop_stores(followed: Sequence[FollowConfig], on_emptied: Callable[[], None]) -> None:
    for config in followed:
        config.store.clear()
    on_emptied()


async def _wait_until_stale(
    client: Client, report_probe: ReportProbe, relist_signal: RelistSignal, verify_identity: VerifyIdentity
) -> Unreachable:
    probes = asyncio.create_task(_probe_until_silent(client, report_probe, verify_identity))
    try:
        await asyncio.wait({probes, relist_signal}, return_when=asyncio.FIRST_COMPLETED)
        return relist_signal.result() if relist_signal.done() else probes.result()
    finally:
        probes.cancel()


async def _probe_until_answer(client: Client, report_probe: ReportProbe, verify_identity: VerifyIdentity) -> None:
    while True:
        error = await _probe_once(client, verify_identity)
        report_probe(error)
        if error is None or (isinstance(error, ApiError) and await _is_verified(verify_identity)):
            return
        await asyncio.sleep(PROBE_SECONDS)


async def _is_verified(verify_identity: VerifyIdentity) -> bool:
    try:
        await verify_identity()
    except (ApiError, Unreachable):
        return False
    return True


async def _probe_until_silent(
    client: Client, report_probe: ReportProbe, verify_identity: VerifyIdentity
) -> Unreachable:
    while True:
        await asyncio.sleep(PROBE_SECONDS)
        error = await _probe_once(client, verify_identity)
        if not _is_busy(error):  # it is reachable, and the next probe verifies its identity
            report_probe(error)
        if isinstance(error, Unreachable):
            return error


def _is_busy(error: Exception | None) -> bool:
    """Whether an API server asks to be called later (429), which says nothing about the request itself."""
    return isinstance(error, ApiError) and error.status == 429


async def _probe_once(client: Client, verify_identity: VerifyIdentity) -> ApiError | Unreachable | None:
    problem: ApiError | Unreachable | None = None
    for check in (client.probe, verify_identity):
        try:
            await check()
        except Unreachable as error:
            _drop_traceback(error)
            problem = error
            break
        except ApiError as refusal:
            _drop_traceback(refusal)
            problem = problem or refusal
    return problem
