"""A release's manifests and chart install the objects of the overlays, and each value of the chart has an effect.

A strict reader of the few template forms (templates.py) checks this quickly; tests marked `long` use Helm itself.
"""

import json
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import __version__
from adapter import names as adapter_names
from adapter.names import GATE_POLICY
from hack.lab.base.paths import REPO
from hack.lab.base.versions import KUBERNETES
from hack.lab.build import tools
from hack.release import __main__ as program
from hack.release import chart, manifests, overlays, values
from hack.release.overlays import Part, Raw
from tests.unit.repo import templates

VERSION, REPOSITORY = f"v{__version__}", "rayspan/rayspan"
IMAGE = f"{REPOSITORY}:{VERSION}"
SECRETS = {"multiKueue": {"secretNames": ["east", "west"]}}  # the Secrets that the component names
Render = Callable[..., list[Raw]]
# The first test with helm builds it, of the time that other tests leave: a quarter of an hour was not enough.
pytestmark = pytest.mark.timeout(2700)


@pytest.fixture(scope="module")
def helm() -> Path:
    tools.build(["helm"])
    return tools.path("helm")


@pytest.fixture(params=["read", pytest.param("helm", marks=pytest.mark.long)])
def render(request: pytest.FixtureRequest) -> Render:
    """Renders the chart with values, for a release namespace and a version of the cluster."""
    if request.param == "read":
        return partial(templates.render, program.CHART)
    return partial(_by_helm, request.getfixturevalue("helm"))


def _by_helm(
    helm: Path, chosen: Mapping[str, Any], namespace: str = "default", kubernetes: str = KUBERNETES
) -> list[Raw]:
    words: list[str | Path] = [helm, "template", "rayspan", program.CHART]
    said = subprocess.run(
        [*words, "--namespace", namespace, "--kube-version", kubernetes, "--values", "-"],
        input=json.dumps(chosen),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if said.returncode:
        raise templates.Refused(said.stderr)
    return [found for found in yaml.safe_load_all(said.stdout) if found]


def _set(objects: list[Raw]) -> dict[tuple[str, str], Raw]:
    found = {
        (each["kind"], f"{each['metadata'].get('namespace')}/{each['metadata']['name']}"): each for each in objects
    }
    assert len(found) == len(objects) > 0
    return found


def _switched(part: Part) -> Raw:
    needed = {"enableAdmission": True} if part.name == "admission-gate" else {}
    return {values.switch_of(part): True, **SECRETS, **needed}


# --- the same objects ------------------------------------------------------------------------------------------------


def test_the_chart_installs_what_the_overlay_does(render: Render) -> None:
    assert _set(render({})) == _set(overlays.objects(overlays.MANAGER, IMAGE))


def test_a_namespace_that_helm_creates_is_not_in_the_chart(render: Render) -> None:
    wanted = _set(overlays.objects(overlays.MANAGER, IMAGE))
    del wanted["Namespace", "None/rayspan-system"]
    assert _set(render({}, "rayspan-system")) == wanted


@pytest.mark.parametrize("part", overlays.COMPONENTS, ids=lambda part: part.name)
def test_a_switch_adds_its_component_and_nothing_else(render: Render, part: Part) -> None:
    parts = [overlays.MANAGER, *(one for one in overlays.COMPONENTS if values.switch_of(one) in _switched(part))]
    wanted = [each for one in parts for each in overlays.objects(one, IMAGE) if not _is_other_gate(part, each)]
    assert part in parts and _set(render(_switched(part))) == _set(wanted)


def _is_other_gate(part: Part, raw: Raw) -> bool:
    """With the webhook, the policy is left out, because older clusters lack its kind."""
    policies = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
    return part.name == "admission-gate" and raw["kind"] in policies and raw["metadata"]["name"] == GATE_POLICY


OLD = "v1.35.4"
GATED = {"enableAdmission": True, "enableAdmissionGate": True}


def test_before_kubernetes_1_36_the_chart_installs_the_overlay_with_the_webhook(render: Render) -> None:
    wanted = overlays.objects(overlays.MANAGER_WEBHOOK, IMAGE)
    assert _set(render(GATED, kubernetes=OLD)) == _set(wanted)
    assert not any(each["kind"].startswith("MutatingAdmissionPolicy") for each in wanted)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        pytest.param({}, "set enableAdmission and enableAdmissionGate", id="no gate"),
        pytest.param(
            {**GATED, "enableRayservice": True}, "enableRayservice needs Kubernetes 1.36",
            id="the policy for RayServices",
        ),
        pytest.param(
            {**GATED, "enableLocalRemote": True}, "enableLocalRemote needs Kubernetes 1.36",
            id="the layout with two flavors",
        ),
    ],
)  # fmt: skip
def test_before_kubernetes_1_36_components_that_need_its_policies_are_rejected(
    render: Render, chosen: Raw, said: str
) -> None:
    with pytest.raises(templates.Refused, match=said):
        render(chosen, kubernetes=OLD)
    assert render(chosen, kubernetes=KUBERNETES)


