"""The Secrets and ClusterProfiles that logins are read from, each followed by name while a login needs it.

RBAC can grant access by name. So Kueue's own keys, which are in the namespace of the needed Secrets, need not be
readable. Of ClusterProfiles, too, only named ones count. An object that was read once stays valid, whatever is denied
later.
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
    """A reference to an object; `relevant_facts` reads the part of the object whose changes matter."""

    resource: Resource
    namespace: str
    name: str
    relevant_facts: Callable[[Raw], object] = field(default=lambda raw: raw, compare=False)


class ObjectUnreadable(Exception):
    """An object cannot be read; the text is the reason, a fragment."""


@dataclass(slots=True)
class _FollowedObject:
    store: Store
    task: asyncio.Task[None] | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    error_message: str = ""


class Dependencies:
    """The objects that one dependent reads in a `track_dependencies` block."""

    def __init__(self, objects: "LoginObjects", dependent: str) -> None:
        self.refs: set[ObjectRef] = set()
        self._objects, self._dependent = objects, dependent

    async def read_object(self, ref: ObjectRef) -> Raw | None:
        """The object, or None if it does not exist.

        Waits for the first answer; raises ObjectUnreadable while the object was never read.
        """
        self.refs.add(ref)
        return await self._objects.read_object(self._dependent, ref)


class LoginObjects:
    def __init__(self, tasks: asyncio.TaskGroup, client: Client, on_change: Callable[[], None]) -> None:
        """`on_change`: an object's relevant facts or readability have changed."""
        self._tasks, self._client, self._on_change = tasks, client, on_change
        self._refs_by_dependent: dict[str, set[ObjectRef]] = {}
        self._followed_objects: dict[ObjectRef, _FollowedObject] = {}

    @contextmanager
    def track_dependencies(self, dependent: str) -> Iterator[Dependencies]:
        """Replace what `dependent` needs by what the block reads, even if the block fails."""
        needs = Dependencies(self, dependent)
        try:
            yield needs
        finally:
            self._refs_by_dependent[dependent] = needs.refs
            self._stop_unneeded()

    def forget_dependent(self, dependent: str) -> None:
        self._refs_by_dependent.pop(dependent, None)
        self._stop_unneeded()

    async def read_object(self, dependent: str, ref: ObjectRef) -> Raw | None:
        """See Dependencies.read_object."""
        # Added before the wait, during which another dependent may stop unneeded objects.
        self._refs_by_dependent.setdefault(dependent, set()).add(ref)
        followed = self._followed_objects.get(ref) or self._start_following(ref)
        await followed.answered.wait()
        if not followed.store.synced:
            raise ObjectUnreadable(followed.error_message)
        return followed.store.get((ref.namespace, ref.name))

    def _stop_unneeded(self) -> None:
        for ref in set(self._followed_objects) - {ref for refs in self._refs_by_dependent.values() for ref in refs}:
            task = self._followed_objects.pop(ref).task
            if task:
                task.cancel()

    def _start_following(self, ref: ObjectRef) -> _FollowedObject:
        def changed(before: Raw | None, after: Raw | None) -> None:
            if before is None or after is None or ref.relevant_facts(before) != ref.relevant_facts(after):
                self._on_change()

        followed = self._followed_objects[ref] = _FollowedObject(Store(changed))
        run = functools.partial(follow, self._follow_config(ref, followed))
        on_broken = functools.partial(self._note_result, ref, followed, Unreachable(_READ_FAILED))
        followed.task = self._tasks.create_task(run_with_restarts("logins", run, on_failure=lambda _: on_broken()))
        return followed

    def _follow_config(self, ref: ObjectRef, followed: _FollowedObject) -> FollowConfig:
        on_result = functools.partial(self._note_result, ref, followed)
        selectors = {"fieldSelector": f"metadata.name={ref.name}"}
        return FollowConfig(self._client, ref.resource, followed.store, on_result, ref.namespace, selectors)

    def _note_result(self, ref: ObjectRef, followed: _FollowedObject, error: Exception | None) -> None:
        message = "" if error is None else _error_message(error)
        is_news = message != followed.error_message
        followed.error_message = message
        followed.answered.set()
        if is_news:
            log.info("%s %s in %s: %s", ref.resource.plural, ref.name, ref.namespace, message or "is read")
            self._on_change()


def _error_message(error: Exception) -> str:
    if isinstance(error, ApiError) and error.status == 403:
        return "the controller has no right to it"
    return str(error)
