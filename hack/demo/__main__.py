"""`python -m hack.demo`: from nothing to one RayJob over two worker clusters, and back to empty clusters.

With `--network islands` the clusters do not reach each other, and the job's nodes join through the relay.

The lab stays up. Status 0 means that all of it was seen: job SUCCEEDED, result good, workers in two clusters, nothing
left. It hides no failure: the job of a failed demo stays for inspection, and the next demo removes it.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hack.demo import cast, evidence, islands, job, report, watch
from hack.lab import startup
from hack.lab.base import lab as definition
from hack.lab.base import lock, sidebyside
from hack.lab.base.lab import Lab
from hack.lab.base.paths import STATE
from hack.lab.base.progress import LabError, step
from hack.testbed import install
from hack.testbed.clusters import Clusters
from hack.testbed.reader import Refused, Unreachable


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.demo", description=__doc__)
    parser.add_argument(
        "--network", choices=["flat", definition.ISLANDS], default="flat", help="of the clusters (default: flat)"
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="write what it shows, for asciinema, if it works")
    given = parser.parse_args(argv)
    return _recorded(given.record, given.network) if given.record else _demo(given.network)


def _recorded(file: Path, network: str) -> int:
    recorder = cast.Recorder(sys.stdout, time.monotonic)
    with contextlib.redirect_stdout(recorder):
        code = _demo(network)
    if code == 0:
        file.write_text(recorder.text("Rayspan: one RayJob over two worker clusters"), encoding="utf-8")
    return code


def _demo(network: str) -> int:
    begun = time.monotonic()
    try:
        _lab_up(network)
        fleet = install.on_lab()
        if network == definition.ISLANDS:
            with step("relay: its component, and the WorkerClusters"):
                islands.prepare(fleet)
        wrong = run_job(fleet)
    except LabError as failure:
        wrong = [str(failure)]
    except KeyboardInterrupt:
        sidebyside.leave("\nInterrupted; the next demo goes on from here, `make lab-down` removes the lab.")
    if wrong:
        return _failed(wrong)
    print(f"\nThe demo worked, in {time.monotonic() - begun:.0f} s. {_next()}")
    return 0


def _lab_up(network: str) -> None:
    """The lab that is there, if the demo can run on it; the usual one otherwise."""
    usual, there = Lab(network=network), definition.find()
    fits = there is not None and there.workers >= 2 and replace(there, workers=2, fake_nodes=0) == usual
    lab = there if there is not None and fits else usual
    with lock.held(STATE / "lock", "waiting for another command on the lab"), step("lab: clusters mgr, east and west"):
        startup.up(lab)


def run_job(fleet: Clusters) -> list[str]:
    """Run the job and show it; returns what was wrong, in sentences. It needs any two worker clusters."""
    if job.find(fleet.manager):
        with step("remove the job of an earlier demo"):
            job.remove(fleet)
    print(f"\nkubectl apply -f {job.SAMPLE}   (a stock RayJob, with one label: its queue)")
    begun = time.monotonic()
    job.submit(fleet.manager)
    seen = watch.until_ended(fleet)
    print(f"The job has ended after {time.monotonic() - begun:.1f} s.\n")
    wrong = _shown(fleet, seen)
    if not wrong:
        _removed(fleet, seen)
    return wrong


def _shown(fleet: Clusters, seen: watch.Seen) -> list[str]:
    log = _log(fleet, seen)
    found = report.result(log)
    rows = report.nodes(found, seen)
    print(f"What the job printed:\n{evidence.indented(report.own_output(log))}\n")
    if rows:
        print(f"Where its Ray nodes were:\n{evidence.indented(report.table(rows))}\n")
    return report.faults(seen, found, rows, set(fleet.workers))


def _log(fleet: Clusters, seen: watch.Seen) -> str:
    """The submitter's: KubeRay keeps its pod until the RayJob goes."""
    done = [pod for pod in seen.pods[fleet.manager.name] if job.SUBMITTER_OF in (pod["metadata"].get("labels") or {})]
    try:
        return "".join(fleet.manager.log(pod["metadata"]["name"], job.NAMESPACE) for pod in done)
    except (Unreachable, Refused) as failure:
        return f"(no log: {failure})"


def _removed(fleet: Clusters, seen: watch.Seen) -> None:
    print(f"kubectl delete -f {job.SAMPLE}")
    begun = time.monotonic()
    counts = job.remove(fleet, seen.gangs)
    print(f"After {time.monotonic() - begun:.1f} s there is left of it:")
    for cluster, kinds in counts.items():
        print(f"  {cluster:<6} " + ", ".join(f"{number} {kind}" for kind, number in kinds.items()))


def _next() -> str:
    return f"""The lab stays up. What to try next:
  {evidence.LAB} kubectl mgr apply -f {job.SAMPLE}
  {evidence.LAB} kubectl mgr get rayjobs,workloads,placements -o wide
  {evidence.LAB} kubectl east get pods --watch
  {evidence.LAB} cut east       # a real partition; `heal` ends it
It goes away with `make lab-down`."""


def _failed(wrong: list[str]) -> int:
    print("\nThe demo FAILED.", file=sys.stderr)
    for sentence in wrong:
        print(f"  {sentence}", file=sys.stderr)
    print(evidence.text(), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
