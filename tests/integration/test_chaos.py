"""Fifty faults of all kinds, drawn from a seed, strike gangs that run: nothing is lost, doubled or left behind.

The controller is the deployed one: what is cut off from it, and what kills it, is what a user's would meet.
"""

import pytest

from hack.chaos import draw, play, report
from hack.lab import lab as definition
from tests.integration.stage import Stage

pytestmark = pytest.mark.usefixtures("deployed")

FAULTS, SEED = 50, 7  # always the same, so that a red test is one of the change under test: `make chaos` draws others
# Seconds. Long enough for watches to break and leases to be missed, so short that fifty fit into minutes; `make chaos` has
# outages that are long enough for a cluster to be taken for lost.
LONGEST = 4.0


def test_fifty_faults(request: pytest.FixtureRequest, stage: Stage) -> None:
    if request.config.getoption("--manager"):
        pytest.fail("this test kills processes and cuts networks, so it runs on the lab only: leave out --manager")
    outcome = play.play(definition.load(), stage, SEED, draw.bunches(SEED, FAULTS, LONGEST))
    assert not outcome.failure, report.failure(outcome.failure, SEED, LONGEST)
    assert outcome.kinds.total() == FAULTS
