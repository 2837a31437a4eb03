"""That nothing at all can be dispatched is said with its reason, and only when no way leads anywhere."""

from typing import Any

import pytest

from adapter.admission.policy import Written
from adapter.whereabouts import fleet
from tests.unit.builders import make_check, make_condition, make_policy, make_worker_cluster

Raw = dict[str, Any]
QUEUE = {"metadata": {"name": "q"}, "spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "rayspan"}]}}}
WELL = make_condition("Connected", reason="Connected")


def check(status: bool = True, reason: str = "Ready", message: str = "A sentence.") -> Raw:
    return make_check(conditions=[make_condition("Active", status, reason=reason, message=message)])


def written(*clusters: Raw, policy: Raw | None = None) -> Written:
    return Written({"default": policy or make_policy()}, clusters)


EAST, WEST = make_worker_cluster("east", conditions=[WELL]), make_worker_cluster("west")
SILENT = "none of east, west of DispatchPolicy default is connected and takes new workers; see `kubectl get workerclusters -o wide`."
NO_CHECK = "no ClusterQueue lists an AdmissionCheck of rayspan.dev/dispatch; put one into a queue."


@pytest.mark.parametrize(
    ("queues", "checks", "found", "why"),
    [
        pytest.param([QUEUE], [check()], written(EAST, WEST), "", id="to one of two"),
        pytest.param([QUEUE], [check(reason="QueueLayout")], written(EAST), "", id="some of a layout may work"),
        pytest.param(
            [QUEUE],
            [check()],
            written(),
            "there is no WorkerCluster; make one by `kubectl rayspan join`.",
            id="no cluster",
        ),
        pytest.param([QUEUE], [check()], written(WEST), SILENT, id="nobody has seen it"),
        pytest.param(
            [QUEUE],
            [check()],
            written(make_worker_cluster("east", conditions=[make_condition("Connected", reason="NotClaimed")])),
            SILENT,
            id="seen, and nothing may be written there",
        ),
        pytest.param(
            [QUEUE],
            [check()],
            written(
                make_worker_cluster(
                    "east",
                    conditions=[
                        make_condition("Connected", reason="NotClaimed"),
                        make_condition("Ready", reason="NotClaimed"),
                    ],
                )
            ),
            "",
            id="no claim can be held there, and work goes on",
        ),
        pytest.param(
            [QUEUE],
            [check()],
            written(make_worker_cluster("east", conditions=[WELL], cordoned=True)),
            SILENT,
            id="cordoned",
        ),
        pytest.param(
            [QUEUE],
            [check()],
            written(make_worker_cluster("east", conditions=[WELL], draining=True)),
            SILENT,
            id="drained",
        ),
        pytest.param(
            [QUEUE],
            [check()],
            written(make_worker_cluster("north", conditions=[WELL])),
            SILENT,
            id="one that the policy leaves out",
        ),
        pytest.param([], [check()], written(EAST), NO_CHECK, id="a check in no queue"),
        pytest.param([QUEUE], [], written(EAST), NO_CHECK, id="a queue with a check that is not there"),
        pytest.param(
            [QUEUE], [check(reason="GateMissing")], written(EAST), "AdmissionCheck rayspan: A sentence.", id="no gate"
        ),
        pytest.param(
            [QUEUE],
            [check(False, "BadParameters")],
            written(EAST),
            "AdmissionCheck rayspan: A sentence.",
            id="an inactive check",
        ),
        pytest.param(
            [QUEUE],
            [make_check()],
            written(EAST),
            "AdmissionCheck rayspan: the controller has said nothing of it.",
            id="nobody has led yet",
        ),
        pytest.param(
            [QUEUE],
            [check()],
            Written({}, [EAST]),
            "AdmissionCheck rayspan: spec.parameters names DispatchPolicy default, which does not exist; create it.",
            id="the policy has just gone",
        ),
    ],
)
def test_nothing_can_be_dispatched(queues: list[Raw], checks: list[Raw], found: Written, why: str) -> None:
    assert fleet.stopped(queues, checks, found) == (f"Nothing can be dispatched: {why}" if why else "")


def test_one_way_is_enough() -> None:
    other: Raw = {**make_check(), "metadata": {"name": "aaa"}}
    both = {"metadata": {"name": "r"}, "spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "aaa"}]}}}
    assert fleet.stopped([QUEUE, both], [other, check()], written(EAST)) == ""
