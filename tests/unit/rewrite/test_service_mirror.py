"""The mirror of a head's Service: what is written where there is none, where it is wrong, and where it is right."""

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
    cluster="east", zone="east", queue="q", manager="mgr", workload="w", workload_uid="u", placement="p", share="p-1", round=1
)  # fmt: skip
NOTHING = MirrorState(None, ())
PORTS = [{"name": "gcs-server", "containerPort": 6379, "protocol": "TCP"}, {"containerPort": 8265}]


def head(address: str = "10.12.0.5", ports: list[Raw] | None = None) -> Raw:
    container = {"name": "ray-head", "ports": PORTS if ports is None else ports}
    labels = {names.RAY_GCS_CLUSTER_LABEL: "train-abc"}
    status = {"podIP": address}
    return {"metadata": make_meta("head", labels=labels), "spec": {"containers": [container]}, "status": status}


def made(head_pod: Raw | None = None, *, anchor: str = "a1", version: str = "7") -> MirrorState:
    """The mirror as an API server has it and lists it after it was written: without kind, with what that server adds."""
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


def test_where_there_is_none_service_and_slice_are_made() -> None:
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


def test_what_is_right_is_left_alone() -> None:
    assert mirror_writes(KEY, head(), made(), TARGET, "a1") == []


def test_after_a_crash_between_the_two_the_slice_is_made() -> None:
    standing = made()
    assert [body["kind"] for body in mirror_writes(KEY, head(), MirrorState(standing.service, ()), TARGET, "a1")] == [
        "EndpointSlice"
    ]


def test_another_share_becomes_an_owner_beside_those_there_are() -> None:
    service, each = mirror_writes(KEY, head(), made(), TARGET, "a2")
    for body in (service, each):
        assert [owner["uid"] for owner in body["metadata"]["ownerReferences"]] == ["a1", "a2"]
        assert body["metadata"]["resourceVersion"] == "7", "another share may be adding itself at this moment"


def test_a_head_that_moved_changes_the_slice_alone() -> None:
    (each,) = mirror_writes(KEY, head("10.12.0.9"), made(), TARGET, "a1")
    assert each["endpoints"][0]["addresses"] == ["10.12.0.9"]


def test_a_head_that_is_gone_is_taken_out_at_once() -> None:
    """Its address may be given to another head."""
    (each,) = mirror_writes(KEY, None, made(), TARGET, "a1")
    assert each["endpoints"] == []
    emptied = MirrorState(made().service, [edited(made().slices[0], "endpoints", to=None)])
    assert mirror_writes(KEY, None, emptied, TARGET, "a1") == [], "an API server leaves out what is empty"


def test_without_a_head_nothing_is_begun() -> None:
    assert mirror_writes(KEY, None, NOTHING, TARGET, "a1") == []


def test_a_head_of_another_family_gets_a_slice_of_its_own() -> None:
    """addressType cannot be changed."""
    old, new = mirror_writes(KEY, head("fd00::5"), made(), TARGET, "a1")
    assert (old["addressType"], old["endpoints"]) == ("IPv4", [])
    assert (new["addressType"], new["endpoints"][0]["addresses"]) == ("IPv6", ["fd00::5"])
    assert new["metadata"]["name"] == f"{KEY[1]}-rayspan-ipv6"


@pytest.mark.parametrize(
    ("path", "to"),
    [
        pytest.param(("spec", "selector"), {"app": "theirs"}, id="a selector, by which that cluster adds endpoints"),
        pytest.param(("spec", "ports"), [], id="no ports"),
        pytest.param(("metadata", "labels", names.REMOTE_RAY_CLUSTER_LABEL), "", id="no label to look by"),
        pytest.param(("metadata", "ownerReferences"), None, id="no owner"),
    ],
)
def test_a_service_that_was_edited_is_mended(path: tuple[str, ...], to: object) -> None:
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
def test_a_slice_that_was_edited_is_mended(path: tuple[str, ...], to: object) -> None:
    standing = made()
    wrong = MirrorState(standing.service, [edited(standing.slices[0], *path, to=to)])
    (each,) = mirror_writes(KEY, head(), wrong, TARGET, "a1")
    assert each["kind"] == "EndpointSlice"


@pytest.mark.parametrize(
    ("ports", "want"),
    [
        pytest.param([], [], id="none: a headless Service needs none"),
        pytest.param(
            [{"containerPort": 80}], [("port-80", 80, "TCP")], id="a name is made up: of several each needs one"
        ),
        pytest.param(
            [{"name": "a", "containerPort": 80}, {"name": "b", "containerPort": 80}], [("a", 80, "TCP")], id="one twice"
        ),
        pytest.param(
            [{"name": "a", "containerPort": 80}, {"name": "b", "containerPort": 80, "protocol": "UDP"}],
            [("a", 80, "TCP"), ("b", 80, "UDP")],
            id="one in two protocols",
        ),
    ],
)
def test_ports_are_those_that_a_service_can_name(ports: list[Raw], want: list[tuple[str, int, str]]) -> None:
    _, each = mirror_writes(KEY, head(ports=ports), NOTHING, TARGET, "a1")
    assert [(port["name"], port["port"], port["protocol"]) for port in each["ports"]] == want


def test_slices_are_found_by_their_names() -> None:
    """A label may be edited, and what is edited is to be mended."""
    four, six = service_mirror.slice_keys(KEY)
    assert four == ("demo", mirror_writes(KEY, head(), NOTHING, TARGET, "a1")[1]["metadata"]["name"])
    assert six == ("demo", mirror_writes(KEY, head("fd00::5"), NOTHING, TARGET, "a1")[1]["metadata"]["name"])


def test_owners_that_come_at_once_are_written_one_upon_the_other() -> None:
    """Decided on the same state, each single worker's share is added to what the others have written since."""
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
