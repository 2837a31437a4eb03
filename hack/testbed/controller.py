"""Runs the controller under test, as a process with the rights of its own ServiceAccount, which can be killed.

It is the shipped controller except for its pace (pace.py). It may be killed right after the Nth action of a kind for a
namespace: the hook is in the writers, and the logic does not know it. It runs alone and takes part in no election
unless asked to: a killed leader would make the next one wait.

Each is forked from one process that has imported all that a controller needs, which takes a new interpreter seconds; a
test of crashes starts two. The deployed one imports for itself.
"""

import asyncio
import ctypes
import json
import multiprocessing
import os
import re
import signal
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from adapter import names
from adapter.actions import Action
from adapter.cli import controller
from adapter.objects.references import Reference
from adapter.objects.unstructured import Raw
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.controller import wiring
from adapter.shell.kube.client import Client
from adapter.shell.write import gang_writer
from adapter.shell.write.copies import JobCopies, ObjectCopier
from adapter.shell.write.execute import Executor
from adapter.shell.write.quotas import QuotaAggregator
from hack.lab.base.progress import LabError
from hack.testbed import install
from hack.testbed import pace as paces
from hack.testbed.clusters import Cluster
from hack.testbed.pace import QUICK
from hack.testbed.stage import Stage

KILLED = -signal.SIGKILL  # how multiprocessing tells of a process that was killed
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
_PATIENCE = 10.0  # seconds for an answer of its own
_FAULT = re.compile(
    r" failed( at .*)? by [A-Z]\w+( \(\d+ more like it since the last report\))?:$"
)  # adapter/shell/supervise.py
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__])
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy for the Internet knows no way to it


@dataclass(frozen=True)
class Words:
    """Start options of a controller: where it answers, its pace, and the action, if any, after which it dies."""

    port: int
    pace: str
    elect: bool
    kind: str = ""
    count: int = 0
    namespace: str = ""


class Controller:
    """A controller process against one manager cluster; it serves plans on `plan_port`.

    `pace`: its waits (pace.py). `elect`: it is one of several, and writes while it holds the Lease. `number`: tells
    those of one test apart, 0 or 1.
    """

    def __init__(
        self, manager: Cluster, folder: Path, *, pace: str = QUICK, elect: bool = False, number: int = 0
    ) -> None:
        self.manager, self._folder, self._pace, self._elect = manager, folder, pace, elect
        self._process: BaseProcess | None = None
        self._told = False  # whether its end was reported
        self.log = folder / "controller.log"
        self._process_id = folder / "process"  # for a reader that has not started it
        self.port = 20_000 + 4 * (os.getpid() % 2_500) + 2 * number
        self.plan_port = self.port + 1

    @classmethod
    def seen(cls, manager: Cluster, folder: Path, port: int) -> "Controller":
        """The controller that another process of this test run started with this folder and port; to be read and not
        ended.
        """
        found = cls(manager, folder)
        found.port, found.plan_port = port, port + 1
        return found

    def start(self, *, die_after: tuple[str, int, str] | None = None) -> None:
        """Start it; `die_after` is a kind of action, the ordinal of the last one it does, and the namespace of that."""
        self.log.touch()  # an early reader finds it empty
        words = Words(self.port, self._pace, self._elect, *(die_after or ()))
        self._process = _forks.Process(target=_run, args=(words, self._kubeconfig(), self.log), daemon=True)
        self._process.start()
        self._told = False
        self._process_id.write_text(str(self._process.pid))

    def check(self) -> None:
        """Raises LabError if it does not run; for readers that did not start it."""
        state = Path("/proc", self._process_id.read_text(), "stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            raise LabError(f"The controller ended by itself.\n{self.tail()}")

    def go_on(self) -> None:
        """Start it, unless it runs; if it ended by itself, the preceding test failed."""
        ended = self._process and self._process.exitcode
        if ended not in (None, KILLED):
            raise LabError(f"The controller ended by itself with {ended}.\n{self.tail()}")
        if self._process is None or ended is not None:
            self.start()

    def wait_for_death(self, timeout: float = 60) -> None:
        """Wait until the crash that was asked for has happened."""
        assert self._process is not None
        self._process.join(timeout)
        status = self._process.exitcode
        if status is None:
            raise LabError(f"The controller did not come to its crash point in {timeout:.0f} s.\n{self.tail()}")
        assert status == KILLED, f"ended with {status} instead of dying at its crash point\n{self.tail()}"

    def stop(self, sign: int = signal.SIGKILL) -> None:
        """End it; by default as a power cut would. Raises LabError if it had ended by itself unnoticed."""
        ended = self._process.exitcode if self._process else None
        if self._process and ended is None:
            self.send(sign)
            self._process.join(20)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
                raise LabError(f"The controller does not end by {signal.Signals(sign).name}.\n{self.tail()}")
        known, self._told = self._told, True
        if not known and ended not in (None, KILLED):
            raise LabError(f"The controller ended by itself with {ended}.\n{self.tail()}")

    def faults(self) -> list[str]:
        """Unexpected exceptions that it survived, as its log has them."""
        said = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return [line for line in said if _FAULT.search(line)]

    def send(self, sign: int) -> None:
        """Send it a signal that may not be its end."""
        assert self._process is not None and self._process.pid is not None
        with suppress(ProcessLookupError):  # it ended by itself, just now
            os.kill(self._process.pid, sign)

    def status(self) -> int | None:
        """Its exit code; None while it runs."""
        ended = self._process.exitcode if self._process else None
        self._told = self._told or ended is not None
        return ended

    @property
    def pid(self) -> int:
        """Its process, also for readers that did not start it."""
        return int(self._process_id.read_text())

    def ask(self, path: str) -> str:
        """Its answer at a path such as /readyz; empty while it does not answer."""
        try:
            return self._answer(path)
        except OSError:
            return ""

    def metrics(self) -> str:
        """Its /metrics; raises OSError while it does not answer."""
        return self._answer("/metrics")

    def metric(self, name: str, **labels: str) -> float:
        """The sum of its samples of a name with at least these labels; 0 without any."""
        samples = (one for family in text_string_to_metric_families(self.metrics()) for one in family.samples)
        return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())

    def leads(self) -> bool:
        """Whether it is the leader."""
        return "rayspan_leader 1.0" in self.ask("/metrics").splitlines()

    def _answer(self, path: str) -> str:
        with _direct.open(f"http://127.0.0.1:{self.port}{path}", timeout=_PATIENCE) as answer:
            return str(answer.read().decode())

    def tail(self, lines: int = 25) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def _kubeconfig(self) -> Path:
        """A kubeconfig with the ServiceAccount's token, so that a missing right shows here as in a deployment."""
        file = self._folder / "kubeconfig"
        if not file.exists():
            text = install.controller_kubeconfig(self.manager)
            file.touch(mode=0o600)
            file.write_text(text)
        return file


