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
from adapter.shell.kube.client import ApiError, Client, TooLarge, Unreachable, Unusable
from adapter.shell.kube.memory_budget import OF_WORKER_CLUSTER, Budget, Overfull, Room
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.store import Listing, Store, number
from adapter.shell.rate_limit import Bucket

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

Tell = Callable[[Exception | None], None]  # what the last probe met; None: all is well
Prove = Callable[[], Awaitable[None]]  # ask who answers; raises Stranger, or what came in the way of asking


def _nobody() -> None:
    """Nobody wants to know."""


async def anybody() -> None:
    """Nobody doubts who answers."""


def at_once() -> asyncio.Event:
    """Nobody waits."""
    begun = asyncio.Event()
    begun.set()
    return begun


@dataclass(frozen=True, slots=True)
class Following:
    """What to follow, and whom to tell of trouble (None: all is well again)."""

    client: Client
    resource: Resource
    store: Store
    trouble: Callable[[Exception | None], None]
    namespace: str = ""
    selectors: dict[str, str] = field(default_factory=dict)  # labelSelector, fieldSelector
    restored: Callable[[], None] = _nobody  # the cluster went back to an older version
    room: Room = field(default_factory=lambda: Budget(OF_WORKER_CLUSTER).room("objects"))  # what may be kept of it
    prove: Prove = anybody
    begun: asyncio.Event = field(default_factory=at_once)  # it is not followed before
    told: Bucket = field(
        default_factory=lambda: Bucket(10, 60.0)
    )  # lines in the log: whoever sends odd objects decides how many

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace)


class Restored(Unreachable):
    """The cluster is of an older version than it was: nothing that was read of it before counts."""


class Stranger(Unusable):
    """Another cluster answers than the one that is followed."""


@dataclass(slots=True)
class _Place:
    version: str = ""  # from which a watch can go on; empty: list first
    stood: float = -math.inf  # when a watch stood last


Anew = asyncio.Future[Unreachable]  # why nothing that was read of the cluster counts any more


async def follow(what: Following, anew: Anew | None = None) -> None:
    """Keep a store true until cancelled; says in `anew` when nothing that was read of the cluster counts any more."""
    place, backoff, again = _Place(), FIRST_BACKOFF, not what.begun.is_set()
    await what.begun.wait()
    clock = asyncio.get_running_loop().time
    while True:
        began = clock()
        try:
            proved, again = not again, True  # whoever began this has just had the proof
            place.version = await _begin(what, place.version, proved=proved)
            await _watch(what, place)
        except ApiError as error:
            _part(error)
            if not _busy(error):  # who is is not asked for a whole list on top
                place.version = ""  # gone (410) or refused: only a fresh list tells what is true
            spared = _busy(error) and place.version and clock() - place.stood < BUSY_SECONDS
            if error.status != 410 and not spared:
                what.trouble(error)
        except Unreachable as error:
            _part(error)
            if isinstance(error, Restored | Stranger | TooLarge | Overfull):
                place.version = ""
            if anew and not anew.done() and isinstance(error, Restored | Stranger | Overfull):
                anew.set_result(error)
            what.trouble(error)
        except (*UNREADABLE, RecursionError) as error:  # what a proxy, say, makes of it
            log.warning("following %s: unreadable answer (%s)", what.resource.plural, type(error).__name__)
            place.version = ""
            what.trouble(Unreachable("its answer cannot be read"))
        backoff = FIRST_BACKOFF if clock() - began > LAST_BACKOFF else min(backoff * 2, LAST_BACKOFF)
        await asyncio.sleep(backoff * random.uniform(0.5, 1.0))


def _part(error: Exception) -> None:
    """Part an error from the place where it was met: it is kept for as long as the trouble lasts, and half a list would be with it."""
    error.__traceback__ = error.__context__ = error.__cause__ = None


