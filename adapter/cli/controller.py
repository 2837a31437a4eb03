"""`rayspan controller`: run the controller until SIGTERM or until another replica may lead."""

import asyncio
import logging
import signal
import socket
import sys
import uuid
from pathlib import Path

import uvloop
from prometheus_client import REGISTRY

from adapter.shell import gc_tuning, log_formatters, supervise
from adapter.shell.certificate import Certificate, UnreadableCertificate
from adapter.shell.controller import http_servers
from adapter.shell.controller.engine import Engine
from adapter.shell.controller.lease import LeaderElector, LeadershipLost
from adapter.shell.controller.measurements import StateCollector
from adapter.shell.kube.client import Client

log = logging.getLogger(__name__)


def main(
    port: int,
    plan_port: int,
    *,
    verbose: bool,
    leader_elect: bool,
    log_format: str = "text",
    metrics: tuple[Path, int] | None = None,
) -> int:
    """Run the controller; return the exit code. `metrics`: certificate folder and port of /metrics over TLS."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_formatters.FORMATTERS[log_format])
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    try:
        secured = (Certificate(metrics[0]), metrics[1]) if metrics else None
    except UnreadableCertificate as error:
        log.error("/metrics cannot be served over TLS: %s", error)
        return 1
    return uvloop.run(_run_engine(port, plan_port, leader_elect, secured))


async def _run_engine(port: int, plan_port: int, leader_elect: bool, secured: tuple[Certificate, int] | None) -> int:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(supervise.handle_loop_exception)
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    lease_client = await Client.in_cluster()
    lease = LeaderElector(lease_client, _holder_identity()) if leader_elect else None
    client = await Client.in_cluster(lease.may_write) if lease else await Client.in_cluster()
    gc_tuning.collect_rarely()
    engine = Engine(client, lease, gc_tuning.freeze_objects)
    REGISTRY.register(StateCollector(engine.manager, engine.worker_caches))
    pace = http_servers.new_pace()
    servers = [
        # A standby replica is ready, because it can take over; it also serves plans.
        await http_servers.serve_health(lambda: engine.manager.not_ready_reason, port, metrics=not secured, pace=pace),
        await http_servers.serve_plans(lambda: engine.preview, plan_port, pace=pace),
    ]
    if secured:
        servers.append(await http_servers.serve_metrics(*secured, pace=pace))
    code = 0
    try:
        await engine.run()
    except* asyncio.CancelledError:
        log.info("received SIGTERM; all decisions are stored in the API servers")
        if lease:
            await lease.give_back()
    except* LeadershipLost as error:
        log.error("stopped writing, and exiting to be restarted: %s", error.exceptions[0])
        code = 1
    finally:
        for server in servers:
            await server.cleanup()
        await client.close()
        await lease_client.close()
    return code


def _holder_identity() -> str:
    """The Lease's holder: the pod's name, and a suffix that distinguishes processes of one pod."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"
