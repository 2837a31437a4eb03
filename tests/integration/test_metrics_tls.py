"""The deployed controller serves its metrics over TLS only, with the page's certificate and overlay on a real cluster.

A pod asks by the Service's name, as a Prometheus there would. The lines of docs/metrics.md that make the certificate
are run unchanged. The overlay is applied without its objects for the Prometheus operator, whose kinds no cluster here
has.
"""

import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from adapter import __version__, names
from hack.lab.base.paths import REPO
from hack.testbed import install
from hack.testbed.clusters import Cluster, Clusters, program, wait
from hack.testbed.reader import Raw

pytestmark = [
    pytest.mark.alone,
    pytest.mark.long,
]  # a process with a certificate: tests/unit/shell/controller/test_http_servers.py

OVERLAYS = REPO / "kustomize" / "overlays"
SERVICE, SECRET = "rayspan-metrics", "rayspan-metrics-certificate"
PATIENCE = 120  # seconds; a rollout of two replicas, each of which starts
ASK = """
import http.client, json, ssl, sys, urllib.error, urllib.request
url, *trusted = sys.argv[1:]
about = ssl.create_default_context(cafile=trusted[0]) if trusted else None
try:
    print(json.dumps([200, urllib.request.urlopen(url, timeout=10, context=about).read().decode()]))
except urllib.error.HTTPError as refused:
    print(json.dumps([refused.code, ""]))
except (OSError, http.client.HTTPException) as trouble:
    print(json.dumps([0, str(trouble)]))
"""


@pytest.fixture
def manager(fleet: Clusters, deployed: None, tmp_path: Path) -> Iterator[Cluster]:
    """The manager, whose controller has a certificate by the page's own lines; as it was in the end."""
    manager = fleet.manager
    rendered = yaml.safe_load_all(manager.kubectl("kustomize", OVERLAYS / "manager-metrics-tls"))
    served = [one for one in rendered if not one["apiVersion"].startswith("monitoring.coreos.com/")]
    try:
        _as_the_page_says(manager, tmp_path)
        manager.apply(yaml.safe_dump_all(served))
        _rolled_out(manager)
        yield manager
    finally:
        manager.kubectl("apply", "-k", OVERLAYS / "demo")
        _rolled_out(manager)
        for kind, name in (*_beyond(manager, served), ("secret", SECRET)):
            manager.delete(kind, name, names.SYSTEM_NAMESPACE)


def test_metrics_are_told_over_tls_alone(manager: Cluster) -> None:
    """To who trusts the authority and asks for that name; health stays in the clear, for the kubelet."""
    host, trusted = f"{SERVICE}.{names.SYSTEM_NAMESPACE}.svc", "/metrics-certificate/tls.crt"
    wait(lambda: _asked(manager, f"https://{host}:8443/metrics", trusted)[0] == 200, PATIENCE, "the Service answers")
    _, told = _asked(manager, f"https://{host}:8443/metrics", trusted)
    assert f'version="{__version__}"' in told and "rayspan_leader" in told
    code, why = _asked(manager, f"https://{host}:8443/metrics")
    assert code == 0 and "CERTIFICATE_VERIFY_FAILED" in why
    code, why = _asked(manager, "https://127.0.0.1:8443/metrics", trusted)
    assert code == 0 and "CERTIFICATE_VERIFY_FAILED" in why, "it is of that name"
    assert _asked(manager, f"http://{host}:8443/metrics")[0] in (0, 400), "nor is it told in the clear there"
    assert _asked(manager, "http://127.0.0.1:8081/metrics")[0] == 404
    assert _asked(manager, "http://127.0.0.1:8081/healthz")[0] == 200


def _beyond(manager: Cluster, applied: Iterable[Raw]) -> list[tuple[str, str]]:
    """What is applied and is no part of the overlay of all other tests: kinds and names."""
    usual = yaml.safe_load_all(manager.kubectl("kustomize", OVERLAYS / "demo"))
    there = {(one["kind"], one["metadata"]["name"]) for one in usual}
    return [found for one in applied if (found := (one["kind"], one["metadata"]["name"])) not in there]


def _as_the_page_says(manager: Cluster, folder: Path) -> None:
    """Make the certificate and its Secret."""
    (block,) = re.findall(
        r"^```sh\n(openssl .*?)^```$", (REPO / "docs/metrics.md").read_text(), re.MULTILINE | re.DOTALL
    )
    text = block.replace("kubectl --context manager", f"{program()} --kubeconfig {manager.kubeconfig}")
    done = subprocess.run(["sh", "-ec", text], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _rolled_out(manager: Cluster) -> None:
    what = ("rollout", "status", f"deployment/{install.CONTROLLER}", f"--timeout={PATIENCE}s")
    manager.kubectl("-n", names.SYSTEM_NAMESPACE, *what, timeout=PATIENCE + 10)


def _asked(manager: Cluster, *words: str) -> tuple[int, str]:
    """What a URL answers in a pod of the controller that trusts this file, or what the image trusts: the code, and
    the body or the error."""
    where = ("-n", names.SYSTEM_NAMESPACE, "exec", f"deployment/{install.CONTROLLER}", "--")
    code, said = json.loads(manager.kubectl(*where, "python3", "-c", ASK, *words))
    return int(code), str(said)
