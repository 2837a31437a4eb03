"""Lists the samples: ours, the shapes that people bring, and those of KubeRay's module as the lab pins it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from adapter import names
from adapter.objects.unstructured import Raw
from hack.corpus import reduce
from hack.lab.base.paths import REPO
from hack.lab.build import tools

OURS: Final = "tests/corpus"
SHAPES: Final = "tests/corpus/shapes"
IN_REPO: Final = (SHAPES, OURS)
# Where KubeRay's module keeps what a user may copy, and what its own tests apply.
_KUBERAY: Final = {"kuberay: config/samples": "config/samples", "kuberay: test": "test"}
KUBERAY: Final = tuple(_KUBERAY)
# Kinds that the API server requires before it takes a pod that names one; a pod can wait for all others.
_NEEDED: Final = ("PriorityClass", "RuntimeClass")


@dataclass(frozen=True)
class Sample:
    """One Ray object as it stands in its file, with the objects that its pods need to be made."""

    source: str
    name: str
    """The file's path in its source."""
    about: str
    """What the file's first comment says, for ours; empty for KubeRay's."""
    body: Raw
    needs: tuple[Raw, ...]

    @property
    def key(self) -> str:
        """A file may have several Ray objects."""
        return f"{self.source}/{self.name} {self.body['kind']} {reduce.name_of(self.body)}"


def read() -> list[Sample]:
    """All samples: the shapes first, then KubeRay's, then ours, each by name. It may download KubeRay's module."""
    module = tools.module_dir("kuberay")
    kuberay = (
        sample for source, below in _KUBERAY.items() for sample in _of_files(source, module / below, "**/*.yaml")
    )
    return [*of_repo(SHAPES), *kuberay, *of_repo(OURS)]


def of_repo(source: str) -> list[Sample]:
    """The samples of a folder of this repository."""
    return [*_of_files(source, REPO / source, "*.yaml")]


def _of_files(source: str, folder: Path, pattern: str) -> Iterator[Sample]:
    for file in sorted(folder.glob(pattern)):
        text = file.read_text(encoding="utf-8")
        objects = [body for body in yaml.safe_load_all(text) if body]
        needs = tuple(body for body in objects if body.get("kind") in _NEEDED)
        about = text.partition("\n")[0].removeprefix("# ") if source in IN_REPO else ""
        for body in objects:
            if str(body.get("apiVersion")).startswith(f"{names.RAY_DOMAIN}/"):
                yield Sample(source, str(file.relative_to(folder)), about, body, needs)
