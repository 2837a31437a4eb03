"""The world around the controllers in the fleet's bench: API servers in this process, and players of the others.

Controllers are processes of their own. The players of Kueue, KubeRay and the kubelets act at once or after an arbitrary
moment: only what a controller spends is measured.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from adapter import names
from adapter.objects.unstructured import Raw, is_condition_true, key_of, label
from adapter.shell.kube import resources
from hack.bench import fleetinput, fleetpod
from hack.bench.fleetapi import Cluster, Servers
from hack.bench.fleetgang import Gang
from hack.bench.fleetinput import MANAGER, Size
from hack.bench.fleetprocess import SHIPPED, Numbers
from hack.lab.base.progress import LabError

PATIENCE = 400.0  # seconds for any wait
_POLL = 0.25
_QUIET = 4  # polls in a row in which a process reconciled nothing
STARTS_IN = 0.2  # seconds from a remote pod's creation until it runs
_AT_ONCE = 200  # pods that KubeRay makes or deletes before others get a turn


@dataclass(slots=True)
class Process:
    """A controller."""

    _process: asyncio.subprocess.Process
    _at: Path
    _log: Path

    async def ask(self, for_: bytes = b"\n") -> Numbers:
        """Its numbers since the last call; `for_` a resync, on request."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._at)
        except ConnectionError:
            raise LabError(f"A controller ended.\n{self._tail()}") from None
        writer.write(for_)
        told = await reader.read()
        writer.close()
        return Numbers(**json.loads(told))

    async def until(
        self, done: Callable[[], bool] = lambda: True, *, looks: int = 0, others: int = 0, quiet: bool = True
    ) -> Numbers:
        """What it spends until a condition holds, it had so many reconciles of pods and `others`, and, on request, is
        idle.
        """
        found, still = await self.ask(), 0
        try:
            async with asyncio.timeout(PATIENCE):
                while not (
                    done() and found.looks >= looks and found.others >= others and (still >= _QUIET or not quiet)
                ):
                    await asyncio.sleep(_POLL)
                    more = await self.ask()
                    still = 0 if more.looks + more.others > 2 else still + 1
                    found += more
        except TimeoutError:
            raise LabError(
                f"A controller did not come to its end in {PATIENCE:.0f} s: {found}.\n{self._tail()}"
            ) from None
        if found.faults:
            raise LabError(f"A controller met faults of its own.\n{self._tail()}")
        return found

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    def kill(self) -> None:
        """End it in this moment."""
        self._process.kill()

    async def end(self) -> None:
        """Have it ended, however it stands."""
        if self._process.returncode is None:
            self.kill()
        await self._process.wait()


