"""A manager's gated pod says what its copy says, in a form that the API server takes and that settles."""

import copy
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import condition as condition_of
from adapter.worker.status_mirror import MIRRORED_FIELDS, failed_patch, may_restart, status_patch

CREATED = "2026-01-02T03:04:05Z"
NOW = "2026-01-02T04:00:00Z"
GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
    "lastProbeTime": None,
    "lastTransitionTime": CREATED,
    "observedGeneration": 1,
}
DISPATCHED = {
    "type": "rayspan.dev/Dispatched",
    "status": "True",
    "reason": "Created",
    "message": "runs in worker cluster east",
    "lastTransitionTime": CREATED,
}


def condition(kind: str, status: str = "True", **more: Any) -> Raw:
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": CREATED, **more}


def container(state: str, name: str = "ray-worker", **detail: Any) -> Raw:
    return {"name": name, "ready": state == "running", "state": {state: detail}, "restartCount": 0}


def local_pod(policy: str = "Never", **status: Any) -> Raw:
    return {
        "metadata": {"name": "w", "uid": "local-uid"},
        "spec": {
            "initContainers": [{"name": "wait-gcs-ready"}],
            "containers": [{"name": "ray-worker"}],
            "restartPolicy": policy,
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed", "conditions": [GATED]} | status,
    }


def remote_pod(**status: Any) -> Raw:
    return {
        "metadata": {"name": "w", "uid": "remote-uid", "creationTimestamp": CREATED},
        "status": {"phase": "Pending", "qosClass": "Burstable"} | status,
    }


RUNNING = remote_pod(
    phase="Running",
    conditions=[condition("PodScheduled", observedGeneration=7), condition("Ready", observedGeneration=7)],
    containerStatuses=[container("running", startedAt=CREATED)],
    initContainerStatuses=[container("terminated", "wait-gcs-ready", exitCode=0)],
    podIP="10.12.0.9",
    podIPs=[{"ip": "10.12.0.9"}],
    hostIP="10.1.0.2",
    hostIPs=[{"ip": "10.1.0.2"}],
    startTime=CREATED,
)


def patched(local: Raw, patch: Raw | None) -> Raw:
    """The pod after the API server took the patch: JSON merge-patch, then its own two habits.

    It writes lastProbeTime into conditions, and keeps a condition's observedGeneration that a patch leaves out.
    """
    if patch is None:
        return local
    status = {**local["status"], **patch["status"]}
    old = {one["type"]: one.get("observedGeneration") for one in local["status"].get("conditions", [])}
    status["conditions"] = [
        {"lastProbeTime": None, **({"observedGeneration": old[one["type"]]} if old.get(one["type"]) else {}), **one}
        for one in status.get("conditions", [])
    ]
    return {**local, "status": {key: value for key, value in status.items() if value is not None}}


# --- what the copy says ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    id: str
    why: str
    remote: Raw
    want: Raw
    local: Raw = field(default_factory=local_pod)


EARLIER = [{**container("running", startedAt=CREATED)}]
ENDED = container("terminated", exitCode=1)
CASES = [
    Case(
        "a copy without a node leaves the pod gated",
        "a cluster-autoscaler takes Unschedulable for the manager's own shortage",
        remote_pod(conditions=[condition("PodScheduled", "False", reason="Unschedulable")]),
        {"conditions": [GATED, DISPATCHED | {"reason": "Unschedulable", "message": "Unschedulable"}]},
    ),
    Case(
        "a copy without any status is there all the same",
        "its absence must later mean that it was lost",
        {"metadata": {"creationTimestamp": CREATED}},
        {"conditions": [GATED, DISPATCHED]},
    ),
    Case(
        "a running copy is mirrored whole",
        "KubeRay counts phase and Ready; people look at the addresses",
        RUNNING,
        {
            "phase": "Running",
            # The generation is the manager pod's where it has one, and never the copy's.
            "conditions": [condition("PodScheduled", observedGeneration=1), condition("Ready"), DISPATCHED],
            **{key: RUNNING["status"][key] for key in MIRRORED_FIELDS if key not in ("phase", "conditions", "reason", "message")},
        },
    ),
    Case(
        "what the copy no longer has is removed",
        "null removes a field in a merge-patch",
        remote_pod(),
        {"phase": "Pending", "message": None, "podIP": None, "podIPs": None, "containerStatuses": None},
        local_pod(
            phase="Running", message="m", podIP="1.2.3.4", podIPs=[{"ip": "1.2.3.4"}], containerStatuses=EARLIER,
            conditions=[GATED, DISPATCHED],
        ),
    ),
    Case(
        "a failed copy is mirrored with its reason",
        "KubeRay replaces a Failed pod",
        remote_pod(phase="Failed", reason="Evicted", message="disk", containerStatuses=[ENDED]),
        {"phase": "Failed", "reason": "Evicted", "message": "disk", "containerStatuses": [ENDED]},
        local_pod(phase="Running", containerStatuses=EARLIER, conditions=[GATED, DISPATCHED]),
    ),
    Case(
        "the health of devices is left out",
        "the API server compares it with what the manager's pod asks for, and the copy may have been given more",
        remote_pod(phase="Failed", containerStatuses=[{**ENDED, "allocatedResourcesStatus": [{"name": "nvidia.com/gpu"}]}]),
        {"phase": "Failed", "containerStatuses": [ENDED]},
        local_pod(phase="Running", containerStatuses=EARLIER, conditions=[GATED, DISPATCHED]),
    ),
    Case(
        "a copy that succeeded is mirrored",
        "a drained raylet ends with 0",
        remote_pod(phase="Succeeded"),
        {"phase": "Succeeded"},
        local_pod(phase="Running", conditions=[GATED, DISPATCHED]),
    ),
    Case(
        "another controller's condition stays",
        "it would write it again, and we again",
        remote_pod(),
        {"conditions": [GATED, DISPATCHED, condition("example.com/Checked")]},
        local_pod(conditions=[GATED, condition("example.com/Checked"), condition("Initialized")]),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_mirror(case: Case) -> None:
    patch = status_patch(case.local, case.remote, "east")
    assert patch == {"metadata": {"uid": "local-uid"}, "status": case.want}, case.why


@pytest.mark.parametrize("over", ["Failed", "Succeeded"])
def test_a_pod_that_is_over_is_left_alone(over: str) -> None:
    """The API server lets a terminal phase go back, and KubeRay would count the pod a second time."""
    assert status_patch(local_pod(phase=over), RUNNING, "east") is None
    assert failed_patch(local_pod(phase=over), reason="R", message="m", now=NOW) is None


def test_a_pod_that_is_being_deleted_is_left_alone() -> None:
    """Podgc marks it Failed within seconds, and that is not what the copy says."""
    leaving = local_pod()
    leaving["metadata"]["deletionTimestamp"] = NOW
    assert status_patch(leaving, RUNNING, "east") is None
    assert failed_patch(leaving, reason="R", message="m", now=NOW) is None


# --- containers that ended ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Never", 0, False), ("Never", 1, False), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Always", 0, True)],
)
def test_a_container_that_ended_runs_again_only_as_its_policy_says(policy: str, code: int, again: bool) -> None:
    """The API server refuses the whole patch otherwise."""
    ended = container("terminated", exitCode=code)
    local = local_pod(policy, phase="Running", containerStatuses=[ended])
    after = patched(local, status_patch(local, RUNNING, "east"))
    assert after["status"]["containerStatuses"] == (RUNNING["status"]["containerStatuses"] if again else [ended])


def test_a_container_that_ended_is_not_forgotten_when_the_copy_has_no_word_of_it() -> None:
    """Else it would be forgotten first and run again next, in two patches that the API server takes."""
    local = local_pod(phase="Running", containerStatuses=[ENDED])
    after = patched(local, status_patch(local, remote_pod(), "east"))
    assert after["status"]["containerStatuses"] == [ENDED]


def test_a_container_may_end_anew() -> None:
    later = container("terminated", exitCode=2)
    local = local_pod(phase="Running", containerStatuses=[ENDED])
    after = patched(local, status_patch(local, remote_pod(containerStatuses=[later]), "east"))
    assert after["status"]["containerStatuses"] == [later]


RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
NOT_IN = {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [42]}}


@pytest.mark.parametrize(
    ("spec", "code", "want"),
    [
        ({"restartPolicy": "Always"}, 0, True),
        ({"restartPolicy": "Never"}, 1, False),
        ({"restartPolicy": "Never", "restartPolicyRules": [RULE]}, 42, True),
        ({"restartPolicy": "Never", "restartPolicyRules": [RULE]}, 1, False),
        ({"restartPolicy": "Never", "restartPolicyRules": [NOT_IN]}, 1, True),
        ({"restartPolicy": "Never", "restartPolicyRules": [{"action": "RestartAllContainers"}]}, 1, True),
        ({"restartPolicyRules": [RULE]}, 42, False),  # rules count only beside a policy of the container's own
        ({}, 1, False),
    ],
)
def test_a_containers_own_policy_comes_before_the_pods(spec: Raw, code: int, want: bool) -> None:
    pod: Raw = {"restartPolicy": "Never", "containers": [{"name": "c", **spec}]}
    assert may_restart(pod["containers"][0], pod, code) is want


def test_a_container_that_the_spec_does_not_have_never_restarts() -> None:
    assert may_restart(None, {"restartPolicy": "Always"}, 1) is False


# --- the last words of a container ------------------------------------------------------------------------------------------


def last_words(said: str, beside: int = 0) -> list[str]:
    """What the manager's pod shows of a container that said so when it ended, now and the time before, beside others."""
    ended = container("terminated", exitCode=1, message=said) | {"lastState": {"terminated": {"message": said}}}
    others = [container("running", f"other-{at}") for at in range(beside)]
    patch = status_patch(local_pod(), remote_pod(containerStatuses=[ended], initContainerStatuses=others), "east")
    assert patch is not None
    (shown,) = patch["status"]["containerStatuses"]
    return [shown[field]["terminated"]["message"] for field in ("state", "lastState")]


@pytest.mark.parametrize(
    ("said", "beside", "want"),
    [
        pytest.param("Traceback\nKeyError: 'x'\n", 0, "Traceback\nKeyError: 'x'\n", id="as they are"),
        pytest.param("a" * 4096, 2, "a" * 4096, id="as many bytes as a kubelet lets one say"),
        pytest.param("a" * 4096 + "the end", 0, "a" * 4089 + "the end", id="the end of more"),
        pytest.param("a" * 4096, 3, "a" * 3072, id="a pod's are divided by its containers"),
        pytest.param("ä" * 2048 + "b", 0, "ä" * 2047 + "b", id="bytes, and no half of a character"),
        pytest.param("abc", 20_000, "c", id="of too many containers hardly anything"),
    ],
)
def test_the_last_words_of_a_container_come_along_within_bounds(said: str, beside: int, want: str) -> None:
    """A worker cluster is somebody else's: it does not decide how large the manager's pods get."""
    assert last_words(said, beside) == [want, want]


def test_what_a_container_waits_for_is_bounded_as_well() -> None:
    waits = container("waiting", reason="CreateContainerError", message="m" * 5000)
    local = local_pod()
    after = patched(local, status_patch(local, remote_pod(containerStatuses=[waits]), "east"))
    assert len(after["status"]["containerStatuses"][0]["state"]["waiting"]["message"]) == 4096
    assert status_patch(after, remote_pod(containerStatuses=[waits]), "east") is None, "and is no news the next time"


# --- where it is ------------------------------------------------------------------------------------------------------------

OOM = container("terminated", exitCode=137, reason="OOMKilled")
LOG = "pod team-a/w on node n1; its log: `kubectl --context east -n team-a logs w`"
LOGS = "; who has no access there: `kubectl rayspan logs -n team-a w`"
KILLED = "Container ray-worker of a worker in east was killed for want of memory (OOMKilled); raise its memory limit"


def on_node(remote: Raw, node: str = "n1") -> Raw:
    return {**remote, "spec": {"nodeName": node}}


def of_team(local: Raw) -> Raw:
    return {**local, "metadata": {**local["metadata"], "namespace": "team-a"}}


def told(local: Raw, remote: Raw, note: str = "") -> str | None:
    """What the condition says after one look, None where nothing is written."""
    patch = status_patch(of_team(local), remote, "east", note)
    return str(condition_of(patch, "rayspan.dev/Dispatched")["message"]) if patch else None


@pytest.mark.parametrize(
    ("remote", "note", "want"),
    [
        pytest.param(on_node(RUNNING), "", f"runs in worker cluster east; there it is {LOG}{LOGS}", id="it runs"),
        pytest.param(on_node(RUNNING), "It asks for more.", f"It asks for more; there it is {LOG}{LOGS}", id="with a note"),
        pytest.param(on_node(remote_pod(containerStatuses=[OOM])), "", f"{KILLED}; there it is {LOG}{LOGS}", id="it crashed"),
        pytest.param(remote_pod(containerStatuses=[OOM]), "", f"{KILLED}.", id="without a node there is no log"),
        pytest.param(remote_pod(), "", "runs in worker cluster east", id="it just came"),
    ],
)  # fmt: skip
def test_it_says_where_it_is_and_what_to_type(remote: Raw, note: str, want: str) -> None:
    assert told(local_pod(), remote, note) == want


@pytest.mark.parametrize("field", ["reason", "message"])
def test_what_a_copy_says_of_itself_makes_no_pod_of_the_manager_larger(field: str) -> None:
    """Its cluster is not ours, and the manager's API server keeps what is written. Said again it is no news."""
    long, local = "m" * 1_000_000, local_pod()
    many = [condition(f"example.com/{number}", **{field: long}) for number in range(1_000)]
    told = remote_pod(phase="Failed", conditions=many, **{field: long})
    patch = status_patch(local, told, "east")
    assert patch is not None and len(json.dumps(patch)) < 64_000
    assert patch["status"][field].startswith("mmm")
    told["status"]["phase"] = local["status"]["phase"] = "Running"
    assert status_patch(patched(local, status_patch(local, told, "east")), told, "east") is None


FIELDS = ("image", "imageID", "containerID", "name", "type", "status", "lastTransitionTime", "x" * 1_000_000)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field[:20])
def test_nothing_else_that_a_copy_says_does_either(field: str) -> None:
    long, local = "m" * 1_000_000, local_pod()
    said = container("waiting", reason=long, **{field: long}) | {"lastState": {"terminated": {"containerID": long}}}
    parts = {"resources": {"requests": {field: long}}, "volumeMounts": [{"mountPath": long}] * 3, field: long}
    more = [container("running", name=f"sidecar-{number}", image=long) for number in range(1_000)]
    told = remote_pod(
        phase="Running",
        podIP=long,
        podIPs=[{"ip": long}] * 1_000,
        conditions=[condition("Ready"), {**condition("Odd"), field: long}],
        containerStatuses=[{"name": "ray-worker", "state": {}} | said | parts | {"name": "ray-worker"}, *more],
        initContainerStatuses=[container("running", name=long)],
    )
    patch = status_patch(local, told, "east")
    assert patch is not None and len(json.dumps(patch)) < 150_000
    assert [one["name"] for one in patch["status"]["containerStatuses"]] == ["ray-worker"]
    assert "initContainerStatuses" not in patch["status"]
    assert status_patch(patched(local, patch), told, "east") is None, "and is no news the next time"


