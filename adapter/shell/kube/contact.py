"""Is a cluster there, and is all that is followed in it read anew once it is back?

A cut link may leave a watch silent for a minute and a half after the link is whole again: neither side learns that the
other one has hung up. So a probe decides, and after a silence nothing that was read before counts until it is read again.
What a silence means is for whoever is told.
"""

import asyncio
from collections.abc import Callable, Sequence

from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.reflector import Following, follow

# A cut link shows within PROBE_SECONDS + the client's time-out: quick enough for a gang to spill within its own
# reservation timeout, slow enough that one lost packet means nothing.
PROBE_SECONDS = 5.0

Tell = Callable[[Exception | None], None]  # what the last probe met; None: all is well


async def keep(client: Client, tell: Tell, followed: Sequence[Following]) -> None:
    """Follow while the cluster answers, until cancelled; after a silence list everything anew."""
    while True:
        await _answered(client, tell)
        async with asyncio.TaskGroup() as tasks:
            following = [tasks.create_task(follow(what)) for what in followed]
            silence = await _silence(client, tell)
            for task in following:
                task.cancel()
        for what in followed:
            what.trouble(silence)


async def _answered(client: Client, tell: Tell) -> None:
    """Probe until the cluster gives an answer, be it a refusal."""
    while True:
        if not isinstance(await _probe(client, tell), Unreachable):
            return
        await asyncio.sleep(PROBE_SECONDS)


async def _silence(client: Client, tell: Tell) -> Unreachable:
    """Probe until the cluster gives no answer; returns why."""
    while True:
        await asyncio.sleep(PROBE_SECONDS)
        met = await _probe(client, tell)
        if isinstance(met, Unreachable):
            return met


async def _probe(client: Client, tell: Tell) -> ApiError | Unreachable | None:
    try:
        await client.alive()
    except (ApiError, Unreachable) as error:
        tell(error)
        return error
    tell(None)
    return None
