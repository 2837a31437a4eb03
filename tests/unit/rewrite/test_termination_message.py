"""A container that fails shows the end of its log in its status, unless its user has said something else."""

from typing import Any

import pytest

from adapter.rewrite import termination_message
from tests.unit.rewrite.test_rewriter import kuberay_pod, rewrite

DEFAULT = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({}, id="nothing, as in a template"),
        pytest.param(DEFAULT, id="what the API server writes"),
        pytest.param({"terminationMessagePolicy": "File"}, id="the policy alone"),
        pytest.param({"terminationMessagePath": "", "terminationMessagePolicy": ""}, id="empty"),
    ],
)
def test_it_falls_back_to_its_log(said: dict[str, Any]) -> None:
    want = {"name": "ray", **said, "terminationMessagePolicy": "FallbackToLogsOnError"}
    assert termination_message.with_log({"name": "ray", **said}) == want


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({**DEFAULT, "terminationMessagePath": "/tmp/why"}, id="a file of its own, which somebody reads"),
        pytest.param({"terminationMessagePath": "/tmp/why"}, id="the same, in a template"),
        pytest.param({**DEFAULT, "terminationMessagePolicy": "FallbackToLogsOnError"}, id="that already"),
        pytest.param({**DEFAULT, "terminationMessagePolicy": "Newer"}, id="a policy that nobody knows yet"),
    ],
)
def test_it_stays_as_its_user_wrote_it(said: dict[str, Any]) -> None:
    container = {"name": "ray", **said}
    assert termination_message.with_log(container) is container


def test_each_container_of_a_copy_has_it() -> None:
    pod = kuberay_pod(**DEFAULT)
    pod["spec"]["containers"].append({"name": "sidecar", "image": "x"})
    spec = rewrite(pod)["spec"]
    policies = [one["terminationMessagePolicy"] for one in (*spec["initContainers"], *spec["containers"])]
    assert policies == ["FallbackToLogsOnError"] * 3
