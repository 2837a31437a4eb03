"""docs/install.md names what a release has: its files, the chart's values, the switches of its components.

tests/integration/test_readme.py runs its kubectl commands.
"""

import re
import shlex

import pytest
import yaml

from adapter import __version__
from hack.lab.base.paths import REPO
from hack.release import __main__ as release
from hack.release import manifests, overlays, values

DOC = (REPO / "docs/install.md").read_text()
REMOVING = (REPO / "docs/removing.md").read_text()
_BLOCKS = re.findall(r"^```sh\n(.*?)^```$", DOC, re.MULTILINE | re.DOTALL)
_COMMANDS = [shlex.split(line) for block in _BLOCKS for line in block.replace("\\\n", "").splitlines()]
_HELM = [words for words in _COMMANDS if words[0] == "helm"]
_DOCKER = [words for words in _COMMANDS if words[0] == "docker"]


def _value(name: str) -> object:
    found = yaml.safe_load((release.CHART / "values.yaml").read_text())
    for step in name.split("."):
        found = found[step]
    return found


def test_each_named_file_is_in_a_release() -> None:
    named = set(re.findall(r"\$RELEASE/([\w.-]+\.yaml)", DOC + REMOVING)) | set(
        re.findall(r"`(component-[\w.-]+)`", DOC)
    )
    assert {manifests.file_of(part) for part in manifests.PARTS} == named | {"worker.yaml"}


def test_each_component_has_its_switch() -> None:
    rows = dict(re.findall(r"^\| `(component-[\w-]+\.yaml)` \| `(\w+)`", DOC, re.MULTILINE))
    assert rows == {manifests.file_of(part): values.switch_of(part) for part in overlays.COMPONENTS}


def test_helm_sets_existing_values() -> None:
    pages = "".join(
        (REPO / "docs" / page).read_text() for page in ("install.md", "metrics.md", "networks.md", "serving.md")
    )
    told = re.findall(r"--set ([\w.]+)=", pages)
    told += re.findall(r"`((?:controllerManager|multiKueue|kubeRay|relay)\.[\w.]+)(?:=\w+)?`", pages)
    assert {"controllerManager.manager.logFormat", values.KUBERAY_ACCOUNT, "enablePrometheus"} <= {*told}
    assert len(told) > 4
    for name in told:
        _value(name)  # it would raise


def test_helm_and_docker_commands_agree_with_the_release() -> None:
    assert len(_HELM) == 2 and len(_DOCKER) == 2
    for words in _HELM:
        assert words[:5] == ["helm", "upgrade", "--install", "rayspan", "$CHART"]
        assert words[words.index("--namespace") + 1] == "rayspan-system"
    workflow = (REPO / ".github/workflows/release.yaml").read_text()
    controllers, relays = _DOCKER
    assert " ".join(controllers[:5]) in workflow
    assert " ".join(relays[:7]) in workflow
    assert relays[relays.index("--tag") + 1] == f"$IMAGES/{overlays.relay_repository('rayspan')}:v{__version__}"


def test_the_version_in_the_examples_is_that_of_the_checkout() -> None:
    examples = set(re.findall(r"rayspan-(\d+\.\d+\.\d+)|[=:` ]v(\d+\.\d+\.\d+)|--version (\d+\.\d+\.\d+)", DOC))
    assert {one for three in examples for one in three if one} == {__version__}


@pytest.mark.parametrize("option", ["--version", "--repository"])
def test_the_program_that_writes_a_release_has_its_options(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        release.main(["--help"])
    assert option in DOC and option in capsys.readouterr().out
