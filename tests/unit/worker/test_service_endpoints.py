"""The endpoints of remote workers in EndpointSlices: by the state of pod, remote pod and cluster; ports; exclusions."""

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
    """A worker whose cluster is reachable, unless stated otherwise."""
    return Backend(**{"pod": pod, "remote_pod": make_serving_copy(pod, deleting=deleting), "reachable": True, **more})


def endpoints(*backends: Backend, service: Raw = SERVICE, ray_cluster: Raw | None = RAY_CLUSTER) -> list[Raw]:
    """The endpoints of the only slice."""
    slices, message = service_endpoints.wanted_slices(service, ray_cluster, backends)
    assert not message and len(slices) <= 1
    return [endpoint for body in slices.values() for endpoint in body["endpoints"]]


def changed(pod: Raw = POD, *, spec: Raw | None = None, labels: Raw | None = None, **status: Any) -> Raw:
    metadata = {**pod["metadata"], "labels": pod["metadata"]["labels"] | (labels or {})}
    return {**pod, "metadata": metadata, "spec": pod["spec"] | (spec or {}), "status": pod["status"] | status}


def test_the_body_of_a_slice() -> None:
    slices, _ = service_endpoints.wanted_slices(SERVICE, RAY_CLUSTER, [backend()])
    (body,) = slices.values()
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
    ("worker", "ready", "serving", "terminating"),
    [
        pytest.param(backend(), True, True, False, id="a healthy proxy"),
        pytest.param(backend(make_serving(ready=False)), False, False, False, id="an unhealthy proxy"),
        pytest.param(backend(deleting=True), False, True, True, id="a draining remote pod"),
        pytest.param(
            backend(make_serving(ready=False), deleting=True),
            False,
            False,
            True,
            id="a draining remote pod without a proxy",
        ),
        pytest.param(
            backend(remote_pod=None, reachable=False),
            True,
            True,
            False,
            id="an unreachable cluster, the Ray node is not known dead",
        ),
        pytest.param(
            backend(remote_pod=None, reachable=False, node_dead=True),
            False,
            True,
            False,
            id="an unreachable cluster, the Ray node is dead",
        ),
        pytest.param(
            backend(node_dead=True), True, True, False, id="a reachable cluster, an outdated report of a dead Ray node"
        ),
    ],
)
def test_conditions(worker: Backend, ready: bool, serving: bool, terminating: bool) -> None:
    (endpoint,) = endpoints(worker)
    assert endpoint["conditions"] == {"ready": ready, "serving": serving, "terminating": terminating}


@pytest.mark.parametrize(
    "worker",
    [
        pytest.param(backend(make_serving(deleting=True)), id="the pod is being deleted"),
        pytest.param(
            backend(make_serving(deleting=True), remote_pod=None, reachable=False),
            id="the pod is being deleted, in an unreachable cluster",
        ),
        pytest.param(backend(changed(phase="Failed")), id="the pod has failed"),
        pytest.param(backend(remote_pod=None), id="no remote pod"),
        pytest.param(
            backend(remote_pod=make_serving_copy(make_serving(uid="another"))), id="the remote pod of a namesake"
        ),
        pytest.param(backend(remote_pod=make_serving_copy(POD, phase="Succeeded")), id="an ended remote pod"),
        pytest.param(
            backend(remote_pod=make_serving_copy(make_serving(address="10.1.0.9"))),
            id="the remote pod has another address",
        ),
        pytest.param(backend(changed(podIP="", podIPs=None)), id="no address"),
        pytest.param(backend(changed(podIP="", podIPs=7)), id="podIPs is no list"),
        pytest.param(backend(changed(podIP=7, podIPs=[7, {"ip": ["10.1.0.1"]}])), id="addresses that are no text"),
        pytest.param(backend(changed(conditions=[])), id="not dispatched"),
        pytest.param(backend(make_serving(slot="")), id="no slot"),
    ],
)
def test_an_address_that_another_pod_may_get_is_no_endpoint(worker: Backend) -> None:
    assert endpoints(worker) == []