def test_conditions_that_are_others_every_time_do_not_pile_up() -> None:
    """What a copy said before, and says no more, looks like what a controller of the manager says."""
    local = local_pod()
    for turn in range(9):
        said = [condition(f"example.com/{turn}-{number}") for number in range(40)]
        local = patched(local, status_patch(local, remote_pod(conditions=said), "east"))
    assert len(local["status"]["conditions"]) == 1 + 32 + 1 + 32


def test_a_word_of_another_kind_than_text_is_left_for_the_api_server_to_refuse() -> None:
    patch = status_patch(local_pod(), remote_pod(message=["m"]), "east")
    assert patch is not None and patch["status"]["message"] == ["m"]


def test_a_node_of_any_name_makes_no_long_condition() -> None:
    assert len(told(local_pod(), on_node(RUNNING, "n\n" * 5_000)) or "") < 600


def test_a_trouble_of_any_length_makes_no_longer_condition_than_an_object_holds() -> None:
    waits = container("waiting", reason="ErrImagePull", message="m" * 100_000)
    assert len(told(local_pod(), on_node(remote_pod(containerStatuses=[waits]))) or "") < 20_000


def test_where_it_is_is_no_reason_to_write() -> None:
    """After an upgrade, say; it comes with the next thing that is news."""
    bare = patched(local_pod(), status_patch(local_pod(), RUNNING, "east"))
    assert told(bare, on_node(RUNNING)) is None
    assert told(bare, on_node({**RUNNING, "status": {**RUNNING["status"], "podIP": "10.12.0.10"}})) is not None


