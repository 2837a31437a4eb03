"""A small model of Ray's heads: which nodes a GCS hears from, and its dashboard that tells them.

A node joins when its pod runs and the way to the head is open. A head gives up a node that it has not heard from for
some 30 s; a node whose pod ends is given up then, too.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import orjson

from adapter import names
from adapter.objects.unstructured import Raw
from hack.simulation.link import Answer, Request

GIVES_UP_AFTER = 30.0  # seconds


@dataclass(slots=True)
class RayNode:
    uid: str  # of its pod
    cluster: str
    is_alive: bool = True
    silent_since: float | None = None


@dataclass(slots=True)
class Head:
    """A head pod's GCS."""

    address: str
    is_busy: Callable[[], bool]  # whether its dashboard fails
    nodes: dict[str, RayNode] = field(default_factory=dict)  # by address

    def handle(self, request: Request) -> Answer:
        """Answer the state API."""
        if self.is_busy():
            return Answer(500, b"busy", {"Content-Type": "text/plain"})
        listed = [
            {
                "node_ip": address,
                "state": "ALIVE" if node.is_alive else "DEAD",
                "labels": {names.CLUSTER_LABEL: node.cluster},
            }
            for address, node in self.nodes.items()
        ]
        body = orjson.dumps({"result": True, "data": {"result": {"result": listed}}})
        return Answer(200, body, {"Content-Type": "application/json"})

    def join(self, pod: Raw, cluster: str) -> None:
        """A worker's raylet has registered."""
        self.nodes[pod["status"]["podIP"]] = RayNode(pod["metadata"]["uid"], cluster)

    def hears(self, uid: str) -> bool:
        """Whether it has the node of a pod alive."""
        return any(node.uid == uid and node.is_alive for node in self.nodes.values())

    def check(self, now: float, answers: Callable[[RayNode], bool], give_up: Callable[[RayNode], None]) -> None:
        """Look at each node: `answers` says whether it can be heard now."""
        for node in self.nodes.values():
            if not node.is_alive:
                continue
            if answers(node):
                node.silent_since = None
            elif node.silent_since is None:
                node.silent_since = now
            elif now - node.silent_since >= GIVES_UP_AFTER:
                node.is_alive = False
                give_up(node)