async def _begin(what: Following, version: str, *, proved: bool) -> str:
    """See that a watch can go on from a version, or list where there is none; returns the version to watch from."""
    if not proved:
        await what.prove()
    if not version:
        return await _list(what)
    await _compare(what)
    return version


async def _compare(what: Following) -> None:
    """Raise Restored if the cluster is behind what was heard of it.

    The list is of one object, and as new as anything that was told of this kind before it was asked for: without a version it is
    read by quorum. Labels are left out, by which the API server would have to look through all of them for the first.
    """
    fields = {name: text for name, text in what.selectors.items() if name == "fieldSelector"}
    known = what.store.newest
    page = await what.client.get(what.path, limit="1", **fields)
    if 0 < number(_version(page)) < known:
        raise Restored(RESTORED)


async def _list(what: Following) -> str:
    taking = _Taking(what)
    try:
        await pagination.read(what.client, what.path, taking.page, what.room.budget.page, **what.selectors)
        return await taking.end()
    except BaseException:  # also where the following of this kind is given up
        what.room.take(what.store.weight)  # what was held of the list goes with it
        raise


class _Taking:
    """A list that goes into a store, page by page."""

    def __init__(self, what: Following) -> None:
        """To be made before anything is asked for: what is told later may be newer than the list."""
        self._what, self._known = what, what.store.newest
        self._listing: Listing | None = None
        self._version = ""

    def page(self, items: list[Any], version: str) -> None:
        listing = self._listing = self._listing or self._begun(version)
        listing.take(items)
        self._what.room.take(self._what.store.weight + listing.weight)

    def _begun(self, version: str) -> Listing:
        what = self._what
        if not version:
            raise Unreachable(f"its list of {what.resource.plural} has no version")
        if restored := number(version) < self._known:
            sentence = "%s: following %s: %s (%d, now %s)"
            log.warning(sentence, _whose(what), what.resource.plural, RESTORED, self._known, version)
            what.restored()
        self._version = version
        return what.store.listing(version, restored=restored)

    async def end(self) -> str:
        """Take it that this was all of it; returns the version that it is of."""
        if self._listing:  # there is a first page, or there was an error
            for _ in self._listing.ending():
                await asyncio.sleep(0)
            _odd(self._what, self._listing.refused, self._listing.first)
        self._what.room.take(self._what.store.weight)
        return self._version


def _whose(what: Following) -> str:
    return f"worker cluster {what.client.cluster}" if what.client.cluster else "manager cluster"


def _odd(what: Following, refused: int, first: str) -> None:
    """Tell of what stood where objects should be: once for a list, however many there are, and of a stream of them now and then."""
    if refused:
        metrics.ODD.labels(what.client.cluster, what.resource.plural).inc(refused)
        sentence = "%s: %d of its %s are left out, as an API server does not write them: of the first, %s"
        if what.told.take(time.monotonic()):
            log.warning(sentence, _whose(what), refused, what.resource.plural, first)


async def _watch(what: Following, place: _Place) -> None:
    """Read one watch to its end, and note how far it came, however it ends."""
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": WATCH_SECONDS,
        "resourceVersion": place.version,
        **what.selectors,
    }
    async with what.client.stream(what.path, params, SILENCE_SECONDS) as lines:
        what.trouble(None)  # not after the list: where only the watch is refused, nothing would stay true
        try:
            async for line in lines:
                if line:
                    place.version = _take(what, orjson.loads(line), place.version)
        finally:
            place.stood = asyncio.get_running_loop().time()


def _take(what: Following, event: Raw, version: str) -> str:
    """Put one event into the store; returns the version to go on from."""
    kind, raw = event["type"], event["object"]
    if kind == "ERROR":
        raise ApiError(int(raw.get("code") or 500), str(raw.get("reason")), str(raw.get("message")))
    at = _version(raw) or version
    if number(at) < number(version):
        raise Restored(RESTORED)
    what.store.passed(at)
    if kind != "BOOKMARK":
        why = what.store.remove(raw) if kind == "DELETED" else what.store.put(raw)
        _odd(what, 1 if why else 0, why)
        what.room.take(what.store.weight)
    return at


