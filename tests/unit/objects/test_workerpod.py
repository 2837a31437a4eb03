"""Which pull secrets a worker's template names: those of its own group, whatever admission gave the pod."""

from dataclasses import replace
from typing import Any

import pytest

from adapter.objects.workerpod import pull_secrets
from adapter.objects.workload import PodSet, workload
from tests.unit.builders import make_pod, make_workload

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
