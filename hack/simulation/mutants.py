"""Puts known faults back, by the patches of `hack.mutants`, and says which of them trials find.

Each fault has a copy of the checkout. Its scenario runs there first, then drawn trials, until one breaks a promise.
BLIND names the faults that no trial can see, and why.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hack.lab.base.progress import step
from hack.mutants import patch as patches
from hack.mutants import trial
from hack.mutants.patch import Patch

TRIALS = 40  # for each fault
FOUND, MISSED, BLIND_WORD, UNSURE = "found", "MISSED", "not visible", "NO VERDICT"
_PATIENCE = 7_200.0  # seconds for the trials of one fault
_ONE_TENANT = "each job here is valid, of one tenant, and names no object of his"
_NO_PEOPLE = "nobody here asks for a worker's logs, commands or ports"
_NO_VALIDATION = "the worker's template here is a plain one, and the manager's gate is there"
_RESYNC = "a resync finds it within a minute, and no promise here is for less"
BLIND = {
    "clone-is-the-next-leader": "no trial restores the manager from a backup, so there is one manager",
    "deaf-to-copies": _RESYNC,
    "decides-blind": "a leader without the manager ends within ten seconds, because its Lease does",
    "deleted-placement-begins-again": "observed shares are deleted first: it needs one that is not observed yet, and a "
    "plan with other counts",
    "leads-and-asks-nobody-who-was-there": "a pod that is older than the lead counts as well, unless the "
    "manager's clock is put back in between",
    "lease-counts-from-the-answer": "a renewal has five seconds, so a leader still stops before the next one may lead; "
    "only clocks of different speed show it",
    "number-given-again-is-believed": "a slot that another pod holds is given up by a second rule, too (slots.taken)",
    "share-forgets-its-resource-names": "no WorkerCluster here gives resources other names",
    "write-without-the-lease": "connections open at once here, and a process that was paused looks at its Lease first",
    "deaf-to-heads": _RESYNC,
    "deaf-to-room": _RESYNC,
    "deaf-to-who-queues-behind": "nobody here queues for the manager's quota",
    "foreign-secret-copied": _ONE_TENANT,
    "grant-for-a-namesake": _NO_PEOPLE,
    "grant-without-end": _NO_PEOPLE,
    "host-path-passes": _NO_VALIDATION,
    "label-is-trusted": _ONE_TENANT,
    "link-beneath-a-writable-path": _NO_VALIDATION,
    "named-for-another-namespace": _ONE_TENANT,
    "pod-before-its-secrets": _ONE_TENANT,
    "preempts-for-nothing": "no queue here lets a share preempt others",
    "profile-chooses-the-secret": "no ClusterProfile is written here",
    "stranger-is-believed": "no kubeconfig here leads to another cluster later",
    "webhook-that-is-passed-by": _NO_VALIDATION,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What trials found of one fault."""

    patch: Patch
    word: str
    text: str


def run(names: Sequence[str], trials: int | None, workers: int | None = None) -> int:
    """Put faults back, all that are not in BLIND if none is named; prints each verdict at once and a table at the end,
    and returns the exit code.
    """
    chosen = [patch for patch in patches.chosen(patches.every(), names, "all") if names or patch.name not in BLIND]
    blind = [] if names else [Verdict(patch, BLIND_WORD, BLIND[patch.name]) for patch in patches.every()
                              if patch.name in BLIND]  # fmt: skip
    with trial.copied() as base, ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        verdicts = [*pool.map(lambda patch: _put_back(patch, base, trials or TRIALS), chosen), *blind]
    print(report(verdicts), flush=True)
    return 1 if any(verdict.word in (MISSED, UNSURE) for verdict in verdicts) else 0


def _put_back(patch: Patch, base: Path, trials: int) -> Verdict:
    """Run trials in a copy with one fault until one breaks a promise."""
    tree = base.with_name(patch.name)
    shutil.copytree(base, tree)
    try:
        patches.apply(patch, tree)
        with step(f"{trials} trials with {patch.name}"):
            verdict = _find_by_scenario(patch, tree) or judge(patch, trials, _find(tree, trials))
        print(f"{verdict.word} {patch.name}: {verdict.text}", flush=True)
        return verdict
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def _find_by_scenario(patch: Patch, tree: Path) -> Verdict | None:
    """What the scenario of a fault shows; None if it has none, or breaks no promise."""
    if patch.name not in scenario_names():
        return None
    ended = _run(tree, "--scenario", patch.name, "--json")
    try:
        broken = json.loads(ended.stdout.splitlines()[-1])["violations"]
    except (ValueError, IndexError):
        return Verdict(patch, UNSURE, ended.stderr[-500:])
    return Verdict(patch, FOUND, f"its scenario: {broken[0][1].strip()}") if broken else None


def scenario_names() -> Collection[str]:
    """The names, without an import of the product, which is not on virtual time here."""
    text = (Path(__file__).parent / "scenarios.py").read_text(encoding="utf-8")
    return set(re.findall(r'^    "([a-z-]+)": Scenario\(', text, re.MULTILINE))


def _find(tree: Path, trials: int) -> subprocess.CompletedProcess[str]:
    return _run(tree, "--find", str(trials), "--seed", "0", "--workers", "1", "--json")


def _run(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    argv = [sys.executable, "-m", "hack.simulation", *words]
    return subprocess.run(argv, cwd=tree, env=environment, capture_output=True, text=True,
                          timeout=_PATIENCE, check=False)  # fmt: skip


def judge(patch: Patch, trials: int, ended: subprocess.CompletedProcess[str]) -> Verdict:
    """Say what `--find` told of a fault."""
    try:
        found = json.loads(ended.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return Verdict(patch, UNSURE, ended.stderr[-500:])
    if found is None:
        return Verdict(patch, MISSED, f"{trials} trials break no promise")
    return Verdict(patch, UNSURE if found["fault"] else FOUND, f"seed {found['seed']}: {found['text']}")


def report(verdicts: Sequence[Verdict]) -> str:
    """A table."""
    rows = [(verdict.word, verdict.patch.name, verdict.text) for verdict in verdicts]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{word.ljust(widths[0])}  {name.ljust(widths[1])}  {text}".rstrip() for word, name, text in rows]
    count = sum(verdict.word == FOUND for verdict in verdicts)
    return "\n".join([*lines, f"{count} of {len(verdicts)} faults found"])
