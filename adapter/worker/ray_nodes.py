"""Parses the node list of Ray's state API: which nodes of a RayCluster its head reports alive.

Follows ray:python/ray/dashboard/modules/state/state_head.py, GET /api/v0/nodes (2.60). report.py acts on dead nodes.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from adapter import names
from adapter.objects.unstructured import Raw

NODES_PATH = "/api/v0/nodes"
DASHBOARD_PORT = 8265
# How long an answer counts while requests fail, and how long a new leader waits for one: a dashboard that is busy for
# a moment has not lost its nodes.
ANSWER_VALID_SECONDS = 60.0
Answer = tuple[Mapping[str, bool] | None, float]
NO_NODES: Final[Answer] = {}, 0.0  # there is no head, or it has not answered for long
_ALIVE_BY_STATE = {"ALIVE": True, "DEAD": False}


def dashboard_port(head: Raw) -> int:
    """The port named `dashboard`, else Ray's default."""
    containers = (head.get("spec") or {}).get("containers") or ()
    ports = (port for container in containers for port in container.get("ports") or ())
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "dashboard"), DASHBOARD_PORT)


def parse_node_states(answer: object) -> dict[str, bool]:
    """Map each address to whether a node there is alive; empty if the answer is not understood."""
    states: dict[str, bool] = {}
    for node in _answered_nodes(answer):
        address, state = node.get("node_ip"), _ALIVE_BY_STATE.get(str(node.get("state")))
        if address and state is not None:
            states[str(address)] = state or states.get(str(address), False)
    return states


def parse_node_clusters(answer: object) -> dict[str, str]:
    """Map each address to the worker cluster that a node there has in its labels (rewrite/ray_node_env.py)."""
    labels = ((node.get("node_ip"), node.get("labels")) for node in _answered_nodes(answer))
    clusters = ((address, of_node.get(names.CLUSTER_LABEL)) for address, of_node in labels if isinstance(of_node, dict))
    return {str(address): cluster for address, cluster in clusters if address and isinstance(cluster, str)}


def unknown_address(cluster: str) -> str:
    """Stands for the address of a pod that was not observed before its worker cluster became unreachable."""
    return f"@{cluster}"


def states_of_pods(
    states: Mapping[str, bool], clusters: Mapping[str, str], own: Mapping[str, str], known: Collection[str]
) -> dict[str, bool]:
    """The states of pods by their names. `own` has their addresses; `known` are those of all pods of the RayCluster.

    A pod whose address is unknown counts as alive while a node of its worker cluster is alive at an address of no known
    pod: it may be the pod's.
    """
    unseen = {
        unknown_address(cluster)
        for address, cluster in clusters.items()
        if states.get(address) and address not in known
    }
    known_states = {**states, **dict.fromkeys(unseen, True)}
    return {pod: known_states[address] for pod, address in own.items() if address in known_states}


def newest_answer(states: Mapping[str, bool] | None, previous: Answer | None, now: float) -> Answer:
    """The answer, else the previous answer while it is valid; each with its time in seconds.

    A head that has not answered since its first poll has as long: its answer is None until then.
    """
    if states is not None or previous is None:
        return states, now
    return previous if now - previous[1] < ANSWER_VALID_SECONDS else NO_NODES


def _answered_nodes(answer: object) -> Iterator[Mapping[str, Any]]:
    for key in ("data", "result", "result"):
        answer = answer.get(key) if isinstance(answer, dict) else None
    if isinstance(answer, list):
        yield from (node for node in answer if isinstance(node, dict))
