"""`rayspan`: one command with one verb for each thing that it can do."""

import os
import sys

from adapter.cli import completion
from adapter.cli.commands.parser import parser

_INTERRUPTED = 130  # what a shell gives a program that Ctrl-C ended
_UNREAD = (
    141  # and one, such as kubectl, that wrote to a pipe which nobody reads any more: `rayspan watch JOB | head -1`
)


def main() -> int:
    """Read the command line and run the verb; returns the exit code."""
    try:
        try:
            return _run()
        finally:
            sys.stdout.flush()  # else what is left is written when nobody can catch what comes of it
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return _INTERRUPTED
    except BrokenPipeError:
        # Python writes once more at its end, and would tell of that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _UNREAD


def _run() -> int:
    if sys.argv[1:2] == [completion.ASK]:
        return _complete(sys.argv[2:])
    given = parser(sys.argv).parse_args()
    code: int = given.run(given)
    return code


def complete() -> int:
    """Tell kubectl what may come next: the program kubectl_complete-rayspan, which kubectl runs with the words so far."""
    return _complete(sys.argv[1:])


def _complete(words: list[str]) -> int:
    sys.stdout.write(completion.answer(parser([""]), words))
    return 0


if __name__ == "__main__":
    sys.exit(main())
