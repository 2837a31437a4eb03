"""A preflight reports what would keep workers from joining, on real networks and with real pods, and leaves nothing
behind.

It runs the command as a process, as an administrator does. The pods run on the clusters' real nodes.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from adapter.preflight.preflight_facts import MANAGER
from hack.lab import faults
from hack.lab.base.lab import Lab
from hack.lab.base.paths import REPO
from hack.testbed import devices
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.preflights import command, failures, findings, preflight
from hack.testbed.stage import Stage

pytestmark = pytest.mark.long
# East is cordoned, or seconds are counted: who cuts a link is alone by that. The others name their clusters, and share
# them.
alone = pytest.mark.alone

BOTH = ("--worker-cluster", "east", "--worker-cluster", "west")


@pytest.fixture(autouse=True)
def nothing_left(stage: Stage) -> Iterator[None]:
    """Whatever a preflight meets, its pods go."""
    yield
    wait(lambda: not probes(stage), 30, "no probe is left")


def probes(stage: Stage) -> list[str]:
    found = [pod for cluster in stage.fleet.all for pod in cluster.items("pods", stage.name, names.PROBE_LABEL)]
    return [pod["metadata"]["name"] for pod in found]


def reachable(stage: Stage, name: str) -> dict[str, str]:
    return dict(condition(stage.manager.get("workerclusters", name), names.REACHABLE))


@alone
def test_all_is_well_between_three_clusters(stage: Stage) -> None:
    stage.build({"east": 1, "west": 1})
    start = time.monotonic()
    found = preflight(stage, *BOTH, want=0)
    assert time.monotonic() - start < 40
    assert failures(found) == [] and found["ready"] and found["queues"] == ["ray"]
    ways = {(one["from"], one["to"]): one for one in found["paths"]}
    assert len(ways) == 6 and all(one["reached"] for one in ways.values())
    for one in ways.values():
        assert 0 < one["latencyMilliseconds"] < 1000
        assert one["bandwidthMegabitsPerSecond"] > 10 and abs(one["clockAheadSeconds"]) < 1
    for cluster in found["clusters"]:
        assert set(cluster["checks"].values()) == {"ok"}, cluster
    for name in ("east", "west"):
        assert (reachable(stage, name)["status"], reachable(stage, name)["reason"]) == ("True", "Reachable")
    header, row = stage.manager.kubectl("get", "workercluster", "east").splitlines()
    assert row[header.index("REACHABLE") :].split()[0] == "True"


def test_a_cluster_that_is_cut_off_is_told_and_passed_over(stage: Stage, running: Controller, lab: Lab) -> None:
    """Only the pods' packets are dropped; the controller goes on seeing east, and would send workers there."""
    stage.build({"east": 4, "west": 4}, policy={"requireReachable": True})
    faults.cut(lab, lab.cluster("east"), scope="data", way="drop")
    found = preflight(stage, *BOTH, want=3)
    broken = {subject: message for subject, check, message in failures(found)}
    assert set(broken) == {f"{MANAGER} east", "east west"}
    said = "There is no route from east to the pods of the manager, nor back: at port 18273 neither 10."
    assert broken[f"{MANAGER} east"].startswith(said) and broken[f"{MANAGER} east"].endswith(" or cordon east.")
    assert [one["error"] for one in found["paths"] if "east" in (one["from"], one["to"])] == ["timeout"] * 4
    assert [one["reachable"] for one in found["clusters"]] == [None, False, True]
    assert (reachable(stage, "east")["status"], reachable(stage, "east")["reason"]) == ("False", "NoRoute")
    assert reachable(stage, "west")["status"] == "True"
    wait(
        lambda: condition(stage.manager.get("workerclusters", "east"), names.CONNECTED)["status"] == "True", 20, "seen"
    )
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.where("pi") == "2 west", 60, "all go to west", running.tail)
    assert (
        "east passed over: the last preflight found it unreachable (NoRoute)"
        in (stage.placement("pi")["spec"]["explanation"])
    )

    stage.ray_cluster("large", workers=6)
    wait(lambda: stage.state("large") == PlacementState.WAITING, 60, "it waits", running.tail)
    faults.heal(lab)
    preflight(stage, *BOTH, want=0)
    wait(lambda: stage.where("large") == "4 east, 2 west", 60, "who waited for east starts", running.tail)


