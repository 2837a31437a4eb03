"""`rayspan admission`: the webhooks, until SIGTERM; and `rayspan admission-certificate`: what the API server trusts them by, once."""

import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from adapter.shell import log_formatters, supervise
from adapter.shell.admission import webhook_certificate, webhooks
from adapter.shell.admission.admission_server import WebhookServer
from adapter.shell.admission.object_warnings import ObjectWarnings
from adapter.shell.admission.warning_cache import WarningCache
from adapter.shell.certificate import Certificate, UnreadableCertificate
from adapter.shell.controller import http_servers
from adapter.shell.kube.client import ApiError, Client, Unreachable

log = logging.getLogger(__name__)


def main(port: int, health_port: int, folder: Path, *, log_format: str = "text") -> int:
    """Serve the webhooks with the certificate in that folder; returns the exit code."""
    _configure_logging(log_format)
    try:
        server = WebhookServer(port, Certificate(folder))
    except UnreadableCertificate as error:
        log.error("the webhooks cannot be served: %s", error)
        return 1
    return uvloop.run(_serve_webhooks(server, health_port))


async def _serve_webhooks(server: WebhookServer, health_port: int) -> int:
    asyncio.get_running_loop().set_exception_handler(supervise.handle_loop_exception)
    async with AsyncExitStack() as cleanup:
        client = await Client.in_cluster()
        cleanup.push_async_callback(client.close)
        health = await http_servers.serve_health(
            lambda: "" if server.listening else "the webhooks are not served yet", health_port
        )
        cleanup.push_async_callback(health.cleanup)
        known = WarningCache(client)
        following = asyncio.create_task(
            supervise.run_with_restarts("queues and clusters", known.run, on_failure=known.on_run_failed)
        )
        cleanup.callback(following.cancel)
        await webhooks.serve(server, ObjectWarnings(known, client))  # it hears SIGTERM itself
    return 0


def make_certificate(*, log_format: str = "text") -> int:
    """Have the webhooks' certificate made and trusted; returns the exit code."""
    _configure_logging(log_format)
    return asyncio.run(_make_certificate())


async def _make_certificate() -> int:
    client = await Client.in_cluster()
    try:
        await webhook_certificate.ensure_certificate(client)
    except (ApiError, Unreachable) as error:
        log.error("the certificate cannot be put in its place: %s", error)
        return 1
    finally:
        await client.close()
    return 0


def _configure_logging(log_format: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_formatters.FORMATTERS[log_format])
    logging.basicConfig(level=logging.INFO, handlers=[handler])
