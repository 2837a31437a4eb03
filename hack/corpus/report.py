"""Writes docs/compatibility.md from the samples and the recorded answers. Pure but for the page's place.

No name or time of a run is in it, so that a run without a difference changes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from adapter import names
from hack.corpus import judge
from hack.corpus.answers import VERSIONS, Answers, Refusal
from hack.corpus.arguments import NOT_ARGUED, argument_of
from hack.corpus.judge import Verdict
from hack.corpus.samples import KUBERAY, OURS, SHAPES, Sample
from hack.lab.base.paths import REPO

PAGE: Final = REPO / "docs" / "compatibility.md"
_HEADER: Final = f"""\
# Compatibility: which Ray jobs run

This page is generated. `make compatibility` asks real clusters and writes it; `python -m hack.corpus --recorded` writes
it from the answers in [compatibility.json](compatibility.json). Do not edit it.

Each sample is judged twice:

- **As it is.** Its file has a queue name and no other change. No WorkerCluster names anything.
- **With naming.** An administrator wrote the lines that Rayspan's messages ask for: names in a WorkerCluster's
  `spec.pods` ([pods.md](pods.md#what-exists-there)), and the label `{names.JOB_DEFAULTS_LABEL}` on the LocalQueue
  ([workloads.md](workloads.md#a-queue-that-adds-the-lines)). The file is the same.

Real servers answer. The manager's API server (Kubernetes {VERSIONS["kubernetes"]}) with Kueue {VERSIONS["kueue"]} takes
or refuses the job in a queue, and the WorkerCluster with its names. KubeRay {VERSIONS["kuberay"]} makes the worker
pods. They are rewritten for a worker cluster (`PodIP`), and its API server takes or refuses them in a dry run. Nothing
runs: images, devices and drivers are not tried. A RayService is judged by its RayClusters, where Kueue and KubeRay are
set as [serving.md](serving.md) says. A RayCronJob is judged by its RayJob.

| Outcome | Meaning |
|---|---|
| {judge.ACCEPTED} | Kueue takes the job, Rayspan dispatches it, and the worker cluster takes its workers. |
| {judge.NO_WORKERS} | Kueue takes the job. It has no workers of its own, so nothing is dispatched. |
| {judge.REFUSED} | The job does not start. `{names.EventReason.REJECTED}` is Rayspan's reason code; then no quota is \
held in worker clusters. Every other code is the API server's, for itself or for Kueue's webhook. |
| {judge.INVALID} | The API server or KubeRay refuses the file without Kueue and Rayspan, too. |
| {judge.STUCK} | A fault of Rayspan: KubeRay adds something that the worker cluster does not have. |
| {judge.BROKEN} | A fault of Rayspan: the worker cluster refuses the worker, or the worker calls the manager. |

The numbers lead to the [messages](#messages). The last column has Rayspan's warnings at `kubectl apply`.
"""
_KUBERAY_TREE: Final = f"https://github.com/ray-project/kuberay/tree/{VERSIONS['kuberay']}/ray-operator"
_TITLES: Final = {SHAPES: "What people bring", OURS: "Our cases"}


@dataclass(frozen=True)
class Row:
    """A sample, and what becomes of it as it is and with naming."""

    sample: Sample
    plain: Verdict
    named: Verdict


def rows(samples: Iterable[Sample], by_sample: Mapping[str, Answers]) -> list[Row]:
    """Judge the samples; raises KeyError for one that was never tried."""
    return [
        Row(
            sample,
            judge.verdict(sample, by_sample[sample.key], named=False),
            judge.verdict(sample, by_sample[sample.key], named=True),
        )
        for sample in samples
    ]


def page(all_rows: Sequence[Row]) -> str:
    """Write the whole page."""
    notes = list(dict.fromkeys(text for row in all_rows for text in _texts(row)))
    numbers = {text: number for number, text in enumerate(notes, 1)}
    sections = (section(title, list(group), numbers) for title, group in groupby(all_rows, _title))
    messages = "".join(f"{number}. {_escaped(text)}\n" for text, number in numbers.items())
    return f"{_HEADER}\n{_counts(all_rows)}\n{_left(all_rows)}\n{''.join(sections)}\n## Messages\n\n{messages}"


def _counts(all_rows: Sequence[Row]) -> str:
    kuberay = [row for row in all_rows if row.sample.source in KUBERAY]
    shapes = [row for row in all_rows if row.sample.source == SHAPES]
    ours = [row for row in all_rows if row.sample.source == OURS]
    groups = [
        ("KubeRay's samples and tests", kuberay), ("what people bring", shapes),
        ("**both; the goal is 95 % with naming**", [*kuberay, *shapes]), ("our cases, made to be hard", ours),
        ("all", all_rows),
    ]  # fmt: skip
    lines = [_count_row(name, group) for name, group in groups]
    return (
        "## Counts\n\n| Samples | For KubeRay | Run as they are | Run with naming | Warned |\n|---|---|---|---|---|\n"
        f"{''.join(lines)}\n"
        f"*For KubeRay* leaves out what KubeRay alone does not run. *Run* counts {judge.ACCEPTED} and "
        f"{judge.NO_WORKERS}.\n"
    )


def _count_row(name: str, group: Sequence[Row]) -> str:
    valid = [row for row in group if row.named.outcome != judge.INVALID]
    plain, named = sum(row.plain.runs for row in valid), sum(row.named.runs for row in valid)
    warned = sum(bool(row.named.warnings) for row in valid)
    cells = [
        f"{len(group)} {name}",
        f"{len(valid)}",
        *(_share(runs, len(valid)) for runs in (plain, named)),
        f"{warned}",
    ]
    return f"| {' | '.join(cells)} |\n"


def _share(runs: int, total: int) -> str:
    return f"{runs} ({100 * runs / total:.0f} %)" if total else "0"


def share_with_naming(all_rows: Iterable[Row]) -> float:
    """Of KubeRay's samples and the shapes that KubeRay alone runs, the share that runs with naming."""
    of_others = [row for row in all_rows if row.sample.source != OURS and row.named.outcome != judge.INVALID]
    return sum(row.named.runs for row in of_others) / len(of_others)


def _left(all_rows: Sequence[Row]) -> str:
    """The samples that do not run with naming, with the reason why that is right."""
    by_argument: dict[str, list[str]] = {}
    for row in all_rows:
        if not row.named.runs:
            by_argument.setdefault(argument_of(row.sample), []).append(_short_name(row.sample))
    lines = [f"| {', '.join(samples)} | {argument} |\n" for argument, samples in by_argument.items()]
    head = "## What does not run with naming\n\n| Samples | Why that is right, or what is missing |\n|---|---|\n"
    return f"{head}{''.join(lines)}"


def not_argued(all_rows: Iterable[Row]) -> list[str]:
    """The samples that do not run with naming and have no argument."""
    return [row.sample.key for row in all_rows if not row.named.runs and argument_of(row.sample) == NOT_ARGUED]


def section(title: str, group: Sequence[Row], numbers: Mapping[str, int]) -> str:
    """The table of one source."""
    head = "| Sample | As it is | With naming | Named | Warnings |\n|---|---|---|---|---|\n"
    return f"\n## {title}\n\n{head}{''.join(_line(row, numbers) for row in group)}"


def _line(row: Row, numbers: Mapping[str, int]) -> str:
    named = ", ".join(f"`{name}`" for name in row.named.names)
    warnings = ", ".join(str(numbers[text]) for text in row.named.warnings)
    cells = [_name(row.sample), _outcome(row.plain, numbers), _outcome(row.named, numbers), named, warnings]
    return f"| {' | '.join(cells)} |\n"


def _outcome(verdict: Verdict, numbers: Mapping[str, int]) -> str:
    reasons = ", ".join(f"`{reason.code}` {numbers[reason.message]}" for reason in verdict.reasons)
    return f"{verdict.outcome}: {reasons}" if reasons else verdict.outcome


def _texts(row: Row) -> Iterator[str]:
    reasons: tuple[Refusal, ...] = (*row.plain.reasons, *row.named.reasons)
    yield from (reason.message for reason in reasons)
    yield from row.named.warnings


def _name(sample: Sample) -> str:
    if sample.about:
        return _cell(f"{sample.about} ({_short_name(sample)})")
    return _short_name(sample)


def _short_name(sample: Sample) -> str:
    name = sample.name.removesuffix(".yaml")
    return f"[{name}](../{sample.source}/{sample.name})" if sample.about else f"`{name}`"


def _title(row: Row) -> str:
    source = row.sample.source
    where = source.removeprefix("kuberay: ")
    return _TITLES.get(source) or f"KubeRay's [{where}]({_KUBERAY_TREE}/{where})"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("|", "\\|")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
