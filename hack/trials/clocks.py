"""Sets the wall clock of running processes ahead or back, as if the clock of their machine were set.

A process asks the kernel for the time in its vDSO, a piece of code that the kernel maps into every process. Here that
code is changed in the memory of one process, of which the kernel then makes a copy: all other processes keep theirs.
So the product is not changed, no container is restarted, and Go's programs are reached as well as Python's. The
monotonic clock does not move, as with a real step. A program that starts later has the true time.

Not reached are `time(2)` and `gettimeofday(2)`, by which OpenSSL judges certificates. It is for x86-64.
"""

import ctypes
import functools
import platform
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hack.lab.base.progress import LabError
from hack.trials import restore

# Asks the kernel, and adds the seconds that follow to CLOCK_REALTIME, which is clock 0.
_ADDING = bytes.fromhex(
    "b8e4000000"  # mov $228, %eax         clock_gettime
    "0f05"  # syscall
    "85ff"  # test %edi, %edi
    "750a"  # jne 1f
    "488b0d06000000"  # mov seconds(%rip), %rcx
    "48010e"  # add %rcx, (%rsi)
    "c3"  # 1: ret
    "6690"  # nop                          seconds begins at a multiple of eight
)
_SECONDS = struct.Struct("<q")
_JUMP = struct.Struct("<Bi")  # to an address that is relative to the next instruction
_JUMP_CODE = 0xE9
_PATIENCE = 5.0  # seconds until no thread is at the place that changes: each is there for nanoseconds
_NAME = "[vdso]"


@dataclass(frozen=True)
class _Code:
    """The vDSO as the kernel maps it: where clock_gettime begins in it, its first bytes, and space at the end."""

    entry: int
    first: bytes
    space: int

    @property
    def jump(self) -> bytes:
        return _JUMP.pack(_JUMP_CODE, self.space - self.entry - _JUMP.size)


def set_ahead(processes: Iterable[int], seconds: int) -> int:
    """Set the clocks of processes ahead of the machine's, or back for a negative number; returns how many were set.

    Zero sets them right. A process that ends meanwhile is left out.
    """
    return sum(_set_one(process, seconds) for process in processes)


def _set_one(process: int, seconds: int) -> bool:
    base = _mapped(process)
    if base is None:
        return False
    code = _code()
    with (
        suppress(FileNotFoundError, ProcessLookupError),
        Path(f"/proc/{process}/mem").open("r+b", buffering=0) as memory,
    ):
        if seconds:
            _write(memory, base + code.space, _ADDING + _SECONDS.pack(seconds))
        wanted = code.jump if seconds else code.first
        present = _read(memory, base + code.entry, len(wanted))
        if present and present != wanted:
            _exchange(process, memory, base + code.entry, wanted)
        return bool(present)
    return False


def _exchange(process: int, memory: BinaryIO, address: int, code: bytes) -> None:
    """Write code while the process stands still, and no thread of it is in the middle of these bytes."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        with restore.frozen(process):
            if all(at <= address or at >= address + len(code) for at in _positions(process)):
                _write(memory, address, code)
                return
        if time.monotonic() > deadline:
            raise LabError(f"Process {process} is always reading its clock, which cannot be set then.")


def _positions(process: int) -> Iterator[int]:
    """The addresses at which the threads of a process stand."""
    for thread in Path(f"/proc/{process}/task").glob("*/syscall"):
        yield int(thread.read_text(encoding="utf-8").split()[-1], 16)


def _mapped(process: int) -> int | None:
    """Where a process has its vDSO; None for one that has ended."""
    try:
        lines = Path(f"/proc/{process}/maps").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((int(line.partition("-")[0], 16) for line in lines if line.endswith(_NAME)), None)


@functools.cache
def _code() -> _Code:
    """Read this process's own vDSO, which is the same in every process; raises LabError where it cannot be used."""
    if platform.machine() != "x86_64":
        raise LabError(f"Clocks of processes can be set on x86_64, and this machine is {platform.machine()}.")
    (line,) = (one for one in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines() if one.endswith(_NAME))
    base, end = (int(text, 16) for text in line.split()[0].split("-"))
    symbol = ctypes.CDLL("linux-vdso.so.1").__vdso_clock_gettime
    entry = (ctypes.cast(symbol, ctypes.c_void_p).value or 0) - base
    space = end - base - len(_ADDING) - _SECONDS.size
    if any(ctypes.string_at(base + space, end - base - space)):
        raise LabError("This kernel's vDSO has no space for a clock that can be set.")
    return _Code(entry, ctypes.string_at(base + entry, _JUMP.size), space)


def _read(memory: BinaryIO, address: int, count: int) -> bytes:
    memory.seek(address)
    return memory.read(count)


def _write(memory: BinaryIO, address: int, content: bytes) -> None:
    memory.seek(address)
    memory.write(content)
