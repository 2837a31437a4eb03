"""Of an incomplete namespace nothing is decided; its turns go on until it is complete again."""

from typing import Any, cast

import pytest

from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterListeners
from adapter.shell.controller.enqueue import ANCHOR, GANG, NAMESPACE, POD, SERVICE
from adapter.shell.controller.event_handlers import EventHandlers
from adapter.shell.controller.reconciler import Reconciler
from adapter.shell.kube.client import Client
from adapter.shell.observe.gang_observer import GangObserver
from adapter.shell.write.ended_gangs import EndedGangs
from tests.unit import builders
from tests.unit.builders import NAMESPACE as DEMO
from tests.unit.stores import Sight


class Parts:
    """Reads and turns of a reconciler; all other parts fail when they are used."""

    def __init__(self, *, becomes_incomplete: bool = False) -> None:
        self.manager, self.turns = ManagerCache(cast(Client, None)), list[str]()
        self._becomes_incomplete = becomes_incomplete
        unused: Any = None
        self.reconciler = Reconciler(
            manager=self.manager,
            fleet=unused,
            gang_observer=cast(GangObserver, self),
            worker_observer=unused,
            service_observer=unused,
            assignments=unused,
            executor=unused,
            condition_writer=unused,
            quota_aggregator=unused,
            ended_gangs=cast(EndedGangs, self),
            event_handlers=unused,
        )

    async def read_uncached(self, _: object) -> bool:
        if self._becomes_incomplete:
            self.manager.namespace_shares.drop_unreadable(DEMO, "pods")
        return False

    async def reconcile_namespace(self, namespace: str) -> float:
        self.turns.append(namespace)
        return 10.0


@pytest.mark.parametrize("kind", [GANG, POD, SERVICE, ANCHOR])
async def test_nothing_is_decided_on_an_incomplete_namespace(kind: str) -> None:
    """Its stores are empty, so each share would count as left over, and each remote pod as an orphan."""
    parts = Parts()
    parts.manager.namespace_shares.drop_unreadable(DEMO, "pods")
    assert await parts.reconciler.reconcile((kind, DEMO, "east/train")) is None
    with pytest.raises(AttributeError):  # another namespace is read
        await parts.reconciler.reconcile((kind, "other", "east/train"))


async def test_nothing_is_decided_once_it_became_incomplete_during_the_reads() -> None:
    assert await Parts(becomes_incomplete=True).reconciler.reconcile((GANG, DEMO, "train")) is None


async def test_its_turns_go_on() -> None:
    parts = Parts()
    assert await parts.reconciler.reconcile((NAMESPACE, DEMO, "")) == 10.0 and parts.turns == [DEMO]


@pytest.mark.parametrize("place", ["manager", "east"])
def test_a_change_enqueues_the_namespace_and_so_does_a_new_leader(place: str) -> None:
    sight, keys = Sight({"east": 4}), list[tuple[str, str, str]]()

    class Queue:
        def add(self, key: tuple[str, str, str], _: float = 0.0) -> None:
            keys.append(key)

    listeners = list[WorkerClusterListeners]()
    cast(Any, sight.fleet).set_listeners = listeners.append
    handlers = EventHandlers(cast(Any, Queue()), sight.manager, sight.fleet, sight.facts.replan_check)
    handlers.register()
    sight.members["east"]._listeners = listeners[0]
    shares = sight.manager.namespace_shares if place == "manager" else sight.members["east"].namespace_shares
    sight.manager.workloads.put(builders.make_workload())
    keys.clear()
    version = sight.fleet.capacity_versions.version
    shares.drop_unreadable(DEMO, "pods")
    assert (NAMESPACE, DEMO, "") in keys and sight.fleet.capacity_versions.version == version
    keys.clear()
    handlers.resync_all()
    assert (NAMESPACE, DEMO, "") in keys
    shares.begin_reload(DEMO)
    keys.clear()
    shares.end_reload(DEMO)
    assert (NAMESPACE, DEMO, "") in keys
