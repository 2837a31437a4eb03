"""Chooses the worker pods that the rewriter's tests keep, one for each interesting case, and fixes what is random.

What a run draws (uids, times, suffixes of names) gets fixed values, so that a pod made again is the same file.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from adapter.objects.unstructured import Raw
from adapter.rewrite.stripping import TOKEN_VOLUME_PREFIX
from hack.corpus.ask import Seen
from hack.lab.base import versions
from hack.lab.base.paths import REPO

FOLDER: Final = REPO / "tests" / "unit" / "rewrite" / "golden" / f"kuberay-{versions.KUBERAY.removeprefix('v')}"
CHOSEN: Final = (  # of tests/corpus
    "affinity", "autoscaled", "before-ray-start", "gcs-fault-tolerance", "gpu", "native-sidecar", "old-ray",
    "other-port",
    "overwrite-command", "own-ray-start", "plain", "ray-address", "service", "sidecar", "start-address", "token-auth",
    "tpu-multi-host", "user-tls",
)  # fmt: skip
_END: Final = "x7k2p"
_TIME: Final = "2026-01-01T00:00:00Z"
_RANDOM: Final = r"[a-z0-9]{5}"  # the suffix that the API server and KubeRay put on a name
_REPLICA_NAME: Final = "ray.io/worker-group-replica-name"


def recorded(seen: Iterable[Seen]) -> dict[Path, str]:
    """Return what the recorded pods' files are to hold."""
    by_name = {one.sample.name: one for one in seen}
    return {FOLDER / f"{name}.in.yaml": _text(by_name[f"{name}.yaml"]) for name in CHOSEN}


def read(path: Path) -> Any:
    """Return a golden pod; the caller may change it."""
    return json.loads(_read(path))


@functools.cache
def _read(path: Path) -> str:
    """As JSON: YAML is slow to read, and tests read each pod very often."""
    return json.dumps(yaml.safe_load(path.read_text()))


def settled(pod: Raw) -> Raw:
    """Return a pod with nothing random in it."""
    metadata = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    text = json.dumps({**pod, "metadata": metadata})
    for found, fixed in _random(metadata):
        text = text.replace(found, fixed)
    text = re.sub(rf"({TOKEN_VOLUME_PREFIX}){_RANDOM}\b", rf"\g<1>{_END}", text)
    text = re.sub(r'("(?:creationTimestamp|lastTransitionTime)": )"[^"]+"', rf'\g<1>"{_TIME}"', text)
    settled: Raw = json.loads(text)
    settled["metadata"]["resourceVersion"] = "1"
    return settled


def _random(metadata: Raw) -> Iterator[tuple[str, str]]:
    yield metadata["name"], f"{metadata['generateName']}{_END}"
    yield metadata["uid"], "f1941350-99ac-4928-8b94-a75273d5ba1a"
    yield metadata["ownerReferences"][0]["uid"], "7e84657b-3e5b-4ca6-a192-ea4fb27d6b0a"
    if replica := metadata["labels"].get(_REPLICA_NAME):
        yield replica, re.sub(rf"{_RANDOM}$", _END, replica)


def _text(seen: Seen) -> str:
    pod = next(iter(seen.pods.values()))
    return yaml.safe_dump(settled(pod), sort_keys=True, width=160)
