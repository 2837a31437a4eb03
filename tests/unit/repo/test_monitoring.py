"""Alerts and dashboard use metrics and labels that the controller serves, and each alert says what to do.

tests/integration/test_monitoring.py runs a real Prometheus. Here a reader knows the few forms that the expressions
have, and rejects all others.
"""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from adapter import membership, names
from adapter.admission import condition_patches
from adapter.cli.commands.parser import build_parser
from adapter.objects.placement import PlacementState
from adapter.shell import metrics
from adapter.shell.certificate import Certificate
from adapter.shell.kube.client import ApiError
from hack.lab.base.paths import REPO
from hack.release import manifests, overlays
from tests.unit import stores
from tests.unit.repo import alertcases
from tests.unit.shell.controller.test_metrics import metric_types
from tests.unit.shell.test_certificate import shakes

_FOLDER = REPO / "kustomize/components/monitoring"
_DOC = REPO / "docs/metrics.md"
_FILES = (names.TLS_CERT_KEY, names.TLS_PRIVATE_KEY_KEY)
_RULE = yaml.safe_load((_FOLDER / "rules.yaml").read_text())
_ALERTS: list[dict[str, Any]] = [rule for group in _RULE["spec"]["groups"] for rule in group["rules"]]
_BOARD = json.loads((_FOLDER / "dashboard.json").read_text())
# Labels that Prometheus adds to each target, and the label of histogram buckets.
_TARGET, _BUCKET = {"job", "instance"}, "le"
_WORDS = {
    "sum", "max", "min", "count", "by", "and", "unless", "on", "offset", "absent", "rate", "increase", "changes",
    "time", "histogram_quantile",
}  # fmt: skip
_STATES = {*PlacementState}
_VALUES: dict[tuple[str, str], set[str]] = {
    ("rayspan_cluster_connected_reason", "reason"): {*condition_patches.REASONS},
    ("rayspan_workers_lost_total", "reason"): {*names.LOSS_REASONS, metrics.OTHER},
    ("rayspan_placements", "state"): _STATES,
    ("rayspan_dispatch_duration_seconds", "stage"): {metrics.CREATED, metrics.RUNNING},
    ("rayspan_orphans_deleted_total", "reason"): {*names.OrphanReason},
    ("rayspan_pods", "phase"): {"Pending", "Running", "Succeeded", "Failed", "Unknown", metrics.OTHER},
}


def _expressions() -> Iterator[tuple[str, str]]:
    yield from ((rule["alert"], rule["expr"]) for rule in _ALERTS)
    yield from ((panel["title"], target["expr"]) for panel in _BOARD["panels"] for target in panel["targets"])


EXPRESSIONS = [pytest.param(text, id=f"{where}-{number}") for number, (where, text) in enumerate(_expressions())]


def served() -> dict[str, set[str]]:
    """The names of all served samples with their labels; those of the process come from the library."""
    found = metric_types()
    histograms = {
        f"{family.name}_bucket": found[family.name] | {_BUCKET}
        for family in REGISTRY.collect()
        if family.type == "histogram" and family.name in found
    }
    plain = {
        sample.name: set[str]()
        for family in REGISTRY.collect()
        if family.name.startswith("process_")
        for sample in family.samples
    }
    return {
        **plain,
        **{name: labels for name, labels in found.items() if f"{name}_bucket" not in histograms},
        **histograms,
    }


def selectors(text: str) -> Iterator[tuple[str, str]]:
    """The metrics that an expression selects, each with the text in its braces; all other words are PromQL's."""
    bare = re.sub(r"\b(by|on) \([^)]*\)|\[\w+\]|offset \w+", "", text)
    unquoted = re.sub(r'"[^"]*"', '""', bare)
    for word in re.findall(r"(?<![\w.])[a-z_]\w*(?!\w*[=!])", re.sub(r"\{[^}]*\}", "", unquoted)):
        if word not in _WORDS:
            found = re.search(rf"\b{word}(?:\{{([^}}]*)\}})?", bare)
            assert found, word
            yield word, found[1] or ""


def matchers(braces: str) -> list[tuple[str, str, str]]:
    found = re.findall(r'(\w+)(=~|!=|!~|=)"([^"]*)"', braces)
    assert ",".join(f'{label}{how}"{value}"' for label, how, value in found) == braces
    return found


