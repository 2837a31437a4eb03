"""Records what happened to a cluster's pods, in order: for states too brief to poll, such as a failed pod.

It is `kubectl get pods --watch` into a file: the order is the API server's own. A watch that ends early has missed
events, so its record is rejected.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.lab.base.progress import LabError
from hack.testbed.clusters import Cluster, program, wait
from hack.testbed.rayjob import NAMESPACE

Story = Callable[[], list[list[str]]]


@contextmanager
def watched(cluster: Cluster, selector: str, file: Path, *fields: str) -> Iterator[Story]:
    """Follow existing and new pods.

    Gives a function for the record so far: of each event its type (ADDED, MODIFIED, DELETED) and these fields of the
    pod, named as in jsonpath; an absent field is empty. Only the last field may be free text, with any character but a
    newline.
    """
    columns = "".join(f"|{{.object{field}}}" for field in fields)  # kubectl makes blanks of tabs
    words = ("-n", NAMESPACE, "get", "pods", "-l", selector, "--watch", "--output-watch-events")
    command = [program(), f"--kubeconfig={cluster.kubeconfig}", *words, "-o", f'jsonpath={{.type}}{columns}{{"\\n"}}']
    with file.open("w") as out, subprocess.Popen(command, stdout=out) as process:
        try:
            wait(lambda: file.stat().st_size, 10, "the watch has begun")
            yield lambda: _story(process, file, len(fields))
            _follows(process)
        finally:
            process.terminate()


def _story(process: subprocess.Popen[bytes], file: Path, fields: int) -> list[list[str]]:
    _follows(process)
    return [line.split("|", fields) for line in _whole_lines(file)]


def _follows(process: subprocess.Popen[bytes]) -> None:
    """Raise LabError if the watch has ended by itself."""
    if process.poll() is not None:
        raise LabError(
            f"The watch of pods ended by itself with status {process.returncode}: what came after is missed."
        )


def _whole_lines(file: Path) -> list[str]:
    return file.read_text().rpartition("\n")[0].splitlines()
