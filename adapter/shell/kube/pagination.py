"""Reads a whole list page by page, each of a bounded size, all in a bounded time.

A page that is too large is requested again with fewer objects, so no kind must be declared large in advance.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from adapter.objects.unstructured import Raw, mapping_field, parse_version, text_field
from adapter.shell.kube import object_size
from adapter.shell.kube.client import Body, Client, ResponseTooLarge, Unreachable
from adapter.shell.kube.memory_budget import MemoryBudget, MemoryQuota
from adapter.shell.kube.resources import kind_of
from adapter.shell.kube.response_limits import PAGE_BYTES

# The numbers of objects to request in a page. If a page is too large, the next size is requested. Parsing a hundred
# pods blocks the event loop for some tens of milliseconds. Requested in one piece, a list peaks at seven times the
# memory (docs/upstream.md, "A list comes in pages").
PAGE_SIZES = (100, 50, 10, 2, 1)
# The time for a whole list: a continue token is valid for about five minutes, because etcd is compacted as often.
LIST_SECONDS = 300.0
# The budget of a list without a quota: a subcommand stores whole objects, such as twenty thousand pods of 50 KB each.
UNBUDGETED_BYTES = 2**30
MOST_PAGES = 10_000  # bounds a list of empty pages
_LONGEST_TOKEN = 8192  # longer URLs are rejected; an API server's tokens have some hundred characters

TrimItem = Callable[[Any], Raw]
TakePage = Callable[[list[Any], str], None]  # a page's items, of any type, and the list's version


class OversizedObject(dict[str, Any]):
    """The first fields of the metadata of an object that is too large to be read: its name and namespace."""


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
    """All items of a collection, reduced by `trim_item`, and the list's version, which may be empty.

    Raises ApiError, Unreachable, or BudgetExceeded beyond `memory_quota`. The caller checks the items' types
    (`objects.well_formed`).
    """
    whole = _FullList(trim_item, memory_quota or MemoryBudget(UNBUDGETED_BYTES).new_quota(kind_of(path)[0]))
    await read_pages(client, path, whole.take_page, whole.memory_quota.budget.page_lock, **selectors)
    return whole.items, whole.version


async def read_pages(
    client: Client,
    path: str,
    take_page: TakePage,
    page_lock: asyncio.Lock,
    takes_oversized: bool = False,
    /,
    **selectors: str,
) -> None:
    """Pass a collection to `take_page`, page by page, each under `page_lock`.

    All pages are of one moment, so `take_page` always gets the first page's version. With `takes_oversized`, it gets an
    OversizedObject for an object that is too large to be read. Raises ApiError, Unreachable, and `take_page`'s errors.
    """
    reading = _PagedRead(client, path, page_lock, takes_oversized, selectors)
    try:
        async with asyncio.timeout(LIST_SECONDS):
            await reading.read_all(take_page)
    except TimeoutError:
        raise Unreachable(reading.endless_message) from None


class _FullList:
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
    def __init__(
        self, client: Client, path: str, page_lock: asyncio.Lock, takes_oversized: bool, selectors: dict[str, str]
    ) -> None:
        self._client, self._path, self._page_lock, self._selectors = client, path, page_lock, selectors
        self._takes_oversized = takes_oversized
        self._version = ""
        self._size_index = 0  # in PAGE_SIZES
        self._grows = False  # whether pages grow again, because one object alone was requested

    @property
    def endless_message(self) -> str:
        return f"its list of {kind_of(self._path)[0]} does not end"

    @property
    def unreadable_message(self) -> str:
        return f"its list of {kind_of(self._path)[0]} cannot be read"

    async def read_all(self, take_page: TakePage) -> None:
        token = ""
        for page in range(MOST_PAGES):
            before = token
            async with self._page_lock:
                body = await self._read_page(token)
                await asyncio.sleep(0)  # parsing blocked the loop, and taking the page blocks it as long
                token = self._take_page(body, take_page, first=page == 0)
                del body
            if not token:
                return
            if token == before:
                break
        raise Unreachable(self.endless_message)

    def _take_page(self, page: Body, take_page: TakePage, *, first: bool) -> str:
        token, version = self._token_and_version(page)
        if first:
            self._version = version
        take_page(page["items"] or [], self._version)
        return token

    async def _read_page(self, token: str) -> Body:
        following = {"continue": token} if token else {}
        while True:
            params = {"limit": str(PAGE_SIZES[self._size_index]), **self._selectors, **following}
            try:
                page = await self._client.get(self._path, PAGE_BYTES, **params)
            except ResponseTooLarge:
                if self._size_index < len(PAGE_SIZES) - 1:
                    self._shrink_pages()
                    continue
                if not self._takes_oversized:
                    raise
                page = await self._read_metadata(params)
            if self._grows:
                self._size_index = max(self._size_index - 1, 0)
            return page

    def _shrink_pages(self) -> None:
        """Request smaller pages from now on, because the next ones are probably as large.

        But hardly any object is so large that it must come alone. After such a one, pages grow by one size each: a list
        of a hundred thousand objects would not end one by one.
        """
        self._size_index += 1
        self._grows = self._size_index == len(PAGE_SIZES) - 1

    async def _read_metadata(self, params: dict[str, str]) -> Body:
        """The page of one object that is too large by itself, so that the rest of the list can be read."""
        page = await self._client.begin_metadata(self._path, **params)
        metadata, items = page.get("metadata"), page.get("items")
        # The token comes before the items, so it is whole if an item is there.
        if not (isinstance(metadata, dict) and metadata.get("resourceVersion") and isinstance(items, list)):
            raise Unreachable(self.unreadable_message)
        objects = [OversizedObject(item) for item in items if isinstance(item, dict) and _has_key(item)]
        if not objects:
            raise Unreachable(self.unreadable_message)
        return {**page, "items": objects}

    def _token_and_version(self, page: Body) -> tuple[str, str]:
        metadata = page.get("metadata")
        list_metadata = metadata if isinstance(metadata, dict) else {}
        token, version = list_metadata.get("continue") or "", list_metadata.get("resourceVersion")
        if not isinstance(page.get("items", 0), list | None):
            raise Unreachable(self.unreadable_message)
        if not isinstance(token, str) or len(token) > _LONGEST_TOKEN:
            raise Unreachable(f"its list of {kind_of(self._path)[0]} cannot be read on")
        return token, version if isinstance(version, str) and parse_version(version) else ""


def _has_key(item: Raw) -> bool:
    metadata = mapping_field(item, "metadata")
    return bool(text_field(metadata, "name") and text_field(metadata, "namespace"))
