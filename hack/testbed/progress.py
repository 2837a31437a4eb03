"""A command's output without its progress hints, which appear on a slow machine."""

import re
import subprocess

# adapter/cli/common.py prints the hint after two seconds.
_WAITS = re.compile(r"^Waiting for .* \.\.\.\n", re.MULTILINE)


def without(done: "subprocess.CompletedProcess[str]") -> "subprocess.CompletedProcess[str]":
    """The same, without the lines of progress on standard error."""
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout, _WAITS.sub("", done.stderr))
