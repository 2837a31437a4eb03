"""How does a store stay true: list, watch, resume, and list again when the server has forgotten or fallen silent?

A cut link may leave a watch silent for a minute and a half after the link is whole again: neither side learns that the
other one has hung up. So a probe decides whether the cluster is there, and after a silence nothing that was read before counts
until it is read again. The loops end only by cancellation. They report every loss of contact to their owner, and tell nothing
else but odd things; what a loss means is for the fleet to judge.

A cluster whose etcd was restored from a backup counts its versions from an earlier one. Its watches do not say so: one that goes
on from a version of before stays silent until the cluster has come there again (docs/upstream.md, "A restored etcd"). So a
watch is taken up only after the cluster was asked how far it is; when it is behind, everything is listed anew and is the truth.

A connection that is restored may lead elsewhere. Whoever follows may want a proof of who answers: it is given before anything is
listed, before each watch that is taken up again, and with each probe. What cannot be proved is not read, as if it were silent.
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

from adapter.objects.unstructured import UNREADABLE, Raw
from adapter.shell import metrics
from adapter.shell.kube import pagination
from adapter.shell.kube.client import ApiError, Client, ResponseTooLarge, Unreachable, UnusableCluster
from adapter.shell.kube.memory_budget import WORKER_CLUSTER_BYTES, BudgetExceeded, MemoryBudget, MemoryQuota
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.store import Listing, Store, parse_version
from adapter.shell.rate_limit import TokenBucket

log = logging.getLogger(__name__)

WATCH_SECONDS = "240"  # the server ends a watch then; well below any proxy's idle limit
# Bookmarks come about once a minute. A watch that is silent for longer may hang on a dead connection: it is taken up
# again where it was, on a new one, which costs little if nothing was wrong.
SILENCE_SECONDS = 90.0
# A watch that the server ends early is taken up after the first pause; only one that lasted resets the doubling.
FIRST_BACKOFF, LAST_BACKOFF = 0.1, 15.0


# A cluster that shows more than is kept of one is listed anew after the first pause, and each time that it still does after twice as
# long: what it showed meanwhile took the memory, and each list of it costs as much again.
FIRST_PAUSE, LAST_PAUSE = 15.0, 600.0

# A cut link shows within PROBE_SECONDS + the client's time-out: quick enough for a gang to spill within its own
# reservation timeout, slow enough that one lost packet means nothing.
PROBE_SECONDS = 5.0

# Who is busy (429) is asked again, and what was read of it counts meanwhile: for as long as that of a link that was cut does, where a watch
# is to be taken up again, and while all of them stand for as long as it takes.
BUSY_SECONDS = 15.0

RESTORED = "its API server went back to an older version, as after a restore from a backup; everything is listed anew"

ReportProbe = Callable[[Exception | None], None]  # what the last probe met; None: all is well
VerifyIdentity = Callable[[], Awaitable[None]]  # ask who answers; raises Stranger, or what came in the way of asking


def ignore() -> None:
    """Nobody wants to know."""


async def accept_any_cluster() -> None:
    """Nobody doubts who answers."""


def already_begun() -> asyncio.Event:
    """Nobody waits."""
    begun = asyncio.Event()
    begun.set()
    return begun


@dataclass(frozen=True, slots=True)
class FollowConfig:
    """What to follow, and whom to tell of trouble (None: all is well again)."""

    client: Client
    resource: Resource
    store: Store
    on_result: Callable[[Exception | None], None]
    namespace: str = ""
    selectors: dict[str, str] = field(default_factory=dict)  # labelSelector, fieldSelector
    on_restored: Callable[[], None] = ignore  # the cluster went back to an older version
    memory_quota: MemoryQuota = field(
        default_factory=lambda: MemoryBudget(WORKER_CLUSTER_BYTES).new_quota("objects")
    )  # what may be kept of it
    verify_identity: VerifyIdentity = accept_any_cluster
    begun: asyncio.Event = field(default_factory=already_begun)  # it is not followed before
    log_limit: TokenBucket = field(
        default_factory=lambda: TokenBucket(10, 60.0)
    )  # lines in the log: whoever sends odd objects decides how many

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace)


class ClusterRestored(Unreachable):
    """The cluster is of an older version than it was: nothing that was read of it before counts."""


class WrongCluster(UnusableCluster):
    """Another cluster answers than the one that is followed."""


@dataclass(slots=True)
class _WatchPosition:
    version: str = ""  # from which a watch can go on; empty: list first
    last_open: float = -math.inf  # when a watch stood last


RelistSignal = asyncio.Future[Unreachable]  # why nothing that was read of the cluster counts any more


async def follow(config: FollowConfig, relist_signal: RelistSignal | None = None) -> None:
    """Keep a store true until cancelled; says in `anew` when nothing that was read of the cluster counts any more."""
    place, backoff, again = _WatchPosition(), FIRST_BACKOFF, not config.begun.is_set()
    await config.begun.wait()
    clock = asyncio.get_running_loop().time
    while True:
        began = clock()
        try:
            proved, again = not again, True  # whoever began this has just had the proof
            place.version = await _start_version(config, place.version, verified=proved)
            await _watch_once(config, place)
        except ApiError as error:
            _drop_traceback(error)
            if not _is_busy(error):  # who is is not asked for a whole list on top
                place.version = ""  # gone (410) or refused: only a fresh list tells what is true
            spared = _is_busy(error) and place.version and clock() - place.last_open < BUSY_SECONDS
            if error.status != 410 and not spared:
                config.on_result(error)
        except Unreachable as error:
            _drop_traceback(error)
            if isinstance(error, ClusterRestored | WrongCluster | ResponseTooLarge | BudgetExceeded):
                place.version = ""
            if (
                relist_signal
                and not relist_signal.done()
                and isinstance(error, ClusterRestored | WrongCluster | BudgetExceeded)
            ):
                relist_signal.set_result(error)
            config.on_result(error)
        except (*UNREADABLE, RecursionError) as error:  # what a proxy, say, makes of it
            log.warning("following %s: unreadable answer (%s)", config.resource.plural, type(error).__name__)
            place.version = ""
            config.on_result(Unreachable("its answer cannot be read"))
        backoff = FIRST_BACKOFF if clock() - began > LAST_BACKOFF else min(backoff * 2, LAST_BACKOFF)
        await asyncio.sleep(backoff * random.uniform(0.5, 1.0))


def _drop_traceback(error: Exception) -> None:
    """Part an error from the place where it was met: it is kept for as long as the trouble lasts, and half a list would be with it."""
    error.__traceback__ = error.__context__ = error.__cause__ = None


async def _start_version(config: FollowConfig, version: str, *, verified: bool) -> str:
    """See that a watch can go on from a version, or list where there is none; returns the version to watch from."""
    if not verified:
        await config.verify_identity()
    if not version:
        return await _list_into_store(config)
    await _check_not_restored(config)
    return version


async def _check_not_restored(config: FollowConfig) -> None:
    """Raise Restored if the cluster is behind what was heard of it.

    The list is of one object, and as new as anything that was told of this kind before it was asked for: without a version it is
    read by quorum. Labels are left out, by which the API server would have to look through all of them for the first.
    """
    fields = {name: text for name, text in config.selectors.items() if name == "fieldSelector"}
    known = config.store.newest_version
    page = await config.client.get(config.path, limit="1", **fields)
    if 0 < parse_version(_version_text(page)) < known:
        raise ClusterRestored(RESTORED)


async def _list_into_store(config: FollowConfig) -> str:
    taking = _StoreListing(config)
    try:
        await pagination.read_pages(
            config.client, config.path, taking.take_page, config.memory_quota.budget.page_lock, **config.selectors
        )
        return await taking.finish_listing()
    except BaseException:  # also where the following of this kind is given up
        config.memory_quota.set_used(config.store.weight)  # what was held of the list goes with it
        raise


class _StoreListing:
    """A list that goes into a store, page by page."""

    def __init__(self, config: FollowConfig) -> None:
        """To be made before anything is asked for: what is told later may be newer than the list."""
        self._config, self._newest_before = config, config.store.newest_version
        self._listing: Listing | None = None
        self._version = ""

    def take_page(self, items: list[Any], version: str) -> None:
        listing = self._listing = self._listing or self._begin_listing(version)
        listing.take_page(items)
        self._config.memory_quota.set_used(self._config.store.weight + listing.weight)

    def _begin_listing(self, version: str) -> Listing:
        what = self._config
        if not version:
            raise Unreachable(f"its list of {what.resource.plural} has no version")
        if restored := parse_version(version) < self._newest_before:
            sentence = "%s: following %s: %s (%d, now %s)"
            log.warning(sentence, _cluster_title(what), what.resource.plural, RESTORED, self._newest_before, version)
            what.on_restored()
        self._version = version
        return what.store.begin_listing(version, restored=restored)

    async def finish_listing(self) -> str:
        """Take it that this was all of it; returns the version that it is of."""
        if self._listing:  # there is a first page, or there was an error
            for _ in self._listing.finish_in_steps():
                await asyncio.sleep(0)
            _report_malformed(self._config, self._listing.refused_count, self._listing.first_refusal)
        self._config.memory_quota.set_used(self._config.store.weight)
        return self._version


def _cluster_title(config: FollowConfig) -> str:
    return f"worker cluster {config.client.cluster}" if config.client.cluster else "manager cluster"


def _report_malformed(config: FollowConfig, refused: int, first_refusal: str) -> None:
    """Tell of what stood where objects should be: once for a list, however many there are, and of a stream of them now and then."""
    if refused:
        metrics.MALFORMED_OBJECTS.labels(config.client.cluster, config.resource.plural).inc(refused)
        sentence = "%s: %d of its %s are left out, as an API server does not write them: of the first, %s"
        if config.log_limit.try_take(time.monotonic()):
            log.warning(sentence, _cluster_title(config), refused, config.resource.plural, first_refusal)


async def _watch_once(config: FollowConfig, position: _WatchPosition) -> None:
    """Read one watch to its end, and note how far it came, however it ends."""
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": WATCH_SECONDS,
        "resourceVersion": position.version,
        **config.selectors,
    }
    async with config.client.stream(config.path, params, SILENCE_SECONDS) as lines:
        config.on_result(None)  # not after the list: where only the watch is refused, nothing would stay true
        try:
            async for line in lines:
                if line:
                    position.version = _apply_event(config, orjson.loads(line), position.version)
        finally:
            position.last_open = asyncio.get_running_loop().time()


def _apply_event(config: FollowConfig, event: Raw, version: str) -> str:
    """Put one event into the store; returns the version to go on from."""
    kind, raw = event["type"], event["object"]
    if kind == "ERROR":
        raise ApiError(int(raw.get("code") or 500), str(raw.get("reason")), str(raw.get("message")))
    at = _version_text(raw) or version
    if parse_version(at) < parse_version(version):
        raise ClusterRestored(RESTORED)
    config.store.note_version(at)
    if kind != "BOOKMARK":
        why = config.store.remove(raw) if kind == "DELETED" else config.store.put(raw)
        _report_malformed(config, 1 if why else 0, why)
        config.memory_quota.set_used(config.store.weight)
    return at


def _version_text(raw: Raw) -> str:
    """The version of anything, empty where it has none that could be one."""
    metadata = raw.get("metadata")
    found = metadata.get("resourceVersion") if isinstance(metadata, dict) else ""
    return found if isinstance(found, str) and parse_version(found) else ""


async def follow_all(
    client: Client,
    report_probe: ReportProbe,
    followed: Sequence[FollowConfig],
    on_emptied: Callable[[], None] = ignore,
    verify_identity: VerifyIdentity = accept_any_cluster,
) -> None:
    """Follow while the cluster answers, until cancelled; after a silence, a step back, or a stranger, list everything anew. `forget` is
    called when it shows more than may be kept, so that nothing of it is."""
    pause, clock = FIRST_PAUSE, asyncio.get_running_loop().time
    while True:
        began = clock()
        await _probe_until_answer(client, report_probe, verify_identity)
        end = await _follow_until_stale(client, report_probe, followed, verify_identity)
        if isinstance(end, WrongCluster):
            report_probe(end)
        for what in followed:
            what.on_result(end)
        if isinstance(end, ClusterRestored | WrongCluster):  # who goes back all the time is not listed all the time
            await asyncio.sleep(PROBE_SECONDS)
        elif isinstance(end, BudgetExceeded):
            _drop_stores(followed, on_emptied)
            pause = FIRST_PAUSE if clock() - began > LAST_PAUSE else pause
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LAST_PAUSE)


async def _follow_until_stale(
    client: Client, report_probe: ReportProbe, followed: Sequence[FollowConfig], verify_identity: VerifyIdentity
) -> Unreachable:
    """Follow until nothing that was read counts any more; returns why."""
    anew: RelistSignal = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        following = [tasks.create_task(follow(what, anew)) for what in followed]
        end = await _wait_until_stale(client, report_probe, anew, verify_identity)
        for task in following:
            task.cancel()
    return end


def _drop_stores(followed: Sequence[FollowConfig], on_emptied: Callable[[], None]) -> None:
    for what in followed:
        what.store.clear()
        what.memory_quota.set_used(0)
    on_emptied()


async def _wait_until_stale(
    client: Client, report_probe: ReportProbe, relist_signal: RelistSignal, verify_identity: VerifyIdentity
) -> Unreachable:
    """Wait until nothing that was read counts any more; returns why."""
    silence = asyncio.create_task(_probe_until_silent(client, report_probe, verify_identity))
    try:
        await asyncio.wait({silence, relist_signal}, return_when=asyncio.FIRST_COMPLETED)
        return relist_signal.result() if relist_signal.done() else silence.result()
    finally:
        silence.cancel()


async def _probe_until_answer(client: Client, report_probe: ReportProbe, verify_identity: VerifyIdentity) -> None:
    """Probe until the cluster gives an answer, be it a refusal, and proves who it is."""
    while True:
        met = await _probe_once(client, verify_identity)
        report_probe(met)
        if met is None or (isinstance(met, ApiError) and await _is_verified(verify_identity)):
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
    """Probe until the cluster gives no answer, or another one does; returns why."""
    while True:
        await asyncio.sleep(PROBE_SECONDS)
        met = await _probe_once(client, verify_identity)
        if not _is_busy(met):  # it lives, and who it is will be asked again
            report_probe(met)
        if isinstance(met, Unreachable):
            return met


def _is_busy(error: Exception | None) -> bool:
    """Whether an API server has something else to do first: nothing was said of what it was asked."""
    return isinstance(error, ApiError) and error.status == 429


async def _probe_once(client: Client, verify_identity: VerifyIdentity) -> ApiError | Unreachable | None:
    """Ask for a sign of life, and who gives it; returns what came in the way."""
    met: ApiError | Unreachable | None = None
    for ask in (client.probe, verify_identity):
        try:
            await ask()
        except Unreachable as error:
            _drop_traceback(error)
            met = error
            break
        except ApiError as refusal:
            _drop_traceback(refusal)
            met = met or refusal
    return met
