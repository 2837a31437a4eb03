"""The quota arithmetic agrees with Kueue: a hundred random trees with loads, admitted by the Kueue of a worker
cluster."""

import pytest

from hack.oracle.rounds import report, run
from hack.testbed.clusters import Clusters

pytestmark = [pytest.mark.alone, pytest.mark.long]  # it takes all of the machine

TREES, SEED = 100, 7  # always the same, so that a red test is one of the change under test: `make oracle` draws others
QUESTIONS = 2  # about each tree: the second finds load and changed queues; a third would cost half a minute more


def test_kueue_admits_what_we_predict(parked: Clusters) -> None:
    """What fits is admitted in the flavors that we name, one more is not, and what is charged is what Kueue counts."""
    cluster = next(iter(parked.workers.values()))
    outcome = run(cluster.kubeconfig, SEED, range(TREES), QUESTIONS)
    assert outcome.trees == TREES
    assert outcome.kinds["borrowing"] > 50, "trees in which nothing is borrowed say little"
    assert not outcome.disagreements, "\n".join(map(report, outcome.disagreements))
