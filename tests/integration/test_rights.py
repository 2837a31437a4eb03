"""The two accounts may do what they must, and nothing else, by reviews of the API servers and by `kubectl auth
can-i`."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from adapter import membership, names
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.testbed import install, inventory
from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.reader import Raw
from hack.testbed.rights import SUBRESOURCES, Row, may, wrong
from hack.testbed.stage import added, ray_cluster
from hack.testbed.volcano import known

pytestmark = pytest.mark.alone  # roles come and go

CONTROLLER = "system:serviceaccount:rayspan-system:rayspan-controller"
WORKER = "system:serviceaccount:rayspan-system:rayspan-worker"

ACCESS = "system:serviceaccount:rayspan-system:rayspan-access"
VIEWER = "rayspan-viewer-test"

MANAGER_ROWS: list[Row] = [
    ("list", "workloads.kueue.x-k8s.io", "-A", True),
    ("patch", "workloads.kueue.x-k8s.io/status", "-n default", True),
    ("patch", "workloads.kueue.x-k8s.io", "-n default", True),
    ("delete", "workloads.kueue.x-k8s.io", "-n default", False),
    ("patch", "admissionchecks.kueue.x-k8s.io/status", "", True),
    ("patch", "clusterqueues.kueue.x-k8s.io", "", False),
    ("patch", "pods", "-n default", False),
    ("patch", "pods/status", "-n default", True),
    ("create", "pods", "-n default", False),
    ("delete", "pods", "-n default", False),
    ("create", "pods/exec", "-n default", False),
    ("patch", "rayclusters.ray.io", "-n default", False),
    ("delete", "rayjobs.ray.io", "-n default", False),
    ("create", "placements.rayspan.dev", "-n default", True),
    ("patch", "workerclusters.rayspan.dev", "", False),
    ("patch", "workerclusters.rayspan.dev/status", "", True),
    ("patch", "dispatchpolicies.rayspan.dev/status", "", True),
    ("patch", "dispatchpolicies.rayspan.dev", "", False),
    ("update", "dispatchpolicies.rayspan.dev/status", "", False),
    ("list", "secrets", "-n rayspan-system", True),
    ("list", "secrets", "-n default", False),
    ("list", "secrets", "-A", False),
    ("watch", "secrets", "-n default", False),
    ("get", "secrets/any", "-n default", True),
    ("get", "configmaps/any", "-n default", True),
    ("list", "configmaps", "-n default", False),
    ("patch", "secrets/any", "-n default", False),
    ("create", "configmaps", "-n default", False),
    ("create", "secrets", "-n rayspan-system", False),
    ("list", "secrets", "-n kueue-system", False),
    ("list", "secrets/east", "-n kueue-system", False),
    ("watch", "multikueueclusters.kueue.x-k8s.io", "", True),
    ("list", "multikueueconfigs.kueue.x-k8s.io", "", True),
    ("patch", "multikueueclusters.kueue.x-k8s.io/status", "", False),
    ("create", "events", "-n default", True),
    ("watch", "events", "-A", True),
    ("get", "events/any", "-n default", False),
    ("delete", "events", "-n default", False),
    ("list", "services", "-A", False),
    ("list", "endpointslices.discovery.k8s.io", "-A", False),
    ("create", "endpointslices.discovery.k8s.io", "-n default", False),
    ("list", "nodes", "", False),
    ("create", "clusterrolebindings", "", False),
    ("watch", "mutatingadmissionpolicies/rayspan-gate", "", True),
    ("watch", "mutatingadmissionpolicies", "", False),
    ("create", "leases", "-n rayspan-system", True),
    ("get", "leases/rayspan-controller", "-n rayspan-system", True),
    ("patch", "leases/rayspan-controller", "-n rayspan-system", True),
    ("delete", "leases/rayspan-controller", "-n rayspan-system", False),
    ("list", "leases", "-n rayspan-system", False),
    ("patch", "leases/other", "-n rayspan-system", False),
    ("create", "leases", "-n kube-system", False),
    ("patch", "mutatingadmissionpolicies/rayspan-gate", "", False),
]
# Where Volcano is: a kind that the cluster does not know cannot be asked for.
VOLCANO_ROWS: list[Row] = [
    ("create", "podgroups.scheduling.volcano.sh", "-n default", True),
    ("get", "podgroups.scheduling.volcano.sh", "-n default", True),
    ("delete", "podgroups.scheduling.volcano.sh", "-n default", False),
    ("create", "podgroups.scheduling.volcano.sh", "-n kube-system", False),
]
# Where the cluster inventory API is.
INVENTORY_ROWS: list[Row] = [
    ("list", "clusterprofiles.multicluster.x-k8s.io", "-A", True),
    ("watch", "clusterprofiles.multicluster.x-k8s.io", "-A", True),
    ("get", "clusterprofiles.multicluster.x-k8s.io", "-n default", False),
    ("patch", "clusterprofiles.multicluster.x-k8s.io", "-n default", False),
    ("patch", "clusterprofiles.multicluster.x-k8s.io/status", "-n default", False),
    ("create", "clusterprofiles.multicluster.x-k8s.io", "-n default", False),
]
# With the components that an admin adds.
MULTIKUEUE_ROWS: list[Row] = [
    ("list", "secrets/east", "-n kueue-system", True),
    ("watch", "secrets/west", "-n kueue-system", True),
    ("patch", "secrets/east", "-n kueue-system", False),
    ("list", "secrets/kueue-webhook-server-cert", "-n kueue-system", False),
    ("list", "secrets", "-n kueue-system", False),
]
AGGREGATOR_ROWS: list[Row] = [
    ("patch", "clusterqueues.kueue.x-k8s.io", "", True),
    ("update", "clusterqueues.kueue.x-k8s.io", "", False),
    ("delete", "clusterqueues.kueue.x-k8s.io", "", False),
    ("patch", "clusterqueues.kueue.x-k8s.io/status", "", False),
    ("patch", "cohorts.kueue.x-k8s.io", "", False),
    ("patch", "localqueues.kueue.x-k8s.io", "-n default", False),
]
JOB_LABELS_ROWS: list[Row] = [
    ("patch", "rayjobs.ray.io", "-A", True),
    ("patch", "rayclusters.ray.io", "-A", True),
    ("patch", "rayservices.ray.io", "-A", True),
    ("update", "rayjobs.ray.io", "-A", False),
    ("create", "rayjobs.ray.io", "-A", False),
    ("delete", "rayclusters.ray.io", "-A", False),
    ("patch", "rayjobs.ray.io/status", "-A", False),
]
# What is in what it writes there: tests/integration/test_endpoints.py.
ENDPOINTS_ROWS: list[Row] = [
    ("watch", "services", "-A", True),
    ("patch", "services", "-n default", False),
    ("watch", "endpointslices.discovery.k8s.io", "-A", True),
    ("create", "endpointslices.discovery.k8s.io", "-n default", True),
    ("patch", "endpointslices.discovery.k8s.io", "-n default", True),
    ("delete", "endpointslices.discovery.k8s.io", "-n default", True),
    ("deletecollection", "endpointslices.discovery.k8s.io", "-n default", False),
    ("update", "endpointslices.discovery.k8s.io", "-n default", False),
    ("create", "endpoints", "-n default", False),
]
RELAY_ROWS: list[Row] = [
    ("create", "secrets", "-n rayspan-system", True),
    ("delete", "secrets/any", "-n rayspan-system", False),
    ("list", "services", "-n rayspan-system", True),
    ("delete", "services/any", "-n rayspan-system", True),
    ("patch", "endpointslices.discovery.k8s.io", "-n rayspan-system", True),
    ("create", "secrets", "-n default", True),
    ("patch", "secrets/any", "-n default", True),
    ("delete", "secrets/any", "-n default", False),
    ("list", "secrets", "-n default", False),
    ("watch", "secrets", "-A", False),
    ("deletecollection", "secrets", "-n default", False),
    ("patch", "services", "-n default", True),
    ("list", "services", "-n default", False),
    ("create", "endpointslices.discovery.k8s.io", "-n default", False),
    ("create", "pods", "-n default", False),
]
ACCESS_ROWS: list[Row] = [
    ("get", "workeraccesses.rayspan.dev", "-n default", True),
    ("list", "workeraccesses.rayspan.dev", "-A", True),
    ("delete", "workeraccesses.rayspan.dev", "-n default", True),
    ("create", "workeraccesses.rayspan.dev", "-n default", False),
    ("patch", "workeraccesses.rayspan.dev", "-n default", False),
    ("get", "pods", "-n default", True),
    ("list", "pods", "-n default", False),
    ("get", "pods/log", "-n default", False),
    ("create", "pods/exec", "-n default", False),
    ("get", "workerclusters.rayspan.dev/east", "", True),
    ("list", "workerclusters.rayspan.dev", "", False),
    ("get", "clusterprofiles.multicluster.x-k8s.io", "-n default", True),
    ("list", "clusterprofiles.multicluster.x-k8s.io", "-n default", False),
    ("get", "secrets/east", "-n rayspan-system", True),
    ("list", "secrets", "-n rayspan-system", False),
    ("get", "secrets/any", "-n default", False),
    ("get", "secrets/any", "-n kueue-system", False),
    ("get", "leases.coordination.k8s.io/rayspan-controller", "-n rayspan-system", True),
    ("get", "leases.coordination.k8s.io/other", "-n rayspan-system", False),
    ("patch", "leases.coordination.k8s.io/rayspan-controller", "-n rayspan-system", False),
    ("get", "namespaces/kube-system", "", True),
    ("get", "namespaces/default", "", False),
    ("get", "validatingadmissionpolicies.admissionregistration.k8s.io/rayspan-access", "", True),
    ("get", "validatingadmissionpolicies.admissionregistration.k8s.io/other", "", False),
    ("patch", "validatingadmissionpolicies.admissionregistration.k8s.io/rayspan-access", "", False),
]
# What somebody has who may view a namespace, and what the Role for the Service's proxy adds.
VIEWER_ROWS: list[Row] = [
    ("create", "workeraccesses.rayspan.dev", "-n default", True),
    ("get", "workeraccesses.rayspan.dev", "-n default", False),
    ("delete", "workeraccesses.rayspan.dev", "-n default", False),
    ("get", "services/https:rayspan-access:443", "-n rayspan-system --subresource=proxy", True),
    ("create", "services/https:rayspan-access:443", "-n rayspan-system --subresource=proxy", True),
    ("update", "services/https:rayspan-access:443", "-n rayspan-system --subresource=proxy", False),
    ("get", "services/rayspan-access", "-n rayspan-system --subresource=proxy", False),
    ("get", "services/https:rayspan-access:8081", "-n rayspan-system --subresource=proxy", False),
    ("get", "secrets/east", "-n rayspan-system", False),
]
WORKER_ROWS: list[Row] = [
    ("get", "resourceclaimtemplates.resource.k8s.io", "-n default", True),
    ("list", "resourceclaimtemplates.resource.k8s.io", "-n default", False),
    ("get", "resourceclaimtemplates.resource.k8s.io", "-n kube-system", False),
    ("list", "clusterqueues.kueue.x-k8s.io", "", True),
    ("patch", "clusterqueues.kueue.x-k8s.io", "", False),
    ("watch", "workloads.kueue.x-k8s.io", "-A", True),
    ("create", "workloads.kueue.x-k8s.io", "-n default", True),
    ("create", "workloads.kueue.x-k8s.io", "-n kube-system", False),
    ("watch", "pods", "-A", True),
    ("create", "pods", "-n default", True),
    ("delete", "pods", "-n default", True),
    ("create", "pods", "-n kube-system", False),
    ("delete", "pods", "-n kueue-system", False),
    ("patch", "pods", "-n default", False),
    ("create", "pods/exec", "-n default", False),
    ("get", "pods/log", "-n default", False),
    ("create", "configmaps", "-n default", True),
    ("patch", "configmaps", "-n default", False),
    ("list", "configmaps", "-A", False),
    ("update", "configmaps", "-n default", True),
    ("create", "secrets", "-n default", True),
    ("update", "secrets", "-n default", True),
    ("delete", "secrets", "-n default", True),
    ("watch", "services", "-A", True),
    ("create", "services", "-n default", True),
    ("patch", "services", "-n default", True),
    ("update", "services", "-n default", False),
    ("patch", "services", "-n kube-system", False),
    ("create", "services", "-n default --subresource=proxy", False),
    ("watch", "endpointslices.discovery.k8s.io", "-A", True),
    ("create", "endpointslices.discovery.k8s.io", "-n default", True),
    ("patch", "endpointslices.discovery.k8s.io", "-n default", True),
    ("patch", "endpointslices.discovery.k8s.io", "-n kube-system", False),
    ("patch", "endpoints", "-n default", False),
    ("get", "secrets", "-n default", False),
    ("list", "secrets", "-n default", False),
    ("watch", "secrets", "-n default", False),
    ("patch", "secrets", "-n default", False),
    ("delete", "secrets", "-n kube-system", False),
    ("create", "secrets", "-n kube-system", False),
    ("update", "secrets", "-n rayspan-system", False),
    ("list", "secrets", "-n rayspan-system", False),
    ("get", "nodes", "", False),
    ("get", "nodes/proxy", "", False),
    ("create", "leases", "-n rayspan-system", True),
    ("patch", "leases/any", "-n rayspan-system", True),
    ("delete", "leases/any", "-n rayspan-system", False),
    ("list", "leases", "-n rayspan-system", False),
    ("create", "leases", "-n default", False),
    ("patch", "leases/any", "-n kube-system", False),
    ("create", "serviceaccounts/token", "-n rayspan-system", False),
    ("escalate", "clusterroles", "", False),
]


# Of whoever is given the Role rayspan-plan; "services/NAME:PORT" with the subresource is how a request to it is
# authorized.
PLAN_ROWS: list[Row] = [
    ("create", "services/rayspan-controller:plan", "-n rayspan-system --subresource=proxy", True),
    ("get", "services/rayspan-controller:plan", "-n rayspan-system --subresource=proxy", False),
    ("create", "services/rayspan-controller", "-n rayspan-system --subresource=proxy", False),
    ("create", "services/rayspan-controller:8081", "-n rayspan-system --subresource=proxy", False),
    ("create", "services/http:rayspan-controller:plan", "-n rayspan-system --subresource=proxy", False),
    ("create", "services/other:plan", "-n rayspan-system --subresource=proxy", False),
    ("create", "services/rayspan-controller:plan", "-n default --subresource=proxy", False),
    ("create", "pods", "-n rayspan-system --subresource=proxy", False),
    ("get", "services/rayspan-controller", "-n rayspan-system", False),
    ("list", "secrets", "-n rayspan-system", False),
    ("list", "workerclusters.rayspan.dev", "", False),
]


# Of whoever is given the ClusterRole rayspan-drain.
DRAIN_ROWS: list[Row] = [
    ("get", "workerclusters.rayspan.dev/east", "", True),
    ("patch", "workerclusters.rayspan.dev/east", "", True),
    ("patch", "workerclusters.rayspan.dev/status", "", False),
    ("create", "workerclusters.rayspan.dev", "", False),
    ("delete", "workerclusters.rayspan.dev/east", "", False),
    ("list", "pods", "-A", True),
    ("delete", "pods", "-n default", False),
    ("create", "pods/exec", "-n default", False),
    ("list", "placements.rayspan.dev", "-A", True),
    ("patch", "placements.rayspan.dev", "-n default", False),
    ("list", "secrets", "-n rayspan-system", False),
    ("patch", "dispatchpolicies.rayspan.dev", "", False),
    ("patch", "dispatchpolicies.rayspan.dev/status", "", False),
    ("create", "services/rayspan-controller:plan", "-n rayspan-system --subresource=proxy", False),
]


# Of a user who has the ClusterRole rayspan-user in the namespace default.
USER_ROWS: list[Row] = [
    ("create", "rayjobs.ray.io", "-n default", True),
    ("patch", "rayservices.ray.io", "-n default", True),
    ("delete", "rayclusters.ray.io", "-n default", True),
    ("patch", "rayclusters.ray.io/status", "-n default", False),
    ("create", "configmaps", "-n default", True),
    ("list", "localqueues.kueue.x-k8s.io", "-n default", True),
    ("watch", "workloads.kueue.x-k8s.io", "-n default", True),
    ("patch", "workloads.kueue.x-k8s.io", "-n default", False),
    ("get", "placements.rayspan.dev/any", "-n default", True),
    ("patch", "placements.rayspan.dev", "-n default", False),
    ("list", "pods", "-n default", True),
    ("get", "pods/log", "-n default", True),
    ("get", "jobs.batch/any", "-n default", True),
    ("create", "jobs.batch", "-n default", False),
    ("create", "pods/exec", "-n default", True),
    ("create", "pods", "-n default", False),
    ("delete", "pods", "-n default", False),
    ("get", "secrets", "-n default", False),
    ("create", "secrets", "-n default", False),
    ("create", "rayjobs.ray.io", "-n kube-system", False),
    ("list", "pods", "-A", False),
    ("list", "placements.rayspan.dev", "-A", False),
    ("list", "workerclusters.rayspan.dev", "", False),
    ("list", "secrets", "-n rayspan-system", False),
    ("create", "rolebindings.rbac.authorization.k8s.io", "-n default", False),
]


@pytest.fixture(scope="module")
def scientist(fleet: Clusters) -> Iterator[str]:
    """A user to whom an administrator gave the ClusterRole for data scientists in one namespace, and nothing else."""
    user, manager = "rayspan-user-test", fleet.manager
    manager.delete("rolebinding", user, "default")
    manager.kubectl(
        "-n", "default", "create", "rolebinding", user, f"--clusterrole={names.USER_ROLE}", f"--user={user}"
    )
    manager.wait(lambda: may(manager, user, *USER_ROWS[0][:3]), 20, "the right is known")
    yield user
    manager.delete("rolebinding", user, "default")


def test_rights_of_a_data_scientist(fleet: Clusters, scientist: str) -> None:
    assert wrong(fleet.manager, scientist, USER_ROWS) == []


def test_data_scientist_may_ask_for_grants(reached: Cluster, scientist: str) -> None:
    """The role of the access component is added by its label."""
    verb, resource, where, _ = VIEWER_ROWS[0]
    reached.wait(lambda: may(reached, scientist, verb, resource, where), 20, "the role is aggregated")


@pytest.fixture(scope="module")
def planner(fleet: Clusters) -> Iterator[str]:
    """A user whom an administrator allowed to ask for plans, and nothing else."""
    user, binding = "rayspan-plan-test", "rayspan-plan-test"
    fleet.manager.delete("rolebinding", binding, names.SYSTEM_NAMESPACE)
    command = ("create", "rolebinding", binding, f"--role={names.PLAN_ROLE}", f"--user={user}")
    fleet.manager.kubectl("-n", names.SYSTEM_NAMESPACE, *command)
    first = PLAN_ROWS[0]
    fleet.manager.wait(lambda: may(fleet.manager, user, *first[:3]), 20, "the right is known")
    yield user
    fleet.manager.delete("rolebinding", binding, names.SYSTEM_NAMESPACE)


def test_what_somebody_may_who_may_ask_for_plans(fleet: Clusters, planner: str) -> None:
    assert wrong(fleet.manager, planner, PLAN_ROWS) == []


@pytest.fixture(scope="module")
def drainer(fleet: Clusters) -> Iterator[str]:
    """A user whom an administrator allowed to drain worker clusters, and nothing else."""
    user, binding = "rayspan-drain-test", "rayspan-drain-test"
    fleet.manager.delete("clusterrolebinding", binding)
    fleet.manager.kubectl(
        "create", "clusterrolebinding", binding, f"--clusterrole={names.DRAIN_ROLE}", f"--user={user}"
    )
    first = DRAIN_ROWS[0]
    fleet.manager.wait(lambda: may(fleet.manager, user, *first[:3]), 20, "the right is known")
    yield user
    fleet.manager.delete("clusterrolebinding", binding)


def test_what_somebody_may_who_may_drain(fleet: Clusters, drainer: str) -> None:
    assert wrong(fleet.manager, drainer, DRAIN_ROWS) == []


def test_nobody_may_drain_until_he_is_allowed(fleet: Clusters) -> None:
    verb, resource, where, _ = DRAIN_ROWS[1]
    assert not may(fleet.manager, "somebody", verb, resource, where)


def test_nobody_may_ask_for_plans_until_he_is_allowed(fleet: Clusters) -> None:
    verb, resource, where, _ = PLAN_ROWS[0]
    assert not may(fleet.manager, "somebody", verb, resource, where)
    assert not may(fleet.manager, CONTROLLER, verb, resource, where)


def test_what_the_controller_may_do(fleet: Clusters) -> None:
    assert wrong(fleet.manager, CONTROLLER, MANAGER_ROWS) == []


_WORKER_POD: Raw = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "status-bounds", "namespace": "default", "finalizers": ["example.com/held"]},
    "spec": {
        "schedulingGates": [{"name": "example.com/gate"}],
        "containers": [{"name": "c", "image": "none"}],
    },
}
_STATUS_CASES = [
    # labels of the pod, merge patch of its status, what the refusal says (empty: allowed)
    pytest.param({names.PLACEMENT_LABEL: "p"}, {"status": {"message": "m"}}, "", id="the status of a worker pod"),
    pytest.param({names.PLACEMENT_LABEL: "p"}, {"metadata": {"labels": {names.CLUSTER_LABEL: "east"},
        "annotations": {names.SLOT_ANNOTATION: "east/1/r/0"}}}, "", id="the slot of a worker pod"),
    pytest.param({"app": "dns"}, {"status": {"message": "m"}}, "has no label", id="the status of another pod"),
    pytest.param({"app": "dns"}, {"metadata": {"labels": {names.PLACEMENT_LABEL: "p"}}}, "has no label",
        id="the label is put on another pod"),
    pytest.param({names.PLACEMENT_LABEL: "p"}, {"metadata": {"labels": {"app": ""}}}, "rayspan.dev/cluster alone",
        id="another label is added"),
    pytest.param({names.PLACEMENT_LABEL: "p", "app": "a"}, {"metadata": {"labels": {"app": None}}},
        "rayspan.dev/cluster alone", id="another label is removed"),
    pytest.param({names.PLACEMENT_LABEL: "p"}, {"metadata": {"annotations": {"a": "b"}}}, "rayspan.dev/slot alone",
        id="another annotation is added"),
    pytest.param({names.PLACEMENT_LABEL: "p"}, {"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}},
        "may not give a pod a loopback", id="an address that leads to a node"),
    pytest.param({names.PLACEMENT_LABEL: "p"}, {"status": {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]}}, "",
        id="an address of a pod"),
    pytest.param({names.PLACEMENT_LABEL: "p"}, {"metadata": {"finalizers": None}}, "finalizers",
        id="the finalizers are removed"),
]  # fmt: skip


@pytest.fixture(scope="module")
def reading(fleet: Clusters) -> Iterator[Cluster]:
    """The manager, where the controller may also get pods in `default`: `kubectl patch` reads a pod first."""
    manager, role = fleet.manager, "rayspan-status-test"
    account = f"--serviceaccount={names.SYSTEM_NAMESPACE}:{names.CONTROLLER_ACCOUNT}"
    manager.kubectl("-n", "default", "create", "role", role, "--verb=get", "--resource=pods,pods/status")
    manager.kubectl("-n", "default", "create", "rolebinding", role, f"--role={role}", account)
    manager.wait(lambda: may(manager, CONTROLLER, "get", "pods/status", "-n default"), 20, "the right is known")
    yield manager
    for kind in ("rolebinding", "role"):
        manager.delete(kind, role, "default")


@pytest.mark.parametrize(("labels", "patch", "refusal"), _STATUS_CASES)
def test_the_controller_writes_the_status_of_worker_pods_alone(
    reading: Cluster, labels: Raw, patch: Raw, refusal: str
) -> None:
    pod = {**_WORKER_POD, "metadata": {**_WORKER_POD["metadata"], "labels": labels}}
    words = ("-n", "default", "patch", "pod", "status-bounds", "--type=merge")
    reading.kubectl("create", "-f", "-", input=json.dumps(pod))
    try:
        write = (*words, "--subresource=status", f"--patch={json.dumps(patch)}", f"--as={CONTROLLER}")
        if refusal:
            with pytest.raises(LabError, match=refusal):
                reading.kubectl(*write)
        else:
            reading.kubectl(*write)
    finally:
        reading.kubectl(*words, '--patch={"metadata":{"finalizers":null}}')
        reading.delete("pod", "status-bounds", "default")


@pytest.mark.parametrize("row", [row for row in MANAGER_ROWS if row[1].startswith("pods")][:3])
def test_kubectl_is_told_the_same(fleet: Clusters, row: Row) -> None:
    """What an admin asks of his own cluster; the other questions are put without a process for each."""
    verb, resource, where, allowed = row
    assert _can_i(fleet.manager, CONTROLLER, verb, resource, where) is allowed


@pytest.fixture(scope="module")
def multikueue(fleet: Clusters) -> Iterator[Clusters]:
    """The clusters, with the component for reusing MultiKueueClusters."""
    with added(fleet.manager, "multikueue"):
        fleet.manager.wait(lambda: may(fleet.manager, CONTROLLER, *MULTIKUEUE_ROWS[0][:3]), 20, "the right is known")
        yield fleet


def test_what_it_may_read_of_kueues_namespace(multikueue: Clusters) -> None:
    assert wrong(multikueue.manager, CONTROLLER, MULTIKUEUE_ROWS) == []


@pytest.fixture(scope="module")
def aggregator(fleet: Clusters) -> Iterator[Clusters]:
    """The clusters, with the component for quota that follows the worker queues."""
    with added(fleet.manager, "quota-aggregator"):
        fleet.manager.wait(lambda: may(fleet.manager, CONTROLLER, *AGGREGATOR_ROWS[0][:3]), 20, "the right is known")
        yield fleet


def test_what_it_may_do_to_quota(aggregator: Clusters) -> None:
    assert wrong(aggregator.manager, CONTROLLER, AGGREGATOR_ROWS) == []


def test_what_it_may_do_to_endpoints(fleet: Clusters) -> None:
    with added(fleet.manager, "rayservice-endpoints"):
        fleet.manager.wait(lambda: may(fleet.manager, CONTROLLER, *ENDPOINTS_ROWS[0][:3]), 20, "the right is known")
        assert wrong(fleet.manager, CONTROLLER, ENDPOINTS_ROWS) == []


_REFUSED_CHANGES: dict[str, Raw] = {
    "Rayspan may not change the spec": {"spec": {"rayVersion": "9"}},
    "change rayspan.dev/clusters alone": {"metadata": {"labels": {names.QUEUE_LABEL: "other"}}},
    "may not change the annotations": {"metadata": {"annotations": {"a": "b"}}},
    "may not change the finalizers or owners": {"metadata": {"finalizers": ["rayspan.dev/test"]}},
}


@pytest.fixture(scope="module")
def labelled(fleet: Clusters) -> Iterator[Cluster]:
    """The manager with the component job-labels and a RayCluster `labelled`, which the controller may also get."""
    manager, role = fleet.manager, "rayspan-label-test"
    account = f"--serviceaccount={names.SYSTEM_NAMESPACE}:{names.CONTROLLER_ACCOUNT}"
    manager.kubectl("-n", "default", "create", "role", role, "--verb=get", "--resource=rayclusters.ray.io")
    manager.kubectl("-n", "default", "create", "rolebinding", role, f"--role={role}", account)
    body = ray_cluster("labelled", "default", {"workers": 1})
    body["spec"]["suspend"] = True
    manager.apply(yaml.safe_dump(body))
    with added(manager, "job-labels"):
        manager.wait(lambda: may(manager, CONTROLLER, *JOB_LABELS_ROWS[0][:3]), 20, "the right is known")
        spec = {"spec": {"rayVersion": "9"}}
        manager.wait(lambda: "may not change the spec" in _label_refusal(manager, spec), 20, "the policy is known")
        yield manager
    manager.delete("raycluster", "labelled", "default")
    for kind in ("rolebinding", "role"):
        manager.delete(kind, role, "default")


def test_what_it_may_do_to_jobs(labelled: Cluster) -> None:
    assert wrong(labelled, CONTROLLER, JOB_LABELS_ROWS) == []


@pytest.mark.parametrize(("refusal", "change"), _REFUSED_CHANGES.items())
def test_it_writes_one_label_of_jobs_alone(labelled: Cluster, refusal: str, change: Raw) -> None:
    assert refusal in _label_refusal(labelled, change)
    assert _label_refusal(labelled, {"metadata": {"labels": {names.CLUSTERS_LABEL: "east_west"}}}) == ""
    assert _label_refusal(labelled, {"metadata": {"labels": {names.CLUSTERS_LABEL: None}}}) == ""


def _label_refusal(manager: Cluster, change: Raw) -> str:
    """Why the controller may not change the RayCluster so, by a dry run; empty if it may."""
    words = ("-n", "default", "patch", "raycluster", "labelled", "--type=merge", f"--patch={json.dumps(change)}")
    try:
        manager.kubectl(*words, "--dry-run=server", f"--as={CONTROLLER}")
    except LabError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def relayed(fleet: Clusters) -> Iterator[Cluster]:
    """The manager with the component relay; its routers need not run."""
    manager = fleet.manager
    with added(manager, "relay"):
        manager.wait(lambda: may(manager, CONTROLLER, *RELAY_ROWS[0][:3]), 20, "the right is known")
        manager.wait(
            lambda: _create(manager, "secret", "default", "other") == _RELAY_REFUSAL, 20, "the policy is known"
        )
        yield manager


def test_what_it_may_do_for_relayed_networks(relayed: Cluster) -> None:
    assert wrong(relayed, CONTROLLER, RELAY_ROWS) == []


_RELAY_REFUSAL = "must begin with rayspan-relay-"


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "refusal"),
    [
        ("secret", "default", "rayspan-relay-rights", ""),
        ("service", "default", "rayspan-relay-rights", ""),
        ("secret", "rayspan-system", "rayspan-relay-rights", ""),
        ("service", "rayspan-system", "rayspan-head-rights", ""),
        ("service", "default", "rayspan-head-rights", _RELAY_REFUSAL),
        ("secret", "rayspan-system", "rayspan-head-rights", _RELAY_REFUSAL),
        ("service", "default", "kubernetes", _RELAY_REFUSAL),
        ("secret", "rayspan-system", "east", _RELAY_REFUSAL),
    ],
)
def test_it_writes_secrets_and_services_of_relayed_networks_alone(
    relayed: Cluster, kind: str, namespace: str, name: str, refusal: str
) -> None:
    assert _create(relayed, kind, namespace, name) == refusal


@pytest.mark.parametrize(
    ("kind", "more", "refusal"),
    [
        ("secret", {"type": "kubernetes.io/service-account-token"}, "must have the type Opaque"),
        ("service", {"spec": {"ports": [{"port": 80}]}}, "must have clusterIP None"),
        ("service", {"spec": {"clusterIP": "None", "externalIPs": ["192.0.2.1"]}}, "must have clusterIP None"),
    ],
    ids=["the token of an account", "a Service with an address", "a Service with somebody's address"],
)
def test_it_writes_no_object_that_reaches_further(relayed: Cluster, kind: str, more: Raw, refusal: str) -> None:
    assert refusal in _create(relayed, kind, "default", "rayspan-relay-rights", **more)


def _create(manager: Cluster, kind: str, namespace: str, name: str, **more: Any) -> str:
    """The refusal of a dry run in the controller's name; empty if there is none."""
    spec = {"spec": {"clusterIP": "None"}} if kind == "service" else {}
    annotations = {"kubernetes.io/service-account.name": "default"}
    metadata = {"namespace": namespace, "name": name, "annotations": annotations}
    raw = {"apiVersion": "v1", "kind": kind.title(), "metadata": metadata, **spec, **more}
    words = ("create", "--dry-run=server", f"--as={CONTROLLER}", "-f", "-")
    try:
        manager.kubectl(*words, input=json.dumps(raw))
    except LabError as error:
        return _RELAY_REFUSAL if _RELAY_REFUSAL in str(error) else str(error)
    return ""