def _version(raw: Raw) -> str:
    """The version of anything, empty where it has none that could be one."""
    metadata = raw.get("metadata")
    found = metadata.get("resourceVersion") if isinstance(metadata, dict) else ""
    return found if isinstance(found, str) and number(found) else ""


async def keep(
    client: Client,
    tell: Tell,
    followed: Sequence[Following],
    forget: Callable[[], None] = _nobody,
    prove: Prove = anybody,
) -> None:
    """Follow while the cluster answers, until cancelled; after a silence, a step back, or a stranger, list everything anew. `forget` is
    called when it shows more than may be kept, so that nothing of it is."""
    pause, clock = FIRST_PAUSE, asyncio.get_running_loop().time
    while True:
        began = clock()
        await _answered(client, tell, prove)
        end = await _followed(client, tell, followed, prove)
        if isinstance(end, Stranger):
            tell(end)
        for what in followed:
            what.trouble(end)
        if isinstance(end, Restored | Stranger):  # who goes back all the time is not listed all the time
            await asyncio.sleep(PROBE_SECONDS)
        elif isinstance(end, Overfull):
            _drop(followed, forget)
            pause = FIRST_PAUSE if clock() - began > LAST_PAUSE else pause
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LAST_PAUSE)


async def _followed(client: Client, tell: Tell, followed: Sequence[Following], prove: Prove) -> Unreachable:
    """Follow until nothing that was read counts any more; returns why."""
    anew: Anew = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        following = [tasks.create_task(follow(what, anew)) for what in followed]
        end = await _end(client, tell, anew, prove)
        for task in following:
            task.cancel()
    return end


def _drop(followed: Sequence[Following], forget: Callable[[], None]) -> None:
    for what in followed:
        what.store.forget()
        what.room.take(0)
    forget()


async def _end(client: Client, tell: Tell, anew: Anew, prove: Prove) -> Unreachable:
    """Wait until nothing that was read counts any more; returns why."""
    silence = asyncio.create_task(_silence(client, tell, prove))
    try:
        await asyncio.wait({silence, anew}, return_when=asyncio.FIRST_COMPLETED)
        return anew.result() if anew.done() else silence.result()
    finally:
        silence.cancel()


async def _answered(client: Client, tell: Tell, prove: Prove) -> None:
    """Probe until the cluster gives an answer, be it a refusal, and proves who it is."""
    while True:
        met = await _probe(client, prove)
        tell(met)
        if met is None or (isinstance(met, ApiError) and await _proves(prove)):
            return
        await asyncio.sleep(PROBE_SECONDS)


async def _proves(prove: Prove) -> bool:
    try:
        await prove()
    except (ApiError, Unreachable):
        return False
    return True


async def _silence(client: Client, tell: Tell, prove: Prove) -> Unreachable:
    """Probe until the cluster gives no answer, or another one does; returns why."""
    while True:
        await asyncio.sleep(PROBE_SECONDS)
        met = await _probe(client, prove)
        if not _busy(met):  # it lives, and who it is will be asked again
            tell(met)
        if isinstance(met, Unreachable):
            return met


def _busy(met: Exception | None) -> bool:
    """Whether an API server has something else to do first: nothing was said of what it was asked."""
    return isinstance(met, ApiError) and met.status == 429


async def _probe(client: Client, prove: Prove) -> ApiError | Unreachable | None:
    """Ask for a sign of life, and who gives it; returns what came in the way."""
    met: ApiError | Unreachable | None = None
    for ask in (client.alive, prove):
        try:
            await ask()
        except Unreachable as error:
            _part(error)
            met = error
            break
        except ApiError as refusal:
            _part(refusal)
            met = met or refusal
    return met
