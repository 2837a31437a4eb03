"""Runs jobs in parallel, and ends them all when one is interrupted.

A failure is raised when all have ended: a caller that holds a lock for them must not release it before. An interrupt
ends the programs that they wait for, and is raised soon after. It does not order jobs: dependent jobs must not run in
parallel.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import FrameType
from typing import Never

from hack.lab.base import commands

_LOOK = 0.5  # seconds; a signal that comes just before a thread goes to sleep does not wake it
_TIDYING = 10.0  # seconds for threads to end once their programs have; they check every fifth of one


def run(works: Sequence[Callable[[], None]]) -> None:
    """Do all of it at once, and return when all is done."""
    pool = ThreadPoolExecutor(max_workers=max(1, len(works)))
    # Created here, so that one whose start is interrupted is known.
    jobs: list[Future[None]] = [Future() for _ in works]
    try:
        for job, work in zip(jobs, works, strict=True):
            pool.submit(_do, job, work)
        while wait(jobs, timeout=_LOOK).not_done:
            pass
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        commands.stop()
        wait([job for job in jobs if not job.cancel()], timeout=_TIDYING)
        raise
    pool.shutdown()
    for job in jobs:
        job.result()


def _do(job: Future[None], work: Callable[[], None]) -> None:
    if not job.set_running_or_notify_cancel():
        return
    try:
        work()
        job.set_result(None)
    except BaseException as failure:
        job.set_exception(failure)


def interruptible() -> None:
    """Let an end from outside (`kill`, a closed terminal, a CI's time limit) be what Ctrl-C is."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _as_interrupt)


def leave(said: str) -> Never:
    """Exit at once after an interrupt, with its status: a normal exit would wait for threads that still wait for
    clusters.
    """
    commands.stop()
    sys.stdout.flush()
    print(said, file=sys.stderr, flush=True)
    os._exit(130)


def _as_interrupt(number: int, frame: FrameType | None) -> Never:
    raise KeyboardInterrupt
