"""The order of turns."""

import asyncio

import pytest

from adapter.shell.http.fair_places import FairPlaces, NoPlace
from adapter.shell.http.fair_queue import FairQueue


async def test_a_client_that_asks_little_waits_for_one_turn_of_a_client_that_asks_much() -> None:
    queue, order = FairQueue(), list[str]()
    begun, all_asked = asyncio.Event(), asyncio.Event()

    async def ask(client: str) -> None:
        async with queue.turn(client, 1e-6):
            begun.set()
            await all_asked.wait()
            order.append(client)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(50):
            tasks.create_task(ask("much"))
        await begun.wait()
        tasks.create_task(ask("little"))
        await asyncio.sleep(0)
        all_asked.set()
    assert order.index("little") <= 4


async def test_cancelled_turns_are_given_to_others() -> None:
    queue = FairQueue()
    async with queue.turn("a"):
        waiting = [asyncio.create_task(take_turn(queue, client)) for client in "abcabc"]
        await asyncio.sleep(0)
        for task in waiting[:5]:
            task.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting, return_exceptions=True)
        await take_turn(queue, "d")
    assert not waiting[5].cancelled()


async def take_turn(queue: FairQueue, client: str) -> None:
    async with queue.turn(client):
        pass


def test_the_client_with_most_places_gives_its_oldest_idle_one() -> None:
    places, given_up = FairPlaces(3), list[str]()
    for name, busy in (("busy", True), ("idle", False), ("newest", False)):
        places.take("much", lambda name=name: given_up.append(name), busy=busy)  # type: ignore[misc]
    places.take("little", lambda: given_up.append("little"))
    assert given_up == ["idle"]


def test_a_client_with_all_places_busy_gets_no_other() -> None:
    places = FairPlaces(2)
    for _ in range(2):
        places.take("much", lambda: None, busy=True)
    with pytest.raises(NoPlace):
        places.take("much", lambda: None)
    places.take("little", lambda: None)
