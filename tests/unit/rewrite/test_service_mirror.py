"""The mirror of a head's Service: what is written where it is missing, wrong or right."""

import pytest

from adapter import names
from adapter.objects.unstructured import Raw
from adapter.objects.unstructured import Raw as Seen
from adapter.rewrite import service_mirror
from adapter.rewrite.service_mirror import MirrorState, mirror_writes
from adapter.rewrite.target import Target
from tests.unit.builders import make_meta

KEY = ("demo", "train-abc-head-svc")
TARGET = Target(
    cluster="east", zone="east", queue="q", manager="mgr", workload="w", workload_uid="u", placement="p", share="p-1",
    round=1
)  # fmt: skip
NOTHING = MirrorState(None, ())
PORTS = [{"name": "gcs-server", "containerPort": 6379, "protocol": "TCP"}, {"containerPort": 8265}]


def head(address: str = "10.12.0.5", ports: list[Raw] | None = None) -> Raw:
    container = {"name": "ray-head", "ports": PORTS if ports is None else ports}
    labels = {names.RAY_GCS_CLUSTER_LABEL: "train-abc"}
    status = {"podIP": address}
    return {"metadata": make_meta("head", labels=labels), "spec": {"containers": [container]}, "status": status}


def made(head_pod: Raw | None = None, *, anchor: str = "a1", version: str = "7") -> MirrorState:
    """The mirror as an API server lists it after the write: without kind, with that server's additions."""
    service, *slices = mirror_writes(KEY, head_pod or head(), NOTHING, TARGET, anchor)
    return MirrorState(stored(service, version), [stored(each, version) for each in slices])


def stored(body: Raw, version: str = "7") -> Raw:
    rest = {field: value for field, value in body.items() if field not in ("apiVersion", "kind")}
    found = {**rest, "metadata": {**body["metadata"], "resourceVersion": version, "uid": "u1"}}
    if "spec" in found:
        found["spec"] = {k: v for k, v in found["spec"].items() if v is not None} | {
            "ipFamilies": ["IPv4"],
            "type": "ClusterIP",
        }
    return found


def edited(raw: Seen | None, *path: str, to: object) -> Raw:
    before = raw or {}
    return {**before, path[0]: edited(before.get(path[0]), *path[1:], to=to) if path[1:] else to}


