"""What is the whole command line: `rayspan VERB`, which is `kubectl rayspan VERB` where kubectl found it?"""

import argparse
import os
from collections.abc import Sequence

from adapter import __version__
from adapter.cli.commands import access_commands, fleet_commands, job_commands, membership_commands, program_commands

_PLUGIN_NAME = "kubectl-rayspan"


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for a command line: the program's name and the words after it."""
    made = argparse.ArgumentParser(
        prog="kubectl rayspan" if os.path.basename(words[0]) == _PLUGIN_NAME else "rayspan",
        description="Spans one RayCluster over many Kubernetes clusters.",
    )
    made.add_argument("--version", action="version", version=__version__)
    verbs = made.add_subparsers(dest="verb", required=True, metavar="VERB")
    for some in (job_commands, access_commands, fleet_commands, membership_commands, program_commands):
        some.add(verbs)
    for hidden in words[1:2]:  # else argparse would name them among the verbs when one is mistyped
        if hidden in program_commands.HIDDEN_VERBS:
            program_commands.HIDDEN_VERBS[hidden](verbs)
    return made