class World:
    """The API servers of a fleet, and the players around them."""

    def __init__(self, size: Size, fresh: int = 0, *, starts_in: float = STARTS_IN) -> None:
        """`fresh`: the workers of one more gang. `starts_in`: seconds; without them no remote pod is seen before it
        runs.
        """
        self.size, self._fresh, self._starts_in = size, fresh, starts_in
        self.clusters = {name: Cluster(name) for name in (MANAGER, *size.names)}
        self.gangs: list[Gang] = []
        self.made: dict[str, int] = dict.fromkeys(size.names, 0)  # remote pods that controllers made
        self._servers = Servers(self.clusters)
        self._folder = tempfile.TemporaryDirectory(prefix="fleet-")
        self._processes: list[Process] = []

    async def __aenter__(self) -> Self:
        await self._servers.__aenter__()
        self.gangs = fleetinput.fill(self.size, self.clusters, self._servers.url, self._fresh)
        for name in self.size.names:
            self.clusters[name].listen(resources.PODS, self._copy)
            if not self._starts_in:
                self.clusters[name].admit(resources.PODS, fleetpod.ran)
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            await process.end()
        await self._servers.__aexit__()
        self._folder.cleanup()

    async def controller(self, *, shipped: bool = False) -> Process:
        """Start one; `shipped` if its times are to be those that are shipped (fleetprocess.py)."""
        folder = Path(self._folder.name)
        config, number = folder / "kubeconfig", len(self._processes)
        config.write_text(self.login())
        at, log = folder / f"{number}.sock", folder / f"{number}.log"
        command = [sys.executable, "-m", "hack.bench.fleetprocess", str(at), *([SHIPPED] if shipped else [])]
        environment = {**os.environ, "KUBECONFIG": str(config), "no_proxy": "127.0.0.1"}
        with log.open("wb") as said:
            started = await asyncio.create_subprocess_exec(*command, env=environment, stdout=said, stderr=said)
        self._processes.append(process := Process(started, at, log))
        async with asyncio.timeout(PATIENCE):
            while not at.exists():
                await asyncio.sleep(0.02)
                if started.returncode is not None:
                    raise LabError(f"A controller did not start.\n{process._tail()}")
        return process

    def login(self) -> str:
        """The kubeconfig by which its manager is reached."""
        return fleetinput.kubeconfig(self._servers.url, MANAGER)

    @property
    def manager(self) -> Cluster:
        return self.clusters[MANAGER]

    def run(self, gang: Gang) -> None:
        """Have a gang's workers as they are when all of them have run for long."""
        for cluster, pod, copy in gang.running():
            self.manager.put(resources.PODS, pod)
            self.clusters[cluster].put(resources.PODS, copy)

    async def create(self, gang: Gang) -> None:
        """Have KubeRay make a gang's workers."""
        for number in range(gang.workers):
            self.manager.put(resources.PODS, gang.gated(number))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0.05)

    async def end(self, gang: Gang) -> None:
        """Have a gang's job end: Kueue says so, and KubeRay deletes what it made."""
        work = gang.workload
        over = {"type": names.FINISHED, "status": "True", "reason": "JobFinished", "message": ""}
        status = {**work["status"], "conditions": [*work["status"]["conditions"], over]}
        self.manager.put(resources.WORKLOADS, {**work, "status": status})
        for number, pod in enumerate(self.workers(gang, MANAGER)):
            self.manager.remove(resources.PODS, key_of(pod))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0.05)

    def workers(self, gang: Gang, cluster: str) -> list[Raw]:
        """A gang's pods in the manager, or its copies in a worker cluster."""
        return [
            pod for pod in self.clusters[cluster].all(resources.PODS) if label(pod, names.PLACEMENT_LABEL) == gang.name
        ]

    def any_made(self) -> bool:
        """Whether a controller has made a copy."""
        return any(self.made.values())

    def runs(self, gang: Gang) -> bool:
        """Whether the manager's pods of a gang say that they run."""
        return all((pod.get("status") or {}).get("phase") == "Running" for pod in self.workers(gang, MANAGER))

    def is_gone(self, gang: Gang) -> bool:
        """Whether nothing of a gang is left in worker clusters."""
        shares = (self.clusters[name].all(resources.WORKLOADS) for name in gang.counts)
        left = any(label(share, names.PLACEMENT_LABEL) == gang.name for found in shares for share in found)
        return not left and not any(self.workers(gang, name) for name in gang.counts)

    def lose(self, gang: Gang, many: int) -> list[Raw]:
        """Remove so many remote pods of a gang at once, as lost nodes would; returns their manager pods."""
        found = [(cluster, key_of(copy)) for cluster in gang.counts for copy in self.workers(gang, cluster)][:many]
        for cluster, key in found:
            self.clusters[cluster].remove(resources.PODS, key)
        pods = {key_of(pod): pod for pod in self.workers(gang, MANAGER)}
        return [pods[key] for _, key in found]

    def connected(self) -> Iterator[bool]:
        """For each WorkerCluster whether it is reported as reachable."""
        return (is_condition_true(raw, names.CONNECTED) for raw in self.manager.all(resources.WORKER_CLUSTERS))

    def silence(self, *, silent: bool) -> None:
        """Cut all worker clusters off, or mend that."""
        for name in self.size.names:
            self.clusters[name].silent = silent

    def _copy(self, cluster: Cluster, copy: Raw) -> None:
        """Have a copy run in a moment, unless it does already."""
        self.made[cluster.name] += 1
        if not self._starts_in:
            return
        run = fleetpod.ran(copy)
        asyncio.get_running_loop().call_later(self._starts_in, cluster.put, resources.PODS, run)