OVER_TLS = {values.METRICS_TLS: True}
MONITORED = {values.switch_of(overlays.MONITORING): True}


def test_with_metrics_over_tls_the_chart_installs_the_overlay(render: Render) -> None:
    assert _set(render({**OVER_TLS, **MONITORED})) == _set(overlays.objects(overlays.MANAGER_METRICS_TLS, IMAGE))


def test_metrics_over_tls_change_the_controller_and_its_scraping_alone(render: Render) -> None:
    every: Raw = {values.switch_of(part): True for part in overlays.COMPONENTS if part.name != "shared-flavor"}
    plain, secured = _set(render({**every, **SECRETS})), _set(render({**every, **SECRETS, **OVER_TLS}))
    assert plain.keys() == secured.keys()
    assert {one for one in plain if plain[one] != secured[one]} == {
        ("Deployment", "rayspan-system/rayspan-controller"),
        ("Service", "rayspan-system/rayspan-metrics"),
        ("PodMonitor", "rayspan-system/rayspan-controller"),
    }


def test_metrics_over_tls_combine_with_other_options(render: Render) -> None:
    objects = render({**OVER_TLS, **_nested(_OWN, {"logLevel": "debug", "logFormat": "json"})})
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    told = ["--verbose", "--metrics-certificate=/metrics-certificate", "--log-format=json"]
    assert container["args"] == ["controller", *told]


def test_each_component_of_the_checkout_has_its_switch() -> None:
    """One component changes objects of others, so it is part of an overlay alone."""
    folders = {f"components/{path.name}" for path in (REPO / "kustomize/components").iterdir()}
    assert {*(part.folder for part in overlays.COMPONENTS), "components/metrics-tls"} == folders


def test_no_namespace_is_open_until_an_admin_opens_it() -> None:
    """By default neither kubectl nor Helm gives the controller the right to read users' Secrets and ConfigMaps."""
    for part in manifests.PARTS:
        bound = [one for one in overlays.objects(part, IMAGE) if _role_of(one) == adapter_names.COPIED_OBJECTS_ROLE]
        assert bool(bound) == (part.name == "copies-everywhere"), part.name


def _role_of(raw: Raw) -> str:
    return str(raw.get("roleRef", {}).get("name"))


@pytest.mark.parametrize("part", manifests.PARTS, ids=lambda part: part.name)
def test_a_manifest_is_its_overlay_with_the_image_of_the_release(part: Part) -> None:
    text = manifests.files("v9.8.7", "registry.example/rayspan:v9.8.7")[manifests.file_of(part)]
    found = list(yaml.safe_load_all(text))
    assert found == overlays.objects(part, "registry.example/rayspan:v9.8.7")
    runs = any(each["kind"] in ("Deployment", "Job") for each in found)
    image = "registry.example/rayspan-relay:v9.8.7" if part is overlays.RELAY else "registry.example/rayspan:v9.8.7"
    assert (image in text) == runs
    assert overlays.DEVELOPED not in text and overlays.RELAY_DEVELOPED not in text
    assert text.startswith("# Rayspan v9.8.7. ") and manifests.file_of(part) in text.partition("---")[0]


