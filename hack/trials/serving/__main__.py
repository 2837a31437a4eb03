"""`python -m hack.trials.serving`: a RayService with real Ray serves from two worker clusters through disruptions.

It is upgraded, then one of the clusters is cut off, and then drained. The output is the failed requests of each stage
beside the promise, and how long the addresses of the cut cluster got requests. The status is 1 where a bound was
missed.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from adapter import names
from hack.lab import faults
from hack.lab.base import lab as definition
from hack.lab.base import sidebyside
from hack.lab.base.lab import Lab
from hack.lab.base.progress import LabError, told
from hack.testbed import deployment, quotas, rayservice
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.rayjob import NAMESPACE
from hack.testbed.rayservice import SECONDS, RayService
from hack.testbed.reader import Raw
from hack.trials.serving import load, report
from hack.trials.serving.load import Load, Second
from hack.trials.serving.report import AFTER_WINDOW, HEALED, WINDOW, Clock, Stage

STAYS, GOES = "east", "west"  # the one that is always there, and the one that is cut off and drained
_NAME = "trial-serving"
_GRACE = 60  # seconds, as in the sample: a stopped worker serves on until its replica runs elsewhere
_SETTLED = 5  # seconds of load with equal results
_PAUSE = 0.5
# Requests of a worker of the sample: millicores of its init container, which KubeRay sets (kuberay:
# controllers/ray/common/pod.go), whatever Ray itself does; and Mi.
_MILLICORES, _MEMORY = 200, 512
# A starting release takes what the serving one leaves, as it does on nodes of its own. With equal requests two
# processors do not hold two releases and 50 requests a second, and the lab's own servers starve.
_CPU = {"one": "200m", "two": "40m", "three": "40m"}


@dataclass
class Found:
    """The results so far."""

    stages: list[Stage] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    seconds: list[Second] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str, least: float | None = None) -> Iterator[float]:
        """Count what is asked meanwhile; yields when it began."""
        begun = time.time()
        _tell(f"{name} …")
        try:
            yield begun
        finally:
            # Requests of the last second are sent while the next stage begins.
            self.stages.append(Stage(name, begun, time.time() - 1, least))
            _tell(f"{name}: {time.time() - begun:.0f} s")


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    return told(lambda: _run(asked))


def _run(asked: argparse.Namespace) -> int:
    fleet, found, wrong = deployment.on_lab(renew=asked.renew), Found(), list[str]()
    try:
        with rayservice.dispatched(fleet), rayservice.led_straight(fleet.manager):
            _serve(RayService(fleet, _NAME), definition.load(), asked, found)
    except LabError as trouble:  # results so far are reported all the same
        wrong.append(str(trouble))
    wrong += report.missed(found.stages, found.seconds, found.clocks)
    print("", *report.troubles(found.stages, found.seconds), sep="\n")
    print("\n" + report.table(found.stages, found.seconds, found.clocks) + "\n")
    print(*report.lines(found.stages, found.seconds, found.clocks), sep="\n")
    print(*(f"FAILED: {one}" for one in wrong), f"bounds missed: {len(wrong)}", sep="\n", flush=True)
    return 1 if wrong else 0


def _serve(service: RayService, lab: Lab, asked: argparse.Namespace, found: Found) -> None:
    try:
        with _apply(service, "one", room_for=1):
            service.wait_until_ready()
            wait(lambda: len(service.led()) == 2, SECONDS, "both workers get requests straight", service.dump)
        with load.on(service, asked.rate) as asking:
            try:
                _stages(service, lab, asking, asked, found)
            finally:
                found.seconds = asking.seconds()
    finally:
        service.delete()


def _stages(service: RayService, lab: Lab, asking: Load, asked: argparse.Namespace, found: Found) -> None:
    asking.wait("both clusters answer", _SETTLED, lambda last: load.zones(last) == {STAYS, GOES}, SECONDS)
    with found.stage("upgrade", 1.0) as begun:
        _replaced(service, asking, "two", room_for=2)
        time.sleep(max(0.0, begun + asked.upgrade - time.time()))
    _cut(service, lab, asked.cut, found)
    with found.stage("back"):  # replacements in the one cluster stay there, so another release spreads again
        _replaced(service, asking, "three", room_for=3)
        wait(lambda: len(service.led()) == 2, SECONDS, "both workers get requests straight", service.dump)
    with found.stage("drain", 1.0):
        _drain(service.fleet, asking, service)
    time.sleep(load.TIMEOUT + 1)  # until the last second of it has ended


def _replaced(service: RayService, asking: Load, release: str, *, room_for: int) -> None:
    """Upgrade to a release, until it alone is there and answers from both clusters."""
    with _apply(service, release, room_for=room_for):
        asking.wait("the new release answers", _SETTLED, lambda last: load.releases(last) == {release}, SECONDS)
    wait(lambda: len(service.ray_clusters()) == 1, SECONDS, "the old one is gone", service.dump)
    asking.wait("both clusters answer", _SETTLED, lambda last: load.zones(last) == {STAYS, GOES}, SECONDS)


def _cut(service: RayService, lab: Lab, seconds: float, found: Found) -> None:
    """Cut one cluster off from the others, its API and its pods alike, in silence."""
    silent = {pod["status"].get("podIP") for pod in _workers(service.fleet.workers[GOES])}
    wait(lambda: silent <= set(service.led()), SECONDS, "its worker gets requests straight", service.dump)
    begun = time.time()
    faults.cut(lab, lab.cluster(GOES), scope="all", way="drop")
    try:
        while silent & set(service.led()) and time.time() < begun + seconds:
            time.sleep(_PAUSE)
        found.clocks.append(Clock("addresses of the silent cluster were in the slices", time.time() - begun, WINDOW))
        while _ready(service.fleet.workers[STAYS]) < 2 and time.time() < begun + seconds:
            time.sleep(_PAUSE)
        found.clocks.append(Clock("the lost replica was back, in the other cluster", time.time() - begun, HEALED))
        time.sleep(max(0.0, begun + seconds - time.time()))
    finally:
        faults.heal(lab)
        ended = time.time()
        # The last requests of a second may have been sent after the link was healed, and are answered: none of them
        # counts for a cut.
        found.stages.append(Stage("cut: health window", begun, begun + WINDOW))
        found.stages.append(Stage("cut: afterwards", begun + WINDOW, ended - 1, AFTER_WINDOW))


def _drain(fleet: Clusters, asking: Load, service: RayService) -> None:
    """Drain the cluster; all of its workers move to the other one."""
    cluster = fleet.workers[GOES]
    _draining(fleet.manager, True)
    try:
        wait(lambda: not _workers(cluster), SECONDS, f"no worker is left in {GOES}", service.dump)
        wait(lambda: len(service.led()) == 2, SECONDS, "both workers get requests straight", service.dump)
        asking.wait(f"{STAYS} alone answers", _SETTLED, lambda last: load.zones(last) == {STAYS}, SECONDS)
    finally:
        _draining(fleet.manager, False)


def _draining(manager: Cluster, value: bool) -> None:
    patch = json.dumps({"spec": {"draining": value}})
    manager.kubectl("patch", "workercluster", GOES, "--type=merge", "-p", patch)


def _workers(cluster: Cluster) -> list[Raw]:
    return cluster.items("pods", NAMESPACE, f"{names.MANAGER_LABEL}")


def _ready(cluster: Cluster) -> int:
    """Without those that end: they are of the release before."""
    there = (pod for pod in _workers(cluster) if not pod["metadata"].get("deletionTimestamp"))
    return sum(condition(pod, "Ready").get("status") == "True" for pod in there)


@contextmanager
def _apply(service: RayService, release: str, *, room_for: int) -> Iterator[None]:
    """Submit a release while the staying cluster has capacity for so many workers, present ones included.

    The flexible group goes to the other cluster.
    """
    room = {"cpu": f"{room_for * _MILLICORES}m", "memory": f"{room_for * _MEMORY}Mi"}
    with quotas.given(service.fleet.workers[STAYS], room):
        service.apply(release, lambda cluster: _written(cluster, _CPU[release]))
        yield


def _written(cluster: Raw, cpu: str) -> None:
    """The second group may run anywhere, so that it can leave the drained cluster; workers have time for a handover."""
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        group["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    for group in cluster["workerGroupSpecs"]:
        group["template"]["spec"]["terminationGracePeriodSeconds"] = _GRACE
        if group["groupName"] == GOES:
            group["groupName"] = "anywhere"
            group["template"]["metadata"] = {}


def _tell(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.trials.serving", description=__doc__)
    parser.add_argument("--rate", type=int, default=50, metavar="N", help="requests a second (default 50)")
    parser.add_argument("--upgrade", type=float, default=180.0, metavar="SECONDS",
                        help="how long the stage of the upgrade is at least (default 180)")  # fmt: skip
    parser.add_argument("--cut", type=float, default=200.0, metavar="SECONDS",
                        help="how long a cluster is cut off (default 200)")  # fmt: skip
    parser.add_argument("--as-is", dest="renew", action="store_false",
                        help="use the controller that is deployed, not the checkout's")  # fmt: skip
    return parser


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
