"""`rayspan access`: the access server of the component worker-access, until SIGTERM.

It runs on asyncio's own loop. If the peer closes a TLS connection while nothing reads, uvloop loses the last bytes.
These are the end of a copied file, or the exit code of a command.
"""

import asyncio
import logging
import signal
import sys

from adapter.cli import event_loop
from adapter.shell import log_formatters, supervise
from adapter.shell.access import access_server, grant_sweep, self_signed
from adapter.shell.controller import http_servers
from adapter.shell.kube.client import Client

log = logging.getLogger(__name__)


def main(port: int, health_port: int, *, log_format: str = "text") -> int:
    """Run the access server; return the exit code."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_formatters.FORMATTERS[log_format])
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)  # its records quote requests, which hold keys
    return event_loop.run_command(_serve_until_stopped(port, health_port))


async def _serve_until_stopped(port: int, health_port: int) -> int:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(supervise.handle_loop_exception)
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    manager = await Client.in_cluster()
    servers = []
    try:
        servers.append(await access_server.serve(manager, await self_signed.self_signed_context(), port))
        servers.append(await http_servers.serve_health(lambda: "", health_port))
        await supervise.run_with_restarts("sweep", lambda: grant_sweep.run(manager))
    except self_signed.OpensslFailed as error:
        log.error("there is no certificate to serve with: %s", error)
        return 1
    except asyncio.CancelledError:
        log.info("received SIGTERM; open streams end")
    finally:
        for server in reversed(servers):
            await server.cleanup()
        await manager.close()
    return 0
