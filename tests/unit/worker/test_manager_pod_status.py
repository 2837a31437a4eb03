"""The status mirror: patches of a manager pod that the API server accepts and that converge."""

import copy
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects import trim
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import condition as condition_of
from adapter.worker.manager_pod_status import MIRRORED_FIELDS, failed_patch, finished_patch, may_restart, status_patch

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
    """The pod after the API server applied the JSON merge patch and its two defaults.

    It writes lastProbeTime into conditions, and keeps a condition's observedGeneration that a patch leaves out.
    """
    if patch is None:
        return local
    status = {**local["status"], **patch["status"]}
    old = {row["type"]: row.get("observedGeneration") for row in local["status"].get("conditions", [])}
    status["conditions"] = [
        {"lastProbeTime": None, **({"observedGeneration": old[row["type"]]} if old.get(row["type"]) else {}), **row}
        for row in status.get("conditions", [])
    ]
    return {**local, "status": {key: value for key, value in status.items() if value is not None}}


# --- the state of the remote pod ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    id: str
    reason: str
    remote: Raw
    want: Raw
    local: Raw = field(default_factory=local_pod)


EARLIER = [{**container("running", startedAt=CREATED)}]
ENDED = container("terminated", exitCode=1)
CASES = [
    Case(
        "a remote pod without a node leaves the manager pod gated",
        "a cluster-autoscaler takes Unschedulable for the manager's own shortage",
        remote_pod(conditions=[condition("PodScheduled", "False", reason="Unschedulable")]),
        {"conditions": [GATED, DISPATCHED | {"reason": "Unschedulable", "message": "Unschedulable"}]},
    ),
    Case(
        "a remote pod without a status is recorded as dispatched",
        "if it vanishes later, it counts as lost",
        {"metadata": {"creationTimestamp": CREATED}},
        {"conditions": [GATED, DISPATCHED]},
    ),
    Case(
        "a running remote pod is mirrored completely",
        "KubeRay counts phase and Ready; people look at the addresses",
        RUNNING,
        {
            "phase": "Running",
            # The observedGeneration is the manager pod's, never the remote pod's.
            "conditions": [condition("PodScheduled", observedGeneration=1), condition("Ready"), DISPATCHED],
            **{
                key: RUNNING["status"][key]
                for key in MIRRORED_FIELDS
                if key not in ("phase", "conditions", "reason", "message")
            },
        },
    ),
    Case(
        "a field that the remote pod no longer has is removed",
        "null removes a field in a merge-patch",
        remote_pod(),
        {"phase": "Pending", "message": None, "podIP": None, "podIPs": None, "containerStatuses": None},
        local_pod(
            phase="Running", message="m", podIP="1.2.3.4", podIPs=[{"ip": "1.2.3.4"}], containerStatuses=EARLIER,
            conditions=[GATED, DISPATCHED],
        ),
    ),
    Case(
        "a failed remote pod is mirrored with its reason",
        "KubeRay replaces a Failed pod",
        remote_pod(phase="Failed", reason="Evicted", message="disk", containerStatuses=[ENDED]),
        {"phase": "Failed", "reason": "Evicted", "message": "disk", "containerStatuses": [ENDED]},
        local_pod(phase="Running", containerStatuses=EARLIER, conditions=[GATED, DISPATCHED]),
    ),
    Case(
        "the health of devices is not mirrored",
        "the API server compares it with the requests of the manager pod, and the remote pod may have more",
        remote_pod(
            phase="Failed", containerStatuses=[{**ENDED, "allocatedResourcesStatus": [{"name": "nvidia.com/gpu"}]}]
        ),
        {"phase": "Failed", "containerStatuses": [ENDED]},
        local_pod(phase="Running", containerStatuses=EARLIER, conditions=[GATED, DISPATCHED]),
    ),
    Case(
        "a remote pod that succeeded is mirrored",
        "a drained raylet ends with 0",
        remote_pod(phase="Succeeded"),
        {"phase": "Succeeded"},
        local_pod(phase="Running", conditions=[GATED, DISPATCHED]),
    ),
    Case(
        "another controller's condition stays",
        "that controller would restore it, and we would remove it again",
        remote_pod(),
        {"conditions": [GATED, DISPATCHED, condition("example.com/Checked")]},
        local_pod(conditions=[GATED, condition("example.com/Checked"), condition("Initialized")]),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_mirror(case: Case) -> None:
    patch = status_patch(case.local, case.remote, "east")
    assert patch == {"metadata": {"uid": "local-uid"}, "status": case.want}, case.reason


@pytest.mark.parametrize("over", ["Failed", "Succeeded"])
def test_an_ended_pod_is_not_patched(over: str) -> None:
    """The API server lets a terminal phase go back, and KubeRay would count the pod a second time."""
    assert status_patch(local_pod(phase=over), RUNNING, "east") is None
    assert failed_patch(local_pod(phase=over), reason="R", message="m", now=NOW) is None


def test_a_pod_that_is_being_deleted_is_not_patched() -> None:
    """Podgc marks it Failed within seconds, whatever the state of the remote pod."""
    leaving = local_pod()
    leaving["metadata"]["deletionTimestamp"] = NOW
    assert status_patch(leaving, RUNNING, "east") is None
    assert failed_patch(leaving, reason="R", message="m", now=NOW) is None


# --- containers that ended -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Never", 0, False), ("Never", 1, False), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Always", 0, True)],
)
def test_an_ended_container_restarts_only_by_its_policy(policy: str, code: int, again: bool) -> None:
    """Otherwise the API server rejects the whole patch."""
    ended = container("terminated", exitCode=code)
    local = local_pod(policy, phase="Running", containerStatuses=[ended])
    after = patched(local, status_patch(local, RUNNING, "east"))
    assert after["status"]["containerStatuses"] == (RUNNING["status"]["containerStatuses"] if again else [ended])


def test_an_ended_container_stays_when_the_remote_pod_does_not_report_it() -> None:
    """Otherwise two accepted patches would remove the container and then show it running again."""
    local = local_pod(phase="Running", containerStatuses=[ENDED])
    after = patched(local, status_patch(local, remote_pod(), "east"))
    assert after["status"]["containerStatuses"] == [ENDED]


def test_an_ended_container_may_end_again() -> None:
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
        ({"restartPolicyRules": [RULE]}, 42, False),  # rules need a restartPolicy of the container
        ({}, 1, False),
    ],
)
def test_the_restart_policy_of_a_container_precedes_the_pods(spec: Raw, code: int, want: bool) -> None:
    pod: Raw = {"restartPolicy": "Never", "containers": [{"name": "c", **spec}]}
    assert may_restart(pod["containers"][0], pod, code) is want


