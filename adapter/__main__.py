"""The command line `rayspan`: one command with many verbs."""

import os
import sys
from collections.abc import Iterable

from adapter.cli import completion
from adapter.cli.commands.parser import build_parser, parse_command_line

# The exit codes that a shell reports for Ctrl-C, and for a closed pipe, as in `rayspan watch JOB | head -1`.
_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141


def main() -> int:
    """Read the command line and run the verb; returns the exit code."""
    try:
        try:
            return _run_verb()
        finally:
            sys.stdout.flush()  # so that an error of the last write is caught below
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout again at exit, and would print the error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE


def _run_verb() -> int:
    if sys.argv[1:2] == [completion.COMPLETE_VERB]:
        return _print_completions(sys.argv[2:])
    arguments = parse_command_line(sys.argv)
    code: int = arguments.run(arguments)
    return code


def complete() -> int:
    """Print completions: the program kubectl_complete-rayspan, which kubectl runs with the words so far."""
    return _print_completions(sys.argv[1:])


def _print_completions(words: list[str]) -> int:
    sys.stdout.write(completion.render_completions(build_parser([""]), words, _read_names))
    return 0


def _read_names(kind: completion.CompletedKind, scope: completion.Scope) -> Iterable[str]:
    from adapter.cli import completed_names  # imports the client

    return completed_names.read_names(kind, scope)


if __name__ == "__main__":
    sys.exit(main())
