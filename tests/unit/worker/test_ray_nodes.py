"""Parsing of Ray's state API. The server on that port is not trusted, so any answer is accepted."""

from typing import Any

import pytest

from adapter.worker import ray_nodes


def answer(*nodes: object) -> dict[str, Any]:
    """An answer of Ray 2.60."""
    return {"result": True, "msg": "", "data": {"result": {"total": len(nodes), "result": list(nodes)}}}


def node(address: str, state: str) -> dict[str, Any]:
    return {"node_id": f"{address}-{state}", "node_ip": address, "is_head_node": False, "state": state}


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(
            answer(node("a", "ALIVE"), node("b", "DEAD")), {"a": True, "b": False}, id="an alive and a dead node"
        ),
        pytest.param(
            answer(node("a", "DEAD"), node("a", "ALIVE")), {"a": True}, id="a node that is dead and then alive"
        ),
        pytest.param(
            answer(node("a", "ALIVE"), node("a", "DEAD")), {"a": True}, id="a node that is alive and then dead"
        ),
        pytest.param(answer(node("a", "DRAINING")), {}, id="an unknown state"),
        pytest.param(answer("a", None, {"state": "ALIVE"}), {}, id="items that are no nodes"),
        pytest.param({"data": {"result": None}}, {}, id="an answer without a list"),
        pytest.param([1, 2], {}, id="an answer of another server"),
        pytest.param(None, {}, id="no answer"),
    ],
)
def test_parse_node_states(raw: object, want: dict[str, bool]) -> None:
    assert ray_nodes.parse_node_states(raw) == want


@pytest.mark.parametrize(
    ("states", "own", "want"),
    [
        pytest.param({"a": True, "b": False}, {"a", "b"}, {"a": True, "b": False}, id="its pods' nodes"),
        pytest.param({"a": True, "x": True}, {"a"}, {"a": True}, id="all addresses are known"),
        pytest.param({"x": True}, {"a", "@east"}, {"@east": True}, id="an unknown node, and a pod without an address"),
        pytest.param({"x": True}, {"@west"}, {}, id="an unknown node of another cluster"),
        pytest.param({"local": True}, {"@east"}, {}, id="an unknown node of no cluster, such as one in the manager"),
        pytest.param({"x": False}, {"@east"}, {}, id="an unknown node that is dead"),
        pytest.param({"sibling": True, "head": True}, {"@east"}, {}, id="nodes of other pods"),
        pytest.param({}, {"@east"}, {}, id="no nodes"),
    ],
)
def test_the_states_of_pods(states: dict[str, bool], own: set[str], want: dict[str, bool]) -> None:
    clusters = {"a": "east", "x": "east", "sibling": "east"}
    pods, known = {f"pod-{address}": address for address in own}, {"a", "b", "sibling", "head", "@east"}
    assert ray_nodes.states_of_pods(states, clusters, pods, known) == {
        f"pod-{key}": value for key, value in want.items()
    }


def test_pods_at_one_address_have_one_state_each() -> None:
    """Without an address, each pod of a cluster may be the one that the head knows."""
    own = {"first": "@east", "second": "@east"}
    assert ray_nodes.states_of_pods({"x": True}, {"x": "east"}, own, {"@east"}) == {"first": True, "second": True}


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param({"rayspan.dev/cluster": "east", "x": "y"}, {"a": "east"}, id="a remote node"),
        pytest.param({"x": "y"}, {}, id="a node in the manager"),
        pytest.param({"rayspan.dev/cluster": 1}, {}, id="no text"),
        pytest.param(["rayspan.dev/cluster"], {}, id="no labels"),
        pytest.param(None, {}, id="labels of an older Ray"),
    ],
)
def test_parse_node_clusters(labels: object, want: dict[str, str]) -> None:
    assert ray_nodes.parse_node_clusters(answer({**node("a", "ALIVE"), "labels": labels})) == want


def test_the_dashboards_port_is_the_one_of_that_name() -> None:
    ports = [{"name": "gcs-server", "containerPort": 6379}, {"name": "dashboard", "containerPort": 9265}]
    assert ray_nodes.dashboard_port({"spec": {"containers": [{"ports": ports}]}}) == 9265
    assert ray_nodes.dashboard_port({"spec": {"containers": [{}]}}) == ray_nodes.DASHBOARD_PORT


def test_an_answer_stays_valid_for_a_time_after_a_failed_poll() -> None:
    known = {"10.0.0.1": True}
    assert ray_nodes.newest_answer(None, (known, 5.0), 60.0) == (known, 5.0)
    assert ray_nodes.newest_answer(None, (known, 5.0), 66.0) == ({}, 0.0)
    assert ray_nodes.newest_answer({}, (known, 5.0), 6.0) == ({}, 6.0)


def test_a_head_has_a_minute_for_its_first_answer() -> None:
    """A new leader must not give up a worker because the dashboard was busy for a moment."""
    assert ray_nodes.newest_answer(None, None, 6.0) == (None, 6.0)
    assert ray_nodes.newest_answer(None, (None, 6.0), 65.0) == (None, 6.0)
    assert ray_nodes.newest_answer(None, (None, 6.0), 66.0) == ({}, 0.0)
    assert ray_nodes.newest_answer(None, ray_nodes.NO_NODES, 67.0) == ({}, 0.0), "there is no head"