@pytest.mark.parametrize(
    ("service", "ray_cluster", "pod"),
    [
        pytest.param(make_service(owner=""), RAY_CLUSTER, POD, id="a Service of a user"),
        pytest.param(make_service(owner="Deployment"), RAY_CLUSTER, POD, id="a Service of another controller"),
        pytest.param(make_service(type="ExternalName"), RAY_CLUSTER, POD, id="a Service without addresses"),
        pytest.param(make_service(selector=None), RAY_CLUSTER, POD, id="a Service that selects nothing"),
        pytest.param(SERVICE, None, POD, id="an unknown RayCluster"),
        pytest.param(SERVICE, make_ray_cluster(owner="uid-of-other"), POD, id="a RayCluster of another RayService"),
        pytest.param(
            SERVICE,
            make_ray_cluster(name="train-xyz", owner="uid-of-chat"),
            POD,
            id="a pod of another RayCluster of the RayService",
        ),
        pytest.param(
            SERVICE,
            RAY_CLUSTER,
            changed(labels={names.RAY_SERVE_LABEL: "false"}),
            id="a pod that the Service does not select",
        ),
        pytest.param(SERVICE, RAY_CLUSTER, changed(labels={names.RAY_NODE_TYPE_LABEL: "head"}), id="a head pod"),
        pytest.param(SERVICE, RAY_CLUSTER, changed(spec={"schedulingGates": []}), id="a pod without the dispatch gate"),
        pytest.param(
            SERVICE, RAY_CLUSTER, changed(spec={"nodeName": "n"}), id="a pod that runs in the manager cluster"
        ),
    ],
)
def test_only_workers_of_the_owners_raycluster_are_endpoints(service: Raw, ray_cluster: Raw | None, pod: Raw) -> None:
    assert endpoints(backend(pod), service=service, ray_cluster=ray_cluster) == []


def test_a_service_of_a_raycluster_has_endpoints() -> None:
    service = make_service(owner="RayCluster", selector={names.RAY_GCS_CLUSTER_LABEL: "train-abc"})
    service["metadata"]["ownerReferences"][0]["uid"] = "uid-of-train-abc"
    assert len(endpoints(backend(), service=service)) == 1


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "10.1.0.01", "::ffff:10.1.0.1", "fe80::1", "x", "::1"],
)
def test_an_invalid_address_excludes_its_pod_alone(address: str) -> None:
    both = make_service(ipFamilies=["IPv4", "IPv6"])
    good = make_serving("worker-1")
    rows = endpoints(backend(make_serving(address=address)), backend(good), service=both)
    assert [row["addresses"] for row in rows] == [["10.1.0.1"]]


@pytest.mark.parametrize(
    ("networks", "addresses", "accepted"),
    [
        ((), ["10.9.9.9"], True),
        (("10.1.0.0/16",), ["10.1.0.1"], True),
        (("10.1.0.0/16",), ["10.2.0.1"], False),
        (("10.1.0.0/16", "fd00::/16"), ["10.1.0.1", "fd00::1"], True),
        (("10.1.0.0/16",), ["10.1.0.1", "fd00::1"], False),
        (("10.1.0.0/16",), ["10.1.0.1", "FD00::1"], False),  # whatever its notation
    ],
)
def test_an_address_outside_of_the_clusters_pod_networks_is_no_endpoint(
    networks: tuple[str, ...], addresses: list[str], accepted: bool
) -> None:
    pod = changed(make_serving("a", address=addresses[0]), podIPs=[{"ip": address} for address in addresses])
    worker = backend(pod, cluster="east", pod_networks=tuple(map(parse_network, networks)))
    slices, message = service_endpoints.wanted_slices(SERVICE, RAY_CLUSTER, [worker, backend(make_serving("b"))])
    assert len(slices["IPv4"]["endpoints"]) == 1 + accepted
    assert accepted == (message == "")
    assert accepted or f"pod a has the address {', '.join(addresses)} in worker cluster east" in message


def test_a_relayed_worker_is_no_endpoint() -> None:
    """Its IP may be that of another pod in the manager cluster."""
    relayed = backend(make_serving("a"), cluster="east", relayed=True)
    slices, message = service_endpoints.wanted_slices(SERVICE, RAY_CLUSTER, [relayed, backend(make_serving("b"))])
    assert [endpoint["targetRef"]["name"] for endpoint in slices["IPv4"]["endpoints"]] == ["b"]
    assert message.startswith("Service chat-serve-svc leads no requests straight to workers in east, which ")
    assert service_endpoints.wanted_slices(SERVICE, RAY_CLUSTER, [relayed])[0] == {}


