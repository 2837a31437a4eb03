"""The answers of API servers, Kueue and KubeRay for each sample, as docs/compatibility.json keeps them.

With them the page can be made again without a cluster, after a change of the rules by which jobs are rejected.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from hack.lab.base import versions
from hack.lab.base.paths import REPO

FILE: Final = REPO / "docs" / "compatibility.json"
VERSIONS: Final = {"kubernetes": versions.KUBERNETES, "kueue": versions.KUEUE, "kuberay": versions.KUBERAY}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an object is not taken: the API server's reason, and its message. False where it is taken."""

    code: str = ""
    message: str = ""

    def __bool__(self) -> bool:
        return bool(self.code)


TAKEN: Final = Refusal()


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """What becomes of the remote pod of a worker group."""

    denied: Refusal = TAKEN  # by the worker cluster
    manager_name: str = ""  # a name of the manager cluster that is left in it
    addition: str = ""  # what KubeRay added to the manager pod, and a remote pod must not have


@dataclass(frozen=True, slots=True)
class Answers:
    """What the clusters say of a sample."""

    alone: Refusal = TAKEN  # in no queue
    kuberay: str = ""  # why KubeRay makes no pods, or not all
    queue: Refusal = TAKEN  # in a queue
    defaults_queue: Refusal = TAKEN  # in a queue with the label of the component job-defaults
    defaults: Mapping[str, Any] = field(default_factory=dict)  # what that queue adds: path -> value
    worker_cluster: Refusal = TAKEN  # for the WorkerCluster that names all that the sample needs
    pods: Mapping[str, PodAnswer] = field(default_factory=dict)  # by worker group, with these names


def write_text(by_sample: Mapping[str, Answers]) -> str:
    """The file's text: the versions, and for each sample what is not as usual."""
    samples = {key: _without_defaults(asdict(answers)) for key, answers in by_sample.items()}
    return json.dumps({"versions": VERSIONS, "samples": samples}, indent=1, ensure_ascii=False) + "\n"


def read_text(text: str) -> dict[str, Answers]:
    return {key: _read(raw) for key, raw in json.loads(text)["samples"].items()}


def _read(raw: Mapping[str, Any]) -> Answers:
    refusals = {key: Refusal(**value) for key, value in raw.items() if key in _REFUSALS}
    pods = {group: _read_pod(answer) for group, answer in raw.get("pods", {}).items()}
    return Answers(**{**raw, **refusals, "pods": pods})


def _read_pod(raw: Mapping[str, Any]) -> PodAnswer:
    return PodAnswer(**{**raw, "denied": Refusal(**raw.get("denied", {}))})


def _without_defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Without empty texts and mappings; a worker group stays."""
    short = {
        key: _without_defaults(value) if isinstance(value, Mapping) and key != "defaults" else value
        for key, value in raw.items()
    }
    return {key: value for key, value in short.items() if value or key not in _FIELDS}


_REFUSALS: Final = ("alone", "queue", "defaults_queue", "worker_cluster")
_FIELDS: Final = frozenset((*Answers.__slots__, *PodAnswer.__slots__, *Refusal.__slots__))
