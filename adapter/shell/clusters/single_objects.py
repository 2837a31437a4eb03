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
from adapter.shell.kube.reflector import FollowConfig, follow
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.store import Store
from adapter.shell.supervise import run_with_restarts

log = logging.getLogger(__name__)

_READ_FAILED = "reading it broke; see the controller's log"


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Where one object is. `facts`: what of it is news."""

    resource: Resource
    namespace: str
    name: str
    relevant_facts: Callable[[Raw], object] = field(default=lambda raw: raw, compare=False)


class ObjectUnreadable(Exception):
    """An object cannot be read; the text says why, a part of a sentence."""


@dataclass(slots=True)
class _FollowedObject:
    store: Store
    task: asyncio.Task[None] | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    error_message: str = ""


class Dependencies:
    """What one asker needs, which is all that it has read since it asked last."""

    def __init__(self, objects: "SingleObjects", dependent: str) -> None:
        self.refs: set[ObjectRef] = set()
        self._objects, self._dependent = objects, dependent

    async def read_object(self, ref: ObjectRef) -> Raw | None:
        """The object, None where there is none; raises Unread while it was never read. It waits for the first answer."""
        self.refs.add(ref)
        return await self._objects.read_object(self._dependent, ref)


class SingleObjects:
    """Objects by their names, followed for those who need them."""

    def __init__(self, tasks: asyncio.TaskGroup, client: Client, on_change: Callable[[], None]) -> None:
        """`tell`: called when something in one of them is news, or whether it can be read."""
        self._tasks, self._client, self._on_change = tasks, client, on_change
        self._refs_by_dependent: dict[str, set[ObjectRef]] = {}
        self._followed_objects: dict[ObjectRef, _FollowedObject] = {}

    @contextmanager
    def track_dependencies(self, dependent: str) -> Iterator[Dependencies]:
        """What is read within is what `who` needs from now on, and nothing else, also where it ends by an error."""
        needs = Dependencies(self, dependent)
        try:
            yield needs
        finally:
            self._refs_by_dependent[dependent] = needs.refs
            self._stop_unneeded()

    def forget_dependent(self, dependent: str) -> None:
        """Note that `who` needs nothing any more; what nobody needs is followed no more."""
        self._refs_by_dependent.pop(dependent, None)
        self._stop_unneeded()

    async def read_object(self, dependent: str, ref: ObjectRef) -> Raw | None:
        """See Needs.read."""
        self._refs_by_dependent.setdefault(dependent, set()).add(
            ref
        )  # at once: others let go meanwhile what nobody needs
        found = self._followed_objects.get(ref) or self._start_following(ref)
        await found.answered.wait()
        if not found.store.synced:
            raise ObjectUnreadable(found.error_message)
        return found.store.get((ref.namespace, ref.name))

    def _stop_unneeded(self) -> None:
        for place in set(self._followed_objects) - {
            place for places in self._refs_by_dependent.values() for place in places
        }:
            task = self._followed_objects.pop(place).task
            if task:
                task.cancel()

    def _start_following(self, ref: ObjectRef) -> _FollowedObject:
        def changed(before: Raw | None, after: Raw | None) -> None:
            if before is None or after is None or ref.relevant_facts(before) != ref.relevant_facts(after):
                self._on_change()

        made = self._followed_objects[ref] = _FollowedObject(Store(changed))
        run = functools.partial(follow, self._follow_config(ref, made))
        broke = functools.partial(self._note_result, ref, made, Unreachable(_READ_FAILED))
        made.task = self._tasks.create_task(run_with_restarts("logins", run, on_failure=lambda _: broke()))
        return made

    def _follow_config(self, ref: ObjectRef, followed: _FollowedObject) -> FollowConfig:
        trouble = functools.partial(self._note_result, ref, followed)
        only = {"fieldSelector": f"metadata.name={ref.name}"}
        return FollowConfig(self._client, ref.resource, followed.store, trouble, ref.namespace, only)

    def _note_result(self, ref: ObjectRef, followed: _FollowedObject, error: Exception | None) -> None:
        said = "" if error is None else _error_message(error)
        news = said != followed.error_message
        followed.error_message = said
        followed.answered.set()
        if news:
            log.info("%s %s in %s: %s", ref.resource.plural, ref.name, ref.namespace, said or "is read")
            self._on_change()


def _error_message(error: Exception) -> str:
    if isinstance(error, ApiError) and error.status == 403:
        return "the controller has no right to it"
    return str(error)
