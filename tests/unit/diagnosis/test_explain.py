"""Which link holds a job up, state by state: its stage, its reason, what is said, and the exit code."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.diagnosis import explain
from adapter.diagnosis.job_facts import JobFacts, placement_of, pods_of, workload_of
from adapter.objects.unstructured import RawDict as Raw
from tests.unit.builders import CHECK, make_condition, make_placement, make_pod, make_workload
from tests.unit.diagnosis.jobs import (
    admitted,
    make_facts,
    make_head,
    make_job,
    make_running_cluster,
    make_worker,
)  # fmt: skip


def conditions(*found: Raw, **more: Any) -> Raw:
    """A Workload with these conditions, which holds no quota else."""
    work = make_workload(reserved=None, **more)
    work["status"]["conditions"] = list(found)
    return work


def container(name: str = "ray-worker", restarts: int = 0, last: Raw | None = None, **state: Raw) -> Raw:
    return {
        "name": name,
        "restartCount": restarts,
        "state": state,
        **({"lastState": {"terminated": last}} if last else {}),
    }


def waiting(state: str, reason: str, code: str = "") -> JobFacts:
    work = make_workload()
    conditions = [make_condition(names.PLACED, False, reason=code or state)]
    placement = make_placement(work, shares={}, state=state, reason=reason, conditions=conditions)
    placement["spec"]["check"] = CHECK
    return make_facts(work, placement=placement, job=make_job(), ray_cluster={}, pods=())


def late(**worker: Any) -> JobFacts:
    """One worker runs, the other one does not."""
    return make_facts(pods=[make_head(), make_worker(0), make_worker(1, cluster="west", up=False, **worker)])


KILLED = {"exitCode": 137, "reason": "OOMKilled"}
LOOP = container(restarts=3, last=KILLED, waiting={"reason": "CrashLoopBackOff", "message": "back-off 40s"})
TOLD = {"exitCode": 1, "reason": "Error", "message": f"{'a ' * 99}\nValueError: no such dataset:\n s3://weights\n"}
LOOP_TOLD = container(last=TOLD, waiting={"reason": "CrashLoopBackOff"})
PULL = container("ray-head", waiting={"reason": "ErrImagePull", "message": "no such image"})
GCS = container("wait-gcs-ready", running={"startedAt": "2026-01-02T03:04:05Z"})
NO_NODE = make_condition(names.DISPATCHED_CONDITION, reason="Unschedulable", message="0/3 nodes are available")
UNSEEN = make_condition(names.DISPATCHED_CONDITION) | {"status": "Unknown", "message": "worker cluster west is silent"}
EVICTED = make_condition("Evicted", message="Preempted by b")
REJECTED = make_condition(
    "Evicted",
    reason="DeactivatedDueToAdmissionCheck",
    message='The workload is deactivated due to AdmissionCheck in Rejected state: "rayspan" (RayJob train: no)',
)

CASES: list[tuple[str, Callable[[], JobFacts], tuple[str, str, int], str]] = [
    (
        "it runs",
        make_facts,
        ("Ray", "Runs", 0),
        "Its head runs, and all of its 2 workers have joined. The job is RUNNING.",
    ),
    (
        "it has succeeded",
        lambda: make_facts(job=make_job(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED"), pods=[]),
        ("Job", "Succeeded", 0),
        "It has succeeded.",
    ),
    (
        "it has failed",
        lambda: make_facts(job=make_job(jobDeploymentStatus="Failed", reason="AppFailed", message="exit 1"), pods=[]),
        ("Job", "JobFailed", 4),
        "It has failed (AppFailed): exit 1.",
    ),
    ("it goes", lambda: make_facts(job=make_job(deleting=True)), ("Job", "Deleted", 4), "It is being deleted."),
    (
        "no label",
        lambda: make_facts({}, job=make_job(queue=None, suspend=True), pods=[]),
        ("Job", "NoQueue", 4),
        "It has no label kueue.x-k8s.io/queue-name, and spec.suspend of it is true: Kueue does not manage it, and none of its "
        "workers is sent elsewhere.",
    ),
    (
        "no label, and it runs all the same",
        lambda: make_facts({}, job=make_job(queue=None)),
        ("Ray", "Runs", 0),
        "Its head runs, and all of its 2 workers have joined.",
    ),
    (
        "no Workload",
        lambda: make_facts({}, pods=[]),
        ("Workload", "NoWorkload", 3),
        "Kueue has made no Workload of it yet.",
    ),
    (
        "no LocalQueue",
        lambda: make_facts({}, pods=[], local_queue={}),
        ("Workload", "NoLocalQueue", 4),
        "Namespace demo has no LocalQueue team-a, which its label kueue.x-k8s.io/queue-name names.",
    ),
    (
        "no LocalQueue, of which Kueue made a Workload all the same",
        lambda: make_facts(
            conditions(make_condition("QuotaReserved", False, message="LocalQueue team-a doesn't exist")),
            pods=[],
            local_queue={},
        ),
        ("Workload", "NoLocalQueue", 4),
        "Namespace demo has no LocalQueue team-a, which its label kueue.x-k8s.io/queue-name names.",
    ),
    (
        "refused, and not deactivated yet",
        lambda: make_facts(make_workload(check="Rejected", message="RayJob train: hostNetwork is true"), pods=[]),
        ("AdmissionCheck", "Rejected", 4),
        "AdmissionCheck rayspan refused it: RayJob train: hostNetwork is true.",
    ),
    (
        "refused",
        lambda: make_facts(conditions(REJECTED, active=False), pods=[]),
        ("AdmissionCheck", "Rejected", 4),
        'The workload is deactivated due to AdmissionCheck in Rejected state: "rayspan" (RayJob train: no).',
    ),
    (
        "deactivated",
        lambda: make_facts(conditions(active=False), pods=[]),
        ("Workload", "Deactivated", 4),
        "Somebody or something deactivated it (spec.active is false): nothing says why.",
    ),
    (
        "out of the queue for a moment",
        lambda: make_facts(conditions(active=False, yielded=3), pods=[]),
        ("Workload", "Requeuing", 3),
        "It found no room, gave the manager's quota to those who queue behind it, and queues again in a moment.",
    ),
    (
        "evicted",
        lambda: make_facts(conditions(EVICTED, make_condition("QuotaReserved")), pods=[]),
        ("Workload", "Evicted", 3),
        "It is being evicted: Preempted by b.",
    ),
    (
        "evicted, and in the queue again",
        lambda: make_facts(conditions(EVICTED, make_condition("QuotaReserved", False, message="no cpu")), pods=[]),
        ("Workload", "ManagerQuota", 3),
        "It was evicted: Preempted by b. It waits for quota of the manager cluster: no cpu.",
    ),
    (
        "no quota",
        lambda: make_facts(
            conditions(make_condition("QuotaReserved", False, message="insufficient quota for cpu")), pods=[]
        ),
        ("Workload", "ManagerQuota", 3),
        "It waits for quota of the manager cluster: insufficient quota for cpu.",
    ),
    (
        "no check",
        lambda: make_facts(make_workload(checks=()), placement={}, pods=[]),
        ("AdmissionCheck", "NoCheck", 4),
        "ClusterQueue team-a asks no AdmissionCheck of rayspan.dev/dispatch for it, so its workers run in the manager cluster, if at all.",
    ),
    (
        "another check",
        lambda: make_facts(make_workload(checks=("budget",), check="Ready"), placement={}, pods=[]),
        ("AdmissionCheck", "NoCheck", 4),
        "ClusterQueue team-a asks no AdmissionCheck of rayspan.dev/dispatch for it, so its workers run in the manager cluster, if at all.",
    ),
    (
        "whose check it is cannot be told",
        lambda: make_facts(make_workload(message="it waits"), placement={}, checks=frozenset(), pods=[]),
        ("AdmissionCheck", "CheckPending", 3),
        "AdmissionCheck rayspan waits: it waits.",
    ),
    (
        "nobody answered",
        lambda: make_facts(make_workload(), placement={}, pods=[]),
        ("AdmissionCheck", "CheckPending", 3),
        "AdmissionCheck rayspan has not answered yet.",
    ),
    (
        "it starts again",
        lambda: make_facts(make_workload(check="Retry", message="east was lost"), pods=[]),
        ("AdmissionCheck", "Retry", 3),
        "AdmissionCheck rayspan has it start again: east was lost.",
    ),
    ("no room", lambda: waiting("Waiting", "4 needed, 2 fit"), ("Placement", "Waiting", 3), "4 needed, 2 fit."),
    (
        "no room even if nothing else ran",
        lambda: waiting(
            "Waiting", "4 needed, 2 fit. Even empty clusters hold only 3: raise a quota or ask for fewer workers"
        ),
        ("Placement", "Waiting", 3),
        "4 needed, 2 fit. Even empty clusters hold only 3: raise a quota or ask for fewer workers.",
    ),
    ("asked", lambda: waiting("Reserving", "Reserving quota"), ("Placement", "Reserving", 3), "Reserving quota."),
    (
        "about to be admitted",
        lambda: make_facts(make_workload(check="Ready"), pods=[]),
        ("AdmissionCheck", "NotAdmitted", 3),
        "All of its checks are ready, and Kueue is about to admit it.",
    ),
    (
        "no RayCluster",
        lambda: make_facts(job=make_job(rayClusterName="", message="webhook says no"), ray_cluster={}, pods=[]),
        ("Pods", "NoRayCluster", 3),
        "KubeRay has made no RayCluster of it yet. It says: webhook says no.",
    ),
    (
        "no head",
        lambda: make_facts(pods=[]),
        ("Pods", "NoHead", 3),
        "KubeRay has made no head yet.",
    ),
    (
        "not all workers are made",
        lambda: make_facts(
            pods=[make_head(), make_worker()], ray_cluster=make_running_cluster(reason="quota exceeded")
        ),
        ("Pods", "WorkersMissing", 3),
        "KubeRay has made 1 of 2 workers. It says: quota exceeded.",
    ),
    (
        "the head has no image",
        lambda: make_facts(
            pods=[
                make_head(up=False) | {"status": {"phase": "Pending", "containerStatuses": [PULL]}},
                make_worker(0, cluster="", up=False),
                make_worker(1, cluster="", up=False),
            ]
        ),
        ("Pods", "HeadCrashes", 3),
        "The head is not ready: ErrImagePull in manager on n1: container ray-head: no such image.",
    ),
    (
        "no slot",
        lambda: make_facts(
            pods=[make_head(), make_worker(0, cluster="", up=False), make_worker(1, cluster="", up=False)]
        ),
        ("Pods", "NoSlot", 3),
        f"A worker is not there yet: it is held back, and has no slot on Placement {make_facts().placement['metadata']['name']} "
        "yet. 1 more is like it.",
    ),
    (
        "no copy",
        lambda: late(sent=False),
        ("Pods", "NoRemotePod", 3),
        "A worker is not there yet: its copy is not made in west yet (slot west/1/role-workers/1).",
    ),
    (
        "no node",
        lambda: late(conditions=[NO_NODE]),
        ("Pods", "Unschedulable", 3),
        "A worker is not there yet: it finds no node in west: 0/3 nodes are available.",
    ),
    (
        "its cluster is silent",
        lambda: late(conditions=[UNSEEN], phase="Running"),
        ("Pods", "ClusterUnreachable", 3),
        "A worker is not there yet: its copy in west cannot be seen: worker cluster west is silent.",
    ),
    (
        "it crashes",
        lambda: late(containerStatuses=[LOOP], hostIP="10.2.0.9"),
        ("Pods", "Crashes", 3),
        "A worker is not there yet: CrashLoopBackOff in west on 10.2.0.9: container ray-worker: 3 restarts; the last time it ended "
        "with exit code 137, OOMKilled; back-off 40s.",
    ),
    (
        "it crashes, and has said why",
        lambda: late(containerStatuses=[LOOP_TOLD]),
        ("Pods", "Crashes", 3),
        "A worker is not there yet: CrashLoopBackOff in west: container ray-worker: the last time it ended with exit code 1, Error; "
        f"it said last: …{'a ' * 59}ValueError: no such dataset: s3://weights.",
    ),
    (
        "it failed",
        lambda: late(phase="Failed", reason="RemotePodGone", message="The pod was evicted there"),
        ("Pods", "Failed", 3),
        "A worker is not there yet: it failed (RemotePodGone) in west: The pod was evicted there.",
    ),
    (
        "its cluster is silent, and it runs as far as anybody knows",
        lambda: make_facts(pods=[make_head(), make_worker(0), make_worker(1, conditions=[UNSEEN])]),
        ("Ray", "Runs", 0),
        "Its head runs, and all of its 2 workers have joined. The job is RUNNING.",
    ),
    (
        "it is not submitted",
        lambda: make_facts(job=make_job(jobDeploymentStatus="Initializing")),
        ("Ray", "NotSubmitted", 3),
        "Its head runs, and all of its 2 workers have joined. It is not submitted to Ray yet.",
    ),
    ("it starts", late, ("Pods", "Starts", 3), "A worker is not there yet: it starts in west."),
    (
        "it does not reach the head",
        lambda: late(initContainerStatuses=[GCS]),
        ("Ray", "NotJoined", 3),
        "A worker is not there yet: it waits in wait-gcs-ready in west until it reaches the head.",
    ),
    (
        "it has not joined",
        lambda: late(phase="Running", hostIP="10.2.0.9"),
        ("Ray", "NotJoined", 3),
        "A worker is not there yet: it runs in west on 10.2.0.9, and has not joined Ray (Ready is False).",
    ),
]


@pytest.mark.parametrize(("facts", "link", "said"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_the_link(facts: Callable[[], JobFacts], link: tuple[str, str, int], said: str) -> None:
    found = explain.diagnose(facts())
    assert (found.stage, found.reason, found.exit_code) == link
    assert found.message == said


@pytest.mark.parametrize(
    ("listed", "cluster", "step"),
    [
        pytest.param("east/1/role-workers/2", "east", "NoRemotePod", id="it is planned"),
        pytest.param("east/1/role-workers/9", "", "NoSlot", id="more than is planned"),
        pytest.param("north/1/role-workers/9", "", "NoSlot", id="its share was given up"),
    ],
)
def test_a_slot_that_a_pod_came_with_is_shown_while_it_is_planned(listed: str, cluster: str, step: str) -> None:
    work = make_workload()
    place = make_placement(work, shares={"east": {"workers": 2}})
    index = "1" if cluster else "5"
    pod = make_pod(placement=place["metadata"]["name"], index=index, listed=listed)
    (node,) = explain.pod_states(make_facts(work, [pod], placement=place))
    assert (node.cluster, bool(node.slot), node.step) == (cluster, bool(cluster), step)


def test_a_slot_is_shown_too_where_the_plan_may_not_be_read() -> None:
    pod = make_pod(index="0", listed="east/1/role-workers/2")
    (node,) = explain.pod_states(make_facts(make_workload(), [pod], placement={}))
    assert node.cluster == "east"


def test_every_refusal_says_what_to_do() -> None:
    found = [explain.diagnose(facts()) for _, facts, _, _ in CASES]
    assert [one.reason for one in found if one.exit_code == 4 and not one.advice] == ["Deleted"]
    assert [one.reason for one in found if "{" in one.advice and one.reason != "Deactivated"] == []


def test_the_worst_worker_is_told() -> None:
    pods = [make_head(), make_worker(0, up=False), make_worker(1, up=False, containerStatuses=[LOOP])]
    assert explain.diagnose(make_facts(pods=pods)).object == "Pod demo/train-abc-worker-1"


def test_what_a_running_job_lacks_is_a_note() -> None:
    facts = make_facts(admitted(checks=()), placement={}, pods=[], unread_reasons={"pods": "No."})
    assert explain.diagnose(facts).reason == "NoCheck", "whether it runs is not known"
    seen = make_facts(admitted(checks=()), placement={})
    link = explain.diagnose(seen)
    assert link.outcome == "Runs" and "so its workers run in the manager cluster" in explain.notes(seen, link)[0]


def test_a_running_worker_that_cannot_be_seen_is_a_note() -> None:
    facts = make_facts(pods=[make_head(), make_worker(0), make_worker(1, conditions=[UNSEEN])])
    assert explain.notes(facts, explain.diagnose(facts)) == ["worker cluster west is silent."]


def test_who_fits_nowhere_is_not_told_that_it_starts_by_itself() -> None:
    assert explain.diagnose(waiting("Waiting", "Too few")).advice == "It starts by itself as soon as there is room."
    assert explain.diagnose(waiting("Waiting", "Even empty clusters hold only 3", code="NeverFits")).advice == ""
    work = make_workload()
    planned = make_placement(work, shares={}, explanation="Even empty clusters hold only 3.")
    planned["spec"] |= {"check": CHECK, "explanationCode": "NeverFits"}
    facts = make_facts(work, placement=planned, job=make_job(), ray_cluster={}, pods=())
    assert explain.diagnose(facts).advice == "", "before its status is written"


def test_what_could_not_be_read_holds_nobody_up() -> None:
    unread = {"workloads": "You may not read workloads here.", "pods": "Nor pods."}
    facts = make_facts(
        {}, job=make_job(), pods=[], unread_reasons=unread, ray_cluster=make_running_cluster(state="ready")
    )
    link = explain.diagnose(facts)
    assert (link.outcome, link.message) == ("Runs", "KubeRay says that it runs.")
    assert explain.notes(facts, link)[-2:] == [*unread.values()]
    blind = make_facts(
        job=make_job(), pods=[], ray_cluster={}, unread_reasons={"rayclusters": "You may not read rayclusters here."}
    )
    assert explain.diagnose(blind).exit_code == 3, "nothing is claimed of what was not seen"
    room = replace(waiting("Waiting", "4 needed, 2 fit"), workload={}, unread_reasons=unread)
    assert (explain.diagnose(room).reason, explain.diagnose(room).exit_code) == ("Waiting", 3)


def test_one_that_failed_beside_its_replacement_holds_nobody_up() -> None:
    failed = make_worker(2, up=False, phase="Failed")
    found = explain.diagnose(make_facts(pods=[make_head(), make_worker(0), make_worker(1), failed]))
    assert found.message == "Its head runs, and all of its 2 workers have joined. The job is RUNNING."


def test_what_others_wrote_does_nothing_to_a_terminal() -> None:
    said = container(waiting={"reason": "Err\x1b[2J", "message": "no\nsuch\x07image"})
    found = late(containerStatuses=[said], hostIP="1\x1b.2")
    link = explain.diagnose(found)
    assert link.message.isprintable() and "no such" in link.message
    assert all(
        text.isprintable()
        for one in explain.pod_states(found)
        for text in (one.reason, one.message, one.node, one.phase)
    )
    refused = explain.diagnose(make_facts(make_workload(check="Rejected", message="a\x1b[2Jb"), pods=[]))
    assert refused.message.isprintable()


def test_steps_say_ok_before_the_link_and_nothing_after_it() -> None:
    assert explain.stage_states(explain.diagnose(waiting("Waiting", "no"))) == [
        ("Job", "ok"), ("Workload", "ok"), ("AdmissionCheck", "ok"), ("Placement", "Waits"), ("Pods", "-"), ("Ray", "-"),
    ]  # fmt: skip
    assert {state for _, state in explain.stage_states(explain.diagnose(make_facts()))} == {"ok"}


def test_what_belongs_to_a_job_is_told_by_uids() -> None:
    job, work = make_job(), make_workload()
    other = {**work, "metadata": {**work["metadata"], "ownerReferences": []}}
    placement = make_placement(work)
    assert workload_of(job, [other, work]) is work and workload_of(job, [other]) == {}
    assert placement_of(work, job, "RayJob", [placement]) is placement
    assert placement_of(other | {"metadata": {"uid": "x"}}, job, "RayJob", [placement]) == {}
    cluster, stray = make_running_cluster(), make_head()
    stray["metadata"]["ownerReferences"] = [{"uid": "another", "controller": True}]
    assert [pod["metadata"]["name"] for pod in pods_of(cluster, [make_worker(), stray, make_head()])] == [
        "train-abc-head", "train-abc-worker-0",
    ]  # fmt: skip


def test_an_elastic_job_is_told_by_the_slice_that_stands_for_it() -> None:
    """A younger one waits for quota to grow by; its Placement is the job's, whichever slice that was made for."""
    first, second = (
        make_workload(name="train-1", owner="RayCluster"),
        make_workload(name="train-2", owner="RayCluster", reserved=None),
    )
    for number, raw in enumerate((first, second)):
        raw["metadata"]["annotations"][names.ELASTIC_ANNOTATION] = "true"
        raw["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{number}Z"
    job = {"metadata": {"name": "train", "uid": "uid-of-job"}}
    assert workload_of(job, [first, second]) is workload_of(job, [second, first]) is first
    placement = make_placement(make_workload(name="train-0"))
    placement["spec"]["job"] = {"kind": "RayCluster", "name": "train", "uid": "uid-of-job"}
    assert placement_of(first, job, "RayCluster", [placement]) is placement
    assert placement_of(first, {"metadata": {"name": "train", "uid": "x"}}, "RayCluster", [placement]) == {}


@pytest.mark.parametrize(
    ("gate", "want"),
    [
        (names.GATE, "yet: 1 of 2 workers have a place: 1 east; the others wait for room."),
        (names.ELASTIC_GATE, "yet: the manager's Kueue has no quota for it yet."),
    ],
)
def test_a_worker_that_an_elastic_job_has_no_place_for_says_what_it_waits_for(gate: str, want: str) -> None:
    late_one = make_worker(1, cluster="", up=False)
    late_one["spec"]["schedulingGates"] = [{"name": names.GATE}, {"name": gate}]
    found = make_facts(pods=[make_head(), make_worker(), late_one])
    place: Any = {
        **found.placement,
        "status": {"reason": "1 of 2 workers have a place: 1 east; the others wait for room."},
    }
    place["spec"] = {**place["spec"], "job": {"kind": "RayJob", "name": "train", "uid": "uid-of-job"}}
    assert explain.diagnose(replace(found, placement=place)).message.endswith(want)
