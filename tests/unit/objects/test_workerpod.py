"""Which pull secrets a worker's template names, and when a worker does its part: ready, or of a service and running."""

from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.objects.workerpod import in_place, pull_secrets
from adapter.objects.workload import PodSet, workload
from tests.unit.builders import make_condition, make_pod, make_workload

Raw = dict[str, Any]
OURS, THEIRS = {"name": "ours"}, {"name": "theirs"}


def podset(name: str, *secrets: Raw) -> PodSet:
    return PodSet(name, 1, {"spec": {"imagePullSecrets": list(secrets)} if secrets else {}}, frozenset())


@pytest.mark.parametrize(
    ("podsets", "want"),
    [
        pytest.param([], (), id="nothing is known of its group"),
        pytest.param([podset("workers")], (), id="its template names none"),
        pytest.param([podset("workers", OURS, THEIRS)], (OURS, THEIRS), id="all, in their order"),
        pytest.param([podset("head", THEIRS), podset("workers", OURS)], (OURS,), id="not those of another group"),
    ],
)
def test_which_pull_secrets_a_template_names(podsets: list[PodSet], want: tuple[Raw, ...]) -> None:
    pod = make_pod(group="Workers")
    pod["spec"]["imagePullSecrets"] = [{"name": "of-its-account"}]
    assert pull_secrets(pod, replace(workload(make_workload()), podsets=tuple(podsets))) == want


RUNS: Raw = {"running": {}}
WAITS, OVER = {"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": {"exitCode": 1}}


@pytest.mark.parametrize(
    ("labels", "ready", "states", "want"),
    [
        pytest.param({}, True, (), True, id="ready"),
        pytest.param({}, False, (RUNS,), False, id="of a job, and not ready"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, True, (), True, id="of a service, and ready"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, False, (RUNS, RUNS), True, id="of a service, and all of it runs"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, False, (RUNS, WAITS), False, id="but for a sidecar"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, False, (OVER,), False, id="it has ended"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, False, (), False, id="nothing of it began"),
        pytest.param({names.RAY_SERVE_LABEL: "false"}, False, (RUNS,), False, id="it serves not"),
        pytest.param({names.RAY_SERVE_LABEL: "true", names.RAY_NODE_TYPE_LABEL: names.HEAD}, False, (RUNS,), False, id="a head"),
    ],
)  # fmt: skip
def test_when_a_worker_does_its_part(labels: dict[str, str], ready: bool, states: tuple[Raw, ...], want: bool) -> None:
    pod = make_pod()
    pod["metadata"]["labels"] |= labels
    pod["status"]["conditions"] = [make_condition("Ready", ready)]
    pod["status"]["containerStatuses"] = [{"name": f"c{index}", "state": state} for index, state in enumerate(states)]
    assert in_place(pod) is want