def test_a_container_outside_of_the_spec_never_restarts() -> None:
    assert may_restart(None, {"restartPolicy": "Always"}, 1) is False


# --- termination messages --------------------------------------------------------------------------------------------


def termination_messages(message: str, other_containers: int = 0) -> list[str]:
    """The termination messages on the manager pod: of the container's current state and of its last one."""
    ended = container("terminated", exitCode=1, message=message) | {"lastState": {"terminated": {"message": message}}}
    others = [container("running", f"other-{at}") for at in range(other_containers)]
    patch = status_patch(local_pod(), remote_pod(containerStatuses=[ended], initContainerStatuses=others), "east")
    assert patch is not None
    (shown,) = patch["status"]["containerStatuses"]
    return [shown[field]["terminated"]["message"] for field in ("state", "lastState")]


@pytest.mark.parametrize(
    ("message", "other_containers", "want"),
    [
        pytest.param("Traceback\nKeyError: 'x'\n", 0, "Traceback\nKeyError: 'x'\n", id="a short message is unchanged"),
        pytest.param("a" * 4096, 2, "a" * 4096, id="the longest message that a kubelet writes"),
        pytest.param("a" * 4096 + "the end", 0, "a" * 4089 + "the end", id="the end of a longer message"),
        pytest.param("a" * 4096, 3, "a" * 3072, id="the limit of a pod is divided by its containers"),
        pytest.param("ä" * 2048 + "b", 0, "ä" * 2047 + "b", id="the limit in bytes splits no character"),
        pytest.param("abc", 20_000, "c", id="one byte for each of too many containers"),
    ],
)
def test_termination_messages_are_bounded(message: str, other_containers: int, want: str) -> None:
    """A worker cluster is not trusted to decide the size of manager pods."""
    assert termination_messages(message, other_containers) == [want, want]


