"""Do the hosting service's workflows name what exists: targets of make, programs of ours, files, options; and which actions do they trust?

They run there and nowhere else. Here they are read.
"""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path, PurePath

import pytest
import yaml

from adapter.objects.unstructured import Raw
from hack.lab.base import versions
from hack.lab.base.paths import REPO
from hack.release import __main__ as release
from hack.release import plugin

_FILES = sorted((REPO / ".github/workflows").iterdir())
_ON_THE_MACHINE = {"docker", "echo", "gh", "helm", "make"}  # what ubuntu-24.04 has there
_DOWNLOADS = "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY/releases/download/$VERSION"
_OURS = ".venv/bin/python"  # which `make` puts there


def _workflow(path: Path) -> Raw:
    # YAML 1.1 reads the key `on` as a truth value; the service does not.
    return {"on" if key is True else key: value for key, value in yaml.safe_load(path.read_text()).items()}


def _steps(path: Path) -> Iterator[Raw]:
    for job in _workflow(path)["jobs"].values():
        yield from job["steps"]


def _commands(path: Path) -> list[list[str]]:
    """Each command as words; of a pipe each part."""
    lines = [line for step in _steps(path) for line in step.get("run", "").splitlines()]
    return [shlex.split(part) for line in lines for part in line.split(" | ")]


def test_there_is_one_for_changes_and_one_for_releases() -> None:
    by_name = {path.stem: _workflow(path) for path in _FILES}
    assert by_name.keys() == {"pull-request", "release"}
    assert "pull_request" in by_name["pull-request"]["on"]
    assert by_name["release"]["on"] == {"push": {"tags": ["v*"]}}


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_an_action_is_pinned_by_its_commit_and_says_its_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)$", path.read_text(), re.MULTILINE)
    assert len(used) == sum("uses" in step for step in _steps(path)) > 0
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+(\.\d+\.\d+)?", one)] == []


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_every_job_says_what_it_may_and_how_long(path: Path) -> None:
    workflow = _workflow(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 90 and job["runs-on"] == "ubuntu-24.04" for job in workflow["jobs"].values())
    writers = {job for job, spec in workflow["jobs"].items() if "write" in spec.get("permissions", {}).values()}
    assert writers == ({"publish"} if path.stem == "release" else set())


def test_no_program_sees_the_token_but_those_that_publish() -> None:
    (job,) = _workflow(REPO / ".github/workflows/release.yaml")["jobs"].values()
    assert "secrets." not in str(job["env"])
    seeing = [step["run"] for step in job["steps"] if "secrets." in str(step.get("env", ""))]
    assert len(seeing) == 2 and all(" login " in run and ("--push" in run or "helm push" in run) for run in seeing)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_it_starts_only_what_is_there(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (REPO / "Makefile").read_text(), re.MULTILINE))
    for words in _commands(path):
        assert words[0] in {*_ON_THE_MACHINE, _OURS}, words
        if words[0] == "make":
            assert set(words[1:]) <= targets, words
        if words[:3] == [_OURS, "-m", "pytest"]:
            assert all((REPO / word).exists() for word in words[3:] if word.startswith("tests/")), words
        elif words[:2] == [_OURS, "-m"] and words[2] != "pip":
            assert (REPO / words[2].replace(".", "/") / "__main__.py").is_file(), words
        if words[0] == _OURS and words[1] == "-c":
            compile(words[2], "run", "exec")


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_what_is_checked_is_what_passes_here_without_a_cluster(path: Path) -> None:
    assert [words[1:] for words in _commands(path) if words[0] == "make"] == [["lint"], ["test-unit"]]
    (python,) = (step["with"]["python-version"] for step in _steps(path) if "setup-python" in step.get("uses", ""))
    assert python == versions.PYTHON


def test_the_release_is_written_by_options_that_the_program_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (words,) = (words for words in _commands(REPO / ".github/workflows/release.yaml") if "hack.release" in words)
    written: list[tuple[Path, str, str, str]] = []
    monkeypatch.setattr(release, "write", lambda *given: written.append(given))
    assert release.main(words[3:]) == 0
    assert written == [(Path("dist"), "$VERSION", "$REPOSITORY", _DOWNLOADS)]


def test_what_krew_is_told_to_load_is_published() -> None:
    (words,) = (words for words in _commands(REPO / ".github/workflows/release.yaml") if words[:2] == ["gh", "release"])
    published = {word.removeprefix("dist/") for word in words if word.startswith("dist/")}
    for name in (plugin.MANIFEST, *(system.archive for system in plugin.SYSTEMS)):
        assert any(PurePath(name).match(pattern) for pattern in published), name
    assert words[3] == "$VERSION" and _DOWNLOADS.endswith("/$VERSION")


def test_the_image_is_for_both_architectures_and_says_where_it_is_from() -> None:
    (words,) = (
        words for words in _commands(REPO / ".github/workflows/release.yaml") if words[:2] == ["docker", "buildx"]
    )
    options = dict(pairwise(words))
    assert options["--platform"] == "linux/amd64,linux/arm64"
    assert (options["--provenance"], options["--sbom"]) == ("mode=max", "true")
    assert options["--tag"] == "$REPOSITORY:$VERSION"  # the name that the manifests and the chart are written with
    assert words[-2:] == ["--push", "."]