# --- failing a pod -----------------------------------------------------------------------------------------------------------


def test_a_lost_pod_is_failed_with_a_reason_and_keeps_what_was_seen() -> None:
    local = patched(local_pod(), status_patch(local_pod(), RUNNING, "east"))
    patch = failed_patch(local, reason="RemotePodGone", message="It is gone.", now=NOW)
    unready = {"status": "False", "reason": "RemotePodGone", "message": "It is gone.", "lastTransitionTime": NOW}
    assert patch is not None
    assert patch["metadata"] == {"uid": "local-uid"}
    assert patch["status"].keys() == {"phase", "reason", "message", "conditions"}
    assert [patch["status"][key] for key in ("phase", "reason", "message")] == [
        "Failed",
        "RemotePodGone",
        "It is gone.",
    ]
    conditions = {one["type"]: one for one in patch["status"]["conditions"]}
    assert conditions.keys() == {"PodScheduled", "Ready", "ContainersReady", "rayspan.dev/Dispatched"}
    assert conditions["Ready"].items() >= unready.items()
    assert conditions["ContainersReady"].items() >= unready.items()


def test_a_pod_that_was_not_ready_before_keeps_the_time_since_when() -> None:
    local = local_pod(conditions=[condition("Ready", "False")])
    patch = failed_patch(local, reason="R", message="m", now=NOW)
    assert patch is not None
    times = {one["type"]: one["lastTransitionTime"] for one in patch["status"]["conditions"]}
    assert times == {"Ready": CREATED, "ContainersReady": NOW}


