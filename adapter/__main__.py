"""`rayspan`: one command with one verb for each thing that it can do."""

import os
import sys

from adapter.cli import completion
from adapter.cli.commands.parser import build_parser

_EXIT_INTERRUPTED = 130  # what a shell gives a program that Ctrl-C ended
_EXIT_BROKEN_PIPE = (
    141  # and one, such as kubectl, that wrote to a pipe which nobody reads any more: `rayspan watch JOB | head -1`
)


def main() -> int:
    """Read the command line and run the verb; returns the exit code."""
    try:
        try:
            return _run_verb()
        finally:
            sys.stdout.flush()  # else what is left is written when nobody can catch what comes of it
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # Python writes once more at its end, and would tell of that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE


def _run_verb() -> int:
    if sys.argv[1:2] == [completion.COMPLETE_VERB]:
        return _print_completions(sys.argv[2:])
    given = build_parser(sys.argv).parse_args()
    code: int = given.run(given)
    return code


def complete() -> int:
    """Tell kubectl what may come next: the program kubectl_complete-rayspan, which kubectl runs with the words so far."""
    return _print_completions(sys.argv[1:])


def _print_completions(words: list[str]) -> int:
    sys.stdout.write(completion.render_completions(build_parser([""]), words))
    return 0


if __name__ == "__main__":
    sys.exit(main())