def test_waiting_messages_are_bounded() -> None:
    waits = container("waiting", reason="CreateContainerError", message="m" * 5000)
    local = local_pod()
    after = patched(local, status_patch(local, remote_pod(containerStatuses=[waits]), "east"))
    assert len(after["status"]["containerStatuses"][0]["state"]["waiting"]["message"]) == 4096
    assert status_patch(after, remote_pod(containerStatuses=[waits]), "east") is None, "a second patch changes nothing"


# --- the Dispatched condition ----------------------------------------------------------------------------------------

OOM = container("terminated", exitCode=137, reason="OOMKilled")
LOG = "pod team-a/w on node n1; its log: `kubectl --context east -n team-a logs w`"
LOGS = "; without access to that cluster: `kubectl rayspan logs -n team-a w`"
KILLED = "Container ray-worker of a worker in east ran out of memory (OOMKilled); raise its memory limit"


def on_node(remote: Raw, node: str = "n1") -> Raw:
    return {**remote, "spec": {"nodeName": node}}


def of_team(local: Raw) -> Raw:
    return {**local, "metadata": {**local["metadata"], "namespace": "team-a"}}


def dispatched_message(local: Raw, remote: Raw, note: str = "") -> str | None:
    """The message of the condition after one reconcile; None if nothing is written."""
    patch = status_patch(of_team(local), remote, "east", note)
    return str(condition_of(patch, "rayspan.dev/Dispatched")["message"]) if patch else None


@pytest.mark.parametrize(
    ("remote", "note", "want"),
    [
        pytest.param(on_node(RUNNING), "", f"runs in worker cluster east; there it is {LOG}{LOGS}", id="running"),
        pytest.param(on_node(RUNNING), "It asks for more.", f"It asks for more; there it is {LOG}{LOGS}",
                     id="running, with a note"),
        pytest.param(on_node(remote_pod(containerStatuses=[OOM])), "", f"{KILLED}; there it is {LOG}{LOGS}",
                     id="crashed"),
        pytest.param(remote_pod(containerStatuses=[OOM]), "", f"{KILLED}.", id="crashed, without a node"),
        pytest.param(remote_pod(), "", "runs in worker cluster east", id="just created"),
    ],
)  # fmt: skip
def test_the_dispatched_condition_names_the_cluster_and_the_log_command(remote: Raw, note: str, want: str) -> None:
    assert dispatched_message(local_pod(), remote, note) == want


@pytest.mark.parametrize("field", ["reason", "message"])
def test_reasons_and_messages_of_a_remote_pod_are_bounded(field: str) -> None:
    """The worker cluster is not trusted, and the manager's API server stores the patch. It is written once."""
    long, local = "m" * 1_000_000, local_pod()
    many = [condition(f"example.com/{number}", **{field: long}) for number in range(1_000)]
    remote = remote_pod(phase="Failed", conditions=many, **{field: long})
    patch = status_patch(local, remote, "east")
    assert patch is not None and len(json.dumps(patch)) < 64_000
    assert patch["status"][field].startswith("mmm")
    remote["status"]["phase"] = local["status"]["phase"] = "Running"
    assert status_patch(patched(local, status_patch(local, remote, "east")), remote, "east") is None


FIELDS = ("image", "imageID", "containerID", "name", "type", "status", "lastTransitionTime", "x" * 1_000_000)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field[:20])
def test_every_other_field_of_a_remote_pod_is_bounded(field: str) -> None:
    long, local = "m" * 1_000_000, local_pod()
    status = container("waiting", reason=long, **{field: long}) | {"lastState": {"terminated": {"containerID": long}}}
    parts = {"resources": {"requests": {field: long}}, "volumeMounts": [{"mountPath": long}] * 3, field: long}
    more = [container("running", name=f"sidecar-{number}", image=long) for number in range(1_000)]
    remote = remote_pod(
        phase="Running",
        podIP=long,
        podIPs=[{"ip": long}] * 1_000,
        conditions=[condition("Ready"), {**condition("Odd"), field: long}],
        containerStatuses=[{"name": "ray-worker", "state": {}} | status | parts | {"name": "ray-worker"}, *more],
        initContainerStatuses=[container("running", name=long)],
    )
    patch = status_patch(local, remote, "east")
    assert patch is not None and len(json.dumps(patch)) < 150_000
    assert [row["name"] for row in patch["status"]["containerStatuses"]] == ["ray-worker"]
    assert "initContainerStatuses" not in patch["status"]
    assert status_patch(patched(local, patch), remote, "east") is None, "a second patch changes nothing"


