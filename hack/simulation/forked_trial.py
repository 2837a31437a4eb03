"""Trials in processes of their own, forked from one that has imported the product on virtual time.

A fork costs milliseconds, an import of the product a second. The parent runs no trial, so each begins alike.
"""

import gc
import math
import os
import selectors
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

import orjson

from hack.simulation import virtualtime

ANY = "any"  # stands for each rule
real_time = monotonic  # bound before virtual time is installed
_PATIENCE = 1_800.0  # seconds for one trial


@dataclass(frozen=True, slots=True)
class Request:
    """A trial to run: its seed and length, `only` some of its events, the rule at whose violation it ends, and the
    seconds after which it ends."""

    seed: int
    hours: float
    only: Sequence[int] | None = None
    until: str = ""
    longest: float = math.inf


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a trial's process."""

    seed: int
    hours: float = 0.0
    digest: str = ""
    steps: int = 0
    requests: int = 0
    cpu: float = 0.0
    events: tuple[int, ...] = ()
    violations: tuple[tuple[str, str], ...] = ()  # rule and text
    fault: str = ""  # why there is no outcome

    @property
    def rules(self) -> list[str]:
        return [rule for rule, _ in self.violations]


def prepare() -> None:
    """Install virtual time and import the product; comes before the first trial."""
    virtualtime.install()
    from hack.simulation import report, trial  # noqa: F401  # the children have them

    gc.collect()
    gc.freeze()


def run_each(requests: Iterable[Request], at_once: int) -> Iterator[Result]:
    """Run trials, some at once; yields each result as soon as it is there."""
    waiting, running = iter(requests), dict[int, _Child]()
    with selectors.DefaultSelector() as pipes:
        try:
            while True:
                while len(running) < at_once and (request := next(waiting, None)):
                    child = _Child(request)
                    running[child.pipe] = child
                    pipes.register(child.pipe, selectors.EVENT_READ)
                if not running:
                    return
                for key, _ in pipes.select(1.0):
                    if not running[key.fd].read():
                        pipes.unregister(key.fd)
                        yield running.pop(key.fd).end()
                for child in [one for one in running.values() if one.is_overdue]:
                    child.kill()
        finally:
            for child in running.values():
                child.kill()
                child.end()


def run_one(request: Request) -> Result:
    """Run one trial."""
    return next(run_each([request], 1))


class _Child:
    """A forked process that runs one trial and writes its outcome to a pipe."""

    def __init__(self, request: Request) -> None:
        self._request, self._written, self._end = request, bytearray(), real_time() + _PATIENCE
        self.pipe, other_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self.pipe)
            _run_and_exit(request, other_end)
        os.close(other_end)

    @property
    def is_overdue(self) -> bool:
        return real_time() > self._end

    def read(self) -> bool:
        """Read what is written; False at the end."""
        chunk = os.read(self.pipe, 2**16)
        self._written += chunk
        return bool(chunk)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def end(self) -> Result:
        """Wait for its end, and return the result."""
        os.close(self.pipe)
        _, status = os.waitpid(self._pid, 0)
        try:
            outcome = orjson.loads(self._written)
        except ValueError:
            return Result(self._request.seed, fault=f"it ended with {status}: {self._written[-2_000:].decode()}")
        violations = tuple((rule, text) for rule, text in outcome["violations"])
        return Result(
            self._request.seed, outcome["hours"], outcome["digest"], outcome["steps"], outcome["requests"],
            outcome["cpu"], tuple(outcome["events"]), violations,
        )  # fmt: skip


def _run_and_exit(request: Request, pipe: int) -> None:
    """Run a trial and end this process, whatever happens: nothing of its parent may go on in it."""
    code = 1
    try:
        from hack.simulation import report, trial

        outcome = trial.run(request.seed, request.hours, request.only, until=request.until, longest=request.longest)
        _write(pipe, report.as_json(outcome).encode())
        code = 0
    except BaseException as error:
        _write(pipe, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)


def _write(pipe: int, text: bytes) -> None:
    with open(pipe, "wb") as file:
        file.write(text)
