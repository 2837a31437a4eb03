"""`rayspan controller`: the process that the Deployment runs, until SIGTERM."""

import asyncio
import logging
import signal
import sys

from prometheus_client import REGISTRY

from adapter.shell import health, planserver
from adapter.shell.census import Census
from adapter.shell.client import Client
from adapter.shell.engine import Engine


def main(port: int, plan_port: int, verbose: bool) -> int:
    """Run the controller; returns the exit code."""
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    return asyncio.run(_run(port, plan_port))


async def _run(port: int, plan_port: int) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    client = await Client.local()
    engine = Engine(client)
    REGISTRY.register(Census(engine.home))
    servers = [
        await health.serve(lambda: engine.home.synced, port),
        await planserver.serve(lambda: engine.preview, plan_port),
    ]
    try:
        await engine.run()
    except asyncio.CancelledError:
        logging.getLogger(__name__).info("asked to stop; everything that was decided is in the API servers")
    finally:
        for server in servers:
            await server.cleanup()
        await client.close()
    return 0
