"""Lists the samples: those of KubeRay's module as the lab pins it, its test manifests, and ours. It only reads."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from adapter import names
from adapter.objects.unstructured import Raw
from hack.lab.base.paths import REPO
from hack.lab.build import tools

OURS = "tests/corpus"
# Where KubeRay's module keeps what a user may copy, and what its own tests apply.
_KUBERAY = {"kuberay: config/samples": "config/samples", "kuberay: test": "test"}
# Kinds that the API server requires before it takes a pod that names one; a pod can wait for all others.
_NEEDED = ("PriorityClass", "RuntimeClass")


@dataclass(frozen=True)
class Sample:
    """One object of KubeRay's as it stands in its file, with the objects that its pods need to be made."""

    source: str
    name: str
    """The file's path in its source."""
    about: str
    """What the file's first comment says, for ours; empty for KubeRay's."""
    body: Raw
    needs: tuple[Raw, ...]


def read() -> list[Sample]:
    """All samples: ours first, then KubeRay's, each by name."""
    module = tools.module_dir("kuberay")
    folders = {OURS: REPO / OURS, **{source: module / below for source, below in _KUBERAY.items()}}
    return [sample for source, folder in folders.items() for sample in _of_folder(source, folder)]


def _of_folder(source: str, folder: Path) -> Iterator[Sample]:
    for file in sorted(folder.rglob("*.yaml")):
        text = file.read_text(encoding="utf-8")
        objects = [one for one in yaml.safe_load_all(text) if one]
        needs = tuple(one for one in objects if one.get("kind") in _NEEDED)
        about = text.partition("\n")[0].removeprefix("# ") if source == OURS else ""
        for body in objects:
            if str(body.get("apiVersion")).startswith(f"{names.RAY_DOMAIN}/"):
                yield Sample(source, str(file.relative_to(folder)), about, body, needs)