@pytest.fixture(scope="module")
def reached(fleet: Clusters) -> Iterator[Cluster]:
    """The manager with the access component, and a user who may view `default` and reach its server."""
    manager, user = fleet.manager, VIEWER
    with added(manager, "worker-access"):
        system = ("-n", names.SYSTEM_NAMESPACE, "create", "rolebinding", user, f"--role={names.ACCESS_ROLE}")
        manager.kubectl(*system, f"--user={user}")
        manager.kubectl("-n", "default", "create", "rolebinding", user, "--clusterrole=view", f"--user={user}")
        manager.wait(lambda: may(manager, ACCESS, *ACCESS_ROWS[0][:3]), 20, "the right is known")
        manager.wait(lambda: may(manager, user, *VIEWER_ROWS[0][:3]), 20, "the right is known")
        yield manager
        for namespace in ("default", names.SYSTEM_NAMESPACE):
            manager.delete("rolebinding", user, namespace)


def test_what_the_access_server_may_do(reached: Cluster) -> None:
    profile = next(row for row in ACCESS_ROWS if row[1].startswith("clusterprofiles"))
    with inventory.known(reached):
        reached.wait(lambda: may(reached, ACCESS, *profile[:3]), 20, "the API server tells of the kind")
        assert wrong(reached, ACCESS, ACCESS_ROWS) == []


