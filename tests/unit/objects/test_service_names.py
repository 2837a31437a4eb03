"""Names of Services in texts."""

import pytest

from adapter.objects.service_names import find_service_names, is_service_host


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("http://embedder.ml.svc.cluster.local:8000/v1", ["embedder.ml.svc.cluster.local"], id="a URL"),
        pytest.param(
            "redis.ml.svc:6379,db.ml.svc.", ["redis.ml.svc", "db.ml.svc"], id="two, one with a dot at its end"
        ),
        pytest.param(
            "$(hostname).nodes.ml.svc.cluster.local", ["nodes.ml.svc.cluster.local"], id="after an expression"
        ),
        pytest.param("$NAME.nodes.ml.svc", ["NAME.nodes.ml.svc"], id="after a variable"),
        pytest.param("db.ml.svc.corp.example", ["db.ml.svc.corp.example"], id="another cluster domain"),
        pytest.param("db.ml.svc.clusterset.local", [], id="a name of all clusters"),
        pytest.param("https://kubernetes.default.svc", [], id="every cluster has it"),
        pytest.param("python -m my.app.svc.main", [], id="a module"),
        pytest.param("s3.example.com a.svc .svc svc", [], id="no Service"),
    ],
)
def test_services_are_found_in_a_text(text: str, want: list[str]) -> None:
    assert [name.text for name in find_service_names(text)] == want


def test_a_name_has_its_parts() -> None:
    (found,) = find_service_names("pod-0.nodes.ml.svc.cluster.local")
    assert (found.name, found.namespace) == ("nodes", "ml")


@pytest.mark.parametrize(
    ("host", "want"),
    [
        ("my-ray", True), ("my-ray.demo", True), ("my-ray.demo.svc", True), ("my-ray.other.svc.cluster.local", True),
        ("my-ray.other", False), ("head.example.com", False), ("10.1.2.3", False), ("localhost", False), ("", False),
        ("$FQ_RAY_IP", False), ("my-ray.demo.svc.clusterset.local", False),
    ],
)  # fmt: skip
def test_hosts_that_only_their_cluster_resolves(host: str, want: bool) -> None:
    assert is_service_host(host, "demo") is want
