"""The versions that are tried together: pairs that users have, who upgrade one cluster after the other.

Each pair is the lab of today but for what it names, so that a failure has one cause. It runs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hack.lab.base.lab import MANAGER
from hack.lab.base.versions import OLDER_RAY, RAY, TODAY, Runs

_WEBHOOK: Final = "demo-webhook"
CLUSTERS: Final = (MANAGER, "east", "west")


@dataclass(frozen=True)
class Pair:
    """One manager and two worker clusters; `versions` as the lab wants them: cluster → component → version."""

    name: str
    what: str
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    overlay: str = "demo"
    """How Rayspan is installed in the manager: of kustomize/overlays."""
    ray: str = RAY
    """In the job's image."""

    def runs(self, cluster: str) -> Runs:
        """The versions of one of its clusters."""
        return TODAY._replace(**self.versions.get(cluster, {}))


PAIRS: Final[tuple[Pair, ...]] = (
    Pair("today", "what every other test runs on"),
    Pair("older-worker", "a worker cluster one minor version older", {"west": {"kubernetes": "v1.35.4"}}),
    Pair("oldest-worker", "a worker cluster two minor versions older", {"west": {"kubernetes": "v1.34.4"}}),
    Pair("older-kueue", "an older Kueue in a worker cluster", {"west": {"kueue": "v0.18.3"}}),
    Pair("older-kuberay", "an older KubeRay in the manager", {MANAGER: {"kuberay": "v1.5.1"}}),
    Pair("older-ray", "an older Ray in the job's image", ray=OLDER_RAY),
    Pair("newer-worker", "a worker cluster that was upgraded first", {"west": {"kubernetes": "v1.37.2"}}),
    Pair("newer-manager", "a manager that was upgraded first", {MANAGER: {"kubernetes": "v1.37.2"}}),
    Pair("older-kueue-manager", "an older Kueue in the manager", {MANAGER: {"kueue": "v0.18.3"}}),
    Pair("older-manager", "a manager with [a webhook](admission.md#the-gate-before-kubernetes-136) for the gate",
        {MANAGER: {"kubernetes": "v1.35.4"}}, _WEBHOOK),
    Pair("oldest-manager", "the same, two minor versions older", {MANAGER: {"kubernetes": "v1.34.4"}}, _WEBHOOK),
    Pair(
        "oldest", "the oldest of everything that the lab has",
        {
            MANAGER: {"kubernetes": "v1.34.4", "kueue": "v0.18.3", "kuberay": "v1.5.1"},
            "east": {"kubernetes": "v1.34.4", "kueue": "v0.18.3"},
            "west": {"kubernetes": "v1.34.4", "kueue": "v0.18.3"},
        },
        _WEBHOOK,
    ),
)  # fmt: skip
