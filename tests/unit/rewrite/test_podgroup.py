"""With Volcano in a worker cluster, a share has one PodGroup of all its workers, and its remote pods name it."""

import asyncio

import pytest

from adapter import names
from adapter.actions import CreatePod
from adapter.cli.pod_diff import diff_pods
from adapter.objects.reservation import Reservation
from adapter.objects.reservation import parse_reservation as read_reservation
from adapter.objects.unstructured import RawDict as Raw
from adapter.rewrite import group_workload
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.rewriter import remote_pod
from adapter.rewrite.target import Target
from adapter.shell.kube.client import ApiError
from adapter.shell.write import gang_writer
from adapter.worker.dispatch import decide
from tests.unit import apiserver
from tests.unit.apiserver import Server, refuses, says
from tests.unit.builders import at, make_placement, make_reservation, make_workload
from tests.unit.rewrite.test_pod_mapping import mapped
from tests.unit.worker.test_dispatch import NAME, SLOTTED, worker

VOLCANO = mapped(schedulerName="volcano")


def group(name: str, count: int, **requests: str) -> tuple[str, int, Raw]:
    container = {"name": "ray-worker", "image": "ray", "resources": {"requests": requests}}
    return name, count, {"spec": {"containers": [container]}}


def share(target: Target, *groups: tuple[str, int, Raw]) -> Raw:
    return group_workload.build_workload(target, "demo", groups or [group("workers", 2, cpu="1")], "anchor-uid")


def test_a_share_in_a_volcano_cluster_has_one_pod_group() -> None:
    workload = share(VOLCANO, group("workers", 3, cpu="1500m", memory="1Gi"), group("gpu", 1, cpu="1"))
    assert group_workload.build_pod_group(workload, VOLCANO, starts=True) == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": "p-1",
            "namespace": "demo",
            "labels": workload["metadata"]["labels"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "p-1", "uid": "anchor-uid"}],
        },
        "spec": {"minMember": 4, "minResources": {"cpu": "5500m", "memory": "3Gi"}},
    }


def test_workers_that_join_a_running_gang_wait_for_no_others() -> None:
    """A drain moves them one by one, and the next one leaves when the first is ready."""
    body = group_workload.build_pod_group(share(VOLCANO, group("workers", 3, cpu="1")), VOLCANO, starts=False)
    assert body and body["spec"] == {"minMember": 1}


@pytest.mark.parametrize(
    "pods", [{}, {"schedulerName": "yunikorn"}, {"annotations": {names.VOLCANO_QUEUE_ANNOTATION: "q"}}]
)
def test_a_share_without_volcano_has_no_pod_group(pods: Raw) -> None:
    target = mapped(**pods)
    workload = share(target)
    assert group_workload.build_pod_group(workload, target, starts=True) is None
    assert names.POD_GROUP_ANNOTATION not in workload["metadata"]["annotations"]
    assert read_reservation("east", workload).pod_group == ""


def test_the_pod_group_is_in_the_queue_of_the_pod_mapping() -> None:
    target = mapped(schedulerName="volcano", annotations={names.VOLCANO_QUEUE_ANNOTATION: "research"})
    body = group_workload.build_pod_group(share(target), target, starts=True)
    assert body and body["spec"]["queue"] == "research"


@pytest.mark.parametrize(
    ("requests", "want"),
    [
        ({}, {}),
        ({"cpu": "100m"}, {"cpu": "400m"}),  # KubeRay's init container requests more, while no other container runs
        ({"cpu": "1", "nvidia.com/gpu": "2"}, {"cpu": "2", "nvidia.com/gpu": "4"}),
        ({"memory": "1.5Gi"}, {"memory": "3Gi"}),
    ],
)
def test_the_pod_groups_minimum_resources_are_its_pods_requests(requests: dict[str, str], want: dict[str, str]) -> None:
    body = group_workload.build_pod_group(share(VOLCANO, group("workers", 2, **requests)), VOLCANO, starts=True)
    assert body and body["spec"]["minResources"] == want


# --- the remote pods --------------------------------------------------------------------------------------------------


def copy_of(pod: Raw, found: Reservation) -> Raw:
    (made,) = decide(worker(pod, reservations={("east", found.round): found}), at(5))
    assert isinstance(made, CreatePod)
    return dict(made.body["metadata"]["annotations"])


