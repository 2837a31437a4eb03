"""What runs in pods? The hook that drains a Ray node, and the two halves of a probe: each a file of its own, sent as text.

A program imports nothing of ours, for a pod has only its image's Python, and nobody imports a program, for that would run it.
What is sent is the file without its docstring. The files are read here, once, and this is the only file that the pure rooms use
and that reads anything: a program's text is a part of the code like any constant, and it comes from where the code comes from.
"""

from importlib.resources import files
from typing import Final


def _program_text(name: str) -> str:
    """The text of a program as a pod gets it: all that follows its docstring."""
    return (files(__name__) / f"{name}.py").read_text(encoding="utf-8").partition('"""\n\n')[2]


DRAIN_HOOK: Final = _program_text("drain_hook")
PROBE_SERVER: Final = _program_text("probe_server")
PROBE_CLIENT: Final = _program_text("probe_client")
