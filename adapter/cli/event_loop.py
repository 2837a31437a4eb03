"""Runs a subcommand's coroutine, and ends it on Ctrl-C.

`asyncio.run` cancels in the signal handler, between any two instructions. A future that is cancelled between a
library's check and its `set_result` makes the library fail with a traceback.
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

OutcomeT = TypeVar("OutcomeT")


def run_command(command: Coroutine[Any, Any, OutcomeT]) -> OutcomeT:
    """Run a coroutine in a new event loop and return its result.

    Ctrl-C cancels it in a turn of the loop of its own; a second Ctrl-C stops the loop. Both raise KeyboardInterrupt.
    """
    interruption = _Interruption()
    try:
        return asyncio.run(_run_interruptibly(command, interruption))  # noqa: TID251
    except asyncio.CancelledError:
        if interruption.requested:
            raise KeyboardInterrupt from None
        raise


class _Interruption:
    """The Ctrl-C of one command."""

    def __init__(self) -> None:
        self.requested = False

    def interrupt(self, task: asyncio.Task[Any]) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        task.cancel()


async def _run_interruptibly(command: Coroutine[Any, Any, OutcomeT], interruption: _Interruption) -> OutcomeT:
    task = asyncio.current_task()
    assert task is not None
    is_main = threading.current_thread() is threading.main_thread()  # others receive no signals
    if is_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as a shell has it for `rayspan ... &`
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interruption.interrupt, task)
    return await command
