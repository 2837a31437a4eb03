"""The Dockerfile makes the image that the lab's tests run. It is read and compared, without Docker.

The release workflow builds it with Docker.
"""

import json
import re
import tomllib

import pytest
import yaml

from hack.lab.base import versions
from hack.lab.base.paths import REPO
from hack.lab.images import adapterimage
from tests.unit.repo import dockerfiles

BUILD, FINAL = dockerfiles.stages(REPO / "Dockerfile")


def _pip() -> list[list[str]]:
    """The calls of `pip install` as words."""
    calls = [rest.split() for rest in BUILD.all("RUN")]
    return [words for words in calls if words[:2] == ["pip", "install"]]


def test_its_base_is_the_labs_python_pinned_by_digest() -> None:
    assert BUILD.base == FINAL.base
    name, _, digest = FINAL.base.partition("@")
    assert name == f"python:{versions.PYTHON}-slim-{versions.DEBIAN}"
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest)


def test_it_runs_like_the_labs_image() -> None:
    runs = adapterimage.RUNS
    (environment,) = FINAL.all("ENV")
    paths = [one for one in runs["Env"] if not one.startswith("PATH=")]  # the base image finds its own Python
    assert environment.split() == paths
    assert FINAL.all("USER") == [runs["User"]]
    assert FINAL.all("WORKDIR") == [runs["WorkingDir"]]
    assert json.loads(*FINAL.all("ENTRYPOINT")) == runs["Entrypoint"]


def test_the_deployment_runs_it_as_the_same_user() -> None:
    (deployment,) = (
        each
        for each in yaml.safe_load_all((REPO / "manifests/controller.yaml").read_text())
        if each["kind"] == "Deployment"
    )
    wanted = deployment["spec"]["template"]["spec"]["securityContext"]
    assert FINAL.all("USER") == [f"{wanted['runAsUser']}:{wanted['runAsGroup']}"]


def test_the_final_image_has_the_installed_packages_alone() -> None:
    assert FINAL.all("COPY") == [f"--from={BUILD.name} /install /usr/local"]
    compiling = "python3 -m compileall -q --invalidation-mode unchecked-hash -x site-packages"
    assert FINAL.all("RUN") == [f"{compiling} /usr/local/lib/python{versions.PYTHON}"], (
        "as the lab's lowest layer has it"
    )


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-build.lock"])
def test_each_package_is_locked_and_checked(lock: str) -> None:
    (call,) = (words for words in _pip() if words[-1] == lock)
    assert {"--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement"} <= set(call)
    named = re.findall(r"^([\w.-]+)==\S+ \\\n +--hash=sha256:[0-9a-f]{64}", (REPO / lock).read_text(), re.MULTILINE)
    assert len(named) == len(re.findall(r"^[a-z]", (REPO / lock).read_text(), re.MULTILINE)) > 0


def test_only_locked_packages_and_our_wheel_are_installed() -> None:
    assert [words[-1] for words in _pip()] == ["requirements.lock", "requirements-build.lock", "/wheel/*.whl"]
    assert [("--prefix=/install" in words) for words in _pip()] == [True, False, True]
    assert all("--no-index" in words for words in _pip() if words[-1] == "/wheel/*.whl")
    assert "pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /wheel ." in BUILD.all("RUN")


def test_the_wheel_is_built_by_the_projects_build_requirements() -> None:
    (wanted,) = tomllib.loads((REPO / "pyproject.toml").read_text())["build-system"]["requires"]
    least = re.fullmatch(r"setuptools>=(\d+)", wanted)
    locked = re.search(r"^setuptools==(\d+)\.", (REPO / "requirements-build.lock").read_text(), re.MULTILINE)
    assert least and locked and int(locked[1]) >= int(least[1])


def test_the_wheel_holds_the_files_that_the_labs_image_holds() -> None:
    """By setuptools' rule: the modules of each package, and the data files that the project names."""
    tool = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert tool["packages"]["find"]["include"] == ["adapter*"]
    packages = {path.parent for path in (REPO / "adapter").rglob("__init__.py")}
    modules = {module for package in packages for module in package.glob("*.py")}
    data = {
        file
        for package, patterns in tool["package-data"].items()
        for pattern in patterns
        for file in (REPO / package.replace(".", "/")).glob(pattern)
    }
    assert modules | data == set(adapterimage.files())


def test_copied_files_exist_and_are_not_ignored() -> None:
    dockerfiles.check_copied_files(BUILD, REPO, ".dockerignore")


def test_the_targets_of_links_are_copied() -> None:
    copied = [REPO / word for rest in BUILD.all("COPY") for word in rest.split()[:-1]]
    links = [file.resolve() for file in adapterimage.files() if file.is_symlink()]
    assert links and all(any(link.is_relative_to(place) for place in copied) for link in links)
