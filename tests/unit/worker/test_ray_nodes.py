"""What Ray's own state API says of nodes: read tolerantly, since whoever answers on that port may be anything."""

from typing import Any

import pytest

from adapter.worker import ray_nodes


def answer(*nodes: object) -> dict[str, Any]:
    """As Ray 2.60 gives it."""
    return {"result": True, "msg": "", "data": {"result": {"total": len(nodes), "result": list(nodes)}}}


def node(address: str, state: str) -> dict[str, Any]:
    return {"node_id": f"{address}-{state}", "node_ip": address, "is_head_node": False, "state": state}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(answer(node("a", "ALIVE"), node("b", "DEAD")), {"a": True, "b": False}, id="each node"),
        pytest.param(answer(node("a", "DEAD"), node("a", "ALIVE")), {"a": True}, id="a worker that came back"),
        pytest.param(answer(node("a", "ALIVE"), node("a", "DEAD")), {"a": True}, id="in whichever order"),
        pytest.param(answer(node("a", "DRAINING")), {}, id="a state that we do not know"),
        pytest.param(answer("a", None, {"state": "ALIVE"}), {}, id="no nodes at all"),
        pytest.param({"data": {"result": None}}, {}, id="a failure"),
        pytest.param([1, 2], {}, id="somebody else"),
        pytest.param(None, {}, id="nothing"),
    ],
)
def test_alive(given: object, want: dict[str, bool]) -> None:
    assert ray_nodes.parse_node_states(given) == want


def test_the_dashboards_port_is_the_one_of_that_name() -> None:
    ports = [{"name": "gcs-server", "containerPort": 6379}, {"name": "dashboard", "containerPort": 9265}]
    assert ray_nodes.dashboard_port({"spec": {"containers": [{"ports": ports}]}}) == 9265
    assert ray_nodes.dashboard_port({"spec": {"containers": [{}]}}) == ray_nodes.DASHBOARD_PORT


def test_an_answer_outlives_a_question_that_fails() -> None:
    known = {"10.0.0.1": True}
    assert ray_nodes.newest_answer(None, (known, 5.0), 60.0) == (known, 5.0)
    assert ray_nodes.newest_answer(None, (known, 5.0), 66.0) == ({}, 0.0)
    assert ray_nodes.newest_answer({}, (known, 5.0), 6.0) == ({}, 6.0)
    assert ray_nodes.newest_answer(None, None, 6.0) == ({}, 0.0)
