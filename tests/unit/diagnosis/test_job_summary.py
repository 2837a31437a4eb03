"""The rows of `rayspan list`."""

from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.diagnosis import explain
from adapter.diagnosis.job_facts import JobFacts
from adapter.diagnosis.job_summary import ListedObjects, describe_jobs
from adapter.objects.unstructured import RawDict as Raw
from tests.unit.builders import NAMESPACE, QUEUE
from tests.unit.diagnosis.jobs import RAY_CLUSTER, make_facts

SERVICE_OWNER = {
    "apiVersion": "ray.io/v1",
    "kind": "RayService",
    "name": "chat",
    "uid": "uid-of-chat",
    "controller": True,
}


def listed(facts: JobFacts, **more: Any) -> ListedObjects:
    """All objects of one job; arguments replace them."""
    objects: dict[str, Any] = {
        "jobs": {facts.kind: [facts.job]},
        "ray_clusters": [facts.ray_cluster] if facts.ray_cluster else [],
        "workloads": [facts.workload],
        "placements": [facts.placement],
        "pods": facts.pods,
        "local_queues": [facts.local_queue],
        "worker_clusters": list(facts.worker_clusters.values()),
        "checks": facts.checks,
        "rejections": [],
        "namespace_events": [],
        "unread_reasons": {},
    }
    return ListedObjects(**(objects | more))


def make_service(**status: Any) -> Raw:
    labels = {names.QUEUE_LABEL: QUEUE}
    return {
        "metadata": {"name": "chat", "namespace": NAMESPACE, "uid": "uid-of-chat", "labels": labels},
        "status": status,
    }


def test_a_job_has_the_outcome_of_why_and_the_clusters_of_its_placement() -> None:
    facts = make_facts()
    (row,) = describe_jobs(listed(facts))["jobs"]
    diagnosis = explain.diagnose(facts)
    assert (row["outcome"], row["reason"], row["sentence"]) == ("Runs", diagnosis.reason, diagnosis.message)
    assert (row["workers"], row["where"], row["queue"]) == ("2 of 2", "1 east, 1 west", QUEUE)


def test_objects_of_other_jobs_are_not_taken_for_those_of_a_job() -> None:
    facts = make_facts()
    other = {**facts.job, "metadata": {**facts.job["metadata"], "name": "later", "uid": "uid-of-later"}, "status": {}}
    rows = describe_jobs(listed(facts, jobs={"RayJob": [facts.job, other]}))["jobs"]
    assert [(row["name"], row["outcome"], row["where"]) for row in rows] == [
        ("later", "Waits", None),
        ("train", "Runs", "1 east, 1 west"),
    ]


@pytest.mark.parametrize("field", ["activeServiceStatus", "pendingServiceStatus"])
def test_a_service_has_the_row_of_its_raycluster(field: str) -> None:
    facts = make_facts()
    labels = {names.QUEUE_LABEL: QUEUE}
    owned = {**facts.ray_cluster}
    owned["metadata"] = {**owned["metadata"], "labels": labels, "ownerReferences": [SERVICE_OWNER]}
    service = make_service(**{field: {"rayClusterName": RAY_CLUSTER}})
    jobs = {names.RAY_SERVICE: [service], "RayCluster": [owned]}
    own = replace(facts, kind="RayCluster", job=owned, ray_cluster=owned)
    (row,) = describe_jobs(listed(own, jobs=jobs))["jobs"]
    assert (row["kind"], row["name"]) == (names.RAY_SERVICE, "chat")
    assert row["sentence"] == "Kueue has not created its Workload yet."  # of the RayCluster: no Workload is its own


def test_a_service_without_a_raycluster_waits() -> None:
    (row,) = describe_jobs(listed(make_facts(), jobs={names.RAY_SERVICE: [make_service()]}))["jobs"]
    assert (row["outcome"], row["reason"], row["where"]) == ("Waits", "NoRayCluster", None)


def test_a_job_without_a_queue_is_not_listed() -> None:
    facts = make_facts()
    plain = {**facts.job, "metadata": {**facts.job["metadata"], "labels": {}}}
    assert describe_jobs(listed(facts, jobs={"RayJob": [plain]}))["jobs"] == []


def test_rows_are_in_the_order_of_namespace_kind_and_name() -> None:
    def job(namespace: str, name: str) -> Raw:
        return {"metadata": {"name": name, "namespace": namespace, "uid": name, "labels": {names.QUEUE_LABEL: "q"}}}

    jobs = {"RayCluster": [job("a", "x")], "RayJob": [job("b", "a"), job("a", "z"), job("a", "y")]}
    rows = describe_jobs(listed(make_facts(), jobs=jobs, ray_clusters=[]))["jobs"]
    assert [(row["namespace"], row["kind"], row["name"]) for row in rows] == [
        ("a", "RayJob", "y"),
        ("a", "RayJob", "z"),
        ("a", "RayCluster", "x"),
        ("b", "RayJob", "a"),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"placements": [{"spec": {"job": "train"}}, {"spec": []}, {}]},
        {"jobs": {names.RAY_SERVICE: [{**make_service(), "status": {"activeServiceStatus": "chat"}}]}},
        {"workloads": [{"metadata": {"ownerReferences": [7]}}]},
        {"pods": [{"metadata": {"ownerReferences": {"uid": 7}}}]},
    ],
)
def test_malformed_objects_take_no_row_away(change: dict[str, Any]) -> None:
    assert len(describe_jobs(listed(make_facts(), **change))["jobs"]) == 1