def test_remote_pods_name_the_pod_group_of_their_shares_round() -> None:
    """A further round is another share with its own group. The first group keeps its size."""
    place = make_placement(make_workload())
    place["spec"]["shares"][0]["round"] = 1
    place["spec"]["round"] = 2
    raw = make_reservation(place, round=1)
    raw["metadata"]["annotations"][names.POD_GROUP_ANNOTATION] = f"{NAME}-1"
    assert copy_of(SLOTTED, read_reservation("east", raw))[names.POD_GROUP_ANNOTATION] == f"{NAME}-1"


def test_remote_pods_of_a_share_made_for_another_scheduler_name_no_pod_group() -> None:
    """Volcano would wait for a group that does not exist. Without a name it makes a group of one pod."""
    now = {"east": VOLCANO}  # the WorkerCluster when the remote pod is created
    (made,) = decide(worker(SLOTTED, targets=now), at(5))
    assert isinstance(made, CreatePod)
    assert made.body["spec"]["schedulerName"] == "volcano"
    assert names.POD_GROUP_ANNOTATION not in made.body["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("group", "why"),
    [("", "it is for the manager's scheduler"), ("p-1", "Volcano starts the share's workers together there")],
)
def test_the_change_of_the_pod_group_annotation_has_a_reason(group: str, why: str) -> None:
    pod = {"metadata": {"name": "w", "annotations": {names.POD_GROUP_ANNOTATION: "ray-pi-pg"}}, "spec": {}}
    out = remote_pod(
        pod,
        head=HeadAddress.from_pod(pod, "10.0.0.1"),
        target=VOLCANO,
        role="r",
        slot="s",
        anchor_uid="a",
        pod_group=group,
    )
    (change,) = (
        change for change in diff_pods(pod, out) if change.path == f"metadata.annotations.{names.POD_GROUP_ANNOTATION}"
    )
    assert (change.after, change.reason) == (group, why)


# --- the write --------------------------------------------------------------------------------------------------------

BODY = group_workload.build_pod_group(share(VOLCANO), VOLCANO, starts=True) or {}
OTHERS = {**BODY, "metadata": {**BODY["metadata"], "ownerReferences": [{"kind": "ConfigMap", "uid": "earlier"}]}}
GOING = {**BODY, "metadata": {**BODY["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
FORBIDDEN = 'podgroups.scheduling.volcano.sh is forbidden: User "east" cannot create resource "podgroups" in API group'
CLOSED = 'admission webhook "validatepodgroup.volcano.sh" denied the request: queue `q` status is `Closed`'


def ensure(*answers: apiserver.Answer) -> list[tuple[str, str]]:
    """The requests to a server with these answers."""

    async def run() -> list[tuple[str, str]]:
        async with apiserver.serving(Server(lists=list(answers))) as server, apiserver.connected(server.url) as client:
            await gang_writer.ensure_pod_group(client, BODY)
            return [(asked.method, asked.path) for asked in server.asked]

    return asyncio.run(run())


PATH = "/apis/scheduling.volcano.sh/v1beta1/namespaces/demo/podgroups"


def test_the_pod_group_is_created_once_and_found_after_a_crash() -> None:
    assert ensure(says(BODY)) == [("POST", PATH)]
    assert ensure(refuses(409, "AlreadyExists"), says(BODY)) == [("POST", PATH), ("GET", f"{PATH}/p-1")]


@pytest.mark.parametrize("found", [OTHERS, GOING], ids=["of an earlier anchor", "being deleted"])
def test_a_pod_group_that_may_be_deleted_before_its_share_is_rejected(found: Raw) -> None:
    with pytest.raises(ApiError, match=r"PodGroup demo/p-1, .* cannot be created: there is another one of that name$"):
        ensure(refuses(409, "AlreadyExists"), says(found))


@pytest.mark.parametrize(
    ("status", "said", "advice"),
    [
        (404, "page not found", "; install Volcano there, or let the WorkerCluster name another scheduler"),
        (403, FORBIDDEN, "; apply kustomize/overlays/worker there"),
        (403, CLOSED, ""),
    ],
)
def test_a_cluster_without_pod_groups_gets_advice(status: int, said: str, advice: str) -> None:
    with pytest.raises(ApiError) as refusal:
        ensure(refuses(status, "Refused", said))
    text = "PodGroup demo/p-1, which spec.pods.schedulerName volcano requires, cannot be created: "
    assert (refusal.value.status, refusal.value.message) == (status, f"{text}{said}{advice}")
