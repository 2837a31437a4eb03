"""The cost of a worker: reconciles and writes from its pod until its status says that it runs.

The whole controller runs over the API servers of the fleet's bench. The counts are equal on any machine.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from adapter.names import POD_UID_LABEL, SLOT_ANNOTATION
from adapter.objects.unstructured import annotation, label, uid_of
from adapter.shell.controller.engine import Engine
from adapter.shell.controller.enqueue import POD
from adapter.shell.kube.client import Client
from hack.bench import fleetprocess
from hack.bench.fleetgang import Gang
from hack.bench.fleetinput import MANAGER, Size
from hack.bench.fleetworld import World
from tests.unit.apiserver import PATIENCE
from tests.unit.shell.controller.test_engine_standby import ended

PODS, CLUSTERS = 40, 2


class Stand:
    """A leading controller with its API servers."""

    def __init__(self, world: World, engine: Engine, task: asyncio.Task[None]) -> None:
        self.world, self._engine, self._task = world, engine, task

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not happened():
                await asyncio.wait([self._task], timeout=0.05)
                assert not self._task.done()

    def idle(self) -> bool:
        """Whether no worker is queued for a reconcile."""
        queue = self._engine._queue
        return not any(what == POD for what, *_ in (*queue._due_times, *queue._running))

    async def spent(self, gang: Gang) -> dict[str, float]:
        """The reconciles and writes until the gang's new workers run, for each worker; writes also by kind."""
        before = fleetprocess.counts("pods")
        await self.world.create(gang)
        await self.until(lambda: self.world.runs(gang) and self.idle())
        return {key: (value - before[key]) / gang.workers for key, value in fleetprocess.counts("pods").items()}


@asynccontextmanager
async def standing(*, listed: bool) -> AsyncIterator[Stand]:
    """Remote pods run at once, so each has one status to mirror, however slow the machine is."""
    async with World(Size(PODS, CLUSTERS, PODS, listed=listed), starts_in=0.0) as world:
        client = await Client.from_kubeconfig(world.login())
        engine = Engine(client, None)
        task = asyncio.create_task(engine.run())
        stand = Stand(world, engine, task)
        try:
            await stand.until(lambda: all(world.connected()))
            yield stand
        finally:
            await ended(task, client)


@pytest.mark.parametrize(
    ("listed", "looks", "manager"),
    [pytest.param(True, 2, 1, id="template slots"), pytest.param(False, 3, 2, id="written slots")],
)
async def test_a_worker_costs_a_few_reconciles_and_writes(*, listed: bool, looks: int, manager: int) -> None:
    async with standing(listed=listed) as stand:
        world, (gang,) = stand.world, stand.world.gangs
        spent = await stand.spent(gang)
        pods = {uid_of(pod): annotation(pod, SLOT_ANNOTATION) for pod in world.workers(gang, MANAGER)}
        copies = [copy for name in gang.counts for copy in world.workers(gang, name)]
    assert spent["manager"] == manager and spent["workers"] == 1 and not spent["faults"]
    # On a machine that stalls for a moment a few workers need one more reconcile, but not all.
    assert spent["looks"] < looks + 0.9
    assert sum(world.made.values()) == len(copies) == PODS
    assert {label(copy, POD_UID_LABEL): annotation(copy, SLOT_ANNOTATION) for copy in copies} == pods
    assert len(set(pods.values())) == PODS
