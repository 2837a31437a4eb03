"""What happened to a cluster's pods, and in which order? For what stands too briefly to be looked up, such as a pod that failed.

It is `kubectl get pods --watch` into a file: the order is the API server's own. A watch that ends before it is told to has missed
what came after it, so its story is refused.
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
    """Follow the pods that are there and those to come.

    Gives what tells the story so far: of each event its type (ADDED, MODIFIED, DELETED) and these fields of the pod, which are
    named as in jsonpath; one that is not there is empty. Only the last one may be somebody's text, with any character but a
    newline in it.
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
