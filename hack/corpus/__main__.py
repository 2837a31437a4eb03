"""`python -m hack.corpus`: remake docs/compatibility.md, its answers and the recorded pods, on the lab.

`make compatibility` is this. With `--recorded` it remakes the page only, from the answers that are there, without a
cluster.
"""

import argparse
import sys
from collections.abc import Sequence

from adapter.shell.kube.client import ApiError, Unreachable
from hack.corpus import answers, ask, golden, report, samples
from hack.lab.base.progress import LabError
from hack.testbed import clusters


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.corpus", description=__doc__)
    parser.add_argument("--recorded", action="store_true", help="ask no cluster; use docs/compatibility.json")
    try:
        if not parser.parse_args(argv).recorded:
            _record()
    except (LabError, ApiError, Unreachable) as failure:
        print(failure, file=sys.stderr)
        return 1
    return _write_page()


def _record() -> None:
    seen = ask.run(clusters.of_lab())
    answers.FILE.write_text(answers.write_text({entry.sample.key: entry.answers for entry in seen}), encoding="utf-8")
    for file, text in golden.recorded(seen).items():
        file.write_text(text, encoding="utf-8")


def _write_page() -> int:
    """Write the page, and report the samples without an argument."""
    rows = report.rows(samples.read(), answers.read_text(answers.FILE.read_text(encoding="utf-8")))
    report.PAGE.write_text(report.page(rows), encoding="utf-8")
    print(f"{report.share_with_naming(rows):.1%} of KubeRay's samples and of what people bring run with naming.")
    for key in report.not_argued(rows):
        print(f"hack/corpus/arguments.py has no line for {key}", file=sys.stderr)
    return 1 if report.not_argued(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
