"""The limits of open streams, in total and for each namespace, and of concurrent requests."""

import asyncio
from contextlib import ExitStack

import pytest

from adapter.shell.access.concurrency import (
    MOST_STREAMS,
    MOST_STREAMS_OF_NAMESPACE,
    MOST_VERIFIED_OF_NAMESPACE,
    PARALLEL_LOOKUPS,
    ConcurrencyLimits,
    TooManyStreams,
)


def test_one_namespace_gets_a_part_of_the_streams() -> None:
    places = ConcurrencyLimits()
    with ExitStack() as taken:
        for _ in range(MOST_STREAMS_OF_NAMESPACE):
            taken.enter_context(places.open_stream("greedy"))
        with pytest.raises(TooManyStreams, match="Namespace greedy has as many"), places.open_stream("greedy"):
            pass
        with places.open_stream("other"):
            pass
    with places.open_stream("greedy"):
        pass


def test_all_streams_together_are_bounded() -> None:
    places = ConcurrencyLimits()
    with ExitStack() as taken:
        for number in range(MOST_STREAMS):
            taken.enter_context(places.open_stream(f"n-{number}"))
        with pytest.raises(TooManyStreams, match="Everybody together"), places.open_stream("late"):
            pass
    assert not places._open_streams


def test_verified_requests_are_bounded_by_namespace() -> None:
    limits = ConcurrencyLimits()
    with ExitStack() as reading:
        for _ in range(MOST_VERIFIED_OF_NAMESPACE):
            reading.enter_context(limits.verified_request("greedy"))
        with pytest.raises(TooManyStreams) as refused, limits.verified_request("greedy"):
            pass
        assert refused.value.refusal.status == 429
        with limits.verified_request("other"):
            pass


async def test_a_lookup_waits_for_no_other_namespaces_queue() -> None:
    """Lookups without a key take all turns and wait for more; a lookup for another namespace has the next one."""
    limits, ended = ConcurrencyLimits(), list[str]()
    first = asyncio.Event()

    async def look_up(namespace: str) -> None:
        async with limits.lookup("10.0.0.1", namespace):
            await first.wait()
            await asyncio.sleep(0)
            ended.append(namespace)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(10 * PARALLEL_LOOKUPS):
            tasks.create_task(look_up("flooded"))
        await asyncio.sleep(0)
        tasks.create_task(look_up("other"))
        await asyncio.sleep(0)
        first.set()
    assert ended.index("other") <= 2 * PARALLEL_LOOKUPS
