"""Reads a patch: a header of four fields, and a diff for `git apply`; and checks that it still fits.

It applies patches to a tree that it is given. It runs no test.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.lab.base import commands
from hack.lab.base.progress import LabError

PATCHES = Path(__file__).parent / "patches"
TIERS = ("unit", "lab")
_DIFF = "diff --git "
_FIELD = re.compile(r"^(Promise|Broken|Test|Tier): (.+)$")


@dataclass(frozen=True, slots=True)
class Patch:
    """One break of the product."""

    name: str
    file: Path
    promise: str  # the broken promise: a word or two, and after a colon what it says
    broken: str  # what the patch changes
    tests: tuple[str, ...]  # of which one must be red, as pytest names them
    tier: str  # what these tests need: nothing (unit), or the lab

    @property
    def label(self) -> str:
        """The promise in a word or two."""
        return self.promise.partition(":")[0]


def read(file: Path) -> Patch:
    """Read a patch; raises LabError with a sentence when its header is not complete."""
    header, diff, _ = file.read_text(encoding="utf-8").partition(_DIFF)
    found = [_FIELD.match(line) for line in header.splitlines() if line]
    fields = [(one[1], one[2].strip()) for one in found if one]
    once = {key: text for key, text in fields if key != "Test"}
    tests = tuple(text for key, text in fields if key == "Test")
    # Every line is a field, and every field but Test occurs once.
    whole = None not in found and len(once) == 3 and len(fields) == len(once) + len(tests)
    if not (whole and tests and diff and ":" in once["Promise"] and once["Tier"] in TIERS):
        raise LabError(
            f"{file.name} needs one line each of Promise (`word: what it says`), Broken and Tier "
            f"({' or '.join(TIERS)}), one or more of Test, and a diff of git."
        )
    return Patch(file.stem, file, once["Promise"], once["Broken"], tests, once["Tier"])


def every(folder: Path = PATCHES) -> list[Patch]:
    """All patches, by name."""
    return [read(file) for file in sorted(folder.glob("*.patch"))]


def chosen(patches: Sequence[Patch], names: Sequence[str], tier: str) -> list[Patch]:
    """The patches of these names, all if none is named, as far as they are of the tier; raises LabError for an unknown
    name.
    """
    known = {patch.name for patch in patches}
    if odd := sorted(set(names) - known):
        raise LabError(f"There is no patch {', '.join(odd)}; there are {', '.join(sorted(known))}.")
    return [patch for patch in patches if patch.name in (names or known) and tier in ("all", patch.tier)]


def check(patch: Patch, tree: Path) -> None:
    """Raise LabError unless the patch fits a tree, which stays as it is."""
    _apply(patch, tree, "--check")


def apply(patch: Patch, tree: Path) -> None:
    """Break a tree; raises LabError when the patch does not fit it."""
    _apply(patch, tree)


def _apply(patch: Patch, tree: Path, *words: str) -> None:
    # In a folder of a repository `git apply` skips what is outside of that folder, and reports success.
    alone = {"GIT_CEILING_DIRECTORIES": str(tree.resolve().parent)}
    try:
        commands.run(["git", "apply", *words, patch.file.resolve()], cwd=tree, env=alone)
    except LabError as misfit:
        raise LabError(f"The patch {patch.name} no longer fits, make it anew: {misfit}") from None
