"""Records what happened in several clusters, by one clock: it follows objects in all of them at once.

Times are those at which events arrive here, a few milliseconds after the write. It uses the product's own list-watch
loop, which resumes a broken watch, but as the lab's admin, so that its requests do not count as the product's. When
that loop itself dies, waiters and the end of the context raise.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from types import TracebackType

from adapter.objects.unstructured import Raw, key_of
from adapter.shell.kube.client import Client
from adapter.shell.kube.reflector import FollowConfig, follow
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.store import Store
from hack.lab.base.progress import LabError
from hack.testbed.clusters import Cluster

Place = tuple[str, str, str]  # cluster, plural, name
_PATIENCE = 20.0  # seconds for the first lists

# Seconds: aiohttp closes TLS connections after the answer, without a signal; a loop that ends before leaves them open.
_GOODBYE = 0.25


@dataclass(frozen=True, slots=True)
class Change:
    """An object as it is since `at`; `after` is None when it is gone."""

    at: float
    cluster: str
    kind: str
    name: str
    after: Raw | None


class Recorder:
    """Records what happens in one namespace while the context is open."""

    def __init__(self, namespace: str, what: Mapping[Cluster, Sequence[Resource]]) -> None:
        self._namespace, self._what = namespace, what
        self.changes: list[Change] = []
        self._now: dict[Place, Raw] = {}
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._death = ""
        self._stores: list[Store] = []
        self._end: Callable[[], object] = lambda: None

    def __enter__(self) -> "Recorder":
        self._thread.start()
        expected = sum(len(kinds) for kinds in self._what.values())
        self.wait(
            lambda _: len([store for store in self._stores if store.synced]) == expected, _PATIENCE, "a first list"
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(RuntimeError):  # the loop is closed if it died
            self._end()
        self._thread.join(_PATIENCE)
        if kind is None:
            self._check()
            if self._thread.is_alive():
                raise LabError(f"The recorder has not ended within {_PATIENCE:.0f} s.")

    def wait(self, done: Callable[[Mapping[Place, Raw]], bool], timeout: float, what: str) -> None:
        """Wait until what there is satisfies `done`; raises LabError when time is up."""
        with self._news:
            found = self._news.wait_for(lambda: bool(self._death) or done(self._now), timeout)
        self._check()
        if not found:
            raise LabError(f"After {timeout:.0f} s still not: {what}.")

    def poll(self, done: Callable[[Mapping[Place, Raw]], bool], timeout: float, what: str, every: float = 0.2) -> None:
        """Like `wait`, but evaluates only every so many seconds.

        Checking thousands of objects at each of thousands of events would itself be the measured load.
        """

        def look() -> bool:
            self._check()
            with self._news:
                return done(self._now)

        deadline = time.monotonic() + timeout
        while not look():
            if time.monotonic() > deadline:
                raise LabError(f"After {timeout:.0f} s still not: {what}.")
            time.sleep(every)

    def now(self) -> dict[Place, Raw]:
        """What there is."""
        with self._news:
            return dict(self._now)

    def _heard(self, cluster: str, kind: str, before: Raw | None, after: Raw | None) -> None:
        at, (_, name) = time.monotonic(), key_of(after or before or {})
        with self._news:
            self.changes.append(Change(at, cluster, kind, name, after))
            if after is None:
                self._now.pop((cluster, kind, name), None)
            else:
                self._now[cluster, kind, name] = after
            self._news.notify_all()

    def _well(self, _: Exception | None) -> None:
        """A list came, or trouble: somebody may be waiting for the former."""
        with self._news:
            self._news.notify_all()

    def _check(self) -> None:
        if self._death:
            raise LabError(f"The recorder died: {self._death}.")

    def _live(self) -> None:
        try:
            asyncio.run(self._whole())
        except BaseException as broken:  # an exception in a thread would be lost otherwise
            with self._news:
                self._death = repr(broken.exceptions[0] if isinstance(broken, BaseExceptionGroup) else broken)
                self._news.notify_all()

    async def _whole(self) -> None:
        await self._follow()
        await asyncio.sleep(_GOODBYE)

    async def _follow(self) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        self._end = lambda: loop.call_soon_threadsafe(stop.set)
        async with AsyncExitStack() as clients, asyncio.TaskGroup() as tasks:
            followers = []
            for cluster, kinds in self._what.items():
                client = await Client.from_kubeconfig(cluster.kubeconfig.read_text(encoding="utf-8"))
                clients.push_async_callback(client.close)
                for kind in kinds:
                    following = FollowConfig(client, kind, self._store(cluster, kind), self._well, self._namespace)
                    followers.append(tasks.create_task(follow(following)))
            await stop.wait()
            for follower in followers:
                follower.cancel()

    def _store(self, cluster: Cluster, kind: Resource) -> Store:
        store = Store(lambda before, after: self._heard(cluster.name, kind.plural, before, after))
        self._stores.append(store)
        return store
