"""The command line `rayspan VERB`, or `kubectl rayspan VERB` when kubectl runs it as a plugin."""

import argparse
import os
from collections.abc import Sequence

from adapter import __version__
from adapter.cli.commands import access_commands, fleet_commands, job_commands, membership_commands, program_commands

_PLUGIN_NAME = "kubectl-rayspan"


def parse_command_line(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the program's name and its arguments; exits with code 2 if they are wrong.

    The words after the first `--` of `exec` are the user's command. argparse would drop a second `--` from them.
    """
    parser, words, command = build_parser(argv), list(argv[1:]), list[str]()
    if words[:1] == ["exec"] and "--" in words:
        end = words.index("--")
        words, command = words[:end], words[end + 1 :]
    arguments = parser.parse_args(words)
    if arguments.verb == "exec":
        arguments.words += command
        if not arguments.words:
            parser.error("exec: no command; write it after --, as in `exec POD -- ls`")
    return arguments


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for `words`: the program's name and its arguments."""
    parser = argparse.ArgumentParser(
        prog="kubectl rayspan" if os.path.basename(words[0]) == _PLUGIN_NAME else "rayspan",
        description="Run one RayCluster across several Kubernetes clusters.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for module in (job_commands, access_commands, fleet_commands, membership_commands, program_commands):
        module.add(verbs)
    for word in words[1:2]:  # hidden verbs are added only when they run: argparse's error messages list all verbs
        if word in program_commands.HIDDEN_VERBS:
            program_commands.HIDDEN_VERBS[word](verbs)
    return parser
