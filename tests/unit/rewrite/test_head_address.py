"""The head address of a worker pod, its form in each mode, and which remote pods are replaced when the head moves."""

from typing import Any

import pytest

from adapter import names
from adapter.objects.specs import HeadSpec
from adapter.objects.unstructured import Raw
from adapter.rewrite.head_address import HeadAddress
from tests.unit.builders import make_meta

IP, OLD = "10.12.0.5", "10.12.0.4"
NAME = "train-abc-head-svc"
FQDN = f"{NAME}.demo.svc.cluster.local"
POD_IP, MIRROR, SET = HeadSpec(), HeadSpec(address="ServiceMirror"), HeadSpec(address="ClusterSet")
STATIC = HeadSpec(address="Static", template="{service}.{namespace}.{cluster}.example.com")
GATEWAY = HeadSpec(address="Static", template="{cluster}.example.com:16379")


def worker(fqdn: str = FQDN, *env: Raw) -> Raw:
    known = [{"name": "FQ_RAY_IP", "value": fqdn}, {"name": "RAY_PORT", "value": "6379"}, *env]
    labels = {names.RAY_GCS_CLUSTER_LABEL: "train-abc"}
    return {"metadata": make_meta("w", labels=labels), "spec": {"containers": [{"name": "ray", "env": known}, {}]}}


def copy(address: str = "", service: str = "") -> Raw:
    said = {names.HEAD_IP_ANNOTATION: address, names.HEAD_SERVICE_ANNOTATION: service}
    return {"metadata": {"annotations": {key: value for key, value in said.items() if value}}}


@pytest.mark.parametrize(
    ("how", "host", "port"),
    [
        pytest.param(POD_IP, IP, "", id="PodIP"),
        pytest.param(MIRROR, "", "", id="ServiceMirror: every name stays"),
        pytest.param(SET, f"{NAME}.demo.svc.clusterset.local", "", id="ClusterSet"),
        pytest.param(STATIC, f"{NAME}.demo.train-abc.example.com", "", id="Static"),
        pytest.param(GATEWAY, "train-abc.example.com", "16379", id="Static with a port"),
    ],
)
def test_the_address_for_a_cluster(how: HeadSpec, host: str, port: str) -> None:
    found = HeadAddress.from_pod(worker(), IP).for_cluster(how)
    assert (found.host, found.port, found.service_key) == (host, port, ("demo", NAME))
    assert found.relocate({"at": f"{FQDN}:6379"}) == {"at": f"{host or FQDN}:{port or 6379}"}
    assert found.rewrite_env({"name": "RAY_IP", "value": NAME}) == {"name": "RAY_IP", "value": host or NAME}
    assert found.rewrite_env({"name": "RAY_PORT", "value": "6379"}) == {"name": "RAY_PORT", "value": port or "6379"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(f"{FQDN}.:6379", f"{IP}:6379", id="the whole name with a port"),
        pytest.param(f"http://{FQDN}./x", f"http://{IP}/x", id="the whole name in a URL"),
        pytest.param(f"{FQDN}.", IP, id="the whole name alone"),
        pytest.param(
            f"{FQDN}:6379 {NAME}:6379", f"{IP}:6379 {IP}:6379", id="users may leave the dot out, or shorten the name"
        ),
        pytest.param(f"{FQDN}.example.com", f"{FQDN}.example.com", id="a longer name is another host"),
        pytest.param(f"waits for {NAME}. then", f"waits for {IP}. then", id="a full stop after the name"),
    ],
)
def test_a_trailing_dot_is_replaced_with_the_name(text: str, want: str) -> None:
    """An absolute name, as KubeRay writes it if the cluster domain is configured so."""
    found = HeadAddress.from_pod(worker(f"{FQDN}."), IP).for_cluster(POD_IP)
    assert found.service_key == ("demo", NAME)
    assert found.relocate({"at": text}) == {"at": want}
    assert found.rewrite_env({"name": "FQ_RAY_IP", "value": f"{FQDN}."}) == {"name": "FQ_RAY_IP", "value": IP}


@pytest.mark.parametrize(
    ("pod", "service"),
    [
        pytest.param({}, None, id="an empty pod"),
        pytest.param({"metadata": None, "spec": {"containers": [{"env": None}]}}, None, id="nulls"),
        pytest.param(worker(""), None, id="no name"),
        pytest.param(worker(OLD), None, id="an address"),
        pytest.param(worker("fd00:11::c"), None, id="an IPv6 address"),
        pytest.param(worker(f"{NAME}.kube-system.svc"), None, id="a Service of another namespace"),
        pytest.param(worker("a.demo.svc", {"name": "FQ_RAY_IP", "value": FQDN}), ("demo", NAME),
            id="the last of two variables counts"),
    ],
)  # fmt: skip
def test_the_head_service_is_read_from_the_pods_own_namespace(pod: Raw, service: Any) -> None:
    assert HeadAddress.from_pod(pod, IP).service_key == service


def test_a_pod_without_a_head_service_is_unchanged() -> None:
    found, body = HeadAddress.from_pod(worker(OLD), IP), {"args": [f"--address={NAME}:6379"]}
    assert found.relocate(body) is body


NOTED = {names.HEAD_IP_ANNOTATION: IP}


@pytest.mark.parametrize(
    ("how", "fqdn", "notes"),
    [
        pytest.param(POD_IP, FQDN, NOTED, id="PodIP"),
        pytest.param(MIRROR, FQDN, NOTED | {names.HEAD_SERVICE_ANNOTATION: NAME}, id="ServiceMirror"),
        pytest.param(MIRROR, OLD, NOTED, id="ServiceMirror without a Service: nothing follows the head"),
        pytest.param(SET, FQDN, {}, id="ClusterSet"),
        pytest.param(STATIC, FQDN, {}, id="Static"),
    ],
)
def test_annotations_of_the_head_address(how: HeadSpec, fqdn: str, notes: Raw) -> None:
    assert HeadAddress.from_pod(worker(fqdn), IP).for_cluster(how).head_annotations() == notes


@pytest.mark.parametrize(
    ("ip", "made", "mirrored", "moved_from"),
    [
        pytest.param(IP, copy(IP), False, "", id="the remote pod uses this IP"),
        pytest.param(IP, copy(OLD), False, OLD, id="the remote pod uses the old IP"),
        pytest.param(IP, copy(OLD), True, OLD, id="the remote pod was created before heads were mirrored there"),
        pytest.param(IP, copy(OLD, NAME), True, "", id="the mirrored name follows the head"),
        pytest.param(IP, copy(OLD, NAME), False, OLD, id="the mirrored name is not mirrored any more"),
        pytest.param(IP, copy(), False, "", id="the remote pod uses a name that others maintain"),
        pytest.param("", copy(OLD), False, "", id="the head has no address yet"),
    ],
)
def test_which_remote_pods_are_replaced_when_the_head_moves(
    ip: str, made: Raw, mirrored: bool, moved_from: str
) -> None:
    assert HeadAddress.from_pod(worker(), ip).stale_address(made, mirrored=mirrored) == moved_from
