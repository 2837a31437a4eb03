"""A failed container shows the end of its log in its status, unless its user configured something else."""

from typing import Any

import pytest

from adapter.rewrite import termination_message
from tests.unit.rewrite.test_rewriter import kuberay_pod, rewrite

DEFAULT = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({}, id="nothing set, as in a template"),
        pytest.param(DEFAULT, id="the API server's defaults"),
        pytest.param({"terminationMessagePolicy": "File"}, id="only the policy"),
        pytest.param({"terminationMessagePath": "", "terminationMessagePolicy": ""}, id="empty values"),
    ],
)
def test_the_policy_becomes_fallback_to_logs(said: dict[str, Any]) -> None:
    want = {"name": "ray", **said, "terminationMessagePolicy": "FallbackToLogsOnError"}
    assert termination_message.with_log({"name": "ray", **said}) == want


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({**DEFAULT, "terminationMessagePath": "/tmp/why"}, id="a user's own file"),
        pytest.param({"terminationMessagePath": "/tmp/why"}, id="a user's own file in a template"),
        pytest.param({**DEFAULT, "terminationMessagePolicy": "FallbackToLogsOnError"}, id="the policy is set already"),
        pytest.param({**DEFAULT, "terminationMessagePolicy": "Newer"}, id="an unknown policy"),
    ],
)
def test_a_users_own_configuration_stays(said: dict[str, Any]) -> None:
    container = {"name": "ray", **said}
    assert termination_message.with_log(container) is container


def test_each_container_of_a_remote_pod_has_the_policy() -> None:
    pod = kuberay_pod(**DEFAULT)
    pod["spec"]["containers"].append({"name": "sidecar", "image": "x"})
    spec = rewrite(pod)["spec"]
    policies = [container["terminationMessagePolicy"] for container in (*spec["initContainers"], *spec["containers"])]
    assert policies == ["FallbackToLogsOnError"] * 3
