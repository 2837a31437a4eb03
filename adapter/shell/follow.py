"""How does a store stay true: list, watch, resume, and list again when the server has forgotten or fallen silent.

The loop ends only by cancellation. It reports every loss of contact to its owner and tells nothing else; what a loss
means is for the fleet to judge.
"""

import asyncio
import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from adapter.facts import Raw, meta
from adapter.shell.client import ApiError, Client, Unreachable
from adapter.shell.resources import Resource
from adapter.shell.store import Store

log = logging.getLogger(__name__)

PAGE = "500"  # a list in one piece peaks at seven times the memory (style.md 3.3)
WATCH_SECONDS = "240"  # the server ends a watch then; well below any proxy's idle limit
# Bookmarks come about once a minute. A watch that is silent for longer may hang on a dead connection: it is taken up
# again where it was, on a new one, which costs little if nothing was wrong.
SILENCE_SECONDS = 90.0
FIRST_BACKOFF, LAST_BACKOFF = 0.5, 15.0


@dataclass(frozen=True, slots=True)
class Following:
    """What to follow, and whom to tell of trouble (None: all is well again)."""

    client: Client
    resource: Resource
    store: Store
    trouble: Callable[[Exception | None], None]
    namespace: str = ""
    selectors: dict[str, str] = field(default_factory=dict)  # labelSelector, fieldSelector


async def follow(what: Following) -> None:
    """Keep a store true until cancelled."""
    version, backoff = "", FIRST_BACKOFF
    while True:
        try:
            version = version or await _list(what)
            what.trouble(None)
            version = await _watch(what, version)
            backoff = FIRST_BACKOFF
            continue
        except ApiError as error:
            version = ""  # gone (410) or refused: only a fresh list tells what is true
            if error.status != 410:
                what.trouble(error)
        except Unreachable as error:
            what.trouble(error)
        await asyncio.sleep(backoff * random.uniform(0.5, 1.0))
        backoff = min(backoff * 2, LAST_BACKOFF)


async def _list(what: Following) -> str:
    objects: list[Raw] = []
    params = {"limit": PAGE, **what.selectors}
    while True:
        page = await what.client.get(what.resource.path(what.namespace), **params)
        objects += [_slim(raw) for raw in page.get("items") or ()]
        following = meta(page).get("continue")
        if not following:
            version = str(meta(page).get("resourceVersion") or "")
            what.store.replace(objects, version)
            return version
        params["continue"] = following


async def _watch(what: Following, version: str) -> str:
    """Read one watch to its end; returns the version to go on from, empty when the server has forgotten it."""
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": WATCH_SECONDS,
        "resourceVersion": version,
        **what.selectors,
    }
    async for line in what.client.lines(what.resource.path(what.namespace), params, SILENCE_SECONDS):
        if not line:
            continue
        event = json.loads(line)
        raw = event.get("object") or {}
        if event.get("type") == "ERROR":
            raise ApiError(int(raw.get("code") or 500), str(raw.get("reason")), str(raw.get("message")))
        version = str(meta(raw).get("resourceVersion") or version)
        if event.get("type") == "DELETED":
            what.store.remove(raw)
        elif event.get("type") != "BOOKMARK":
            what.store.put(_slim(raw))
    return version


def _slim(raw: Raw) -> Raw:
    """Drop what we never read and what would double the memory."""
    metadata = {key: value for key, value in meta(raw).items() if key != "managedFields"}
    return {**raw, "metadata": metadata}