# --- alerts and dashboard use existing metrics ------------------------------------------------------------------------


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_selects_served_metrics(text: str) -> None:
    there, chosen = served(), [*selectors(text)]
    assert chosen
    for metric, braces in chosen:
        assert metric in there
        assert {label for label, _, _ in matchers(braces)} <= there[metric]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_groups_by_existing_labels(text: str) -> None:
    there = served()
    known = set[str]().union(*(there[metric] for metric, _ in selectors(text))) | _TARGET
    grouped = {label.strip() for _, labels in re.findall(r"\b(by|on) \(([^)]*)\)", text) for label in labels.split(",")}
    assert grouped - {""} <= known


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_matched_value_is_one_that_occurs(text: str) -> None:
    for metric, braces in selectors(text):
        for label, how, value in matchers(braces):
            known = _VALUES.get((metric.removesuffix("_bucket"), label))
            asked = {one for one in (value.split("|") if how.endswith("~") else [value]) if one}
            assert known is None or asked <= known


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_brackets_are_closed(text: str) -> None:
    bare = re.sub(r'"[^"]*"', "", text)
    while bare != (bare := re.sub(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}", "", bare)):
        pass
    assert not re.search(r"[()\[\]{}]", bare)


def test_only_counters_are_used_with_rate_and_increase() -> None:
    for _, text in _expressions():
        for inner in re.findall(r"\b(?:rate|increase)\((\w+)", text):
            assert inner.endswith(("_total", "_bucket"))


def test_a_missing_optional_right_raises_no_alert() -> None:
    """The controller lists these kinds again and again, so that a new right takes effect at once."""
    refusal = ApiError(403, "Forbidden", "")
    without = {row.resource.plural for row in stores.Sight({}).manager._watched_kinds if row.optional_if(refusal)}
    objects = overlays.objects(overlays.MANAGER, "image")
    bound = {each["roleRef"]["name"] for each in objects if each["kind"] == "ClusterRoleBinding"}
    roles = [each for each in objects if each["kind"] == "ClusterRole" and each["metadata"]["name"] in bound]
    assert roles
    given = {kind for role in roles for rule in role["rules"] if "list" in rule["verbs"] for kind in rule["resources"]}
    kinds = "|".join(sorted(without - given))
    left_out = f'unless rate(rayspan_api_requests_total{{cluster="",kind=~"{kinds}",code="403"}}[5m])'
    asked = [text for _, text in _expressions() if "4(0" in text]
    assert without - given and len(asked) == 2
    assert all(left_out in text for text in asked)


def test_the_usual_alerts_exist() -> None:
    assert {
        "RayspanNoLeader",
        "RayspanClusterNotConnected",
        "RayspanTaskFailing",
        "RayspanWorkersLost",
        "RayspanClaimConflict",
    } <= {rule["alert"] for rule in _ALERTS}


def test_the_alert_on_a_token_agrees_with_its_condition() -> None:
    (rule,) = (rule for rule in _ALERTS if rule["alert"] == "RayspanTokenExpiring")
    assert f" - time() < {membership.EXPIRY_NOTICE.days} * 86400 " in rule["expr"]


def test_each_alert_is_tested_with_served_series() -> None:
    """A real Prometheus tests each alert elsewhere: with series on which it fires, and on which it does not."""
    assert [*alertcases.CASES] == [rule["alert"] for rule in _ALERTS]
    there = served()
    for case in alertcases.CASES.values():
        assert case.fires.keys() and case.fires != case.silent
        for series in (*case.fires, *case.silent):
            name, _, braces = series.rstrip("}").partition("{")
            assert {label for label, _, _ in matchers(braces)} <= there[name] | _TARGET, series


# --- each alert says what to do ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", _ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert set(rule["labels"]) == {"severity"} and rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "runbook"}
    assert re.fullmatch(r"\d+[mh]", rule.get("for", "0m"))
    summary = rule["annotations"]["summary"]
    assert summary[0].isupper() and summary.endswith(".") and "{" not in summary and len(summary) < 200
    assert rule["annotations"]["runbook"] == f"docs/metrics.md#{rule['alert'].lower()}"


def test_each_alert_has_its_section_in_the_same_order() -> None:
    sections = re.findall(r"^### (Rayspan\w+)\n\n\S", _DOC.read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in _ALERTS]


# --- scraping, and the files ------------------------------------------------------------------------------------------


def _one(kind: str, name: str = "", *parts: overlays.Part) -> dict[str, Any]:
    objects = [each for part in parts or [overlays.MONITORING] for each in overlays.objects(part, "image")]
    (found,) = (each for each in objects if each["kind"] == kind and name in ("", each["metadata"]["name"]))
    return found


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([overlays.MANAGER, overlays.MONITORING], id="metrics over HTTP"),
        pytest.param([overlays.MANAGER_METRICS_TLS], id="metrics over TLS"),
    ],
)
def test_prometheus_finds_the_pods_with_and_without_the_operator(parts: list[overlays.Part]) -> None:
    pod = _one("Deployment", "", *parts)["spec"]["template"]
    service, monitor = _one("Service", "rayspan-metrics", *parts)["spec"], _one("PodMonitor", "", *parts)["spec"]
    assert service["selector"] == monitor["selector"]["matchLabels"] == pod["metadata"]["labels"]
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    (port,), (endpoint,) = service["ports"], monitor["podMetricsEndpoints"]
    assert ports[endpoint["port"]] == ports[port["targetPort"]] == port["port"]
    assert service["clusterIP"] == "None", "one address would be one replica at a time"


