"""What stands in single objects of the manager cluster, each followed by its name, and only while somebody needs it?

For what is not to be followed as a whole kind: Kueue's namespace holds Kueue's own keys beside the Secrets that are needed there, and of all the
ClusterProfiles of an inventory those count that a WorkerCluster names. RBAC can grant a name. What was read once counts on, whatever is refused later.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.reflector import Following, follow
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.store import Store
from adapter.shell.supervise import guarded

log = logging.getLogger(__name__)

_BROKE = "reading it broke; see the controller's log"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one object is. `facts`: what of it is news."""

    resource: Resource
    namespace: str
    name: str
    facts: Callable[[Raw], object] = field(default=lambda raw: raw, compare=False)


class Unread(Exception):
    """An object cannot be read; the text says why, a part of a sentence."""


@dataclass(slots=True)
class _Followed:
    store: Store
    task: asyncio.Task[None] | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    trouble: str = ""


class Needs:
    """What one asker needs, which is all that it has read since it asked last."""

    def __init__(self, named: "Named", who: str) -> None:
        self.places: set[Place] = set()
        self._named, self._who = named, who

    async def read(self, place: Place) -> Raw | None:
        """The object, None where there is none; raises Unread while it was never read. It waits for the first answer."""
        self.places.add(place)
        return await self._named.read(self._who, place)


class Named:
    """Objects by their names, followed for those who need them."""

    def __init__(self, tasks: asyncio.TaskGroup, client: Client, tell: Callable[[], None]) -> None:
        """`tell`: called when something in one of them is news, or whether it can be read."""
        self._tasks, self._client, self._tell = tasks, client, tell
        self._needed: dict[str, set[Place]] = {}
        self._followed: dict[Place, _Followed] = {}

    @contextmanager
    def needs(self, who: str) -> Iterator[Needs]:
        """What is read within is what `who` needs from now on, and nothing else, also where it ends by an error."""
        needs = Needs(self, who)
        try:
            yield needs
        finally:
            self._needed[who] = needs.places
            self._let_go()

    def forget(self, who: str) -> None:
        """Note that `who` needs nothing any more; what nobody needs is followed no more."""
        self._needed.pop(who, None)
        self._let_go()

    async def read(self, who: str, place: Place) -> Raw | None:
        """See Needs.read."""
        self._needed.setdefault(who, set()).add(place)  # at once: others let go meanwhile what nobody needs
        found = self._followed.get(place) or self._follow(place)
        await found.answered.wait()
        if not found.store.synced:
            raise Unread(found.trouble)
        return found.store.get((place.namespace, place.name))

    def _let_go(self) -> None:
        for place in set(self._followed) - {place for places in self._needed.values() for place in places}:
            task = self._followed.pop(place).task
            if task:
                task.cancel()

    def _follow(self, place: Place) -> _Followed:
        def changed(before: Raw | None, after: Raw | None) -> None:
            if before is None or after is None or place.facts(before) != place.facts(after):
                self._tell()

        made = self._followed[place] = _Followed(Store(changed))
        run = functools.partial(follow, self._following(place, made))
        broke = functools.partial(self._trouble, place, made, Unreachable(_BROKE))
        made.task = self._tasks.create_task(guarded("logins", run, broke=lambda _: broke()))
        return made

    def _following(self, place: Place, made: _Followed) -> Following:
        trouble = functools.partial(self._trouble, place, made)
        only = {"fieldSelector": f"metadata.name={place.name}"}
        return Following(self._client, place.resource, made.store, trouble, place.namespace, only)

    def _trouble(self, place: Place, made: _Followed, error: Exception | None) -> None:
        said = "" if error is None else _sentence(error)
        news = said != made.trouble
        made.trouble = said
        made.answered.set()
        if news:
            log.info("%s %s in %s: %s", place.resource.plural, place.name, place.namespace, said or "is read")
            self._tell()


def _sentence(error: Exception) -> str:
    if isinstance(error, ApiError) and error.status == 403:
        return "the controller has no right to it"
    return str(error)
