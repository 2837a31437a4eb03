"""Do Ray's own libraries run over two clusters as docs/workloads.md says: Data, Tune and Train, and two of them through a cluster's loss?

Each runs a sample as it is. What is measured there is in that document.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hack.lab import faults
from hack.lab.base.lab import Lab
from hack.testbed import rayspec
from hack.testbed.clusters import Clusters
from hack.testbed.rayjob import SAMPLE, Job, removed

# Ray's libraries do not know of us: that tasks with labels run where they must is asked by e2e/test_rayjob.py, what becomes of a
# cluster that is cut off by e2e/faults/test_cuts.py.
pytestmark = pytest.mark.long

WORKERS = 4
WITHIN = 0.95  # of all rows are used in the zone in which they were made
TRIALS = 8
SLOW = "--seconds 0.6"  # that scoring a block takes, so that a fast machine is not ready before the cut: some 10 s are left then


def _sample(name: str) -> Path:
    return SAMPLE.with_name(f"rayjob-{name}.yaml")


@contextmanager
def _running(fleet: Clusters, name: str, words: str = "") -> Iterator[Job]:
    with removed(Job(fleet, f"e2e-{name}", WORKERS, sample=_sample(name))) as job:
        job.submit(change=rayspec.impatient, words=words)
        yield job


@pytest.fixture
def whole(lab: Lab) -> Iterator[Lab]:
    """The lab, whose links are whole again when the test is over."""
    yield lab
    faults.heal(lab)


def _cut_in_the_middle(job: Job, lab: Lab) -> dict[str, Any]:
    """Cut east off when the job is busy; returns what it says in the end, before the link is whole again."""
    job.said("RAYSPAN-BUSY")
    faults.cut(lab, lab.cluster("east"), way="drop")
    assert job.wait_for_end() == "SUCCEEDED", job.output()
    return job.result()


def test_data_stays_in_its_zone(fleet: Clusters) -> None:
    with _running(fleet, "data") as job:
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        told = job.result()
        print(f"Data: {told}")
        assert told["once"] and told["within"] >= WITHIN
        assert set(told["used"]) == {"east", "west"} and len(set(told["used"].values())) == 1


def test_data_loses_no_row_with_a_cluster(fleet: Clusters, whole: Lab) -> None:
    with _running(fleet, "data", SLOW) as job:
        told = _cut_in_the_middle(job, whole)
        print(f"Data, with a cluster lost: {told}")
        faults.heal(whole)
        assert told["once"], "every row came exactly once"
        assert told["used"]["west"] > told["rows"] / 2, "west has done what east had left"


def test_a_lost_cluster_restarts_only_its_own_trials(fleet: Clusters, whole: Lab) -> None:
    with _running(fleet, "tune") as job:
        told = _cut_in_the_middle(job, whole)
        print(f"Tune, with a cluster lost: {told}")
        faults.heal(whole)
        assert told["ended"] == TRIALS and told["split"] == []
        starts = Counter(trial for trial, _, _ in told["starts"])
        hit = {trial for trial, cluster, _ in told["starts"] if cluster == "east"}
        assert len(starts) == TRIALS and hit
        assert {trial for trial, count in starts.items() if count > 1} <= hit
        assert {cluster for trial, cluster, _ in told["starts"] if cluster == "west" and trial in hit}, (
            "they went on in west"
        )


def test_ranks_train_in_one_zone_or_not_at_all(fleet: Clusters) -> None:
    with _running(fleet, "train") as job:
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        told = job.result()
        print(f"Train: {told}")
        assert len(told["ranks"]) == 4 and len(set(told["ranks"].values())) == 1
        assert told["none"], "a group that the zone has no room for took something"
