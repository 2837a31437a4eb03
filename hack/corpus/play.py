"""Put all samples to the clusters: log in, look, and go."""

import asyncio
from pathlib import Path

from hack.corpus import ask, samples
from hack.corpus.judge import Seen
from hack.testbed import bulk


def run(manager: Path, worker: Path) -> list[Seen]:
    """Look at all samples in a manager and a worker cluster, by their kubeconfigs."""
    return asyncio.run(_run(manager, worker))


async def _run(manager: Path, worker: Path) -> list[Seen]:
    async with bulk.connected(manager) as home, bulk.connected(worker) as away:
        return await ask.look(home, away, samples.read())