def dump(stage: Stage, running: Controller) -> str:
    """Diagnostics for when the gang `pi` of a stage does not go on."""
    pods = [
        f"{p['metadata']['name']} {p['status']['phase']} {p['metadata']['annotations'].get(names.SLOT_ANNOTATION)}"
        for p in stage.workers()
    ]
    return "\n".join([json.dumps(stage.placement("pi").get("status")), *pods, running.tail()])


@dataclass
class _Death:
    """The last action of the controller."""

    kind: str
    left: int
    namespace: str

    async def done(self, kind: str, what: object) -> None:
        """Something was written. Other tests' stages are still being cleared: what is done for them does not count."""
        if kind == self.kind and repr(self.namespace) in repr(what):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
                await asyncio.Event().wait()


def _mortal(death: _Death) -> dict[str, type]:
    """The engine's parts that write, dying right after the write that was named."""

    class MortalExecutor(Executor):
        async def execute(self, action: Action) -> None:
            await super().execute(action)
            await death.done(type(action).__name__, action)

    class MortalAggregator(QuotaAggregator):
        async def _record_event(self, raw: Raw, reason: str, text: str, *, warning: bool = False) -> None:
            if reason == "QuotaAggregated":  # it reports this right after the write
                await death.done("Aggregate", raw)
            await super()._record_event(raw, reason, text, warning=warning)

    class MortalCopier(ObjectCopier):
        async def _write_copy(
            self, cache: WorkerClusterCache, copies: JobCopies, reference: Reference, source: Raw, pod: Raw
        ) -> bool:
            written = await super()._write_copy(cache, copies, reference, source, pod)
            await death.done("Copy", pod)
            return written

    return {"Executor": MortalExecutor, "QuotaAggregator": MortalAggregator, "ObjectCopier": MortalCopier}


def _mortal_group(death: _Death) -> Callable[[Client, Raw], Awaitable[None]]:
    """A maker of PodGroups that dies right after the named one."""
    ensure = gang_writer.ensure_pod_group

    async def mortal(client: Client, body: Raw) -> None:
        await ensure(client, body)
        await death.done("PodGroup", body)

    return mortal


def die_with_starter() -> None:
    """End with the process that started this one, which may be killed: without the Lease it would write on.

    The parent of this process is the one that it was forked from, which ends when no process holds a certain pipe any
    more. The starter holds it, and so does each forked process unless it closes it.
    """
    parent, held = os.getppid(), vars(forkserver._forkserver)
    os.close(held["_forkserver_alive_fd"])
    held["_forkserver_alive_fd"] = None
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it was asked for
        os._exit(1)


def _run(words: Words, kubeconfig: Path, log: Path) -> None:
    """Run the controller in this process, of which nothing is left then."""
    die_with_starter()
    with log.open("ab") as told:
        for stream in (1, 2):
            os.dup2(told.fileno(), stream)
    os.environ["KUBECONFIG"] = str(kubeconfig)
    sys.exit(main(words))


def main(words: Words) -> int:
    """Run the controller at its pace, mortal if asked."""
    death = _Death(words.kind, words.count, words.namespace)
    vars(gang_writer).update(ensure_pod_group=_mortal_group(death))
    vars(wiring).update(_mortal(death))
    paces.keep(words.pace)
    return controller.main(words.port, words.port + 1, verbose=False, leader_elect=words.elect)
