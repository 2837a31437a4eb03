"""How is a whole list read: page by page, each of a bounded size, to an end that comes?

Each page is let go of before the next one is asked for. One that is larger than it may be is asked for again with fewer objects: a few
large ones must not keep a list from being read, and nobody has to say beforehand which kinds are large. What goes on for ever, or
cannot be read as a list, is Unreachable.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from adapter.objects.unstructured import Raw
from adapter.shell.kube import object_size
from adapter.shell.kube.client import Body, Client, TooLarge, Unreachable
from adapter.shell.kube.memory_budget import Budget, Room
from adapter.shell.kube.resources import kind_of
from adapter.shell.kube.response_limits import PAGE_BYTES
from adapter.shell.kube.store import number

# Objects in a page, and what is asked for instead while they are too large; of the last, whatever they are, each fits. A hundred pods are
# read in some tens of milliseconds, in which nothing else runs. In one piece, a list peaks at seven times the memory (docs/upstream.md, "A list comes in pages").
SIZES = (100, 50, 10, 2)
# A continue token is good for about five minutes, because etcd is compacted as often; nobody can read on for longer.
LIST_SECONDS = 300.0
# What a list takes of memory that nobody gives a room to: a verb's, which runs on a user's machine and keeps whole objects, twenty
# thousand pods of 50 KB each. One that goes on for ever ends here.
KEPT_BYTES = 2**30
MOST_PAGES = 10_000  # of pages with nothing in them
_LONGEST_TOKEN = 8192  # an API server refuses a longer URL; its own are of some hundred characters

Keep = Callable[[Any], Raw]
Take = Callable[[list[Any], str], None]  # what stands among the items of a page, and of which version the list is


def _all(raw: Any) -> Raw:
    return raw  # type: ignore[no-any-return]


async def listed(
    client: Client, path: str, keep: Keep = _all, room: Room | None = None, /, **selectors: str
) -> tuple[list[Any], str]:
    """Everything in a collection, as `keep` leaves it, and the version that it is of, empty where none is told; raises ApiError or
    Unreachable, which is Overfull where it does not go into its `room`.

    Each is whatever stands among the items: whoever takes it in looks whether it is an object (`objects.well_formed`).
    """
    whole = _Whole(keep, room or Budget(KEPT_BYTES).room(kind_of(path)[0]))
    await read(client, path, whole.take, whole.room.budget.page, **selectors)
    return whole.found, whole.version


async def read(client: Client, path: str, take: Take, turn: asyncio.Lock, /, **selectors: str) -> None:
    """Have everything in a collection taken, page by page, each in its `turn`; raises ApiError, Unreachable, or what `take` does.

    The list's version is what its first page says, for all pages are of one moment; empty where none is told.
    """
    reading = _Reading(client, path, turn, selectors)
    try:
        async with asyncio.timeout(LIST_SECONDS):
            await reading.all(take)
    except TimeoutError:
        raise Unreachable(reading.endless) from None


class _Whole:
    """A list of which all is kept until it is read."""

    def __init__(self, keep: Keep, room: Room) -> None:
        self._keep, self.room, self._kept = keep, room, 0
        self.found: list[Any] = []
        self.version = ""

    def take(self, items: list[Any], version: str) -> None:
        some = [self._keep(one) for one in items]
        self._kept += object_size.of(some)
        self.room.take(self._kept)
        self.found += some
        self.version = version


class _Reading:
    """One list that is being read."""

    def __init__(self, client: Client, path: str, turn: asyncio.Lock, selectors: dict[str, str]) -> None:
        self._client, self._path, self._turn, self._selectors = client, path, turn, selectors
        self._sizes, self._version = list(SIZES), ""

    @property
    def endless(self) -> str:
        return f"its list of {kind_of(self._path)[0]} does not end"

    async def all(self, take: Take) -> None:
        token = ""
        for page in range(MOST_PAGES):
            before = token
            async with self._turn:
                found = await self._page(token)
                await asyncio.sleep(0)  # to read it took as long as to take it will
                token = self._taken(found, take, first=page == 0)
                del found
            if not token:
                return
            if token == before:
                break
        raise Unreachable(self.endless)

    def _taken(self, page: Body, take: Take, *, first: bool) -> str:
        """Have a page taken; returns the token of the page that follows."""
        token, version = self._place(page)
        if first:
            self._version = version
        take(page["items"] or [], self._version)
        return token

    async def _page(self, token: str) -> Body:
        following = {"continue": token} if token else {}
        while True:
            params = {"limit": str(self._sizes[0]), **self._selectors, **following}
            try:
                return await self._client.get(self._path, PAGE_BYTES, **params)
            except TooLarge:
                if len(self._sizes) == 1:
                    raise
                del self._sizes[0]  # what follows is most likely as large

    def _place(self, page: Body) -> tuple[str, str]:
        """The token of the page that follows, and the list's version."""
        metadata = page.get("metadata")
        about = metadata if isinstance(metadata, dict) else {}
        token, version = about.get("continue") or "", about.get("resourceVersion")
        if not isinstance(page.get("items", 0), list | None):
            raise Unreachable(f"its list of {kind_of(self._path)[0]} cannot be read")
        if not isinstance(token, str) or len(token) > _LONGEST_TOKEN:
            raise Unreachable(f"its list of {kind_of(self._path)[0]} cannot be read on")
        return token, version if isinstance(version, str) and number(version) else ""
