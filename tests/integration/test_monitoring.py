"""promtool and a real Prometheus accept the alerts, the scrape configuration of docs/metrics.md and every dashboard
query.

promtool needs no cluster. Prometheus scrapes the controller under test with the page's configuration, except for its
address, which is in the DNS of a cluster there. Grafana, which draws the answers, is not here.
"""

import json
import re
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from adapter import __version__
from adapter.objects.unstructured import Raw
from hack.lab.base.paths import REPO
from hack.lab.build import tools
from hack.release import manifests
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.stage import Stage
from tests.unit.repo import alertcases

pytestmark = (
    pytest.mark.byhand
)  # Prometheus is built for minutes; what an expression names is read by tests/unit/repo/test_monitoring.py

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy for the Internet knows no way to it


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of Prometheus and promtool, which are built when somebody asks for them."""
    tools.build(["prometheus"])
    return tools.path("promtool").parent


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The alerts as a release has them, for a Prometheus without the operator."""
    file = tmp_path / "rules.yaml"
    file.write_text(manifests.files("v9.8.7", "image")[manifests.RULES])
    return file


# --- promtool --------------------------------------------------------------------------------------------------------


def test_each_alert_fires_by_its_series_and_is_silent_by_others(programs: Path, rules: Path) -> None:
    cases = alertcases.tests(_alerts(rules))
    said = _tried(programs, rules, cases)
    assert said.returncode == 0, f"{said.stdout}\n{said.stderr}"
    fires, silent, *_ = cases
    swapped = {**fires, "input_series": silent["input_series"]}
    assert _tried(programs, rules, [swapped]).returncode != 0, "promtool judges"


def test_promtool_finds_nothing_wrong_with_the_rules_and_the_page(programs: Path, rules: Path) -> None:
    checked = _run(programs, "check", "rules", "--lint=all", "--lint-fatal", str(rules))
    assert checked.returncode == 0, f"{checked.stdout}\n{checked.stderr}"
    config = rules.with_name("prometheus.yaml")
    config.write_text(yaml.safe_dump({**_page(), "rule_files": [rules.name]}))
    checked = _run(programs, "check", "config", str(config))
    assert checked.returncode == 0, f"{checked.stdout}\n{checked.stderr}"


def _alerts(rules: Path) -> Iterator[Raw]:
    for group in yaml.safe_load(rules.read_text())["groups"]:
        yield from group["rules"]


def _tried(programs: Path, rules: Path, cases: list[Raw]) -> subprocess.CompletedProcess[str]:
    file = rules.with_name("cases.yaml")
    file.write_text(yaml.safe_dump({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": cases}))
    return _run(programs, "test", "rules", str(file))


def _run(programs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([programs / "promtool", *words], capture_output=True, text=True, timeout=120, check=False)


def _page() -> Raw:
    """The scrape configuration of the page."""
    text = (REPO / "docs/metrics.md").read_text()
    (block,) = re.findall(r"^```yaml\n(scrape_configs:\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    found: Raw = yaml.safe_load(block)
    return found


# --- Prometheus ------------------------------------------------------------------------------------------------------


@pytest.fixture
def prometheus(programs: Path, rules: Path, running: Controller, tmp_path: Path) -> Iterator[str]:
    """The URL of one that asks the controller each second, and reckons all rules as often."""
    page = _page()
    (job,) = page["scrape_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{running.port}"]} for _ in job.pop("dns_sd_configs")]
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config = tmp_path / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"global": every, "rule_files": [str(rules)], **page}))
    with served(programs, config) as url:
        yield url


@contextmanager
def served(programs: Path, config: Path) -> Iterator[str]:
    """A Prometheus that runs meanwhile, beside its configuration; gives its URL."""
    address, log = f"127.0.0.1:{_free_port()}", config.with_name("prometheus.log")
    place = config.with_name("data")
    words = [f"--config.file={config}", f"--storage.tsdb.path={place}", f"--web.listen-address={address}"]
    with log.open("wb") as said, subprocess.Popen([programs / "prometheus", *words], stdout=said, stderr=said) as child:
        try:
            url = f"http://{address}"
            wait(lambda: _ready(url), 60, "Prometheus serves", log.read_text)
            yield url
        finally:
            child.terminate()


def test_it_scrapes_the_controller_and_every_query_answers(prometheus: str, running: Controller, stage: Stage) -> None:
    """Those of the dashboard's panels and those of the alerts, with a gang that runs."""
    stage.build({"east": 2})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 120, "a gang runs", running.tail)
    wait(lambda: _runs(prometheus) >= 2, 60, "Prometheus knows of it", lambda: str(_asked(prometheus, "/targets")))
    (built,) = _query(prometheus, "rayspan_build_info")
    assert built["metric"]["version"] == __version__ and built["metric"]["job"] == "rayspan"
    for panel in json.loads(manifests.files("v9.8.7", "image")[manifests.DASHBOARD])["panels"]:
        for target in panel["targets"]:
            _query(prometheus, target["expr"])

    wait(lambda: _reckoned(prometheus), 30, "all are reckoned", lambda: str(_rules(prometheus)))
    assert {one["name"] for one in _rules(prometheus)} == {*alertcases.CASES}


def _runs(url: str) -> float:
    found = _query(url, 'sum(rayspan_pods{cluster="east",phase="Running"})')
    return float(found[0]["value"][1]) if found else 0.0


def _query(url: str, text: str) -> list[Raw]:
    """What Prometheus answers; it says what is wrong with a query by an HTTP error."""
    found: list[Raw] = _asked(url, f"/query?{urllib.parse.urlencode({'query': text})}")["result"]
    return found


def _reckoned(url: str) -> bool:
    """Whether each rule was, and without an error."""
    return all(one["health"] == "ok" and not one.get("lastError") for one in _rules(url))


def _rules(url: str) -> list[Raw]:
    return [one for group in _asked(url, "/rules")["groups"] for one in group["rules"]]


def _asked(url: str, path: str) -> Raw:
    with _direct.open(f"{url}/api/v1{path}", timeout=10) as answer:
        said = json.load(answer)
    assert said["status"] == "success" and not said.get("warnings"), said
    found: Raw = said["data"]
    return found


def _ready(url: str) -> bool:
    try:
        with _direct.open(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
