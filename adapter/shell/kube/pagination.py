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
from adapter.shell.kube.client import Body, Client, ResponseTooLarge, Unreachable
from adapter.shell.kube.memory_budget import MemoryBudget, MemoryQuota
from adapter.shell.kube.resources import kind_of
from adapter.shell.kube.response_limits import PAGE_BYTES
from adapter.shell.kube.store import parse_version

# Objects in a page, and what is asked for instead while they are too large; of the last, whatever they are, each fits. A hundred pods are
# read in some tens of milliseconds, in which nothing else runs. In one piece, a list peaks at seven times the memory (docs/upstream.md, "A list comes in pages").
PAGE_SIZES = (100, 50, 10, 2)
# A continue token is good for about five minutes, because etcd is compacted as often; nobody can read on for longer.
LIST_SECONDS = 300.0
# What a list takes of memory that nobody gives a room to: a verb's, which runs on a user's machine and keeps whole objects, twenty
# thousand pods of 50 KB each. One that goes on for ever ends here.
UNBUDGETED_BYTES = 2**30
MOST_PAGES = 10_000  # of pages with nothing in them
_LONGEST_TOKEN = 8192  # an API server refuses a longer URL; its own are of some hundred characters

TrimItem = Callable[[Any], Raw]
TakePage = Callable[[list[Any], str], None]  # what stands among the items of a page, and of which version the list is


def _keep_whole(raw: Any) -> Raw:
    return raw  # type: ignore[no-any-return]


async def list_all(
    client: Client,
    path: str,
    trim_item: TrimItem = _keep_whole,
    memory_quota: MemoryQuota | None = None,
    /,
    **selectors: str,
) -> tuple[list[Any], str]:
    """Everything in a collection, as `keep` leaves it, and the version that it is of, empty where none is told; raises ApiError or
    Unreachable, which is Overfull where it does not go into its `room`.

    Each is whatever stands among the items: whoever takes it in looks whether it is an object (`objects.well_formed`).
    """
    whole = _FullList(trim_item, memory_quota or MemoryBudget(UNBUDGETED_BYTES).new_quota(kind_of(path)[0]))
    await read_pages(client, path, whole.take_page, whole.memory_quota.budget.page_lock, **selectors)
    return whole.items, whole.version


async def read_pages(
    client: Client, path: str, take_page: TakePage, page_lock: asyncio.Lock, /, **selectors: str
) -> None:
    """Have everything in a collection taken, page by page, each in its `turn`; raises ApiError, Unreachable, or what `take` does.

    The list's version is what its first page says, for all pages are of one moment; empty where none is told.
    """
    reading = _PagedRead(client, path, page_lock, selectors)
    try:
        async with asyncio.timeout(LIST_SECONDS):
            await reading.read_all(take_page)
    except TimeoutError:
        raise Unreachable(reading.endless_message) from None


class _FullList:
    """A list of which all is kept until it is read."""

    def __init__(self, trim_item: TrimItem, memory_quota: MemoryQuota) -> None:
        self._trim_item, self.memory_quota, self._weight = trim_item, memory_quota, 0
        self.items: list[Any] = []
        self.version = ""

    def take_page(self, items: list[Any], version: str) -> None:
        some = [self._trim_item(one) for one in items]
        self._weight += object_size.weigh_object(some)
        self.memory_quota.set_used(self._weight)
        self.items += some
        self.version = version


class _PagedRead:
    """One list that is being read."""

    def __init__(self, client: Client, path: str, page_lock: asyncio.Lock, selectors: dict[str, str]) -> None:
        self._client, self._path, self._page_lock, self._selectors = client, path, page_lock, selectors
        self._page_sizes, self._version = list(PAGE_SIZES), ""

    @property
    def endless_message(self) -> str:
        return f"its list of {kind_of(self._path)[0]} does not end"

    async def read_all(self, take_page: TakePage) -> None:
        token = ""
        for page in range(MOST_PAGES):
            before = token
            async with self._page_lock:
                found = await self._read_page(token)
                await asyncio.sleep(0)  # to read it took as long as to take it will
                token = self._take_page(found, take_page, first=page == 0)
                del found
            if not token:
                return
            if token == before:
                break
        raise Unreachable(self.endless_message)

    def _take_page(self, page: Body, take_page: TakePage, *, first: bool) -> str:
        """Have a page taken; returns the token of the page that follows."""
        token, version = self._token_and_version(page)
        if first:
            self._version = version
        take_page(page["items"] or [], self._version)
        return token

    async def _read_page(self, token: str) -> Body:
        following = {"continue": token} if token else {}
        while True:
            params = {"limit": str(self._page_sizes[0]), **self._selectors, **following}
            try:
                return await self._client.get(self._path, PAGE_BYTES, **params)
            except ResponseTooLarge:
                if len(self._page_sizes) == 1:
                    raise
                del self._page_sizes[0]  # what follows is most likely as large

    def _token_and_version(self, page: Body) -> tuple[str, str]:
        """The token of the page that follows, and the list's version."""
        metadata = page.get("metadata")
        about = metadata if isinstance(metadata, dict) else {}
        token, version = about.get("continue") or "", about.get("resourceVersion")
        if not isinstance(page.get("items", 0), list | None):
            raise Unreachable(f"its list of {kind_of(self._path)[0]} cannot be read")
        if not isinstance(token, str) or len(token) > _LONGEST_TOKEN:
            raise Unreachable(f"its list of {kind_of(self._path)[0]} cannot be read on")
        return token, version if isinstance(version, str) and parse_version(version) else ""
