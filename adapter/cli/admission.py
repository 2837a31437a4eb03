"""`rayspan admission`: the webhooks, until SIGTERM; and `rayspan admission-certificate`: what the API server trusts them by, once."""

import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from adapter.shell import log_formatters, supervise
from adapter.shell.admission import webhook_certificate, webhooks
from adapter.shell.admission.admission_server import Server
from adapter.shell.admission.object_warnings import Adviser
from adapter.shell.admission.warning_cache import Known
from adapter.shell.certificate import Certificate, NoCertificate
from adapter.shell.controller import http_servers
from adapter.shell.kube.client import ApiError, Client, Unreachable

log = logging.getLogger(__name__)


def main(port: int, health_port: int, folder: Path, *, log_format: str = "text") -> int:
    """Serve the webhooks with the certificate in that folder; returns the exit code."""
    _log(log_format)
    try:
        server = Server(port, Certificate(folder))
    except NoCertificate as error:
        log.error("the webhooks cannot be served: %s", error)
        return 1
    return uvloop.run(_run(server, health_port))


async def _run(server: Server, health_port: int) -> int:
    asyncio.get_running_loop().set_exception_handler(supervise.unawaited)
    async with AsyncExitStack() as cleanup:
        client = await Client.local()
        cleanup.push_async_callback(client.close)
        health = await http_servers.serve_health(
            lambda: "" if server.listens else "the webhooks are not served yet", health_port
        )
        cleanup.push_async_callback(health.cleanup)
        known = Known(client)
        following = asyncio.create_task(supervise.guarded("queues and clusters", known.run, broke=known.broken))
        cleanup.callback(following.cancel)
        await webhooks.serve(server, Adviser(known, client))  # it hears SIGTERM itself
    return 0


def make_certificate(*, log_format: str = "text") -> int:
    """Have the webhooks' certificate made and trusted; returns the exit code."""
    _log(log_format)
    return asyncio.run(_make_certificate())


async def _make_certificate() -> int:
    client = await Client.local()
    try:
        await webhook_certificate.ensure(client)
    except (ApiError, Unreachable) as error:
        log.error("the certificate cannot be put in its place: %s", error)
        return 1
    finally:
        await client.close()
    return 0


def _log(log_format: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_formatters.FORMATS[log_format])
    logging.basicConfig(level=logging.INFO, handlers=[handler])