def test_conditions_that_change_every_time_do_not_accumulate() -> None:
    """A condition that the remote pod no longer has looks like one of another controller."""
    local = local_pod()
    for turn in range(9):
        conditions = [condition(f"example.com/{turn}-{number}") for number in range(40)]
        local = patched(local, status_patch(local, remote_pod(conditions=conditions), "east"))
    assert len(local["status"]["conditions"]) == 1 + 32 + 1 + 32


def test_a_message_that_is_no_text_is_left_to_the_api_server_to_reject() -> None:
    patch = status_patch(local_pod(), remote_pod(message=["m"]), "east")
    assert patch is not None and patch["status"]["message"] == ["m"]


def test_a_long_node_name_is_cut_in_the_condition() -> None:
    assert len(dispatched_message(local_pod(), on_node(RUNNING, "n\n" * 5_000)) or "") < 600


def test_a_long_trouble_message_is_cut_in_the_condition() -> None:
    waits = container("waiting", reason="ErrImagePull", message="m" * 100_000)
    assert len(dispatched_message(local_pod(), on_node(remote_pod(containerStatuses=[waits]))) or "") < 20_000


def test_a_new_node_alone_causes_no_write() -> None:
    """For example after an upgrade. The node is written with the next change of the status."""
    bare = patched(local_pod(), status_patch(local_pod(), RUNNING, "east"))
    assert dispatched_message(bare, on_node(RUNNING)) is None
    moved = {**RUNNING, "status": {**RUNNING["status"], "podIPs": [{"ip": "10.12.0.10"}]}}
    assert dispatched_message(bare, on_node(moved)) is not None


@pytest.mark.parametrize(
    ("addresses", "mirrored"),
    [
        pytest.param(["10.12.0.10", "fd00::7"], ["10.12.0.10", "fd00::7"], id="of two families"),
        pytest.param(["fd00::7", "10.12.0.10"], ["fd00::7", "10.12.0.10"], id="in the order of the cluster"),
        pytest.param(["10.12.0.10", "10.12.0.11"], ["10.12.0.10"], id="two of one family"),
        pytest.param(["127.0.0.1", "10.12.0.10"], ["10.12.0.10"], id="loopback"),
        pytest.param(["169.254.169.254"], [], id="a metadata service"),
        pytest.param(["0.0.0.0", "::", "224.0.0.1", "fe80::1", "::1"], [], id="other special ones"),
        pytest.param(["255.255.255.255", "2001:db8::1%eth0"], [], id="no unicast address, and a zone"),
        pytest.param(["::ffff:10.1.1.1", "010.1.1.1", "10.1.1.1/8", "host", 7, None], [], id="no addresses"),
    ],
)  # fmt: skip
def test_addresses_that_no_endpoint_may_have_are_not_mirrored(addresses: list[Any], mirrored: list[str]) -> None:
    """A Service with publishNotReadyAddresses leads requests to them."""
    remote = remote_pod(phase="Running", podIP=addresses[0], podIPs=[{"ip": text} for text in addresses])
    after = patched(local_pod(), status_patch(local_pod(), remote, "east"))["status"]
    assert [entry["ip"] for entry in after.get("podIPs") or ()] == mirrored
    assert after.get("podIP") == (mirrored[0] if mirrored else None)


# --- failing a pod ---------------------------------------------------------------------------------------------------


def test_a_pod_whose_job_is_finished_is_not_ready_and_is_not_replaced_by_kuberay() -> None:
    """KubeRay replaces a pod that failed or succeeded, or whose Ray container has terminated."""
    conditions = [DISPATCHED, condition("Ready"), condition("ContainersReady")]
    statuses = [container("running"), container("terminated", "sidecar", exitCode=0)]
    local = local_pod(phase="Running", conditions=conditions, containerStatuses=statuses)
    patch = finished_patch(local, reason="JobFinished", message="m", now=NOW)
    after = patched(local, patch)
    assert (after["status"]["phase"], after["status"]["reason"]) == ("Running", "JobFinished")
    ready = {"status": "False", "reason": "JobFinished", "message": "m", "lastTransitionTime": NOW}
    assert condition_of(after, "Ready") == condition("Ready") | ready
    assert condition_of(after, names.DISPATCHED_CONDITION)["status"] == "True"
    states = [entry["state"] for entry in after["status"]["containerStatuses"]]
    assert states == [{"waiting": {"reason": "JobFinished", "message": "m"}}, {"terminated": {"exitCode": 0}}]
    assert not any(entry["ready"] for entry in after["status"]["containerStatuses"])
    stored = trim.manager_pod(after)
    assert finished_patch(stored, reason="JobFinished", message="m", now=NOW) is None


