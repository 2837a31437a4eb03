"""Reads a Dockerfile: only the instructions that the checkout's files have; any other is an error."""

import re
from dataclasses import dataclass
from pathlib import Path

_STAGE = re.compile(r"^FROM ((?:--platform=\S+ )?\S+)(?: AS (\S+))?$")


@dataclass(frozen=True)
class Stage:
    """One FROM with its instructions, each as keyword and rest of the line."""

    base: str
    name: str | None
    lines: tuple[tuple[str, str], ...]

    def all(self, keyword: str) -> list[str]:
        return [rest for one, rest in self.lines if one == keyword]


def check_copied_files(build: Stage, repo: Path, ignore_file: str) -> None:
    """All that a stage copies exists, and the ignore file lets exactly that into the build."""
    copied = {word for rest in build.all("COPY") for word in rest.split()[:-1]}
    ignored = (repo / ignore_file).read_text().splitlines()
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == copied
    assert "*" in ignored
    assert [name for name in copied if not (repo / name).exists()] == []


def stages(file: Path) -> list[Stage]:
    """The stages of a Dockerfile."""
    stages: list[Stage] = []
    for line in file.read_text().splitlines():
        if found := _STAGE.match(line):
            stages.append(Stage(found[1], found[2], ()))
        elif line and not line.startswith("#"):
            keyword, _, rest = line.partition(" ")
            assert keyword in ("ARG", "ENV", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT"), line
            stages[-1] = Stage(stages[-1].base, stages[-1].name, (*stages[-1].lines, (keyword, rest)))
    return stages