# --- properties --------------------------------------------------------------------------------------------------------------

STATE = st.sampled_from(
    [("waiting", {}), ("running", {}), ("terminated", {"exitCode": 0}), ("terminated", {"exitCode": 1})]
)
STATUSES = st.lists(st.builds(lambda s: container(s[0], **s[1]), STATE), max_size=1)
KINDS = st.sampled_from(["PodScheduled", "Ready", "Initialized", "example.com/Checked"])
CONDITIONS = st.lists(
    st.builds(
        lambda kind, status, generation: (
            condition(kind, status) | ({"observedGeneration": generation} if generation else {})
        ),
        KINDS,
        st.sampled_from(["True", "False"]),
        st.integers(0, 2),
    ),
    max_size=4,
    unique_by=lambda one: one["type"],
)
STATUS = st.fixed_dictionaries(
    {"phase": st.sampled_from(["Pending", "Running", "Failed", "Succeeded", "Unknown"])},
    optional={
        "conditions": CONDITIONS,
        "containerStatuses": STATUSES,
        "initContainerStatuses": STATUSES,
        "podIP": st.sampled_from(["10.1.1.1", "10.1.1.2"]),
        "reason": st.sampled_from(["Evicted"]),
        "qosClass": st.sampled_from(["BestEffort"]),
    },
)
REMOTES = st.builds(lambda status: remote_pod(**status), STATUS)
LOCALS = st.builds(
    lambda policy, status: local_pod(policy, **status), st.sampled_from(["Always", "OnFailure", "Never"]), STATUS
)