def test_nat_on_the_way_is_told_and_passed(stage: Stage, lab: Lab) -> None:
    """B15: as of a CNI that masquerades what leaves the cluster; the pods reach each other all the same."""
    stage.build({"east": 1, "west": 1})
    east = lab.cluster("east")
    faults.translate(lab, east)
    document = preflight(stage, *BOTH, want=0)
    seen = f"sees a pod of east at {east.address}, not at the pod's own address; a NAT forgets idle connections, so"
    assert findings(document, "warning") == [
        (
            f"east {other}",
            "NAT",
            f"There is NAT from east to {other}, which {seen} exclude the pod network of {other} from masquerading in "
            "east.",
        )
        for other in (MANAGER, "west")
    ]
    seen_addresses = {(path["from"], path["to"]): path["seenAddress"] for path in document["paths"]}
    assert {path for path, address in seen_addresses.items() if address} == {("east", MANAGER), ("east", "west")}
    assert reachable(stage, "east")["status"] == "True"
    faults.heal(lab)
    assert findings(preflight(stage, *BOTH, want=0), "warning") == []


@alone
def test_what_the_controller_tells_stands_beside_it(stage: Stage, running: Controller) -> None:
    """Both write the same list of conditions, and neither takes the other's away."""
    stage.build({"east": 1, "west": 1})
    preflight(stage, *BOTH, want=0)
    for text in ("true", "false"):
        patch = json.dumps({"spec": {"cordoned": text == "true"}})
        stage.manager.kubectl("patch", "workercluster", "east", "--type=merge", "-p", patch)
        wait(lambda: _seen(stage.manager), 20, "the controller has told of it", running.tail)
        assert reachable(stage, "east")["status"] == "True"
    before = condition(stage.manager.get("workerclusters", "east"), names.CONNECTED)
    since = reachable(stage, "east")["lastTransitionTime"]
    preflight(stage, *BOTH, want=0)
    assert condition(stage.manager.get("workerclusters", "east"), names.CONNECTED) == before
    assert reachable(stage, "east")["lastTransitionTime"] == since, "it was True before"


def _seen(manager: Cluster) -> bool:
    found = manager.get("workerclusters", "east")
    told = condition(found, names.CONNECTED).get("observedGeneration")
    return bool(told == found["metadata"]["generation"])


def test_what_is_missing_there_is_told_and_the_rest_is_tried(stage: Stage) -> None:
    """West has no such namespace; a way to it cannot be tried, so nothing new is said about whether it is reachable."""
    stage.build({"east": 1})
    before = reachable(stage, "west")
    found = preflight(stage, *BOTH, "--queue", "ray", "--queue", "other", want=3)
    assert [(subject, check) for subject, check, _ in failures(found)] == [("east", "Queue"), ("west", "Namespace")]
    messages = [message for _, _, message in failures(found)]
    assert messages[0] == f"There is no LocalQueue other in namespace {stage.name} of east; create it."
    assert messages[1].startswith(f"There is no namespace {stage.name} in west; create it, with a LocalQueue")
    reached = {(one["from"], one["to"]): one["reached"] for one in found["paths"]}
    assert reached[MANAGER, "east"] and reached["east", MANAGER] and reached["west", "east"] is None
    assert reachable(stage, "west") == before


def test_rights_that_are_missing_are_told_one_by_one(stage: Stage) -> None:
    stage.build({"east": 1})
    stage.fleet.workers["east"].delete("rolebinding", "rayspan-worker", stage.name)
    found = preflight(stage, "--worker-cluster", "east", want=3)
    (_, check, text), (_, other, why) = failures(found)
    assert (check, other) == ("Rights", "Probe")
    kinds = {"workloads": ("create", "get", "delete"), "configmaps": ("create", "get", "list", "delete")}
    for kind, verbs in kinds.items():
        assert all(f"{verb} {kind} in namespace {stage.name}" in text for verb in verbs)
    assert f"create pods in namespace {stage.name}" in text and "list nodes" not in text
    assert "it could not be created: 403 Forbidden" in why