def test_a_release_writes_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "rayspan/templates").mkdir(parents=True)
    (tmp_path / "rayspan/templates/gone.yaml").touch()
    assert program.main([str(tmp_path), "--version", "v9.8.7", "--repository", "registry.example/rayspan"]) == 0
    applied = {manifests.file_of(part) for part in manifests.PARTS}
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        *applied,
        manifests.RULES,
        manifests.DASHBOARD,
    }
    about = yaml.safe_load((tmp_path / "rayspan/Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == ("9.8.7", "v9.8.7")
    (deployment,) = (
        each for each in templates.render(tmp_path / "rayspan", {}, "default") if each["kind"] == "Deployment"
    )
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/rayspan:v9.8.7"
    assert not (tmp_path / "rayspan/templates/gone.yaml").exists()


def test_the_chart_of_the_checkout_is_what_the_program_writes(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        assert program.main([]) == 0
    wanted = chart.files(VERSION, REPOSITORY)
    there = {str(path.relative_to(program.CHART)) for path in program.CHART.rglob("*") if path.is_file()}
    assert there == {*wanted}
    for name, content in wanted.items():
        assert (program.CHART / name).read_text() == content, "run `python -m hack.release`, and read the difference"


# --- each value has an effect------------------------------------------------------------------------------------------

_POD = ("spec", "template", "spec")
_CONTAINER = (*_POD, "containers", 0)
_OWN = "controllerManager.manager"
VALUES: list[tuple[str, object, str, tuple[str | int, ...], object]] = [
    # value, chosen setting, kind, path in the object, result
    ("controllerManager.replicas", 3, "Deployment", ("spec", "replicas"), 3),
    (
        f"{_OWN}.image.repository", "registry.example/own", "Deployment", (*_CONTAINER, "image"),
        f"registry.example/own:{VERSION}",
    ),
    (f"{_OWN}.image.tag", "dev", "Deployment", (*_CONTAINER, "image"), f"{REPOSITORY}:dev"),
    (f"{_OWN}.image.pullPolicy", "Always", "Deployment", (*_CONTAINER, "imagePullPolicy"), "Always"),
    (f"{_OWN}.logLevel", "debug", "Deployment", (*_CONTAINER, "args"), ["controller", "--verbose"]),
    (f"{_OWN}.logFormat", "json", "Deployment", (*_CONTAINER, "args"), ["controller", "--log-format=json"]),
    (
        f"{_OWN}.podAnnotations", {"a/b": "true"}, "Deployment", ("spec", "template", "metadata", "annotations"),
        {"a/b": "true"},
    ),
    (
        f"{_OWN}.priorityClassName", "system-cluster-critical", "Deployment", (*_POD, "priorityClassName"),
        "system-cluster-critical",
    ),
    (
        f"{_OWN}.resources", {"limits": {"memory": "2Gi"}}, "Deployment", (*_CONTAINER, "resources", "limits"),
        {"memory": "2Gi"},
    ),
    (
        "controllerManager.imagePullSecrets", [{"name": "own"}], "Deployment", (*_POD, "imagePullSecrets"),
        [{"name": "own"}],
    ),
    (
        "controllerManager.serviceAccount.annotations", {"a/b": "c"}, "ServiceAccount", ("metadata", "annotations"),
        {"a/b": "c"},
    ),
    ("controllerManager.nodeSelector", {"pool": "system"}, "Deployment", (*_POD, "nodeSelector"), {"pool": "system"}),
    (
        "controllerManager.tolerations", [{"operator": "Exists"}], "Deployment", (*_POD, "tolerations"),
        [{"operator": "Exists"}],
    ),
    (
        "controllerManager.affinity", {"podAntiAffinity": None, "nodeAffinity": {"x": 1}}, "Deployment",
        (*_POD, "affinity", "nodeAffinity"), {"x": 1},
    ),
]  # fmt: skip


def test_a_release_with_a_digest_names_exactly_that_image(tmp_path: Path) -> None:
    digest = f"sha256:{'a' * 64}"
    assert program.main([str(tmp_path), "--digest", digest]) == 0
    (deployment,) = (
        each for each in yaml.safe_load_all((tmp_path / "manager.yaml").read_text()) if each["kind"] == "Deployment"
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (installed,) = (each for each in templates.render(tmp_path / chart.NAME, {}) if each["kind"] == "Deployment")
    assert container["image"] == f"{IMAGE}@{digest}"
    assert installed["spec"]["template"]["spec"]["containers"][0]["image"] == f"{IMAGE}@{digest}"


def test_a_digest_of_the_relays_image_is_of_that_image_alone(tmp_path: Path) -> None:
    digests = {"rayspan": f"sha256:{'a' * 64}", "rayspan-relay": f"sha256:{'b' * 64}"}
    words = ["--digest", digests["rayspan"], "--relay-digest", digests["rayspan-relay"]]
    assert program.main([str(tmp_path), *words]) == 0
    applied = [
        each
        for name in ("manager.yaml", manifests.file_of(overlays.RELAY))
        for each in yaml.safe_load_all((tmp_path / name).read_text())
    ]
    for objects in (applied, templates.render(tmp_path / chart.NAME, RELAYED)):
        images = [_container(each)["image"] for each in objects if each["kind"] == "Deployment"]
        assert sorted(images) == [
            f"rayspan/{name}:{VERSION}@{digest}" for name, digest in sorted(digests.items(), reverse=True)
        ]


def _container(deployment: Raw) -> Raw:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


@pytest.mark.parametrize("option", ["--digest", "--relay-digest"])
def test_a_malformed_digest_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["dist", option, "latest"])
    assert "'latest' is no digest" in capsys.readouterr().err


_OF_EVERY_POD = ("repository", "tag", "pullPolicy", "imagePullSecrets", "nodeSelector", "tolerations")


def _nested(name: str, value: object) -> Raw:
    head, _, below = name.partition(".")
    return {head: _nested(below, value) if below else value}


@pytest.mark.parametrize(("name", "chosen", "kind", "path", "wanted"), VALUES, ids=[row[0] for row in VALUES])
def test_a_value_has_an_effect(
    render: Render, name: str, chosen: object, kind: str, path: tuple[str | int, ...], wanted: object
) -> None:
    (found,) = (each for each in render(_nested(name, chosen)) if each["kind"] == kind)
    shown: Any = found
    for step in path:
        shown = shown[step]
    assert shown == wanted


@pytest.mark.parametrize(
    "row", [row for row in VALUES if row[0].rpartition(".")[2] in _OF_EVERY_POD], ids=lambda row: row[0]
)
def test_image_and_node_values_apply_to_the_access_server_too(render: Render, row: Any) -> None:
    name, chosen, _, path, wanted = row
    objects = render({**_nested(name, chosen), "enableWorkerAccess": True})
    found: list[Any] = [each for each in objects if each["kind"] == "Deployment"]
    for step in path:
        found = [one[step] for one in found]
    assert found == [wanted, wanted]


RELAYED = {values.switch_of(overlays.RELAY): True}
RELAY_VALUES: list[tuple[str, object, str, tuple[str | int, ...], object]] = [
    (
        "relay.image.repository", "registry.example/relay", "Deployment", (*_CONTAINER, "image"),
        f"registry.example/relay:{VERSION}",
    ),
    ("relay.image.tag", "dev", "Deployment", (*_CONTAINER, "image"), f"{REPOSITORY}-relay:dev"),
    ("relay.service.type", "LoadBalancer", "Service", ("spec", "type"), "LoadBalancer"),
    ("relay.service.nodePort", 31443, "Service", ("spec", "ports", 0, "nodePort"), 31443),
    ("relay.service.annotations", {"a/b": "c"}, "Service", ("metadata", "annotations"), {"a/b": "c"}),
    (f"{_OWN}.image.pullPolicy", "Always", "Deployment", (*_CONTAINER, "imagePullPolicy"), "Always"),
    (
        "controllerManager.nodeSelector", {"pool": "system"}, "Deployment", (*_POD, "nodeSelector"),
        {"pool": "system"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "chosen", "kind", "path", "wanted"), RELAY_VALUES, ids=[row[0] for row in RELAY_VALUES]
)
def test_a_value_has_an_effect_on_the_relay(
    render: Render, name: str, chosen: object, kind: str, path: tuple[str | int, ...], wanted: object
) -> None:
    objects = render({**RELAYED, **_nested(name, chosen)})
    shown: Any
    (shown,) = (
        each for each in objects if each["kind"] == kind and each["metadata"]["name"].startswith(values.RELAY_SERVICE)
    )
    for step in path:
        shown = shown[step]
    assert shown == wanted


def test_every_value_is_tested() -> None:
    (deployment,) = (each for each in overlays.objects(overlays.MANAGER, IMAGE) if each["kind"] == "Deployment")
    names = {value.name for value in values.values(deployment, REPOSITORY)}
    switches = {values.switch_of(part) for part in overlays.COMPONENTS}
    others = {values.METRICS_TLS, values.MULTIKUEUE_SECRETS, values.KUBERAY_ACCOUNT}
    assert names == {*(row[0] for row in (*VALUES, *RELAY_VALUES)), *switches, *others}


def test_the_policy_of_services_names_the_account_that_is_chosen(render: Render) -> None:
    """The default account is that of the overlay (test_a_switch_adds_its_component_and_nothing_else)."""

    def conditions(chosen: Raw) -> list[str]:
        (found,) = (each for each in render({"enableRayservice": True, **chosen}) if _is_hold(each))
        return [condition["expression"] for condition in found["spec"]["matchConditions"]]

    (before,), (after,) = conditions({}), conditions(_nested(values.KUBERAY_ACCOUNT, "my-kuberay"))
    assert before.count(values.KUBERAY) == 1
    assert after == before.replace(values.KUBERAY, "my-kuberay")


def _is_hold(raw: Raw) -> bool:
    return (raw["kind"], raw["metadata"]["name"]) == ("MutatingAdmissionPolicy", adapter_names.SERVICE_POLICY)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        pytest.param(
            {"enableMultiKueue": True}, "enableMultiKueue needs multiKueue.secretNames",
            id="access to all Secrets of Kueue",
        ),
        pytest.param(
            {"enableSharedFlavor": True, "enableLocalRemote": True}, "choose one", id="two layouts of one queue",
        ),
        pytest.param({"enableAdmissionGate": True}, "needs enableAdmission", id="a gate without a webhook server"),
    ],
)  # fmt: skip
def test_invalid_installations_are_rejected(render: Render, chosen: Raw, said: str) -> None:
    with pytest.raises(templates.Refused, match=said):
        render(chosen)


# --- Helm's own judgement --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("chosen", "kubernetes", "said"),
    [
        pytest.param({"replicas": 3}, KUBERNETES, "replicas", id="an unknown value"),
        pytest.param(
            {"controllerManager": {"manager": {"logLevel": 5}}}, KUBERNETES, "logLevel", id="Kueue's log levels",
        ),
        pytest.param(
            {"kubeRay": {"serviceAccountName": "a.b"}}, KUBERNETES, "serviceAccountName",
            id="an account name that is a pattern",
        ),
        pytest.param(GATED, "v1.33.9", "1.34.0-0", id="a cluster of an untested version"),
    ],
)  # fmt: skip
def test_helm_rejects(helm: Path, chosen: Raw, kubernetes: str, said: str) -> None:
    with pytest.raises(templates.Refused, match=said):
        _by_helm(helm, chosen, "default", kubernetes)


@pytest.mark.long
def test_helm_lint_passes(helm: Path) -> None:
    said = subprocess.run(
        [helm, "lint", "--strict", "--kube-version", KUBERNETES, program.CHART],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