@given(LOCALS, REMOTES)
def test_after_one_patch_there_is_nothing_left_to_say(local: Raw, remote: Raw) -> None:
    after = patched(local, status_patch(local, remote, "east"))
    assert status_patch(after, remote, "east") is None


@given(LOCALS, st.lists(REMOTES, max_size=4))
def test_no_history_makes_a_patch_that_the_api_server_refuses(local: Raw, history: list[Raw]) -> None:
    for remote in history:
        patch = status_patch(local, remote, "east")
        after = patched(local, patch)
        assert patch is None or "qosClass" not in patch["status"]
        now = {one["name"]: one["state"] for one in after["status"].get("containerStatuses", [])}
        for one in local["status"].get("containerStatuses", []):
            code = one["state"].get("terminated", {}).get("exitCode")
            if code is not None and not may_restart(local["spec"]["containers"][0], local["spec"], code):
                assert "terminated" in now[one["name"]]
        local = after


def writes(local: Raw, history: list[tuple[Raw, bool]], *, placed: bool) -> int:
    """How many patches a history of copies costs, each with whether its node is known then."""
    many = 0
    for remote, known in history:
        patch = status_patch(local, on_node(remote) if known and placed else remote, "east")
        local, many = patched(local, patch), many + (patch is not None)
    return many