def test_a_lost_pod_is_failed_with_a_reason_and_keeps_its_status() -> None:
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
    conditions = {row["type"]: row for row in patch["status"]["conditions"]}
    assert conditions.keys() == {"PodScheduled", "Ready", "ContainersReady", "rayspan.dev/Dispatched"}
    assert conditions["Ready"].items() >= unready.items()
    assert conditions["ContainersReady"].items() >= unready.items()


def test_an_unready_pod_keeps_its_transition_time_when_failed() -> None:
    local = local_pod(conditions=[condition("Ready", "False")])
    patch = failed_patch(local, reason="R", message="m", now=NOW)
    assert patch is not None
    times = {row["type"]: row["lastTransitionTime"] for row in patch["status"]["conditions"]}
    assert times == {"Ready": CREATED, "ContainersReady": NOW}


# --- properties ------------------------------------------------------------------------------------------------------

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
    unique_by=lambda row: row["type"],
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
def test_a_second_patch_is_empty(local: Raw, remote: Raw) -> None:
    after = patched(local, status_patch(local, remote, "east"))
    assert status_patch(after, remote, "east") is None


@given(LOCALS, st.lists(REMOTES, max_size=4))
def test_no_history_leads_to_a_patch_that_the_api_server_rejects(local: Raw, history: list[Raw]) -> None:
    for remote in history:
        patch = status_patch(local, remote, "east")
        after = patched(local, patch)
        assert patch is None or "qosClass" not in patch["status"]
        states = {row["name"]: row["state"] for row in after["status"].get("containerStatuses", [])}
        for row in local["status"].get("containerStatuses", []):
            code = row["state"].get("terminated", {}).get("exitCode")
            if code is not None and not may_restart(local["spec"]["containers"][0], local["spec"], code):
                assert "terminated" in states[row["name"]]
        local = after


def count_writes(local: Raw, history: list[Raw]) -> int:
    """The number of patches for a history of one remote pod."""
    count = 0
    for remote in history:
        patch = status_patch(local, remote, "east")
        local, count = patched(local, patch), count + (patch is not None)
    return count


@given(LOCALS, st.lists(REMOTES, max_size=5), st.integers(0, 5))
def test_reporting_the_node_costs_no_write(local: Raw, history: list[Raw], scheduled: int) -> None:
    """From `scheduled` on the pod has its node: a pod never loses it."""
    placed = [on_node(remote) if index >= scheduled else remote for index, remote in enumerate(history)]
    assert count_writes(local, placed) == count_writes(local, history)


@given(LOCALS, REMOTES)
def test_a_gated_pod_never_looks_unschedulable(local: Raw, remote: Raw) -> None:
    local["status"]["conditions"] = [GATED]
    after = patched(local, status_patch(local, remote, "east"))
    scheduled = [row for row in after["status"]["conditions"] if row["type"] == "PodScheduled"]
    assert [(row["status"], row.get("reason")) for row in scheduled] in (
        [("False", "SchedulingGated")],
        [("True", None)],
    )


@given(LOCALS, REMOTES)
def test_the_arguments_are_not_modified(local: Raw, remote: Raw) -> None:
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
        pytest.param(CAME, True, id="a template slot"),
        pytest.param({"annotations": {names.SLOT_ANNOTATION: "east/1/role/0"}}, False, id="a written slot"),
        pytest.param({}, False, id="no slot"),
    ],
)
def test_the_first_patch_records_a_template_slot(metadata: Raw, want: bool) -> None:
    """The label serves selectors for the workers of a cluster."""
    local = local_pod()
    local["metadata"] |= metadata
    record = {
        "labels": {names.CLUSTER_LABEL: "east"},
        "annotations": {names.SLOT_ANNOTATION: "east/1/role/1"},
    }
    patches = [status_patch(local, RUNNING, "east"), failed_patch(local, reason="x", message="y", now=NOW)]
    for patch in patches:
        assert patch and patch["metadata"] == {"uid": "local-uid", **(record if want else {})}
