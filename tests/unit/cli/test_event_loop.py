"""Ctrl-C ends a subcommand between two turns of its event loop.

Each case runs a process, because only a main thread is interrupted.
"""

import subprocess
import sys

import pytest

# A library checks a future and then completes it; Ctrl-C arrives between the two.
_DURING_A_COMPLETION = """
    future = asyncio.get_running_loop().create_future()
    def complete():
        if not future.done():
            signal.raise_signal(signal.SIGINT)
            future.set_result(None)
    asyncio.get_running_loop().call_soon(complete)
    await future
    await asyncio.sleep(60)
"""
_WHILE_IT_CLEANS_UP = """
    asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
    try:
        await asyncio.sleep(60)
    finally:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        await asyncio.sleep(60)
"""
# SIGINT is Python's own: a shell that starts the tests in the background has it ignored.
_PROGRAM = """
import asyncio, signal
from adapter.cli import event_loop
signal.signal(signal.SIGINT, signal.{handler})
async def command():{body}
try:
    event_loop.run_command(command())
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("body", [_DURING_A_COMPLETION, _WHILE_IT_CLEANS_UP])
def test_ctrl_c_ends_a_command_without_a_traceback(body: str) -> None:
    words = [sys.executable, "-c", _PROGRAM.format(body=body, handler="default_int_handler")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_another_cancellation_is_no_interruption() -> None:
    body = "\n    asyncio.current_task().cancel()\n    await asyncio.sleep(60)\n"
    program = _PROGRAM.format(body=body, handler="default_int_handler")
    words = [sys.executable, "-c", program.replace("KeyboardInterrupt", "asyncio.CancelledError")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_a_command_in_the_background_is_not_interrupted() -> None:
    """A shell starts it with SIGINT ignored."""
    body = "\n    signal.raise_signal(signal.SIGINT)\n    await asyncio.sleep(0)\n    print('goes on')\n"
    program = _PROGRAM.format(body=body, handler="SIG_IGN")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")
