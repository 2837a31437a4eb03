"""`rayspan controller`: the process that the Deployment runs, until SIGTERM or until another replica may lead."""

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
    """Run the controller; returns the exit code. `metrics`: over TLS, with the certificate in that folder, on that port."""
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
    election = await Client.in_cluster()
    lease = LeaderElector(election, _holder_identity()) if leader_elect else None
    client = await Client.in_cluster(lease.may_write) if lease else await Client.in_cluster()
    gc_tuning.collect_rarely()
    engine = Engine(client, lease, gc_tuning.freeze_objects)
    REGISTRY.register(StateCollector(engine.manager))
    serving = [
        # A replica that stands by is ready, for it is able to take over; and it plans as well as the one that leads.
        await http_servers.serve_health(lambda: engine.manager.not_ready_reason, port, metrics=not secured),
        await http_servers.serve_plans(lambda: engine.preview, plan_port),
    ]
    if secured:
        serving.append(await http_servers.serve_metrics(*secured))
    code = 0
    try:
        await engine.run()
    except* asyncio.CancelledError:
        log.info("asked to stop; everything that was decided is in the API servers")
        if lease:
            await lease.give_back()
    except* LeadershipLost as lost:
        log.error("stopped writing, and ending for a fresh start: %s", lost.exceptions[0])
        code = 1
    finally:
        for server in serving:
            await server.cleanup()
        await client.close()
        await election.close()
    return code


def _holder_identity() -> str:
    """Whose Lease it is: the pod's name for people, and what tells this process from the one before it in the same pod."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"
