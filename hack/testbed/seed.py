"""The seed of a draw: a requested or a new one; and the command that repeats the draw.

Nothing else is drawn here: callers make their random numbers from the seed.
"""

import secrets
import shlex
import sys
from collections.abc import Sequence

HELP = "what they are drawn from (default: a new seed, which is told)"
_MOST = 1_000_000  # short enough to be read out, and too many for two runs to coincide
_OPTION = "--seed"


def drawn(asked: int | None) -> int:
    """The seed that was asked for, or a new one."""
    return secrets.randbelow(_MOST) if asked is None else asked


def again(program: str, argv: Sequence[str] | None, seed: int) -> str:
    """The command that draws the same again: as it was called (`argv` as `main` has it), with the seed."""
    words = _others(sys.argv[1:] if argv is None else argv)
    return shlex.join([".venv/bin/python", "-m", program, *words, _OPTION, str(seed)])


def tell(seed: int, command: str) -> None:
    """Print at the start what is drawn, so that it can be repeated."""
    print(f"seed {seed}; again: {command}", flush=True)


def _others(words: Sequence[str]) -> list[str]:
    """All words but the seed."""
    kept: list[str] = []
    skipped = False
    for word in words:
        if skipped or word == _OPTION or word.startswith(f"{_OPTION}="):
            skipped = word == _OPTION and not skipped
        else:
            kept.append(word)
    return kept