def test_what_a_cluster_names_and_does_not_have_is_told(stage: Stage) -> None:
    """By the rights that the account has: it may not look for claims until somebody lets it."""
    own, east = stage.own("east"), stage.fleet.workers["east"]
    stage.clusters = (own,)
    stage.build({"east": 1})
    missing = {"serviceAccounts": "account", "runtimeClasses": "runtime", "priorityClasses": "priority"}
    pods = {
        **{field: [{"name": "a", "as": f"no-{kind}"}] for field, kind in missing.items()},
        "persistentVolumeClaims": [{"name": "models"}],
        "resourceClaimTemplates": [
            {"name": f"a-{there}", "as": there, "resources": {"example.com/gpu": 1}} for there in ("no-gpu", "h200")
        ],
        "schedulers": [{"name": "nobody"}],
    }
    east.apply(yaml.safe_dump(devices.claim_template(stage.name, "h200")))
    _write_pods(stage, own, pods)
    found = preflight(stage, "--worker-cluster", own, want=0)
    messages = _of_names(found)
    template = messages.pop(1)
    assert template == (
        f"WorkerCluster {own} names no-gpu in spec.pods.resourceClaimTemplates, and namespace {stage.name} there has "
        "no such ResourceClaimTemplate; create it there, or leave namespace "
        f"{stage.name} out of the entry's namespaces."
    )
    for (field, kind), message in zip(missing.items(), messages, strict=False):
        assert message.startswith(f"WorkerCluster {own} names no-{kind} in spec.pods.{field}, and ")
        assert f"no-{kind}" in message.partition(", and ")[2], "the cluster's own words"
    assert messages[3:] == [
        "Whether claim models (the WorkerCluster's account may not get claims) and scheduler nobody (no pod there "
        f"runs by it) exist in {own} for namespace {stage.name} could not be seen; a worker waits there "
        "without a node if its claim, its ResourceClaimTemplate or its scheduler is missing."
    ]
    exist = condition(stage.manager.get("workerclusters", own), names.NAMES_EXIST)
    assert (exist["status"], exist["reason"]) == ("False", "NamesMissing") and messages[0] in exist["message"]
    assert reachable(stage, own)["status"] == "True"
    checked = [sys.executable, "-m", "adapter", "check", "--kubeconfig", str(stage.manager.kubeconfig)]
    done = subprocess.run(checked, cwd=REPO, capture_output=True, text=True, timeout=60, check=False)
    assert f"The last preflight found: {messages[0]} {template}" in done.stdout

    _let_read_claims(stage, east)
    _see_templates_without_a_right(stage, own, pods["resourceClaimTemplates"])
    east.kubectl("-n", stage.name, "create", "serviceaccount", "ray-ksa")
    claims = {"persistentVolumeClaims": [{"name": "models"}]}
    _write_pods(stage, own, {**claims, "serviceAccounts": [{"name": "a", "as": "ray-ksa"}]})
    (message,) = _of_names(preflight(stage, "--worker-cluster", own, want=0))
    assert f"names models in spec.pods.persistentVolumeClaims, and namespace {stage.name} there has no such" in message
    _write_pods(stage, own, {"serviceAccountName": "nobody-made-it"})
    ((_, check, text),) = failures(preflight(stage, "--worker-cluster", own, want=3))
    assert check == "Names" and "names nobody-made-it in spec.pods.serviceAccountName" in text
    _write_pods(stage, own, {})
    preflight(stage, "--worker-cluster", own, want=0)
    assert not condition(stage.manager.get("workerclusters", own), names.NAMES_EXIST)
    assert reachable(stage, own)["status"] == "True"


