"""The programs that run in pods, each a file that is sent as text: the drain hook, a probe's halves, the relay's hook.

A program imports nothing of ours, because a pod has only the Python of its image. No module imports a program, because
the import would run it. The docstring of the file is not sent. The text is a constant of the code, so pure packages may
use this module although it reads files.
"""

from importlib.resources import files
from typing import Final


def _program_text(name: str) -> str:
    return (files(__name__) / f"{name}.py").read_text(encoding="utf-8").partition('"""\n\n')[2]


DRAIN_HOOK: Final = _program_text("drain_hook")
PROBE_SERVER: Final = _program_text("probe_server")
PROBE_CLIENT: Final = _program_text("probe_client")
RELAY_HOOK: Final = _program_text("relay_hook")
