"""`rayspan`: one command with one verb for each thing that it can do."""

import sys

from adapter.cli import completion
from adapter.cli.verbs.parser import parser

_INTERRUPTED = 130  # what a shell gives a program that Ctrl-C ended


def main() -> int:
    """Read the command line and run the verb; returns the exit code."""
    if sys.argv[1:2] == [completion.ASK]:
        return _complete(sys.argv[2:])
    given = parser(sys.argv).parse_args()
    try:
        code: int = given.run(given)
        return code
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return _INTERRUPTED


def complete() -> int:
    """Tell kubectl what may come next: the program kubectl_complete-rayspan, which kubectl runs with the words so far."""
    return _complete(sys.argv[1:])


def _complete(words: list[str]) -> int:
    sys.stdout.write(completion.answer(parser([""]), words))
    return 0


if __name__ == "__main__":
    sys.exit(main())
