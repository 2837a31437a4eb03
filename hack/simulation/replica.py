"""One replica of the controller: the real engine in a task, which is started, stopped, crashed and started again."""

import asyncio
import contextvars
import random
import ssl
from functools import cache

from adapter.membership import ApiServerAddress
from adapter.shell.controller.engine import Engine
from adapter.shell.controller.lease import LeaderElector, LeadershipLost
from adapter.shell.kube.client import Client
from adapter.shell.kube.credentials import Credentials
from hack.simulation.link import PROCESS, Process
from hack.simulation.trace import Trace
from hack.simulation.virtualtime import NODE, Node

MANAGER = "manager"


@cache
def _tls() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def _no_headers() -> dict[str, str]:
    return {}


def _login() -> Credentials:
    return Credentials(ApiServerAddress(f"http://{MANAGER}", "", "", "", True), _tls(), _no_headers)


class Replica:
    """A process that a kubelet starts again whenever it ends."""

    def __init__(self, name: str, trace: Trace, draw: random.Random) -> None:
        self.name, self.node = name, Node(name)
        self.engine: Engine | None = None
        self.elector: LeaderElector | None = None
        self._trace, self._draw, self._starts = trace, draw, 0
        self._process = Process(name)
        self._task: asyncio.Task[None] | None = None
        self._is_wanted = False

    @property
    def process(self) -> Process:
        return self._process

    @property
    def leads(self) -> bool:
        """Whether it holds the Lease and decides."""
        return bool(self._task and self.engine and self.engine._leading)

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._task is not None:
            return
        self._is_wanted = True
        self._starts += 1
        self._process = Process(self.name, identity=f"{self.name}_{self._starts}")
        context = contextvars.copy_context()
        context.run(PROCESS.set, self._process)
        context.run(NODE.set, self.node)
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(self._process), context=context)
        self._trace.note(f"{self.name} starts")

    async def _run(self, process: Process) -> None:
        lease_client = Client(_login())
        self.elector = LeaderElector(lease_client, process.identity)
        client = Client(_login(), may_write=self.elector.may_write)
        self.engine = engine = Engine(client, self.elector)
        try:
            await engine.run()
        except* asyncio.CancelledError:
            if not process.is_dead:
                await self.elector.give_back()
        except* LeadershipLost as error:
            self._trace.note(f"{self.name} ends: {error.exceptions[0]}")
        finally:
            await client.close()
            await lease_client.close()
            if not process.is_dead:
                self._ended()

    def _ended(self) -> None:
        self._task = self.engine = self.elector = None
        if self._is_wanted:
            asyncio.get_running_loop().call_later(self._draw.uniform(1.0, 4.0), self.start)

    def stop(self) -> None:
        """Have it ended in order, and started again."""
        if self._task is not None:
            self._trace.note(f"{self.name} is stopped")
            self._task.cancel()

    def crash(self, down: float) -> None:
        """Have it end at once, wherever it is: nothing is sent any more. It starts again after `down` seconds."""
        if self._task is None:
            return
        self._trace.note(f"{self.name} crashes for {down:.0f} s")
        self._process.is_dead = True
        self._process.on_write = None
        self._task.cancel()
        self._task = self.engine = self.elector = None
        asyncio.get_running_loop().call_later(down, self.start)