def test_what_somebody_may_who_may_view_and_reach(reached: Cluster) -> None:
    assert wrong(reached, VIEWER, VIEWER_ROWS) == []


@pytest.mark.parametrize(("overlay", "verb", "what"), [("logs", "get", "pods/log"), ("exec", "create", "pods/exec")])
def test_what_a_worker_clusters_admin_may_add(fleet: Clusters, overlay: str, verb: str, what: str) -> None:
    """In the namespace that is opened, and no more than this."""
    east, folder = fleet.workers["east"], REPO / "kustomize/overlays" / f"worker-{overlay}"
    east.kubectl("apply", "-k", folder)
    try:
        east.wait(lambda: may(east, WORKER, verb, what, "-n default"), 20, "the right is known")
        rows: list[Row] = [
            ("get", "pods/log", "-n default", overlay == "logs"),
            ("create", "pods/exec", "-n default", overlay == "exec"),
            ("create", "pods/portforward", "-n default", overlay == "exec"),
            ("create", "pods/attach", "-n default", False),
            (verb, what, "-n kube-system", False),
        ]
        assert wrong(east, WORKER, rows) == []
    finally:
        east.kubectl("delete", "-k", folder)


def test_what_it_may_do_in_a_worker_cluster(fleet: Clusters) -> None:
    assert wrong(fleet.workers["east"], WORKER, WORKER_ROWS) == []


