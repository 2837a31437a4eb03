"""What a job waits for, state by state: its stage, reason, message and exit code."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.diagnosis import explain
from adapter.diagnosis.job_facts import (
    JobFacts,
    ignored_clusters,
    namespace_notice,
    placement_of,
    pods_of,
    workload_of,
)
from adapter.objects.kuberay_events import certain_rejection
from adapter.objects.move_from import MoveFrom, ignored_part
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
    """A Workload with these conditions, and otherwise without quota."""
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
    """One running worker and one that does not run."""
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
        "the job runs",
        make_facts,
        ("Ray", "Runs", 0),
        "Its head runs, and all of its 2 workers have joined. The job is RUNNING.",
    ),
    (
        "the job has succeeded",
        lambda: make_facts(job=make_job(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED"), pods=[]),
        ("Job", "Succeeded", 0),
        "It has succeeded.",
    ),
    (
        "the job has failed",
        lambda: make_facts(job=make_job(jobDeploymentStatus="Failed", reason="AppFailed", message="exit 1"), pods=[]),
        ("Job", "JobFailed", 4),
        "It has failed (AppFailed): exit 1.",
    ),
    (
        "the job is being deleted",
        lambda: make_facts(job=make_job(deleting=True)),
        ("Job", "Deleted", 4),
        "It is being deleted.",
    ),
    (
        "a job without a queue label",
        lambda: make_facts({}, job=make_job(queue=None, suspend=True), pods=[]),
        ("Job", "NoQueue", 4),
        (
            "It has no label kueue.x-k8s.io/queue-name, and its spec.suspend is true: Kueue does not "
            "manage it, and none of its workers runs in a worker cluster."
        ),
    ),
    (
        "a running job without a queue label",
        lambda: make_facts({}, job=make_job(queue=None)),
        ("Ray", "Runs", 0),
        "Its head runs, and all of its 2 workers have joined.",
    ),
    (
        "no Workload",
        lambda: make_facts({}, pods=[]),
        ("Workload", "NoWorkload", 3),
        "Kueue has not created its Workload yet.",
    ),
    (
        "no LocalQueue",
        lambda: make_facts({}, pods=[], local_queue={}),
        ("Workload", "NoLocalQueue", 4),
        "Namespace demo has no LocalQueue team-a, which its label kueue.x-k8s.io/queue-name names.",
    ),
    (
        "no LocalQueue, and Kueue made a Workload",
        lambda: make_facts(
            conditions(make_condition("QuotaReserved", False, message="LocalQueue team-a doesn't exist")),
            pods=[],
            local_queue={},
        ),
        ("Workload", "NoLocalQueue", 4),
        "Namespace demo has no LocalQueue team-a, which its label kueue.x-k8s.io/queue-name names.",
    ),
    (
        "rejected, and not deactivated yet",
        lambda: make_facts(make_workload(check="Rejected", message="RayJob train: hostNetwork is true"), pods=[]),
        ("AdmissionCheck", "Rejected", 4),
        "AdmissionCheck rayspan rejected it: RayJob train: hostNetwork is true.",
    ),
    (
        "rejected and deactivated",
        lambda: make_facts(conditions(REJECTED, active=False), pods=[]),
        ("AdmissionCheck", "Rejected", 4),
        'The workload is deactivated due to AdmissionCheck in Rejected state: "rayspan" (RayJob train: no).',
    ),
    (
        "deactivated",
        lambda: make_facts(conditions(active=False), pods=[]),
        ("Workload", "Deactivated", 4),
        "It was deactivated (spec.active is false): no cause is recorded.",
    ),
    (
        "deactivated until its requeue",
        lambda: make_facts(conditions(active=False, yielded=3), pods=[]),
        ("Workload", "Requeuing", 3),
        (
            "It found no capacity, and was deactivated so that jobs behind it get the manager's "
            "quota. It queues again in a moment."
        ),
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
        (
            "ClusterQueue team-a has no AdmissionCheck of rayspan.dev/dispatch for it, so its "
            "workers run in the manager cluster, if at all."
        ),
    ),
    (
        "another check",
        lambda: make_facts(make_workload(checks=("budget",), check="Ready"), placement={}, pods=[]),
        ("AdmissionCheck", "NoCheck", 4),
        (
            "ClusterQueue team-a has no AdmissionCheck of rayspan.dev/dispatch for it, so its "
            "workers run in the manager cluster, if at all."
        ),
    ),
    (
        "a check whose controller is unknown",
        lambda: make_facts(make_workload(message="it waits"), placement={}, checks=frozenset(), pods=[]),
        ("AdmissionCheck", "CheckPending", 3),
        "AdmissionCheck rayspan waits: it waits.",
    ),
    (
        "a check without an answer",
        lambda: make_facts(make_workload(), placement={}, pods=[]),
        ("AdmissionCheck", "CheckPending", 3),
        "AdmissionCheck rayspan has not reported a state yet.",
    ),
    (
        "the check retries",
        lambda: make_facts(make_workload(check="Retry", message="east was lost"), pods=[]),
        ("AdmissionCheck", "Retry", 3),
        "AdmissionCheck rayspan requests a retry: east was lost.",
    ),
    ("no capacity", lambda: waiting("Waiting", "4 needed, 2 fit"), ("Placement", "Waiting", 3), "4 needed, 2 fit."),
    (
        "no capacity even in empty clusters",
        lambda: waiting(
            "Waiting", "4 needed, 2 fit. Even empty clusters hold only 3: raise a quota or request fewer workers"
        ),
        ("Placement", "Waiting", 3),
        "4 needed, 2 fit. Even empty clusters hold only 3: raise a quota or request fewer workers.",
    ),
    (
        "quota is being reserved",
        lambda: waiting("Reserving", "Reserving quota"),
        ("Placement", "Reserving", 3),
        "Reserving quota.",
    ),
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
        "KubeRay has not created its RayCluster yet. It reports: webhook says no.",
    ),
    (
        "no head",
        lambda: make_facts(pods=[]),
        ("Pods", "NoHead", 3),
        "KubeRay has not created the head yet.",
    ),
    (
        "KubeRay has not created all workers",
        lambda: make_facts(
            pods=[make_head(), make_worker()], ray_cluster=make_running_cluster(reason="quota exceeded")
        ),
        ("Pods", "WorkersMissing", 3),
        "KubeRay has created 1 of 2 workers. It reports: quota exceeded.",
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
        ("Pods", "HeadNoImage", 3),
        "The head is not ready: its image cannot be pulled in manager on n1 (ErrImagePull): container ray-head: no "
        "such image.",
    ),
    (
        "no slot",
        lambda: make_facts(
            pods=[make_head(), make_worker(0, cluster="", up=False), make_worker(1, cluster="", up=False)]
        ),
        ("Pods", "NoSlot", 3),
        (
            "A worker is not ready yet: it is gated, and has no slot on Placement "
            f"{make_facts().placement['metadata']['name']} yet. 1 more is like it."
        ),
    ),
    (
        "no remote pod",
        lambda: late(sent=False),
        ("Pods", "NoRemotePod", 3),
        ("A worker is not ready yet: its remote pod is not created in west yet (slot west/1/role-workers/1)."),
    ),
    (
        "no node",
        lambda: late(conditions=[NO_NODE]),
        ("Pods", "Unschedulable", 3),
        "A worker is not ready yet: it cannot be scheduled in west: 0/3 nodes are available.",
    ),
    (
        "the worker's cluster is unreachable",
        lambda: late(conditions=[UNSEEN], phase="Running"),
        ("Pods", "ClusterUnreachable", 3),
        ("A worker is not ready yet: its remote pod in west is unreachable: worker cluster west is silent."),
    ),
    (
        "the worker's image cannot be pulled",
        lambda: late(
            containerStatuses=[container(waiting={"reason": "ImagePullBackOff", "message": "no such host"})],
            hostIP="10.2.0.9",
        ),
        ("Pods", "NoImage", 3),
        (
            "A worker is not ready yet: its image cannot be pulled in west on 10.2.0.9 (ImagePullBackOff): container "
            "ray-worker: no such host."
        ),
    ),
    (
        "the worker crashes",
        lambda: late(containerStatuses=[LOOP], hostIP="10.2.0.9"),
        ("Pods", "Crashes", 3),
        (
            "A worker is not ready yet: CrashLoopBackOff in west on 10.2.0.9: container ray-worker: "
            "3 restarts; it last ended with exit code 137, OOMKilled; back-off 40s."
        ),
    ),
    (
        "the worker crashes with a termination message",
        lambda: late(containerStatuses=[LOOP_TOLD]),
        ("Pods", "Crashes", 3),
        (
            "A worker is not ready yet: CrashLoopBackOff in west: container ray-worker: it last "
            f"ended with exit code 1, Error; last output: …{'a ' * 59}ValueError: no such dataset: "
            "s3://weights."
        ),
    ),
    (
        "the worker failed",
        lambda: late(phase="Failed", reason="RemotePodGone", message="The pod was evicted there"),
        ("Pods", "Failed", 3),
        "A worker is not ready yet: it failed (RemotePodGone) in west: The pod was evicted there.",
    ),
    (
        "an unreachable worker that ran when last observed",
        lambda: make_facts(pods=[make_head(), make_worker(0), make_worker(1, conditions=[UNSEEN])]),
        ("Ray", "Runs", 0),
        "Its head runs, and all of its 2 workers have joined. The job is RUNNING.",
    ),
    (
        "the job is not submitted to Ray",
        lambda: make_facts(job=make_job(jobDeploymentStatus="Initializing")),
        ("Ray", "NotSubmitted", 3),
        "Its head runs, and all of its 2 workers have joined. It is not submitted to Ray yet.",
    ),
    ("the worker starts", late, ("Pods", "Starts", 3), "A worker is not ready yet: it starts in west."),
    (
        "the worker does not reach the head",
        lambda: late(initContainerStatuses=[GCS]),
        ("Ray", "NotJoined", 3),
        "A worker is not ready yet: it waits in wait-gcs-ready in west until it reaches the head.",
    ),
    (
        "the worker has not joined Ray",
        lambda: late(phase="Running", hostIP="10.2.0.9"),
        ("Ray", "NotJoined", 3),
        ("A worker is not ready yet: it runs in west on 10.2.0.9, and has not joined Ray (Ready is False)."),
    ),
]


@pytest.mark.parametrize(("facts", "link", "said"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_the_diagnosis(facts: Callable[[], JobFacts], link: tuple[str, str, int], said: str) -> None:
    found = explain.diagnose(facts())
    assert (found.stage, found.reason, found.exit_code) == link
    assert found.message == said


@pytest.mark.parametrize(
    ("listed", "cluster", "step"),
    [
        pytest.param("east/1/role-workers/2", "east", "NoRemotePod", id="the slot's share is planned"),
        pytest.param("east/1/role-workers/9", "", "NoSlot", id="more template slots than the share has"),
        pytest.param("north/1/role-workers/9", "", "NoSlot", id="the slot's share was given up"),
    ],
)
def test_a_template_slot_is_shown_while_its_share_is_planned(listed: str, cluster: str, step: str) -> None:
    work = make_workload()
    place = make_placement(work, shares={"east": {"workers": 2}})
    index = "1" if cluster else "5"
    pod = make_pod(placement=place["metadata"]["name"], index=index, listed=listed)
    (node,) = explain.pod_states(make_facts(work, [pod], placement=place))
    assert (node.cluster, bool(node.slot), node.step) == (cluster, bool(cluster), step)


def test_a_slot_is_shown_if_the_placement_may_not_be_read() -> None:
    pod = make_pod(index="0", listed="east/1/role-workers/2")
    (node,) = explain.pod_states(make_facts(make_workload(), [pod], placement={}))
    assert node.cluster == "east"


def test_every_rejection_has_a_remedy() -> None:
    found = [explain.diagnose(facts()) for _, facts, _, _ in CASES]
    assert [one.reason for one in found if one.exit_code == 4 and not one.advice] == ["Deleted"]
    assert [one.reason for one in found if "{" in one.advice and one.reason != "Deactivated"] == []


def test_the_worst_worker_is_reported() -> None:
    pods = [make_head(), make_worker(0, up=False), make_worker(1, up=False, containerStatuses=[LOOP])]
    assert explain.diagnose(make_facts(pods=pods)).object == "Pod demo/train-abc-worker-1"


def test_a_missing_worker_of_a_running_job_is_a_note() -> None:
    facts = make_facts(admitted(checks=()), placement={}, pods=[], unread_reasons={"pods": "No."})
    assert explain.diagnose(facts).reason == "NoCheck", "whether it runs is not known"
    seen = make_facts(admitted(checks=()), placement={})
    link = explain.diagnose(seen)
    assert link.outcome == "Runs" and "so its workers run in the manager cluster" in explain.notes(seen, link)[0]


@pytest.mark.parametrize(
    ("object_version", "observed_generation", "is_certain"),
    [
        pytest.param("7", 1, True, id="the event is about this version"),
        pytest.param("5", None, True, id="KubeRay never accepted it"),
        pytest.param("5", 1, False, id="an edit came after the event"),
        pytest.param("5", 2, False, id="KubeRay has accepted the edit"),
    ],
)
def test_a_job_that_kuberay_rejects_is_told_in_its_words(
    object_version: str, observed_generation: int | None, is_certain: bool
) -> None:
    status = {} if observed_generation is None else {"observedGeneration": observed_generation}
    metadata = {"namespace": "demo", "name": "train", "uid": "u", "resourceVersion": "7", "generation": 2}
    cluster: Raw = {"metadata": metadata, "spec": {"suspend": True}, "status": status}
    event: Raw = {
        "metadata": {"resourceVersion": "6"},
        "involvedObject": {"uid": "u", "resourceVersion": object_version},
        "reason": "InvalidRayClusterSpec",
        "message": "idleTimeoutSeconds is set\x1b[2J",
    }
    another: Raw = {**event, "involvedObject": {"uid": "v", "resourceVersion": "7"}}
    assert certain_rejection(cluster, [another]) is certain_rejection(cluster, [{"involvedObject": 5}]) is None
    rejection = certain_rejection(cluster, [event, another])
    assert (rejection is not None) == is_certain
    facts = make_facts(
        make_workload(), job=cluster, placement={}, pods=[], ray_cluster=cluster, kuberay_rejection=rejection
    )
    link = explain.diagnose(replace(facts, kind="RayCluster"))
    assert (link.reason == names.EventReason.REJECTED_BY_KUBERAY) == is_certain
    if is_certain:
        assert (link.stage, link.reason, link.object) == ("Job", "RejectedByKubeRay", "RayCluster demo/train")
        assert link.message.startswith("KubeRay rejects it (InvalidRayClusterSpec): idleTimeoutSeconds is set")
        assert link.message.isprintable() and link.advice.startswith("Edit the RayCluster")


KEEPS_AWAY = "Its workers keep away from east (annotation rayspan.dev/move-from)"
IGNORED = (
    "The annotation rayspan.dev/move-from names a WorkerCluster that does not exist (north), and is ignored in that; "
    "correct the name, or remove it."
)
UNREAD = {"workerclusters": "You may not read workerclusters here."}


@pytest.mark.parametrize(
    ("move_from", "more", "want"),
    [
        pytest.param("", {}, [], id="no annotation"),
        pytest.param(
            "east", {}, [f"{KEEPS_AWAY}; 1 worker of it is there now. 1 to west; no capacity."], id="a worker is there"
        ),
        pytest.param(
            "east",
            {"pods": [make_head(), make_worker(0, cluster="west"), make_worker(1, cluster="west")]},
            [f"{KEEPS_AWAY}; no workers of it are there now."],
            id="none is there",
        ),
        pytest.param("north", {}, [IGNORED], id="an unknown cluster"),
        pytest.param(
            "north",
            {"unread_reasons": UNREAD, "worker_clusters": {}, "move_notice": "The controller ignores north."},
            [
                f"{KEEPS_AWAY.replace('east', 'north')}; no workers of it are there now.",
                "The controller ignores north.",
                *UNREAD.values(),
            ],
            id="the user may not read WorkerClusters",
        ),
    ],
)
def test_the_clusters_that_a_job_leaves_are_a_note(move_from: str, more: Raw, want: list[str]) -> None:
    job = make_job(jobStatus="RUNNING")
    job["metadata"]["annotations"] = {names.MOVE_FROM_ANNOTATION: move_from}
    facts = make_facts(job=job, **more)
    facts.placement["status"]["reason"] = "1 to west; no capacity."
    assert explain.notes(facts, explain.diagnose(facts)) == want


@pytest.mark.parametrize(
    ("named", "clusters", "want"),
    [
        ("eats", ["east", "eats"], ["eats"]),
        ("eats", ["eat", "is", "train", "demo"], []),
        ("a,b,c,d,e,f,g", ["e", "a", "more", "2"], ["e", "a"]),
        ("east", ["east"], []),
    ],
    ids=["unknown", "only words of the text", "many unknown", "known"],
)
def test_the_event_names_the_clusters_that_are_ignored(named: str, clusters: list[str], want: list[str]) -> None:
    text = f"RayJob demo/train: {ignored_part(MoveFrom(tuple(named.split(','))), {'east'})} (And 3 other messages.)"
    assert ignored_clusters({"message": text}, clusters) == want


def test_an_incomplete_namespace_comes_first_among_the_notes() -> None:
    """Its job waits for it, though Kueue and the check say nothing of that."""

    def event(kind: str, at: str, component: str = names.EVENT_SOURCE) -> Raw:
        message = f"Namespace demo is {at}"
        return {"type": kind, "lastTimestamp": at, "message": message, "source": {"component": component}}

    events = [event("Warning", "2026-01-01T00:00:00Z"), event("Warning", "2026-03-01T00:00:00Z", "somebody")]
    notice = namespace_notice(events)
    assert notice == "Namespace demo is 2026-01-01T00:00:00Z. (As of 2026-01-01T00:00:00Z.)"
    assert namespace_notice([*events, event("Normal", "2026-02-01T00:00:00Z")]) == ""
    assert namespace_notice([]) == namespace_notice([{"source": 5, "lastTimestamp": {}, "type": ["Warning"]}]) == ""
    facts = make_facts(make_workload(), placement={}, namespace_notice=notice, unread_reasons={"pods": "No."})
    assert explain.notes(facts, explain.diagnose(facts)) == [notice, "No."]
    ended = make_facts(job=make_job(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED"), namespace_notice=notice)
    assert explain.notes(ended, explain.diagnose(ended)) == []


def test_an_unreachable_running_worker_is_a_note() -> None:
    facts = make_facts(pods=[make_head(), make_worker(0), make_worker(1, conditions=[UNSEEN])])
    assert explain.notes(facts, explain.diagnose(facts)) == ["worker cluster west is silent."]


def test_a_job_that_never_fits_is_not_said_to_start_later() -> None:
    assert explain.diagnose(waiting("Waiting", "Too few")).advice == "It starts by itself as soon as there is capacity."
    assert explain.diagnose(waiting("Waiting", "Even empty clusters hold only 3", code="NeverFits")).advice == ""
    work = make_workload()
    planned = make_placement(work, shares={}, explanation="Even empty clusters hold only 3.")
    planned["spec"] |= {"check": CHECK, "explanationCode": "NeverFits"}
    facts = make_facts(work, placement=planned, job=make_job(), ray_cluster={}, pods=())
    assert explain.diagnose(facts).advice == "", "before its status is written"


def test_unreadable_objects_do_not_stop_the_diagnosis() -> None:
    unread = {"workloads": "You may not read workloads here.", "pods": "Nor pods."}
    facts = make_facts(
        {}, job=make_job(), pods=[], unread_reasons=unread, ray_cluster=make_running_cluster(state="ready")
    )
    link = explain.diagnose(facts)
    assert (link.outcome, link.message) == ("Runs", "KubeRay reports that it runs.")
    assert explain.notes(facts, link)[-2:] == [*unread.values()]
    blind = make_facts(
        job=make_job(), pods=[], ray_cluster={}, unread_reasons={"rayclusters": "You may not read rayclusters here."}
    )
    assert explain.diagnose(blind).exit_code == 3, "nothing is claimed of what was not seen"
    room = replace(waiting("Waiting", "4 needed, 2 fit"), workload={}, unread_reasons=unread)
    assert (explain.diagnose(room).reason, explain.diagnose(room).exit_code) == ("Waiting", 3)


def test_a_failed_pod_beside_its_replacement_is_ignored() -> None:
    failed = make_worker(2, up=False, phase="Failed")
    found = explain.diagnose(make_facts(pods=[make_head(), make_worker(0), make_worker(1), failed]))
    assert found.message == "Its head runs, and all of its 2 workers have joined. The job is RUNNING."


def test_text_of_others_cannot_control_a_terminal() -> None:
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


def test_steps_are_ok_before_the_diagnosed_stage_and_empty_after_it() -> None:
    assert explain.stage_states(explain.diagnose(waiting("Waiting", "no"))) == [
        ("Job", "ok"), ("Workload", "ok"), ("AdmissionCheck", "ok"), ("Placement", "Waits"), ("Pods", "-"),
        ("Ray", "-"),
    ]  # fmt: skip
    assert {state for _, state in explain.stage_states(explain.diagnose(make_facts()))} == {"ok"}


def test_a_jobs_objects_are_found_by_uid() -> None:
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


def test_an_elastic_job_is_described_by_its_current_slice() -> None:
    """A younger slice waits for quota to scale up. The Placement belongs to the job, whatever its slice."""
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
        (names.GATE, "yet: 1 of 2 workers are placed: 1 east; the others start as soon as there is capacity."),
        (names.ELASTIC_GATE, "yet: the manager's Kueue has no quota for it yet."),
    ],
)
def test_a_worker_without_a_slot_of_an_elastic_job_says_what_it_waits_for(gate: str, want: str) -> None:
    late_one = make_worker(1, cluster="", up=False)
    late_one["spec"]["schedulingGates"] = [{"name": names.GATE}, {"name": gate}]
    found = make_facts(pods=[make_head(), make_worker(), late_one])
    place: Any = {
        **found.placement,
        "status": {"reason": "1 of 2 workers are placed: 1 east; the others start as soon as there is capacity."},
    }
    place["spec"] = {**place["spec"], "job": {"kind": "RayJob", "name": "train", "uid": "uid-of-job"}}
    assert explain.diagnose(replace(found, placement=place)).message.endswith(want)
