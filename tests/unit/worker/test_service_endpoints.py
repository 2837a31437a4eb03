"""To which workers elsewhere do requests go straight? The states of a pod, its copy and its cluster; ports; and what is no endpoint."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects.specs import parse_network
from adapter.objects.unstructured import RawDict as Raw
from adapter.worker import service_endpoints
from adapter.worker.service_endpoints import Backend
from tests.unit.builders import NAMESPACE, make_ray_cluster, make_service, make_serving, make_serving_copy

SERVICE = make_service()
RAY_CLUSTER = make_ray_cluster(owner="uid-of-chat")
POD = make_serving()


def backend(pod: Raw = POD, *, deleting: bool = False, **more: Any) -> Backend:
    """A worker whose cluster can be seen, where nothing else is said."""
    return Backend(**{"pod": pod, "remote_pod": make_serving_copy(pod, deleting=deleting), "reachable": True, **more})


def of(*backends: Backend, service: Raw = SERVICE, ray_cluster: Raw | None = RAY_CLUSTER) -> list[Raw]:
    """The endpoints of the only slice."""
    found, sentence = service_endpoints.wanted_slices(service, ray_cluster, backends)
    assert not sentence and len(found) <= 1
    return [one for body in found.values() for one in body["endpoints"]]


def changed(pod: Raw = POD, *, spec: Raw | None = None, labels: Raw | None = None, **status: Any) -> Raw:
    metadata = {**pod["metadata"], "labels": pod["metadata"]["labels"] | (labels or {})}
    return {**pod, "metadata": metadata, "spec": pod["spec"] | (spec or {}), "status": pod["status"] | status}


def test_a_slice_is_what_kube_proxy_adds_to_those_of_the_service() -> None:
    found, _ = service_endpoints.wanted_slices(SERVICE, RAY_CLUSTER, [backend()])
    (body,) = found.values()
    owner = {"apiVersion": "v1", "kind": "Service", "name": "chat-serve-svc", "uid": "uid-of-chat-serve-svc"}
    assert body == {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": NAMESPACE,
            "name": "chat-serve-svc-rayspan-ipv4",
            "labels": {
                "kubernetes.io/service-name": "chat-serve-svc",
                "endpointslice.kubernetes.io/managed-by": "serving.rayspan.dev",
            },
            "ownerReferences": [{**owner, "controller": True}],
        },
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.1.0.1"],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": "worker-0", "uid": "uid-of-worker-0"},
            }
        ],
        "ports": [{"name": "serve", "protocol": "TCP", "port": 8000}],
    }


@pytest.mark.parametrize(
    ("one", "ready", "serving", "terminating"),
    [
        pytest.param(backend(), True, True, False, id="its proxy is healthy"),
        pytest.param(backend(make_serving(ready=False)), False, False, False, id="it is not, or not yet"),
        pytest.param(backend(deleting=True), False, True, True, id="its copy drains"),
        pytest.param(backend(make_serving(ready=False), deleting=True), False, False, True, id="and its proxy is gone"),
        pytest.param(
            backend(remote_pod=None, reachable=False),
            True,
            True,
            False,
            id="its cluster is silent, and Ray says nothing",
        ),
        pytest.param(
            backend(remote_pod=None, reachable=False, node_dead=True),
            False,
            True,
            False,
            id="and Ray says that it is dead",
        ),
        pytest.param(backend(node_dead=True), True, True, False, id="what Ray said is of a silence that is over"),
    ],
)
def test_conditions(one: Backend, ready: bool, serving: bool, terminating: bool) -> None:
    (found,) = of(one)
    assert found["conditions"] == {"ready": ready, "serving": serving, "terminating": terminating}


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(backend(make_serving(deleting=True)), id="it is being deleted"),
        pytest.param(
            backend(make_serving(deleting=True), remote_pod=None, reachable=False),
            id="also while its cluster is silent",
        ),
        pytest.param(backend(changed(phase="Failed")), id="it has failed"),
        pytest.param(backend(remote_pod=None), id="its copy is gone"),
        pytest.param(
            backend(remote_pod=make_serving_copy(make_serving(uid="another"))), id="the copy is of a namesake"
        ),
        pytest.param(backend(remote_pod=make_serving_copy(POD, phase="Succeeded")), id="its copy has ended"),
        pytest.param(
            backend(remote_pod=make_serving_copy(make_serving(address="10.1.0.9"))), id="its copy has another address"
        ),
        pytest.param(backend(changed(podIP="", podIPs=None)), id="it has no address"),
        pytest.param(backend(changed(podIP="", podIPs=7)), id="what is no list of addresses"),
        pytest.param(backend(changed(podIP=7, podIPs=[7, {"ip": ["10.1.0.1"]}])), id="what is no address"),
        pytest.param(backend(changed(conditions=[])), id="it was not dispatched"),
        pytest.param(backend(make_serving(slot="")), id="it has no slot"),
    ],
)
def test_no_address_that_another_pod_may_get(one: Backend) -> None:
    assert of(one) == []


@pytest.mark.parametrize(
    ("service", "ray_cluster", "pod"),
    [
        pytest.param(make_service(owner=""), RAY_CLUSTER, POD, id="a Service of a user's"),
        pytest.param(make_service(owner="Deployment"), RAY_CLUSTER, POD, id="a Service of somebody else's"),
        pytest.param(make_service(type="ExternalName"), RAY_CLUSTER, POD, id="a Service without addresses"),
        pytest.param(make_service(selector=None), RAY_CLUSTER, POD, id="a Service that selects nothing"),
        pytest.param(SERVICE, None, POD, id="no RayCluster is known"),
        pytest.param(SERVICE, make_ray_cluster(owner="uid-of-other"), POD, id="a RayCluster of another RayService"),
        pytest.param(
            SERVICE,
            make_ray_cluster(name="train-xyz", owner="uid-of-chat"),
            POD,
            id="a pod of another RayCluster of it",
        ),
        pytest.param(
            SERVICE, RAY_CLUSTER, changed(labels={names.RAY_SERVE_LABEL: "false"}), id="a pod it does not select"
        ),
        pytest.param(SERVICE, RAY_CLUSTER, changed(labels={names.RAY_NODE_TYPE_LABEL: "head"}), id="a head"),
        pytest.param(SERVICE, RAY_CLUSTER, changed(spec={"schedulingGates": []}), id="a pod without our gate"),
        pytest.param(SERVICE, RAY_CLUSTER, changed(spec={"nodeName": "n"}), id="a pod that runs in the manager"),
    ],
)
def test_only_workers_of_the_raycluster_that_its_owner_owns(service: Raw, ray_cluster: Raw | None, pod: Raw) -> None:
    assert of(backend(pod), service=service, ray_cluster=ray_cluster) == []


def test_a_service_of_a_raycluster_itself() -> None:
    service = make_service(owner="RayCluster", selector={names.RAY_GCS_CLUSTER_LABEL: "train-abc"})
    service["metadata"]["ownerReferences"][0]["uid"] = "uid-of-train-abc"
    assert len(of(backend(), service=service)) == 1


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "10.1.0.01", "::ffff:10.1.0.1", "fe80::1", "x", "::1"],
)
def test_an_address_that_no_api_server_takes_costs_its_pod_alone(address: str) -> None:
    both = make_service(ipFamilies=["IPv4", "IPv6"])
    good = make_serving("worker-1")
    assert [one["addresses"] for one in of(backend(make_serving(address=address)), backend(good), service=both)] == [
        ["10.1.0.1"]
    ]


@pytest.mark.parametrize(
    ("networks", "addresses", "kept"),
    [
        ((), ["10.9.9.9"], True),
        (("10.1.0.0/16",), ["10.1.0.1"], True),
        (("10.1.0.0/16",), ["10.2.0.1"], False),
        (("10.1.0.0/16", "fd00::/16"), ["10.1.0.1", "fd00::1"], True),
        (("10.1.0.0/16",), ["10.1.0.1", "fd00::1"], False),
    ],
)
def test_an_address_that_the_clusters_pods_cannot_have_gets_no_request(
    networks: tuple[str, ...], addresses: list[str], kept: bool
) -> None:
    pod = changed(make_serving("a", address=addresses[0]), podIPs=[{"ip": one} for one in addresses])
    one = backend(pod, cluster="east", pod_networks=tuple(map(parse_network, networks)))
    found, sentence = service_endpoints.wanted_slices(SERVICE, RAY_CLUSTER, [one, backend(make_serving("b"))])
    assert len(found["IPv4"]["endpoints"]) == 1 + kept
    assert kept == (sentence == "")
    assert kept or f"pod a has the address {', '.join(addresses)} in worker cluster east" in sentence


def test_each_family_has_a_slice_of_its_own() -> None:
    pod = changed(podIPs=[{"ip": "10.1.0.1"}, {"ip": "fd00::1"}])
    for families in (["IPv4", "IPv6"], ["IPv6"], None):
        found, _ = service_endpoints.wanted_slices(make_service(ipFamilies=families), RAY_CLUSTER, [backend(pod)])
        assert list(found) == (families or ["IPv4", "IPv6"])
        assert found["IPv6"]["metadata"]["name"] == "chat-serve-svc-rayspan-ipv6"
        assert found["IPv6"]["endpoints"][0]["addresses"] == ["fd00::1"]


def listening(name: str, number: int, **port: Any) -> Backend:
    ports = [{"name": "http", "containerPort": number, **port}]
    return backend(changed(make_serving(name), spec={"containers": [{"name": "ray"}, {"name": "x", "ports": ports}]}))


def test_a_named_port_is_that_of_the_pods_containers() -> None:
    named = make_service(
        ports=[{"name": "serve", "port": 80, "targetPort": "http", "appProtocol": "kubernetes.io/h2c"}]
    )
    found, sentence = service_endpoints.wanted_slices(
        named, RAY_CLUSTER, [listening("a", 8000), listening("b", 8000), listening("c", 9)]
    )
    assert found["IPv4"]["ports"] == [
        {"name": "serve", "protocol": "TCP", "port": 8000, "appProtocol": "kubernetes.io/h2c"}
    ]
    assert [one["targetRef"]["name"] for one in found["IPv4"]["endpoints"]] == ["a", "b"]
    assert "leads to no port of 1 workers" in sentence
    assert of(backend(), listening("d", 1, protocol="UDP"), service=named) == [], "none of theirs is called so"


def test_an_unnamed_port_without_a_target_is_its_own() -> None:
    found, _ = service_endpoints.wanted_slices(make_service(ports=[{"port": 80}]), RAY_CLUSTER, [backend()])
    assert found["IPv4"]["ports"] == [{"name": "", "protocol": "TCP", "port": 80}]


def test_a_slice_has_no_more_endpoints_than_kubernetes_lets_it_and_those_that_are_ready() -> None:
    pods = [make_serving(f"w{n:04}", ready=n > 5) for n in range(1003)]
    found, sentence = service_endpoints.wanted_slices(SERVICE, RAY_CLUSTER, map(backend, pods))
    kept = [one["targetRef"]["name"] for one in found["IPv4"]["endpoints"]]
    assert len(kept) == 1000 and kept == sorted(kept)
    assert {"w0003", "w0004", "w0005"}.isdisjoint(kept)
    assert "has 1003 workers in worker clusters, of which 3 get no request straight" in sentence


PODS = st.builds(
    make_serving,
    name=st.sampled_from("abcdef"),
    address=st.sampled_from(["10.1.0.1", "fd00::1", "127.0.0.1", ""]),
    ready=st.booleans(),
    deleting=st.booleans(),
    slot=st.sampled_from(["east/1/w/0", ""]),
)
BACKENDS = st.builds(
    lambda pod, copied, deleting, seen, dead: Backend(
        pod, make_serving_copy(pod, deleting=deleting) if copied and seen else None, seen, dead
    ),
    PODS, st.booleans(), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip


@given(st.lists(BACKENDS, max_size=6, unique_by=lambda one: one.pod["metadata"]["name"]), st.randoms())
def test_whatever_is_seen(backends: list[Backend], chance: Any) -> None:
    """One slice for each family at most, none empty; nobody who leaves; the same whatever the order."""
    both = make_service(ipFamilies=["IPv4", "IPv6"])
    found, _ = service_endpoints.wanted_slices(both, RAY_CLUSTER, backends)
    assert set(found) <= {"IPv4", "IPv6"} and all(body["endpoints"] for body in found.values())
    leaving = {one.pod["metadata"]["uid"] for one in backends if "deletionTimestamp" in one.pod["metadata"]}
    for one in (one for body in found.values() for one in body["endpoints"]):
        assert one["targetRef"]["uid"] not in leaving
        assert one["conditions"]["serving"] or not one["conditions"]["ready"]
        assert not (one["conditions"]["ready"] and one["conditions"]["terminating"])
    chance.shuffle(backends)
    assert service_endpoints.wanted_slices(both, RAY_CLUSTER, backends)[0] == found
