"""The workflows name existing make targets, programs, files and options, and trust only pinned actions and images.

They run at the hosting service alone. Here they are read.
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
from hack.release import overlays, plugin

_FILES = sorted((REPO / ".github/workflows").iterdir())
_RELEASE = REPO / ".github/workflows/release.yaml"
# Programs of ubuntu-24.04, and the Python that the workflow sets up.
_ON_THE_MACHINE = {"df", "docker", "echo", "gh", "git", "go", "helm", "make", "python3.11", "sha256sum", "sudo"}
# The input by which an action takes the image that it runs. Without it the action runs a tag that moves.
_IMAGE_INPUTS = {"docker/setup-qemu-action": "image", "docker/setup-buildx-action": "driver-opts"}
_ACTIONS_WITHOUT_IMAGE = {"actions/checkout", "actions/setup-python", "actions/attest-build-provenance"}
_PINNED_IMAGE = r"docker\.io/[\w/-]+:[\w.-]+@sha256:[0-9a-f]{64}"
_DOWNLOADS = "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY/releases/download/$VERSION"
_OURS = ".venv/bin/python"  # programs that `make` installs


def _workflow(path: Path) -> Raw:
    # YAML 1.1 reads the key `on` as a boolean; the service does not.
    return {"on" if key is True else key: value for key, value in yaml.safe_load(path.read_text()).items()}


def _steps(path: Path) -> Iterator[Raw]:
    for job in _workflow(path)["jobs"].values():
        yield from job["steps"]


def _commands(path: Path) -> list[list[str]]:
    """Each command as words, each part of a pipe by itself."""
    lines = [line for step in _steps(path) for line in step.get("run", "").splitlines()]
    return [shlex.split(part) for line in lines for part in line.split(" | ")]


def _command(path: Path, *beginning: str) -> list[str]:
    (words,) = (words for words in _commands(path) if tuple(words[: len(beginning)]) == beginning)
    return words


def _builds() -> list[list[str]]:
    """The commands that build and push an image: the controller's, then the relay's."""
    return [words for words in _commands(_RELEASE) if words[:2] == ["docker", "buildx"]]


def test_there_is_a_workflow_for_changes_and_one_for_releases() -> None:
    by_name = {path.stem: _workflow(path) for path in _FILES}
    assert by_name.keys() == {"pull-request", "release"}
    assert "pull_request" in by_name["pull-request"]["on"]
    assert by_name["release"]["on"] == {"push": {"tags": ["v*"]}}


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_an_action_is_pinned_by_commit_with_its_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)$", path.read_text(), re.MULTILINE)
    assert len(used) == sum("uses" in step for step in _steps(path)) > 0
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+(\.\d+\.\d+)?", one)] == []


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_an_image_that_an_action_runs_is_pinned_by_digest(path: Path) -> None:
    for step in _steps(path):
        action = step.get("uses", "").partition("@")[0]
        if name := _IMAGE_INPUTS.get(action):
            assert re.fullmatch(f"(image=)?{_PINNED_IMAGE}", step["with"][name]), step
        assert not action or action in {*_IMAGE_INPUTS, *_ACTIONS_WITHOUT_IMAGE}, f"which image does {action} run?"


def test_the_image_that_lists_the_contents_is_pinned_by_digest() -> None:
    (scanner,) = (step["env"]["SCANNER"] for step in _steps(_RELEASE) if "SCANNER" in step.get("env", {}))
    assert re.fullmatch(_PINNED_IMAGE, scanner)
    assert [dict(pairwise(words))["--sbom"] for words in _builds()] == ["generator=$SCANNER"] * 2


def test_the_emulator_comes_from_no_cache() -> None:
    """A cache is written by other workflows, and nothing compares it with the digest."""
    (emulator,) = (step["with"] for step in _steps(_RELEASE) if "setup-qemu" in step.get("uses", ""))
    assert emulator["cache-image"] is False


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_every_job_has_permissions_and_a_timeout(path: Path) -> None:
    workflow = _workflow(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 90 and job["runs-on"] == "ubuntu-24.04" for job in workflow["jobs"].values())
    writers = {job for job, spec in workflow["jobs"].items() if "write" in spec.get("permissions", {}).values()}
    assert writers == ({"publish"} if path.stem == "release" else set())


def test_the_job_that_may_publish_runs_no_test_and_installs_no_packages_of_tests() -> None:
    jobs = _workflow(_RELEASE)["jobs"]
    assert jobs.keys() == {"check", "publish"} and jobs["publish"]["needs"] == "check"
    assert "permissions" not in jobs["check"], "those of the workflow, which may only read"
    commands = "\n".join(step.get("run", "") for step in jobs["publish"]["steps"])
    assert not re.search(r"\bmake\b|pytest|requirements-dev", commands)
    installs = [line for line in commands.splitlines() if "pip install" in line]
    assert installs and all("--require-hashes" in line for line in installs)


def test_only_a_tag_on_main_is_published() -> None:
    steps = _workflow(_RELEASE)["jobs"]["check"]["steps"]
    assert steps[0]["with"]["fetch-depth"] == 0, "otherwise origin/main is not there"
    assert steps[1]["run"] == 'git merge-base --is-ancestor "$GITHUB_SHA" origin/main'


def test_only_publishing_steps_have_the_token() -> None:
    job = _workflow(_RELEASE)["jobs"]["publish"]
    assert "secrets." not in str(job["env"])
    seeing = [step["run"] for step in job["steps"] if "secrets." in str(step.get("env", ""))]
    assert len(seeing) == 2 and all(" login " in run and ("--push" in run or "helm push" in run) for run in seeing)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_workflow_starts_existing_programs(path: Path) -> None:
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
def test_the_checks_are_those_that_need_no_lab(path: Path) -> None:
    kind = [] if path == _RELEASE else [["kind-demo"]]
    assert [words[1:] for words in _commands(path) if words[0] == "make"] == [["lint"], ["test-unit"], *kind]
    pythons = {step["with"]["python-version"] for step in _steps(path) if "setup-python" in step.get("uses", "")}
    assert pythons == {versions.PYTHON}


def test_the_release_uses_existing_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, relay_digest = f"sha256:{'0' * 64}", f"sha256:{'1' * 64}"
    known = {"$DIGEST": digest, "$RELAY_DIGEST": relay_digest}
    words = [known.get(word, word) for word in _command(_RELEASE, _OURS, "-m", "hack.release")]
    written: list[tuple[Path, str, str, str, str, str]] = []
    monkeypatch.setattr(release, "write", lambda *given: written.append(given))
    assert release.main(words[3:]) == 0
    assert written == [(Path("dist"), "$VERSION", "$REPOSITORY", _DOWNLOADS, digest, relay_digest)]


def test_a_release_names_the_pushed_images_by_their_digests() -> None:
    (step,) = (step for step in _steps(_RELEASE) if "buildx build" in step.get("run", ""))
    lines = step["run"].splitlines()
    for words, file, variable in zip(_builds(), ("image.json", "relay.json"), ("DIGEST", "RELAY_DIGEST"), strict=True):
        assert dict(pairwise(words))["--metadata-file"] == file
        (line,) = (line for line in lines if f'json.load(open("{file}"))["containerimage.digest"]' in line)
        assert line.startswith(f'echo "{variable}=') and line.endswith('>> "$GITHUB_ENV"')


def test_everything_that_is_published_has_a_checksum_and_an_attestation() -> None:
    published = {word for word in _command(_RELEASE, "gh", "release") if word.startswith("dist/")}
    summed = {f"dist/{word}" for word in _command(_RELEASE, "sha256sum")[1:-2]}
    assert published == summed | {"dist/SHA256SUMS"}
    subjects = [step["with"] for step in _steps(_RELEASE) if "attest-build" in step.get("uses", "")]
    assert subjects == [
        {"subject-checksums": "dist/SHA256SUMS"},
        {"subject-name": "${{ env.REPOSITORY }}", "subject-digest": "${{ env.DIGEST }}"},
        {"subject-name": "${{ env.REPOSITORY }}-relay", "subject-digest": "${{ env.RELAY_DIGEST }}"},
    ]


def test_the_archives_of_the_krew_manifest_are_published() -> None:
    words = _command(_RELEASE, "gh", "release")
    published = {word.removeprefix("dist/") for word in words if word.startswith("dist/")}
    for name in (plugin.MANIFEST, *(system.archive for system in plugin.SYSTEMS)):
        assert any(PurePath(name).match(pattern) for pattern in published), name
    assert words[3] == "$VERSION" and _DOWNLOADS.endswith("/$VERSION")


def test_the_images_are_for_both_architectures_and_name_their_source() -> None:
    tags = [
        "$REPOSITORY:$VERSION",
        f"{overlays.relay_repository('$REPOSITORY')}:$VERSION",
    ]  # as the manifests name them
    for words, tag in zip(_builds(), tags, strict=True):
        options = dict(pairwise(words))
        assert options["--platform"] == "linux/amd64,linux/arm64"
        assert options["--provenance"] == "mode=max"
        assert options["--tag"] == tag
        assert words[-2:] == ["--push", "."]


@pytest.mark.parametrize(
    "builds",
    [
        _builds(),
        [words for words in _commands(_FILES[0]) if words[:2] == ["docker", "build"]],
    ],
    ids=["release", "pull-request"],
)
def test_the_relays_image_has_a_dockerfile_of_its_own(builds: list[list[str]]) -> None:
    assert [dict(pairwise(words)).get("--file") for words in builds] == [None, "Dockerfile.relay"]


def test_a_pull_request_runs_the_relays_image_with_the_components_configuration() -> None:
    words = next(words for words in _commands(_FILES[0]) if "haproxy" in words)
    assert dict(pairwise(words))["--volume"] == "$PWD/kustomize/components/relay:/config:ro"
    assert words[-4:] == ["haproxy", "-c", "-f", "/config/router.cfg"]
    assert overlays.RELAY_DEVELOPED in words