def test_a_missing_mirror_gets_a_service_and_a_slice() -> None:
    service, each = mirror_writes(KEY, head(), NOTHING, TARGET, "a1")
    assert (service["kind"], each["kind"]) == ("Service", "EndpointSlice"), "DNS wants the Service first"
    assert (service["metadata"]["namespace"], service["metadata"]["name"]) == KEY
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] is None
    assert [port["port"] for port in service["spec"]["ports"]] == [6379, 8265]
    assert each["metadata"]["labels"]["kubernetes.io/service-name"] == KEY[1]
    assert each["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == "rayspan.dev"
    assert (each["addressType"], each["metadata"]["name"]) == ("IPv4", f"{KEY[1]}-rayspan-ipv4")
    assert each["endpoints"] == [{"addresses": ["10.12.0.5"], "conditions": {"ready": True}}]
    for body in (service, each):
        assert body["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "p-1", "uid": "a1"}
        ]
        assert body["metadata"]["labels"][names.MANAGER_LABEL] == "mgr"
        assert "resourceVersion" not in body["metadata"]


def test_a_correct_mirror_is_left_alone() -> None:
    assert mirror_writes(KEY, head(), made(), TARGET, "a1") == []


def test_after_a_crash_between_the_two_writes_the_slice_is_created() -> None:
    standing = made()
    assert [body["kind"] for body in mirror_writes(KEY, head(), MirrorState(standing.service, ()), TARGET, "a1")] == [
        "EndpointSlice"
    ]


def test_another_share_is_added_to_the_owners() -> None:
    service, each = mirror_writes(KEY, head(), made(), TARGET, "a2")
    for body in (service, each):
        assert [owner["uid"] for owner in body["metadata"]["ownerReferences"]] == ["a1", "a2"]
        assert body["metadata"]["resourceVersion"] == "7", "another share may be adding itself at this moment"


def test_a_head_that_moved_changes_the_slice_only() -> None:
    (each,) = mirror_writes(KEY, head("10.12.0.9"), made(), TARGET, "a1")
    assert each["endpoints"][0]["addresses"] == ["10.12.0.9"]


def test_a_head_that_is_gone_is_removed_at_once() -> None:
    """Its address may be given to another head."""
    (each,) = mirror_writes(KEY, None, made(), TARGET, "a1")
    assert each["endpoints"] == []
    emptied = MirrorState(made().service, [edited(made().slices[0], "endpoints", to=None)])
    assert mirror_writes(KEY, None, emptied, TARGET, "a1") == [], "an API server leaves out what is empty"


def test_without_a_head_nothing_is_created() -> None:
    assert mirror_writes(KEY, None, NOTHING, TARGET, "a1") == []


def test_a_head_of_another_ip_family_gets_its_own_slice() -> None:
    """addressType cannot be changed."""
    old, new = mirror_writes(KEY, head("fd00::5"), made(), TARGET, "a1")
    assert (old["addressType"], old["endpoints"]) == ("IPv4", [])
    assert (new["addressType"], new["endpoints"][0]["addresses"]) == ("IPv6", ["fd00::5"])
    assert new["metadata"]["name"] == f"{KEY[1]}-rayspan-ipv6"


@pytest.mark.parametrize(
    ("path", "to"),
    [
        pytest.param(
            ("spec", "selector"), {"app": "theirs"}, id="a selector, by which the worker cluster adds endpoints"
        ),
        pytest.param(("spec", "ports"), [], id="no ports"),
        pytest.param(("metadata", "labels", names.REMOTE_RAY_CLUSTER_LABEL), "", id="no label to list it by"),
        pytest.param(("metadata", "ownerReferences"), None, id="no owner"),
    ],
)
def test_an_edited_service_is_repaired(path: tuple[str, ...], to: object) -> None:
    standing = made()
    wrong = MirrorState(edited(standing.service, *path, to=to), standing.slices)
    (service,) = mirror_writes(KEY, head(), wrong, TARGET, "a1")
    assert service["kind"] == "Service" and service["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    ("path", "to"),
    [
        pytest.param(
            ("endpoints",), [{"addresses": ["10.6.6.6"], "conditions": {"ready": True}}], id="another address"
        ),
        pytest.param(("endpoints",), None, id="no address"),
        pytest.param(("metadata", "labels", names.SERVICE_NAME_LABEL), "other", id="another Service"),
    ],
)
def test_an_edited_slice_is_repaired(path: tuple[str, ...], to: object) -> None:
    standing = made()
    wrong = MirrorState(standing.service, [edited(standing.slices[0], *path, to=to)])
    (each,) = mirror_writes(KEY, head(), wrong, TARGET, "a1")
    assert each["kind"] == "EndpointSlice"


@pytest.mark.parametrize(
    ("ports", "want"),
    [
        pytest.param([], [], id="no ports: a headless Service needs none"),
        pytest.param([{"containerPort": 80}], [("port-80", 80, "TCP")], id="a port without a name gets one"),
        pytest.param(
            [{"name": "a", "containerPort": 80}, {"name": "b", "containerPort": 80}],
            [("a", 80, "TCP")],
            id="one port with two names",
        ),
        pytest.param(
            [{"name": "a", "containerPort": 80}, {"name": "b", "containerPort": 80, "protocol": "UDP"}],
            [("a", 80, "TCP"), ("b", 80, "UDP")],
            id="one port in two protocols",
        ),
    ],
)
def test_mirrored_ports(ports: list[Raw], want: list[tuple[str, int, str]]) -> None:
    _, each = mirror_writes(KEY, head(ports=ports), NOTHING, TARGET, "a1")
    assert [(port["name"], port["port"], port["protocol"]) for port in each["ports"]] == want


def test_slices_are_found_by_their_names() -> None:
    """Labels may be edited, and edits must be repaired."""
    four, six = service_mirror.slice_keys(KEY)
    assert four == ("demo", mirror_writes(KEY, head(), NOTHING, TARGET, "a1")[1]["metadata"]["name"])
    assert six == ("demo", mirror_writes(KEY, head("fd00::5"), NOTHING, TARGET, "a1")[1]["metadata"]["name"])


def test_concurrent_owners_are_rebased_on_each_other() -> None:
    """All decide on the same state; each single-worker share is added to what the others have written since."""
    known = made()
    (first, *_), (second, *_) = (mirror_writes(KEY, head(), known, TARGET, anchor) for anchor in ("a2", "a3"))
    now = stored(first, "8")
    upon = service_mirror.rebase_write(second, now)
    assert upon and upon["metadata"]["resourceVersion"] == "8"
    assert [owner["uid"] for owner in upon["metadata"]["ownerReferences"]] == ["a1", "a2", "a3"]
    assert service_mirror.rebase_write(first, now) is None, "it is an owner already"
    assert service_mirror.rebase_write(second, edited(now, "spec", "clusterIP", to="10.0.0.1")) is None, (
        "more was changed"
    )
