"""Reads a whole list page by page, each of a bounded size and all in a bounded time.

Each page is freed before the next one is requested. A page that is too large is requested again with fewer objects: a
few large objects must not keep a list from being read, and no kind must be declared large in advance. A list that does
not end, or that cannot be read as a list, raises Unreachable.
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

# Objects in a page, and the smaller sizes for pages that are too large; a page of the last size always fits. To parse a
# hundred pods blocks the event loop for some tens of milliseconds. In one piece, a list peaks at seven times the memory
# (docs/upstream.md, "A list comes in pages").
PAGE_SIZES = (100, 50, 10, 2)
# A continue token is valid for about five minutes, because etcd is compacted as often, so no list can take longer.
LIST_SECONDS = 300.0
# Memory of a list without a quota. A command line verb reads it on a user's machine and stores whole objects: twenty
# thousand pods of 50 KB each. An endless list ends here.
UNBUDGETED_BYTES = 2**30
MOST_PAGES = 10_000  # bounds a list of empty pages
_LONGEST_TOKEN = 8192  # an API server rejects a longer URL; its own tokens have some hundred characters

TrimItem = Callable[[Any], Raw]
TakePage = Callable[[list[Any], str], None]  # the items of a page, of any type, and the version of the list


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
    """All items of a collection, reduced by `trim_item`, and the version of the list, empty where it has none.

    Raises ApiError or Unreachable, of which BudgetExceeded says that the list exceeds its `memory_quota`. The items may
    be of any type: the caller must check that they are objects (`objects.well_formed`).
    """
    whole = _FullList(trim_item, memory_quota or MemoryBudget(UNBUDGETED_BYTES).new_quota(kind_of(path)[0]))
    await read_pages(client, path, whole.take_page, whole.memory_quota.budget.page_lock, **selectors)
    return whole.items, whole.version


async def read_pages(
    client: Client, path: str, take_page: TakePage, page_lock: asyncio.Lock, /, **selectors: str
) -> None:
    """Pass all items of a collection to `take_page`, page by page, each while it holds `page_lock`.

    The list's version is that of its first page, since all pages are of one moment; empty where it has none. Raises
    ApiError, Unreachable, and the errors of `take_page`.
    """
    reading = _PagedRead(client, path, page_lock, selectors)
    try:
        async with asyncio.timeout(LIST_SECONDS):
            await reading.read_all(take_page)
    except TimeoutError:
        raise Unreachable(reading.endless_message) from None


class _FullList:
    """All items of a list that is being read."""

    def __init__(self, trim_item: TrimItem, memory_quota: MemoryQuota) -> None:
        self._trim_item, self.memory_quota, self._weight = trim_item, memory_quota, 0
        self.items: list[Any] = []
        self.version = ""

    def take_page(self, items: list[Any], version: str) -> None:
        trimmed = [self._trim_item(item) for item in items]
        self._weight += object_size.weigh_object(trimmed)
        self.memory_quota.set_used(self._weight)
        self.items += trimmed
        self.version = version


class _PagedRead:
    """The progress of one list."""

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
                body = await self._read_page(token)
                await asyncio.sleep(0)  # parsing the page blocked the loop, and taking it blocks it as long
                token = self._take_page(body, take_page, first=page == 0)
                del body
            if not token:
                return
            if token == before:
                break
        raise Unreachable(self.endless_message)

    def _take_page(self, page: Body, take_page: TakePage, *, first: bool) -> str:
        """Pass a page to `take_page`; returns the token of the next page."""
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
                del self._page_sizes[0]  # the next pages are probably as large

    def _token_and_version(self, page: Body) -> tuple[str, str]:
        """The token of the next page, and the list's version."""
        metadata = page.get("metadata")
        list_metadata = metadata if isinstance(metadata, dict) else {}
        token, version = list_metadata.get("continue") or "", list_metadata.get("resourceVersion")
        if not isinstance(page.get("items", 0), list | None):
            raise Unreachable(f"its list of {kind_of(self._path)[0]} cannot be read")
        if not isinstance(token, str) or len(token) > _LONGEST_TOKEN:
            raise Unreachable(f"its list of {kind_of(self._path)[0]} cannot be read on")
        return token, version if isinstance(version, str) and parse_version(version) else ""
