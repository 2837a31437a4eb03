"""`rayspan admission`: the webhooks, until SIGTERM. `rayspan admission-certificate`: their certificate, once."""

import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from adapter.cli import event_loop
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
    """Serve the webhooks with the certificate in `folder`; return the exit code."""
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
        warning_cache = WarningCache(client)
        cache_task = asyncio.create_task(
            supervise.run_with_restarts(
                "queues and clusters", warning_cache.run, on_failure=warning_cache.on_run_failed
            )
        )
        cleanup.callback(cache_task.cancel)
        await webhooks.serve(server, ObjectWarnings(warning_cache, client))  # handles SIGTERM itself
    return 0


def make_certificate(*, log_format: str = "text") -> int:
    """Issue the webhooks' certificate and have the API server trust it; return the exit code."""
    _configure_logging(log_format)
    return event_loop.run_command(_make_certificate())


async def _make_certificate() -> int:
    client = await Client.in_cluster()
    try:
        await webhook_certificate.ensure_certificate(client)
    except (ApiError, Unreachable) as error:
        log.error("the certificate cannot be installed: %s", error)
        return 1
    finally:
        await client.close()
    return 0


def _configure_logging(log_format: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_formatters.FORMATTERS[log_format])
    logging.basicConfig(level=logging.INFO, handlers=[handler])
