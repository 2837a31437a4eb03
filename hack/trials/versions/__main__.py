"""`python -m hack.trials.versions`: for each pair of versions, brings up a lab, installs Rayspan and tries one gang.

Results go to docs/versions.json and docs/versions.md after each pair, so an interrupted run keeps them. It takes the
lab that RAYSPAN_LAB names (`make versions`: a second one beside that of the other tests), and takes it down in the end.
The status is 1 where a pair failed.
"""

import argparse
import datetime
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager

from hack.lab import startup, teardown
from hack.lab.base import lab as definition
from hack.lab.base import lock, sidebyside
from hack.lab.base.lab import Lab
from hack.lab.base.paths import STATE
from hack.lab.base.progress import LabError, step, told
from hack.lab.base.versions import RAY, Runs
from hack.lab.cluster import containerd
from hack.lab.images import images
from hack.testbed import install
from hack.trials.versions import course, report, rows
from hack.trials.versions.pairs import PAIRS, Pair
from hack.trials.versions.rows import Check, Row

_FAKE_NODES = 2  # for the part without Ray


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    return told(lambda: _run(asked))


def _run(asked: argparse.Namespace) -> int:
    chosen = [pair for pair in PAIRS if pair.name in asked.only] if asked.only else PAIRS
    if not asked.ray:  # a pair that differs in Ray alone would try nothing else
        chosen = [pair for pair in chosen if pair.ray == RAY]
    failed = 0
    try:
        for pair in () if asked.write else chosen:
            row = _tried(pair, ray=asked.ray)
            _keep(row)
            failed += bool(row.failed)
            print(f"{pair.name}: {row.failed or 'works'}", flush=True)
    finally:
        if not (asked.keep or asked.write):
            with _alone(), step("taking the lab down"):
                teardown.down()
    report.PAGE.write_text(report.page(rows.read(), course.ALL), encoding="utf-8")
    return 1 if failed else 0


def _tried(pair: Pair, *, ray: bool) -> Row:
    """One pair from nothing to its row. A failure is what came of it, and not the end of the others."""
    lab = Lab(workers=2, fake_nodes=_FAKE_NODES, versions=pair.versions)
    seen: dict[str, Runs] = {}
    checks: list[Check] = []
    failed = ""
    try:
        with _alone(), step(f"{pair.name}: {teardown.describe(lab)}"):
            startup.up(lab)
        _bring(pair.ray if ray else RAY)
        fleet = install.on_lab(manager_overlay=pair.overlay)
        seen.update(course.seen(fleet, lab))
        course.run(fleet, checks, ray=pair.ray if ray else "")
    except LabError as failure:
        print(failure, file=sys.stderr, flush=True)  # all of it, with what is known of the cause
        failed = report.sentence(str(failure))
    except Exception as fault:  # any exception: an earlier run's row is not valid any more
        traceback.print_exc()
        failed = report.sentence(f"{type(fault).__name__}: {fault}".removesuffix(": "))
    ran = pair.ray if course.SPANS in {check.what for check in checks} else ""
    return Row(pair.name, datetime.datetime.now(datetime.UTC).date().isoformat(), seen, tuple(checks), failed, ran)


def _bring(ray: str) -> None:
    """Bring an image with that Ray to all clusters; today's is there."""
    if ray != RAY:
        name = images.ray(ray)
        archive = images.archive_for(name)
        with _alone(), step(f"bringing {images.reference(name)}"):
            for cluster in definition.load().clusters:
                containerd.bring(cluster, name, archive)


def _keep(row: Row) -> None:
    """Put it in the place of the pair's last row; what is no pair any more goes."""
    known = {**rows.read(), row.pair: row}
    rows.write(known[pair.name] for pair in PAIRS if pair.name in known)
    report.PAGE.write_text(report.page(rows.read(), course.ALL), encoding="utf-8")


def _alone() -> AbstractContextManager[None]:
    return lock.held(STATE / "lock", "waiting for another command on the lab")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.trials.versions", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=[pair.name for pair in PAIRS], metavar="PAIR",
        help=f"these only, of {', '.join(pair.name for pair in PAIRS)}",
    )  # fmt: skip
    parser.add_argument("--without-ray", dest="ray", action="store_false", help="leave out the check with real Ray")
    parser.add_argument("--keep", action="store_true", help="leave the lab of the last pair up")
    parser.add_argument("--write", action="store_true", help="run nothing: write the page of what is kept")
    return parser


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
