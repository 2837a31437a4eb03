"""The metrics of actions, requests and stores; docs/metrics.md lists exactly these."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

from adapter import __version__, names
from adapter.actions import Action, CreatePod, DeletePod, PatchPodStatus, SetCheck, UpdatePlacementStatus
from adapter.gang import messages as explain
from adapter.objects.placement import ShareKey, parse_placement
from adapter.objects.reason import Reason
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload as read_workload
from adapter.shell import metrics
from adapter.shell.controller import measurements
from adapter.shell.controller.measurements import StateCollector
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import PODS, WORKER_CLUSTERS, WORKLOADS, kind_of
from adapter.worker import dispatch
from hack.lab.base.paths import REPO
from tests.unit import apiserver, stores
from tests.unit.apiserver import lists, refuses, says, streams
from tests.unit.builders import (
    CHECK,
    at,
    make_copy,
    make_placement,
    make_pod,
    make_worker_cluster,
    make_workload,
    stamp,
)
from tests.unit.fact_builders import make_worker

DOC = REPO / "docs" / "metrics.md"
_ROW = re.compile(r"^\| `(rayspan_\w+)` \| (.*?) \|", re.MULTILINE)
_NAME = re.compile(r"rayspan_[a-z_]+")
PLACE = parse_placement(make_placement(make_workload()))


def value(name: str, labels: Mapping[str, str] | None = None) -> float:
    return REGISTRY.get_sample_value(name, dict(labels or {})) or 0.0


def metric_types() -> dict[str, set[str]]:
    """Every metric of ours as it is exposed, with its labels."""
    told = [one for one in vars(metrics).values() if isinstance(one, MetricWrapperBase)]
    families = [(family, one._labelnames) for one in told for family in one.describe()]
    families += [(family, family._labelnames) for family in StateCollector(stores.Sight({}).manager).describe()]
    return {f"{family.name}{'_total' * (family.type == 'counter')}": set(labels) for family, labels in families}


# --- the doc ---------------------------------------------------------------------------------------------------------


def test_the_doc_lists_all_metrics_with_their_labels() -> None:
    listed = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in _ROW.findall(DOC.read_text())}
    assert listed == metric_types()


def test_the_alerts_use_existing_metrics() -> None:
    asked = {name.removesuffix("_bucket") for name in _NAME.findall(DOC.read_text())}
    assert asked == set(metric_types())


def test_the_label_values_in_the_doc_are_those_of_the_code() -> None:
    words = (
        metrics.CREATED,
        metrics.RUNNING,
        names.OrphanReason.POD_GONE,
        names.OrphanReason.SLOT_ELSEWHERE,
        names.OrphanReason.NO_SHARE,
    )
    assert all(f"`{word}`" in DOC.read_text() for word in words)


# --- actions ---------------------------------------------------------------------------------------------------------


def a_pod(cluster: str) -> Raw:
    pod = make_pod(slot=f"{cluster}/1/role/0")
    pod["metadata"]["creationTimestamp"] = stamp()
    return pod


def test_a_dispatch_is_timed_from_the_creation_of_the_managers_pod() -> None:
    pod, name = a_pod("timed"), "rayspan_dispatch_duration_seconds"
    measurements.count_action(CreatePod("timed", None, PLACE, ShareKey("timed", 1), pod, {}), "timed", at(2))
    measurements.count_action(PatchPodStatus(pod, {"status": {"phase": "Pending"}}), "", at(3))
    measurements.count_action(PatchPodStatus(pod, {"status": {"phase": "Running"}}), "", at(5))
    measurements.count_action(PatchPodStatus(pod, {"status": {"conditions": []}}), "", at(9))
    for stage, seconds in (("created", 2), ("running", 5)):
        labels = {"cluster": "timed", "stage": stage}
        assert (value(f"{name}_count", labels), value(f"{name}_sum", labels)) == (1, seconds)


def test_a_clock_that_is_behind_gives_no_negative_time() -> None:
    measurements.count_action(
        CreatePod("behind", None, PLACE, ShareKey("behind", 1), a_pod("behind"), {}), "behind", at(-3)
    )
    assert value("rayspan_dispatch_duration_seconds_sum", {"cluster": "behind", "stage": "created"}) == 0


@pytest.mark.parametrize(
    ("remotes", "pod", "want"),
    [
        pytest.param({"lost": make_copy(make_pod())}, None, {"pod-gone": 1}, id="the pod is gone"),
        pytest.param(
            {"lost": make_copy(make_pod(slot="east/1/role/0"))}, make_pod(slot="east/1/role/0"), {"slot-elsewhere": 1},
            id="the slot is in another cluster",
        ),
        pytest.param({"lost": make_copy(make_pod())}, make_pod(phase="Failed"), {}, id="the pod ended"),
    ],
)  # fmt: skip
def test_an_orphan_is_counted_by_its_reason(
    remotes: Mapping[str, Raw], pod: Raw | None, want: Mapping[str, int]
) -> None:
    """The metrics match the texts of the decision; a changed text would not be counted."""
    reasons = ("pod-gone", "slot-elsewhere", "no-share")
    before = {
        reason: value("rayspan_orphans_deleted_total", {"cluster": "lost", "reason": reason}) for reason in reasons
    }
    facts_ = make_worker(pod=pod, remote_pods=remotes)
    actions = dispatch.decide(facts_, at(0))
    assert [type(action) for action in actions] == [DeletePod]
    for action in actions:
        measurements.count_action(action, "lost", at(0))
    after = {
        reason: value("rayspan_orphans_deleted_total", {"cluster": "lost", "reason": reason}) for reason in reasons
    }
    assert {reason: after[reason] - before[reason] for reason in reasons if after[reason] > before[reason]} == want


def test_a_withdrawn_round_is_one_rollback_and_a_spill_for_each_blocker() -> None:
    blocked = {"full": "insufficient quota", "slow": ""}
    late = Reason(names.ReasonCode.RESERVATION_TIMEOUT, "Not admitted within 4s")
    status = explain.withdrawing_status(PLACE, blocked, late, at(60), at(0))
    before = value("rayspan_gang_rollbacks_total")
    actions: Iterable[Action] = (
        UpdatePlacementStatus(
            PLACE,
            explain.reserving_status(
                PLACE, dict.fromkeys(PLACE.shares, Reason(names.ReasonCode.QUOTA_PENDING, "")), at(0)
            ),
        ),
        UpdatePlacementStatus(PLACE, status),
        UpdatePlacementStatus(
            parse_placement(make_placement(make_workload(), withdrawn=1)), status
        ),  # said again: nothing new
    )
    for action in actions:
        measurements.count_action(action, "", at(0))
    assert value("rayspan_gang_rollbacks_total") - before == 1
    assert [value("rayspan_spills_total", {"cluster": name}) for name in blocked] == [1, 1]


def test_a_gang_is_timed_from_its_quota_in_the_manager_until_it_is_ready() -> None:
    name = "rayspan_admission_check_wait_time_seconds"
    before = value(f"{name}_count"), value(f"{name}_sum")
    waits = read_workload(make_workload())
    ready = read_workload(make_workload(check="Ready"))
    reserved = waits.reserved_at
    assert reserved
    for work, state, seconds in ((waits, "Pending", 3), (waits, "Ready", 7), (ready, "Ready", 50)):
        measurements.count_action(SetCheck(work, CHECK, state, ""), "", reserved + timedelta(seconds=seconds))
    assert (value(f"{name}_count") - before[0], value(f"{name}_sum") - before[1]) == (1, 7)


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({"phase": "Failed", "reason": "WorkerLost"}, "WorkerLost"),
        ({"phase": "Failed", "reason": "whatever a kubelet writes"}, "other"),
        ({"phase": "Failed"}, "other"),
        ({"phase": "Succeeded"}, ""),
        ({"reason": "WorkerLost"}, ""),
    ],
)
def test_a_failed_worker_is_counted_by_one_of_few_reasons(status: Raw, want: str) -> None:
    def told() -> dict[str, float]:
        return {
            one: value("rayspan_workers_lost_total", {"cluster": "lossy", "reason": one})
            for one in (*names.LOSS_REASONS, "other")
        }

    metrics.register_cluster("lossy")
    before = told()
    measurements.count_action(PatchPodStatus(a_pod("lossy"), {"status": status}), "", at(0))
    assert {one: count - before[one] for one, count in told().items() if count > before[one]} == (
        {want: 1} if want else {}
    )


def test_the_first_loss_in_a_cluster_is_an_increase() -> None:
    """Prometheus sees none in a counter that comes into being as 1."""
    metrics.register_cluster("fresh")
    counters = {
        "rayspan_workers_lost_total": (*names.LOSS_REASONS, "other"),
        "rayspan_orphans_deleted_total": ("slot-elsewhere", "no-share"),
    }
    for name, reasons in counters.items():
        found = [REGISTRY.get_sample_value(name, {"cluster": "fresh", "reason": reason}) for reason in reasons]
        assert found == [0.0] * len(reasons)
    assert REGISTRY.get_sample_value("rayspan_spills_total", {"cluster": "fresh"}) == 0


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (PODS.path(), ("pods", False)),
        (PODS.path("demo"), ("pods", False)),
        (PODS.path("demo", "a"), ("pods", True)),
        (PODS.path("demo", "a", "status"), ("pods/status", True)),
        (WORKLOADS.path("demo", "w", "status"), ("workloads/status", True)),
        (WORKER_CLUSTERS.path(name="east", sub="status"), ("workerclusters/status", True)),
        ("/api/v1/namespaces", ("namespaces", False)),
        ("/api/v1/namespaces/kube-system", ("namespaces", True)),
        ("/api/v1/namespaces/pods/pods/pods", ("pods", True)),
        ("/readyz", ("readyz", False)),
        ("/api", ("api", False)),
    ],
)
def test_the_kind_of_a_request_path(path: str, want: tuple[str, bool]) -> None:
    assert kind_of(path) == want


async def test_requests_are_counted_as_they_are_answered() -> None:
    async with apiserver.serving() as server:
        login = yaml.safe_dump(apiserver.kubeconfig(f"{server.url}/behind/a/path"))
        client = await Client.from_kubeconfig(login, "counted")
        try:
            server.lists = [says({"metadata": {}}), lists(1), refuses(409), says({"metadata": {}})]
            server.watches = [streams()]
            await client.get(PODS.path("demo", "a"))
            await client.get(PODS.path("demo"))
            with pytest.raises(ApiError):
                await client.create(PODS.path("demo"), {})
            await client.merge_patch(PODS.path("demo", "a", "status"), {})
            async with client.stream(PODS.path("demo"), {"watch": "true"}, 5):
                assert value("rayspan_watches", {"cluster": "counted", "kind": "pods"}) == 1
            assert value("rayspan_watches", {"cluster": "counted", "kind": "pods"}) == 0
        finally:
            await client.close()
    found = {
        (verb, kind, code): value("rayspan_api_requests_total", labels)
        for verb, kind, code in (
            ("get", "pods", "200"), ("list", "pods", "200"), ("create", "pods", "409"), ("patch", "pods/status", "200"),
            ("watch", "pods", "200"),
        )
        for labels in [{"cluster": "counted", "verb": verb, "kind": kind, "code": code}]
    }  # fmt: skip
    assert set(found.values()) == {1.0}, found


async def test_a_request_without_an_answer_is_counted_as_such() -> None:
    client = await Client.from_kubeconfig(yaml.safe_dump(apiserver.kubeconfig("http://127.0.0.1:1")), "away")
    try:
        with pytest.raises(Unreachable):
            await client.get(PODS.path())
    finally:
        await client.close()
    assert value("rayspan_api_requests_total", {"cluster": "away", "verb": "list", "kind": "pods", "code": "none"}) == 1


async def test_a_server_does_not_decide_how_many_codes_there_are() -> None:
    async with apiserver.serving() as server:
        client = await Client.from_kubeconfig(yaml.safe_dump(apiserver.kubeconfig(server.url)), "with-odd-codes")
        try:
            server.lists = [refuses(code) for code in (507, 555, 556, 999)]
            for _ in range(4):
                with pytest.raises(ApiError):
                    await client.get(PODS.path("demo"))
        finally:
            await client.close()
    found = [
        sample.labels["code"]
        for sample in next(iter(metrics.REQUESTS.collect())).samples
        if sample.labels["cluster"] == "with-odd-codes" and sample.name.endswith("_total")
    ]
    assert sorted(found) == ["507", metrics.OTHER]


# --- what there is now -----------------------------------------------------------------------------------------------


async def test_pods_are_counted_by_registered_cluster_and_phase() -> None:
    home = stores.Sight({}).manager
    stores.fill(home.worker_clusters, {**make_worker_cluster("east"), "metadata": {"name": "east"}})
    pods = [
        make_pod("a", slot="east/1/role/0", phase="Running"),
        make_pod("b", slot="east/1/role/1", phase="Running"),
        make_pod("c", slot="somewhere/1/role/0"),
        make_pod("d"),
        make_pod("e", slot="east/1/role/2", phase="a phase of somebody else's"),
    ]
    stores.fill(home.pods, *pods)
    census = StateCollector(home)
    found = {tuple(sample.labels.values()): sample.value for sample in next(census.collect()).samples}
    assert found == {("east", "Running"): 2, ("", "Pending"): 2, ("east", "other"): 1}


async def test_a_pod_is_counted_by_its_planned_template_slot() -> None:
    home, place = stores.Sight({}).manager, make_placement(make_workload(), shares={"west": {"workers": 2}})
    stores.fill(home.worker_clusters, *(_named(make_worker_cluster(name), name) for name in ("east", "west")))
    stores.fill(home.placements, place)
    of = {"placement": place["metadata"]["name"], "listed": "east/1/role-workers/1 west/1/role-workers/2"}
    stores.fill(home.pods, make_pod("a", index="0", **of), make_pod("b", index="1", **of))
    assert await told_now(home, "rayspan_pods") == {("", "Pending"): 1, ("west", "Pending"): 1}


async def test_a_pod_that_cannot_be_read_hides_no_other() -> None:
    home = stores.Sight({}).manager
    stores.fill(
        home.pods, {**make_pod("a"), "status": ["x"]}, make_pod("b"), {**make_pod("c"), "status": {"phase": {}}}
    )
    found = {tuple(sample.labels.values()): sample.value for sample in next(StateCollector(home).collect()).samples}
    assert found == {("", "Pending"): 2}


async def told_now(home: Any, name: str) -> dict[tuple[str, ...], float]:
    (family,) = (family for family in StateCollector(home).collect() if family.name == name)
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


async def test_gangs_are_counted_by_state() -> None:
    home, work = stores.Sight({}).manager, make_workload()
    states = ("Placed", "Placed", "Waiting", None, "a state of somebody else's")
    stores.fill(home.placements, *(_named(make_placement(work, state=one), str(i)) for i, one in enumerate(states)))
    assert await told_now(home, "rayspan_placements") == {("Placed",): 2, ("Waiting",): 2, ("other",): 1}


async def test_each_worker_cluster_has_the_reason_of_its_connection() -> None:
    home = stores.Sight({}).manager
    reasons = {"east": "Connected", "north": "ClaimConflict", "south": "a reason of somebody else's", "west": ""}
    stores.fill(
        home.worker_clusters,
        *(
            make_worker_cluster(name, conditions=[{"type": "Connected", "reason": reason}] if reason else [])
            for name, reason in reasons.items()
        ),
    )
    assert await told_now(home, "rayspan_cluster_connected_reason") == {
        ("east", "Connected"): 1, ("north", "ClaimConflict"): 1, ("south", "other"): 1, ("west", ""): 1,
    }  # fmt: skip


_JOINED = make_worker_cluster("east")["spec"]["source"]


def _secret(name: str, ends: object) -> Raw:
    return {
        "metadata": {
            "name": name,
            "namespace": names.SYSTEM_NAMESPACE,
            "annotations": {names.TOKEN_EXPIRES_ANNOTATION: ends},
        }
    }


async def ends_now(home: Any) -> dict[tuple[str, ...], float]:
    return await told_now(home, "rayspan_cluster_token_expiry_timestamp_seconds")


@pytest.mark.parametrize(
    ("source", "secret", "told"),
    [
        pytest.param(_JOINED, _secret("east", "2027-02-25T00:00:00Z"), {("east",): 1803513600}, id="a joined cluster"),
        pytest.param(_JOINED, None, {}, id="no Secret"),
        pytest.param(_JOINED, {"metadata": {"name": "east", "namespace": names.SYSTEM_NAMESPACE}}, {},
                     id="a Secret without an expiry"),
        pytest.param(_JOINED, _secret("east", "in spring"), {}, id="no time"),
        pytest.param(_JOINED, _secret("east", "0001-01-01T00:00:00+14:00"), {}, id="before all time"),
        pytest.param(_JOINED, _secret("east", ["2027-02-25T00:00:00Z"]), {}, id="no text"),
        pytest.param(_JOINED, _secret("west", "2027-02-25T00:00:00Z"), {}, id="another Secret"),
        pytest.param({"kubeConfig": ["x"]}, _secret("east", "2027-02-25T00:00:00Z"), {}, id="an odd spec"),
        pytest.param({"multiKueueClusterRef": {"name": "east"}}, _secret("east", "2027-02-25T00:00:00Z"), {},
                     id="a MultiKueueCluster"),
        pytest.param({"clusterProfileRef": {"name": "east"}}, _secret("east", "2027-02-25T00:00:00Z"), {},
                     id="a ClusterProfile"),
    ],
)  # fmt: skip
async def test_the_expiry_of_a_clusters_token_is_exported_if_known(
    source: Raw, secret: Raw | None, told: dict[tuple[str], float]
) -> None:
    home, faults = stores.Sight({}).manager, value("rayspan_task_failures_total", {"task": "measurements"})
    stores.fill(home.worker_clusters, make_worker_cluster("east", source=source))
    stores.fill(home.secrets, *([secret] if secret else []))
    assert await ends_now(home) == told
    assert value("rayspan_task_failures_total", {"task": "measurements"}) == faults


async def test_a_renewed_token_expires_later_and_a_removed_cluster_has_no_expiry() -> None:
    home, found = stores.Sight({}).manager, list[dict[tuple[str, ...], float]]()
    stores.fill(home.worker_clusters, make_worker_cluster("east"))
    for ends in ("2027-02-25T00:00:00Z", "2027-02-26T00:00:00Z"):
        stores.fill(home.secrets, _secret("east", ends))
        found.append(await ends_now(home))
    stores.fill(home.worker_clusters)
    assert [*found, await ends_now(home)] == [{("east",): 1803513600}, {("east",): 1803600000}, {}]


def _named(raw: Raw, name: str) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], "name": name, "uid": name}}


def test_the_version_is_exported() -> None:
    assert value("rayspan_build_info", {"version": __version__}) == 1


async def test_tasks_are_counted_by_what_they_run() -> None:
    async def idle() -> None:
        await asyncio.Event().wait()

    tasks = [asyncio.create_task(idle()) for _ in range(3)]
    *_, family = StateCollector(stores.Sight({}).manager).collect()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [s.value for s in family.samples if s.labels["coroutine"].endswith("idle")] == [3]


def test_a_removed_cluster_has_no_metrics() -> None:
    metrics.CONNECTED.labels("gone").set(1)
    metrics.unregister_cluster("gone")
    assert REGISTRY.get_sample_value("rayspan_cluster_connected", {"cluster": "gone"}) is None
    metrics.unregister_cluster("gone")


# --- memory ----------------------------------------------------------------------------------------------------------


async def test_memory_is_shown_by_cluster_and_never_by_namespace() -> None:
    sight = stores.Sight({"east": 2})
    for cache, plural in ((sight.manager, "pods"), (sight.members["east"], "workloads")):
        cache.budget.new_quota(plural).store = cache.workloads
        cache.workloads.replace([make_workload()])
    sight.manager.namespace_shares.drop_unreadable("mallory", "pods")
    collected = StateCollector(sight.manager, sight.fleet.caches).collect()
    found = {
        family.name: {sample.labels["cluster"]: sample.value for sample in family.samples}
        for family in collected
        if {frozenset(sample.labels) for sample in family.samples} == {frozenset({"cluster"})}
    }
    assert found["rayspan_incomplete_namespaces"] == {"": 1, "east": 0}
    weights = {"": sight.manager.workloads.weight, "east": sight.members["east"].workloads.weight}
    assert found["rayspan_cached_bytes"] == found["rayspan_largest_namespace_bytes"] == weights
    assert all(weights.values())
