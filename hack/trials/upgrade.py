"""`python -m hack.trials.upgrade --since REV`: checks that gangs of an earlier controller run on under this checkout's.

The earlier one is that of a commit, with the image and the manifests of its own checkout. A gang of fixed size and an
elastic one start under it. Then the checkout is installed over it, as docs/install.md says. No worker may restart or
run twice, and the controller must go on with what the earlier one wrote: an elastic job grows, a lost worker is
replaced, a new job starts, and a finished job leaves nothing behind. The status is 1 where one of these did not hold.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hack.lab.base import sidebyside
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError, step, told
from hack.testbed import deployment, install
from hack.testbed.clusters import Clusters, wait
from hack.testbed.stage import Stage
from hack.trials.chaos import invariants, snapshot
from hack.trials.sampler import CopySampler

_CPU = 8  # quota of each of two clusters, where a worker has one CPU: all jobs fit into both, and neither gang into one
_GANG, _ELASTIC, _NEW = "gang", "elastic", "new"
_SIZES = {_GANG: 6, _ELASTIC: 2}
_GROWN = 4
_PATIENCE = 120.0  # seconds for a step, as in the other trials: a few on an idle machine
_WELL = 60.0  # seconds for the books to be right again: the project's promise


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.trials.upgrade", description=__doc__)
    parser.add_argument("--since", required=True, metavar="REV", help="the commit of the earlier controller")
    asked = parser.parse_args(argv)
    return told(lambda: _run(asked.since))


def _run(since: str) -> int:
    deployment.on_lab(renew=False)
    with _checkout(since) as folder:
        fleet = install.on_lab(checkout=folder)
    with Stage(fleet, "upgrade", tuple(fleet.workers)[:2]) as stage:
        wrong = _course(fleet, stage)
    print(*(f"FAILED: {one}" for one in wrong), f"wrong after an upgrade from {since}: {len(wrong)}", sep="\n")
    return 1 if wrong else 0


def _course(fleet: Clusters, stage: Stage) -> list[str]:
    """Run the whole of it; returns sentences about what must not be."""
    stage.build(dict.fromkeys(stage.clusters, _CPU), policy={"strategy": "Spread"})
    stage.ray_cluster(_GANG, workers=_SIZES[_GANG])
    stage.ray_cluster(_ELASTIC, workers=_SIZES[_ELASTIC], elastic=2 * _GROWN)
    _until(stage, sum(_SIZES.values()), "all workers run under the earlier controller")
    before = _uids(stage)
    sampler = CopySampler([fleet.workers[name] for name in stage.clusters], stage.name)
    with sampler:
        begun, earlier = time.monotonic(), install.running(stage.manager)
        install.on_lab()
        if install.running(stage.manager) == earlier:
            print("NO UPGRADE WAS TRIED: both commits make the same image.", flush=True)
        wrong = _well(stage, _SIZES)
        print(f"all is well {time.monotonic() - begun:.0f} s after the upgrade began", flush=True)
        wrong += [f"{name} was restarted" for name, uid in before.items() if _uids(stage).get(name) != uid]
        wrong += _goes_on(stage, before)
    return [*wrong, *sampler.lives.doubled()]


def _goes_on(stage: Stage, before: dict[str, str]) -> list[str]:
    """Let everything happen once that a controller answers, to jobs that the earlier one started."""
    stage.scale(_ELASTIC, 0, _GROWN)
    workers = sum(_SIZES.values()) + _GROWN - _SIZES[_ELASTIC]
    _until(stage, workers, "the elastic job grows")
    cluster = stage.clusters[0]
    lost = next(copy["metadata"]["name"] for copy in stage.remote()[cluster] if copy["metadata"]["name"] in before)
    stage.fleet.workers[cluster].delete("pod", lost, stage.name)
    wait(lambda: before[lost] not in _uids(stage).values(), _PATIENCE, "a lost worker is given up")
    _until(stage, workers, "it is replaced")
    stage.ray_cluster(_NEW, workers=2)
    _until(stage, workers + 2, "a new job runs")
    wrong = _well(stage, {_GANG: _SIZES[_GANG], _ELASTIC: _GROWN, _NEW: 2})
    for name in (_GANG, _ELASTIC, _NEW):
        stage.manager.delete("raycluster", name, stage.name)
    wait(lambda: not stage.leftovers() and not stage.reserving(), _PATIENCE, "nothing is left behind")
    return wrong


def _until(stage: Stage, workers: int, what: str) -> None:
    with step(what):
        wait(lambda: stage.running(workers), _PATIENCE, what, lambda: snapshot.text(snapshot.take(stage, {})))


def _well(stage: Stage, sizes: dict[str, int]) -> list[str]:
    """The violations after a while, sentences."""
    deadline = time.monotonic() + _WELL
    while True:
        seen = snapshot.take(stage, sizes)
        found = [*invariants.never(seen), *invariants.findings(seen)]
        if not found or time.monotonic() > deadline:
            return [f"{one.kind}: {one.text}" for one in found]
        time.sleep(0.2)


def _uids(stage: Stage) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in stage.workers()}


@contextmanager
def _checkout(revision: str) -> Iterator[Path]:
    """A checkout of a commit, for a while."""
    folder = REPO / "build" / "upgrade"
    shutil.rmtree(folder, ignore_errors=True)
    _git("worktree", "prune")
    _git("worktree", "add", "--detach", str(folder), revision)
    try:
        yield folder
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _git(*words: str) -> None:
    safe = f"safe.directory={REPO}"  # for files of any owner
    done = subprocess.run(["git", "-c", safe, *words], cwd=REPO, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"git {' '.join(words)} failed: {done.stderr.strip()}")


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