def _see_templates_without_a_right(stage: Stage, own: str, templates: Any) -> None:
    """As in a worker cluster whose ClusterRole is older."""
    east = stage.fleet.workers["east"]
    role, binding = east.get("clusterroles", names.TENANT_ROLE), "rayspan-worker"
    older = [rule for rule in role["rules"] if rule["apiGroups"] != [names.RESOURCE_GROUP]]
    about = {"apiVersion": role["apiVersion"], "kind": "Role", "metadata": {"name": "older", "namespace": stage.name}}
    east.apply(yaml.safe_dump({**about, "rules": older}))
    east.delete("rolebinding", binding, stage.name)
    account = f"{names.SYSTEM_NAMESPACE}:{names.WORKER_ACCOUNT}"
    bind = ("create", "rolebinding", binding, "--role=older", f"--serviceaccount={account}")
    east.kubectl("-n", stage.name, *bind)
    _write_pods(stage, own, {"resourceClaimTemplates": templates})
    (message,) = _of_names(preflight(stage, "--worker-cluster", own, want=0))
    why = "the WorkerCluster's account may not get ResourceClaimTemplates"
    told = f"Whether ResourceClaimTemplate no-gpu, ResourceClaimTemplate h200 ({why}) exist in {own} for namespace "
    assert message.startswith(f"{told}{stage.name} could not be seen; ")
    exist = condition(stage.manager.get("workerclusters", own), names.NAMES_EXIST)
    assert (exist["status"], exist["reason"]) == ("Unknown", "NamesNotSeen")


def _write_pods(stage: Stage, cluster: str, pods: Any) -> None:
    patch = json.dumps([{"op": "add", "path": "/spec/pods", "value": pods}])
    stage.manager.kubectl("patch", "workercluster", cluster, "--type=json", "-p", patch)


def _of_names(found: Any) -> list[str]:
    return [one["message"] for one in found["findings"] if one["check"] == "Names"]


def _let_read_claims(stage: Stage, cluster: Cluster) -> None:
    account = f"{names.SYSTEM_NAMESPACE}:{names.WORKER_ACCOUNT}"
    cluster.kubectl("-n", stage.name, "create", "role", "claims", "--verb=get", "--resource=persistentvolumeclaims")
    cluster.kubectl("-n", stage.name, "create", "rolebinding", "claims", "--role=claims", f"--serviceaccount={account}")


@alone
def test_an_image_that_cannot_be_had_is_told_at_once(stage: Stage) -> None:
    stage.build({"east": 1})
    before = reachable(stage, "east")
    start = time.monotonic()
    found = preflight(stage, "--worker-cluster", "east", "--image", "example.invalid/no/such:1", want=3)
    assert time.monotonic() - start < 40
    assert [(subject, check) for subject, check, _ in failures(found)] == [(MANAGER, "Image"), ("east", "Image")]
    assert "Image example.invalid/no/such:1 cannot be pulled in east: " in failures(found)[1][2]
    assert reachable(stage, "east") == before


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Tests may run in the background, where Ctrl-C is ignored; what they start would ignore it as well."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_one_that_is_stopped_removes_its_pods(stage: Stage, how: signal.Signals) -> None:
    """Kueue in the worker clusters knows nothing of them."""
    stage.build({"east": 1, "west": 1})
    with begun(stage) as process:
        for worker in stage.fleet.workers.values():
            assert not worker.items("workloads", stage.name)
        process.send_signal(how)
        _, complained = process.communicate(timeout=60)
    assert process.returncode == 1
    assert complained.endswith(
        "Stopped before it was finished. Its pods are removed, except those that are named above.\n"
    )


def test_what_one_left_behind_that_was_killed_is_removed_by_the_next(stage: Stage) -> None:
    """Once its time is over: until then it may be one that goes on beside this one."""
    stage.build({"east": 1, "west": 1})
    with begun(stage) as process:
        process.kill()
    left = probes(stage)
    assert left
    preflight(stage, *BOTH, want=0)
    assert set(left) <= set(probes(stage))
    for cluster in stage.fleet.all:
        for pod in cluster.items("pods", stage.name, names.PROBE_LABEL):
            name, over = pod["metadata"]["name"], json.dumps({"spec": {"activeDeadlineSeconds": 1}})
            if name in left:
                cluster.kubectl("-n", stage.name, "patch", "pod", name, "--type=merge", "-p", over)
    preflight(stage, *BOTH, want=0)
    wait(lambda: not set(left) & set(probes(stage)), 30, "what was left is gone")


def begun(stage: Stage) -> "subprocess.Popen[str]":
    """A preflight whose pods are there in all clusters."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command(stage, *BOTH), cwd=REPO, stdout=pipe, stderr=pipe, text=True)
    clusters = (stage.manager, stage.fleet.workers["east"], stage.fleet.workers["west"])
    wait(lambda: all(one.items("pods", stage.name, names.PROBE_LABEL) for one in clusters), 60, "its pods are there")
    return process