@pytest.fixture(scope="module")
def volcano(fleet: Clusters) -> Iterator[Cluster]:
    """East, where PodGroups are known."""
    east = fleet.workers["east"]
    with known(east):
        east.wait(lambda: may(east, WORKER, *VOLCANO_ROWS[0][:3]), 20, "the API server tells of the kind")
        yield east


def test_what_it_may_do_with_pod_groups(volcano: Cluster) -> None:
    assert wrong(volcano, WORKER, VOLCANO_ROWS) == []


def test_what_it_may_do_with_clusterprofiles(fleet: Clusters) -> None:
    """It asks for them by lists and watches alone; their cluster manager writes them."""
    manager = fleet.manager
    with inventory.known(manager):
        manager.wait(lambda: may(manager, CONTROLLER, *INVENTORY_ROWS[0][:3]), 20, "the API server tells of the kind")
        assert wrong(manager, CONTROLLER, INVENTORY_ROWS) == []


def test_no_token_leaves_its_secret(deployed: None, fleet: Clusters) -> None:
    """Neither the controller's log nor any object that people read holds a token or a kubeconfig."""
    manager = fleet.manager
    log = manager.kubectl("-n", names.SYSTEM_NAMESPACE, "logs", "deploy/rayspan-controller", "--all-pods")
    shown = [
        log,
        *(_text(manager, kind) for kind in ("events", "placements", "workerclusters", "pods", "admissionchecks")),
    ]
    for name in fleet.workers:
        kubeconfig = install.worker_kubeconfig(manager, name)
        signature = membership.token_in_kubeconfig(kubeconfig).rpartition(".")[2]
        encoded = base64.b64encode(kubeconfig.encode()).decode()
        assert len(signature) > 40
        for text in shown:
            assert encoded not in text and signature not in text and "BEGIN CERTIFICATE" not in text


def _can_i(cluster: Cluster, account: str, verb: str, resource: str, where: str) -> bool:
    kind, _, part = resource.partition("/")
    asked = [kind, f"--subresource={part}"] if part in SUBRESOURCES else [resource]
    try:
        said = cluster.kubectl("auth", "can-i", verb, *asked, *where.split(), f"--as={account}")
    except LabError as refusal:  # `can-i` says no by its exit status as well
        said = str(refusal)
    assert ("yes" in said.split()) is not ("no" in said.split()), said
    return "yes" in said.split()


def _text(cluster: Cluster, kind: str) -> str:
    found: list[Raw] = cluster.items(kind)
    return str(found)
