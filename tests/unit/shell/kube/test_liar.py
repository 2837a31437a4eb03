"""Whatever a worker cluster answers, the result is a documented error or a JSON object, and reflectors go on.

The attacker of the integration tests runs in this process, and clients use short timeouts.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from adapter.objects import well_formed
from adapter.objects.specs import WorkerCluster, parse_worker_cluster
from adapter.shell.clusters.worker_cache import WorkerClusterCache, WorkerClusterListeners
from adapter.shell.kube import client as clients
from adapter.shell.kube import pagination, reflector
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import NAMESPACES, NODES, PODS, WORKLOADS
from hack.testbed.liar import TOKEN, Liar
from hack.testbed.lies import DRAWN, SORTS, Lie
from hack.testbed.oddities import FORGED
from hack.testbed.world import World

LIES = st.builds(Lie, st.sampled_from(DRAWN), st.integers(0, 2**32))
DEALT = st.lists(LIES, min_size=5, max_size=30)
SHARES = st.sampled_from([0.2, 0.6, 0.95])
PATIENCE = 300.0  # seconds on a machine that has other work; milliseconds on one that has none
BODY = {"metadata": {"name": "a"}}


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(clients, "LONGEST_STREAM_SECONDS", 0.5)
    monkeypatch.setattr(pagination, "LIST_SECONDS", 1.0)
    for name, seconds in (
        ("FIRST_BACKOFF", 0.001),
        ("LAST_BACKOFF", 0.01),
        ("PROBE_SECONDS", 0.02),
        ("SILENCE_SECONDS", 0.2),
    ):
        monkeypatch.setattr(reflector, name, seconds)


@asynccontextmanager
async def lied_to(some: Sequence[Lie], share: float = 1.0) -> AsyncIterator[Liar]:
    """An API server that tells these lies."""
    world = World()
    world.furnish("demo", 8)
    async with Liar(world) as liar:
        liar.deal(some, share)
        yield liar
        assert liar.strayed == [] and liar.logins <= {f"Bearer {TOKEN}"}


def no_log_is_forged(error: Exception) -> None:
    assert FORGED not in str(error) or str(error).isprintable(), "it would be a line of its own in a log"


async def ask(liar: Liar) -> None:
    """Ask everything that an engine asks, by a client that has met no silence yet: it would ask nothing more."""
    client = await Client.from_kubeconfig(liar.kubeconfig(), "liar")
    try:
        await _ask(client)
    finally:
        await client.close()


async def _ask(client: Client) -> None:
    one = PODS.path("demo", "a")
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: client.get(PODS.path()),
        lambda: client.get(NAMESPACES.path(name="kube-system")),
        lambda: pagination.list_all(client, NODES.path()),
        lambda: client.create(WORKLOADS.path("demo"), BODY),
        lambda: client.merge_patch(one, BODY),
        lambda: client.replace(one, BODY),
        lambda: client.json_patch(one, [], "test"),
        lambda: client.delete(one, "uid"),
        lambda: client.probe(),
    ]
    for question in asked:
        try:
            assert isinstance(await question(), dict | tuple | bool | None)
        except (ApiError, Unreachable) as error:
            no_log_is_forged(error)
    try:
        async with client.stream(PODS.path(), {"watch": "true"}, 0.2) as lines:
            async for line in lines:
                assert isinstance(line, bytes)
    except (ApiError, Unreachable) as error:
        no_log_is_forged(error)


@pytest.mark.parametrize("sort", SORTS)
async def test_each_kind_of_lie_is_a_documented_error_or_an_object(sort: str) -> None:
    async with lied_to([Lie(sort, number) for number in range(40)]) as liar:
        for _ in range(2):
            await ask(liar)
        assert liar.told[sort] >= 10


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(some=DEALT, share=SHARES)
def test_random_lies_are_documented_errors_or_objects(some: list[Lie], share: float) -> None:
    async def told() -> None:
        async with lied_to(some, share) as liar:
            await ask(liar)

    asyncio.run(told())


@settings(
    max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
@given(some=DEALT, share=SHARES)
def test_a_reflector_of_a_liar_goes_on_and_stores_no_invalid_object(some: list[Lie], share: float) -> None:
    """A whole worker cluster, as the engine watches it: it never ends by itself, and its stores stay readable."""

    async def followed() -> None:
        async with lied_to(some, share) as liar:
            client = await Client.from_kubeconfig(liar.kubeconfig(), "liar")
            member = WorkerClusterCache("liar", SPEC, client, "manager", WorkerClusterListeners())
            task = asyncio.create_task(member.run())
            try:
                async with asyncio.timeout(PATIENCE):
                    for told in range(5, 40, 5):
                        await liar.until(told)
                        for row in member._watched_kinds:
                            assert not any(map(well_formed.malformed_reason, row.store))
                        assert member.unreachable_reason.isprintable()
                        read(member)
                assert not task.done(), task
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                await client.close()

    asyncio.run(followed())


def read(member: WorkerClusterCache) -> None:
    """Everything that is reckoned of its stores."""
    _ = member.tree, member.nodes, member.queues, member.namespace_labels, member.unmirrored_reason


SPEC: WorkerCluster = parse_worker_cluster(
    {
        "metadata": {"name": "liar"},
        "spec": {"source": {"kubeConfig": {"secretRef": {"name": "liar"}}}, "zone": "nowhere"},
    }
)
