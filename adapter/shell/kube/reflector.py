"""How does a store stay true: list, watch, resume, and list again when the server has forgotten or fallen silent?

A cut link may leave a watch silent for a minute and a half after the link is whole again: neither side learns that the
other one has hung up. So a probe decides whether the cluster is there, and after a silence nothing that was read before counts
until it is read again. The loops end only by cancellation. They report every loss of contact to their owner and tell nothing
else; what a loss means is for the fleet to judge.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import orjson

from adapter.objects.raw import Raw, meta
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.store import Store

log = logging.getLogger(__name__)

PAGE = "500"  # a list in one piece peaks at seven times the memory (docs/upstream.md, "A list comes in pages")
WATCH_SECONDS = "240"  # the server ends a watch then; well below any proxy's idle limit
# Bookmarks come about once a minute. A watch that is silent for longer may hang on a dead connection: it is taken up
# again where it was, on a new one, which costs little if nothing was wrong.
SILENCE_SECONDS = 90.0
# A watch that the server ends early is taken up after the first pause; only one that lasted resets the doubling.
FIRST_BACKOFF, LAST_BACKOFF = 0.1, 15.0


# A cut link shows within PROBE_SECONDS + the client's time-out: quick enough for a gang to spill within its own
# reservation timeout, slow enough that one lost packet means nothing.
PROBE_SECONDS = 5.0

Tell = Callable[[Exception | None], None]  # what the last probe met; None: all is well


@dataclass(frozen=True, slots=True)
class Following:
    """What to follow, and whom to tell of trouble (None: all is well again)."""

    client: Client
    resource: Resource
    store: Store
    trouble: Callable[[Exception | None], None]
    namespace: str = ""
    selectors: dict[str, str] = field(default_factory=dict)  # labelSelector, fieldSelector


@dataclass(slots=True)
class _Place:
    version: str = ""  # from which a watch can go on; empty: list first


async def follow(what: Following) -> None:
    """Keep a store true until cancelled."""
    place, backoff = _Place(), FIRST_BACKOFF
    clock = asyncio.get_running_loop().time
    while True:
        began = clock()
        try:
            if not place.version:
                place.version = await _list(what)
            await _watch(what, place)
        except ApiError as error:
            place.version = ""  # gone (410) or refused: only a fresh list tells what is true
            if error.status != 410:
                what.trouble(error)
        except Unreachable as error:
            what.trouble(error)
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # what a proxy, say, makes of an answer
            log.warning("following %s: unreadable answer (%s)", what.resource.plural, type(error).__name__)
            place.version = ""
            what.trouble(Unreachable("its answer cannot be read"))
        backoff = FIRST_BACKOFF if clock() - began > LAST_BACKOFF else min(backoff * 2, LAST_BACKOFF)
        await asyncio.sleep(backoff * random.uniform(0.5, 1.0))


async def _list(what: Following) -> str:
    objects: list[Raw] = []
    params = {"limit": PAGE, **what.selectors}
    while True:
        page = await what.client.get(what.resource.path(what.namespace), **params)
        objects += page["items"] or ()
        following = meta(page).get("continue")
        if not following:
            version = str(meta(page)["resourceVersion"])
            what.store.replace(objects, version)
            return version
        params["continue"] = following


async def _watch(what: Following, place: _Place) -> None:
    """Read one watch to its end, and note how far it came, however it ends."""
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": WATCH_SECONDS,
        "resourceVersion": place.version,
        **what.selectors,
    }
    async with what.client.stream(what.resource.path(what.namespace), params, SILENCE_SECONDS) as lines:
        what.trouble(None)  # not after the list: where only the watch is refused, nothing would stay true
        async for line in lines:
            if line:
                place.version = _take(what.store, orjson.loads(line), place.version)


def _take(store: Store, event: Raw, version: str) -> str:
    """Put one event into the store; returns the version to go on from."""
    raw = event["object"]
    if event["type"] == "ERROR":
        raise ApiError(int(raw.get("code") or 500), str(raw.get("reason")), str(raw.get("message")))
    if event["type"] == "DELETED":
        store.remove(raw)
    elif event["type"] != "BOOKMARK":
        store.put(raw)
    return str(meta(raw).get("resourceVersion") or version)


async def keep(client: Client, tell: Tell, followed: Sequence[Following]) -> None:
    """Follow while the cluster answers, until cancelled; after a silence list everything anew."""
    while True:
        await _answered(client, tell)
        async with asyncio.TaskGroup() as tasks:
            following = [tasks.create_task(follow(what)) for what in followed]
            silence = await _silence(client, tell)
            for task in following:
                task.cancel()
        for what in followed:
            what.trouble(silence)


async def _answered(client: Client, tell: Tell) -> None:
    """Probe until the cluster gives an answer, be it a refusal."""
    while True:
        if not isinstance(await _probe(client, tell), Unreachable):
            return
        await asyncio.sleep(PROBE_SECONDS)


async def _silence(client: Client, tell: Tell) -> Unreachable:
    """Probe until the cluster gives no answer; returns why."""
    while True:
        await asyncio.sleep(PROBE_SECONDS)
        met = await _probe(client, tell)
        if isinstance(met, Unreachable):
            return met


async def _probe(client: Client, tell: Tell) -> ApiError | Unreachable | None:
    try:
        await client.alive()
    except (ApiError, Unreachable) as error:
        tell(error)
        return error
    tell(None)
    return None