@given(LOCALS, st.lists(st.tuples(REMOTES, st.booleans()), max_size=5))
def test_to_say_where_it_is_costs_no_write(local: Raw, history: list[tuple[Raw, bool]]) -> None:
    assert writes(local, history, placed=True) == writes(local, history, placed=False)


@given(LOCALS, REMOTES)
def test_a_gated_pod_never_looks_unschedulable(local: Raw, remote: Raw) -> None:
    local["status"]["conditions"] = [GATED]
    after = patched(local, status_patch(local, remote, "east"))
    scheduled = [one for one in after["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert [(one["status"], one.get("reason")) for one in scheduled] in (
        [("False", "SchedulingGated")],
        [("True", None)],
    )


@given(LOCALS, REMOTES)
def test_neither_pod_is_touched(local: Raw, remote: Raw) -> None:
    before = copy.deepcopy((local, remote))
    json.dumps([status_patch(local, remote, "east"), failed_patch(local, reason="R", message="m", now=NOW)])
    assert (local, remote) == before


@given(LOCALS)
def test_a_pod_is_failed_once(local: Raw) -> None:
    after = patched(local, failed_patch(local, reason="R", message="m", now=NOW))
    assert failed_patch(after, reason="R", message="m", now=NOW) is None


CAME = {"labels": {names.RAY_REPLICA_INDEX_LABEL: "1"}, "annotations": {names.SLOTS_ANNOTATION: "east/1/role/3"}}


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        pytest.param(CAME, True, id="it has the slot that it came with"),
        pytest.param({"annotations": {names.SLOT_ANNOTATION: "east/1/role/0"}}, False, id="one was written"),
        pytest.param({}, False, id="it has none"),
    ],
)
def test_with_the_first_news_it_is_written_where_a_pod_is(metadata: Raw, want: bool) -> None:
    """Its label is for those who look for workers by it."""
    local = local_pod()
    local["metadata"] |= metadata
    record = {
        "labels": {names.CLUSTER_LABEL: "east"},
        "annotations": {names.SLOT_ANNOTATION: "east/1/role/1"},
    }
    told = [status_patch(local, RUNNING, "east"), failed_patch(local, reason="x", message="y", now=NOW)]
    for patch in told:
        assert patch and patch["metadata"] == {"uid": "local-uid", **(record if want else {})}
