"""What did a command say, on a machine where it may take so long that it tells what it waits for?"""

import re
import subprocess

# adapter/cli/common.py tells so after two seconds.
_WAITS = re.compile(r"^Waiting for .* \.\.\.\n", re.MULTILINE)


def without(done: "subprocess.CompletedProcess[str]") -> "subprocess.CompletedProcess[str]":
    """The same, without the lines of progress on standard error."""
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout, _WAITS.sub("", done.stderr))