def _secret_over_tls() -> tuple[dict[str, Any], dict[str, Any]]:
    """The Secret that the pod mounts, and the TLS configuration of Prometheus."""
    pod = _one("Deployment", "", overlays.MANAGER_METRICS_TLS)["spec"]["template"]["spec"]
    (mounted,) = (one["secret"] for one in pod["volumes"] if "secret" in one)
    (endpoint,) = _one("PodMonitor", "", overlays.MANAGER_METRICS_TLS)["spec"]["podMetricsEndpoints"]
    return mounted, endpoint


def test_over_tls_the_controller_has_its_certificate_and_prometheus_its_authority() -> None:
    pod = _one("Deployment", "", overlays.MANAGER_METRICS_TLS)["spec"]["template"]["spec"]
    (container,), (mounted, endpoint) = pod["containers"], _secret_over_tls()
    given = build_parser(["rayspan", *container["args"]]).parse_args(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"] if one.get("readOnly")}
    assert ports[endpoint["port"]] == given.metrics_port
    assert {"name": mounts[given.metrics_certificate], "secret": mounted} in pod["volumes"]
    assert {item["key"]: item["path"] for item in mounted["items"]} == {name: name for name in _FILES}
    service = _one("Service", "rayspan-metrics", overlays.MANAGER_METRICS_TLS)["metadata"]
    assert endpoint["scheme"] == "https" and endpoint["tlsConfig"] == {
        "serverName": f"{service['name']}.{service['namespace']}.svc",
        "ca": {"secret": {"name": mounted["secretName"], "key": "ca.crt"}},
    }


def test_prometheus_trusts_the_certificate_of_the_page(tmp_path: Path) -> None:
    """Runs the page's lines except for kubectl; from that it reads which file becomes which key."""
    lines = "".join(re.findall(r"^```sh\n(.*?)^```$", _DOC.read_text(), re.MULTILINE | re.DOTALL)).replace("\\\n", "")
    (makes,) = (line for line in lines.splitlines() if line.startswith("openssl "))
    (keeps,) = (line for line in lines.splitlines() if " create secret " in line)
    subprocess.run(shlex.split(makes), cwd=tmp_path, capture_output=True, check=True, timeout=30)
    files = dict(re.findall(r"--from-file=(\S+)=(\S+)", keeps))
    mounted, endpoint = _secret_over_tls()
    assert f" generic {mounted['secretName']} --type=kubernetes.io/tls " in keeps
    assert {*files} == {*_FILES, "ca.crt"} and all(files[name] == name for name in _FILES)
    trusted = {"ca.crt": (tmp_path / files["ca.crt"]).read_bytes()}
    assert shakes(Certificate(tmp_path), trusted, endpoint["tlsConfig"]["serverName"]) == "TLSv1.3"


def test_cert_managers_certificate_has_the_same_names() -> None:
    (block,) = re.findall(r"^```yaml\n(apiVersion: cert-manager.*?)^```$", _DOC.read_text(), re.MULTILINE | re.DOTALL)
    asked, (mounted, endpoint) = yaml.safe_load(block), _secret_over_tls()
    assert asked["metadata"]["namespace"] == names.SYSTEM_NAMESPACE
    assert asked["spec"]["secretName"] == mounted["secretName"]
    assert asked["spec"]["dnsNames"] == [endpoint["tlsConfig"]["serverName"]]


def test_the_files_of_a_release_are_the_same_rules_and_dashboard() -> None:
    files = manifests.files("v9.8.7", "image")
    assert yaml.safe_load(files[manifests.RULES]) == {"groups": _RULE["spec"]["groups"]}
    assert json.loads(files[manifests.DASHBOARD]) == _BOARD
    assert _one("ConfigMap")["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert all(f"`{name}`" in _DOC.read_text() for name in (manifests.RULES, manifests.DASHBOARD))


def test_grafana_can_load_the_dashboard() -> None:
    """Grafana's schema: a title, a unique number, a free place on 24 columns, a data source that is a variable."""
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time"} <= _BOARD.keys()
    (variable,) = _BOARD["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    panels = _BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
    taken = list[tuple[int, int]]()
    for panel in panels:
        place = panel["gridPos"]
        taken += [(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])]
        assert place["x"] + place["w"] <= 24
        assert panel["title"] and panel["description"].endswith(".")
        assert {one["datasource"]["uid"] for one in (panel, *panel["targets"])} == {f"${{{variable['name']}}}"}
        assert [one["refId"] for one in panel["targets"]] == [*"ABCD"][: len(panel["targets"])]
    assert len(set(taken)) == len(taken)
