"""How does a verb ask the manager cluster as its user: the options of the login, a wait that is told, trouble in one sentence.

The rights are the user's own, by the kubeconfig that kubectl would take.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from adapter.objects import specs
from adapter.shell.kube.client import ApiError

T = TypeVar("T")

DONE, TROUBLE, USAGE = 0, 1, 2  # exit codes
PATIENCE_SECONDS = 2.0  # before a person wonders whether anything happens
UNKNOWN_USER = "The manager cluster does not know you: log in again, or check your kubeconfig's credentials."


def add_login(verb: argparse.ArgumentParser) -> None:
    """Add the options that say which cluster is the manager."""
    verb.add_argument("--context", default="", help="context of the kubeconfig: the manager cluster")
    verb.add_argument(
        "--kubeconfig", default="", help="path of the kubeconfig (default: $KUBECONFIG, else ~/.kube/config)"
    )


async def told(question: Coroutine[Any, Any, T], text: str) -> T:
    """Wait for an answer, and say so once it takes long."""
    hint = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, lambda: print(text, file=sys.stderr))
    try:
        return await question
    finally:
        hint.cancel()


def duration(text: str) -> timedelta:
    """Read an option such as 30s; argparse tells what is wrong with it."""
    try:
        return specs.parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def whom(refusal: ApiError) -> str:
    """The option of `kubectl create rolebinding` for who was refused, as far as the API server told."""
    user = re.search(r'User "([^"]+)"', refusal.message)
    return f"--user='{user[1]}'" if user else "--group=GROUP"


def complain(sentence: str, code: int) -> int:
    """Say on the standard error what is wrong; returns the exit code."""
    print(sentence, file=sys.stderr)
    return code


Row = Sequence[str]


def columns(rows: Sequence[Row]) -> str:
    """The rows as lines, each ended, with their cells below each other; the first row is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return as_lines(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def as_lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
