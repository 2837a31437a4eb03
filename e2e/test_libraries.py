"""Tests that Ray Data, Tune and Train run over two clusters as docs/workloads.md says.

Data and Tune must survive the loss of a cluster. Each test runs a sample unchanged. docs/workloads.md has the
measured figures.
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

# Ray's libraries do not depend on Rayspan. e2e/test_rayjob.py tests where labelled tasks run, and
# e2e/faults/test_cuts.py tests the loss of a cluster.
pytestmark = pytest.mark.long

WORKERS = 4
WITHIN = 0.95  # share of the rows that must be used in the zone where they were produced
TRIALS = 8
# Ray Data waits for the tasks of a lost node: with a cluster cut off the job takes 165 s on two idle processors.
LOSS_SECONDS = 480
SLOW = "--seconds 0.6"  # to score a block, so that about 10 s of the job remain after the cut on a fast machine


def _sample(name: str) -> Path:
    return SAMPLE.with_name(f"rayjob-{name}.yaml")


@contextmanager
def _running(fleet: Clusters, name: str, words: str = "") -> Iterator[Job]:
    with removed(Job(fleet, f"e2e-{name}", WORKERS, sample=_sample(name))) as job:
        job.submit(change=rayspec.impatient, words=words)
        yield job


@pytest.fixture
def whole(lab: Lab) -> Iterator[Lab]:
    """The lab, healed after the test."""
    yield lab
    faults.heal(lab)


def _cut_in_the_middle(job: Job, lab: Lab) -> dict[str, Any]:
    """Cut east off once the job is busy; return the job's result, with the link still cut."""
    job.said("RAYSPAN-BUSY")
    faults.cut(lab, lab.cluster("east"), way="drop")
    assert job.wait_for_end(LOSS_SECONDS) == "SUCCEEDED", job.output()
    return job.result()


def test_data_stays_in_its_zone(fleet: Clusters) -> None:
    with _running(fleet, "data") as job:
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        result = job.result()
        print(f"Data: {result}")
        assert result["once"] and result["within"] >= WITHIN
        assert set(result["used"]) == {"east", "west"} and len(set(result["used"].values())) == 1


def test_data_loses_no_row_with_a_cluster(fleet: Clusters, whole: Lab) -> None:
    with _running(fleet, "data", SLOW) as job:
        result = _cut_in_the_middle(job, whole)
        print(f"Data, with a cluster lost: {result}")
        faults.heal(whole)
        assert result["once"], "every row came exactly once"
        assert result["used"]["west"] > result["rows"] / 2, "west took over the rows of east"


def test_a_lost_cluster_restarts_only_its_own_trials(fleet: Clusters, whole: Lab) -> None:
    with _running(fleet, "tune") as job:
        result = _cut_in_the_middle(job, whole)
        print(f"Tune, with a cluster lost: {result}")
        faults.heal(whole)
        assert result["ended"] == TRIALS
        starts = Counter(trial for trial, _, _ in result["starts"])
        hit = {trial for trial, cluster, _ in result["starts"] if cluster == "east"}
        assert len(starts) == TRIALS and hit
        assert {trial for trial, count in starts.items() if count > 1} <= hit
        assert {cluster for trial, cluster, _ in result["starts"] if cluster == "west" and trial in hit}, (
            "the lost trials did not continue in west"
        )


def test_ranks_train_in_one_zone_or_not_at_all(fleet: Clusters) -> None:
    with _running(fleet, "train") as job:
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        result = job.result()
        print(f"Train: {result}")
        assert result["zones"] == ["east", "west"], "there is another zone with free workers"
        assert len(result["ranks"]) == 4 and len(set(result["ranks"].values())) == 1
        assert len(result["clusters"]) == 1, "the zone is one cluster"
        assert result["none"], "a group too large for its zone reserved resources"