def test_each_address_family_has_its_own_slice() -> None:
    pod = changed(podIPs=[{"ip": "10.1.0.1"}, {"ip": "fd00::1"}])
    for families in (["IPv4", "IPv6"], ["IPv6"], None):
        slices, _ = service_endpoints.wanted_slices(make_service(ipFamilies=families), RAY_CLUSTER, [backend(pod)])
        assert list(slices) == (families or ["IPv4", "IPv6"])
        assert slices["IPv6"]["metadata"]["name"] == "chat-serve-svc-rayspan-ipv6"
        assert slices["IPv6"]["endpoints"][0]["addresses"] == ["fd00::1"]


def listening(name: str, number: int, **port: Any) -> Backend:
    ports = [{"name": "http", "containerPort": number, **port}]
    return backend(changed(make_serving(name), spec={"containers": [{"name": "ray"}, {"name": "x", "ports": ports}]}))


def test_a_named_port_is_resolved_by_the_pods_containers() -> None:
    named = make_service(
        ports=[{"name": "serve", "port": 80, "targetPort": "http", "appProtocol": "kubernetes.io/h2c"}]
    )
    slices, message = service_endpoints.wanted_slices(
        named, RAY_CLUSTER, [listening("a", 8000), listening("b", 8000), listening("c", 9)]
    )
    assert slices["IPv4"]["ports"] == [
        {"name": "serve", "protocol": "TCP", "port": 8000, "appProtocol": "kubernetes.io/h2c"}
    ]
    assert [row["targetRef"]["name"] for row in slices["IPv4"]["endpoints"]] == ["a", "b"]
    assert "leaves out 1 workers" in message
    assert endpoints(backend(), listening("d", 1, protocol="UDP"), service=named) == [], "no port has that name"


def test_a_port_without_a_target_is_its_own_target() -> None:
    slices, _ = service_endpoints.wanted_slices(make_service(ports=[{"port": 80}]), RAY_CLUSTER, [backend()])
    assert slices["IPv4"]["ports"] == [{"name": "", "protocol": "TCP", "port": 80}]


def test_a_slice_has_at_most_a_thousand_endpoints_ready_ones_first() -> None:
    pods = [make_serving(f"w{n:04}", ready=n > 5) for n in range(1003)]
    slices, message = service_endpoints.wanted_slices(SERVICE, RAY_CLUSTER, map(backend, pods))
    pod_names = [row["targetRef"]["name"] for row in slices["IPv4"]["endpoints"]]
    assert len(pod_names) == 1000 and pod_names == sorted(pod_names)
    assert {"w0003", "w0004", "w0005"}.isdisjoint(pod_names)
    assert "has 1003 workers in worker clusters, of which 3 get no requests directly" in message


PODS = st.builds(
    make_serving,
    name=st.sampled_from("abcdef"),
    address=st.sampled_from(["10.1.0.1", "fd00::1", "127.0.0.1", ""]),
    ready=st.booleans(),
    deleting=st.booleans(),
    slot=st.sampled_from(["east/1/w/0", ""]),
)
BACKENDS = st.builds(
    lambda pod, copied, deleting, reachable, dead: Backend(
        pod, make_serving_copy(pod, deleting=deleting) if copied and reachable else None, reachable, dead
    ),
    PODS, st.booleans(), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip


@given(st.lists(BACKENDS, max_size=6, unique_by=lambda worker: worker.pod["metadata"]["name"]), st.randoms())
def test_slices_of_any_workers(backends: list[Backend], chance: Any) -> None:
    """At most one slice for each family, none empty, no pod that is being deleted; independent of the order."""
    both = make_service(ipFamilies=["IPv4", "IPv6"])
    slices, _ = service_endpoints.wanted_slices(both, RAY_CLUSTER, backends)
    assert set(slices) <= {"IPv4", "IPv6"} and all(body["endpoints"] for body in slices.values())
    leaving = {worker.pod["metadata"]["uid"] for worker in backends if "deletionTimestamp" in worker.pod["metadata"]}
    for row in (row for body in slices.values() for row in body["endpoints"]):
        assert row["targetRef"]["uid"] not in leaving
        assert row["conditions"]["serving"] or not row["conditions"]["ready"]
        assert not (row["conditions"]["ready"] and row["conditions"]["terminating"])
    chance.shuffle(backends)
    assert service_endpoints.wanted_slices(both, RAY_CLUSTER, backends)[0] == slices
