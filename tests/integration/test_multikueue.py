"""MultiKueue's objects are enough for Rayspan, and Rayspan and stock MultiKueue leave each other alone in the same
clusters."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from hack.lab import faults
from hack.lab.base.lab import Lab
from hack.lab.base.paths import REPO
from hack.testbed import install, multikueue
from hack.testbed.clusters import Clusters, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.multikueue import Audit, Write
from hack.testbed.reader import Raw
from hack.testbed.rights import Row, may, wrong
from hack.testbed.stage import FAKE_NODE, TOLERATION, Stage, added, pods_by_cluster, told
from hack.testbed.workerclusters import meant

# The controller's own rights are changed, or Kueue itself: by a process of the test's own, which is alone by that, or
# by an admin.
alone = pytest.mark.alone

CLUSTERS = ("east", "west")
OURS = {name: f"it-mk-{name}" for name in CLUSTERS}  # WorkerClusters; their MultiKueueClusters are called so, too
CONFIG = "it-multikueue"
JOBS = "jobs"  # the LocalQueue of ordinary Jobs
MANUAL = (REPO / "docs/multikueue.md").read_text()
MANUALS_ACCOUNT = "kueue-system:multikueue"
# Of a cluster, of a namespace, and of the namespace in which claims are held.
BINDINGS = ("rayspan-worker-multikueue", "rayspan-worker-tenant-multikueue", "rayspan-worker-claim-multikueue")
MANUALS_RIGHTS: list[Row] = [
    ("list", "clusterqueues.kueue.x-k8s.io", "", True),
    ("watch", "nodes", "", True),
    ("watch", "workloads.kueue.x-k8s.io", "-A", True),
    ("create", "workloads.kueue.x-k8s.io", "-n default", True),
    ("create", "pods", "-n default", True),
    ("create", "leases", "-n rayspan-system", True),
    ("create", "pods", "-n kube-system", False),
    ("get", "secrets", "-n default", False),
]


@pytest.fixture
def secrets(parked: Clusters) -> Iterator[Clusters]:
    """The kubeconfigs of Rayspan's own account, where MultiKueue has its Secrets."""
    manager = parked.manager
    with ExitStack() as stack:
        for name in CLUSTERS:
            stack.callback(manager.delete, "secret", name, names.KUEUE_NAMESPACE)
            multikueue.put_secret(manager, name, install.worker_kubeconfig(manager, name))
        yield parked


@pytest.mark.long
def test_multikueues_kubeconfig_is_reused_and_each_obstacle_is_told(
    secrets: Clusters, stage: Stage, running: Controller
) -> None:
    """From a reference to nothing to a gang that runs: one sentence at a time, and no restart."""
    ours = OURS["east"]
    stage.clusters = (ours,)
    stage.build({"east": 2})
    _worker_clusters(stage, "east")
    _expect(stage, f"names MultiKueueCluster {ours}, which does not exist; create it", running)

    _put(stage, multikueue.cluster(ours, "/etc/multikueue/kubeconfigs/east") | _source(locationType="Path"))
    _expect(stage, "has locationType Path, which is a file in Kueue's pod that Rayspan cannot read", running)

    _put(stage, multikueue.cluster(ours, "east"))
    _expect(stage, "Secret east in kueue-system cannot be read: the controller has no right to it", running)
    assert "kustomize/components/multikueue" in _connected(stage)["message"]

    with added(stage.manager, "multikueue"):
        wait(lambda: _connected(stage).get("status") == "True", 45, "the right is enough", running.tail)
        stage.ray_cluster("pi", workers=2)
        wait(lambda: stage.running(2), 90, "two workers run", running.tail)
        assert pods_by_cluster(stage.workers()) == {ours: 2}

        multikueue.put_secret(stage.manager, "east", "this: is no kubeconfig")
        _expect(stage, "Secret east in kueue-system holds no usable kubeconfig", running)
        stage.manager.delete("secret", "east", names.KUEUE_NAMESPACE)
        _expect(stage, "Secret east does not exist in kueue-system", running)
        multikueue.put_secret(stage.manager, "east", install.worker_kubeconfig(stage.manager, "east"))
        wait(lambda: _connected(stage).get("status") == "True", 45, "it is connected again", running.tail)
        assert stage.running(2), "its workers never stopped"
        stage.manager.delete("raycluster", "pi", stage.name, wait=False)
        wait(lambda: not stage.leftovers(), 60, "nothing is left", running.tail)


@pytest.mark.long
def test_a_manager_that_hides_multikueue_works_without_it(secrets: Clusters, stage: Stage, process: Controller) -> None:
    """No right to MultiKueue's kinds: jobs run all the same, and who needs those kinds reads why not."""
    stage.build({"east": 1})
    _worker_clusters(stage, "east")
    _put(stage, multikueue.cluster(OURS["east"], "east"))
    rules = stage.manager.get("clusterroles", "rayspan-controller")["rules"]
    _patch_rules(stage, [rule for rule in rules if "multikueueclusters" not in rule["resources"]])
    try:
        process.start()
        stage.ray_cluster("pi", workers=1)
        wait(lambda: stage.running(1), 90, "the worker runs", process.tail)
        _expect(stage, "the controller cannot read the MultiKueueClusters of the manager cluster (403", process)
        _apply_policy(stage)
        wait(lambda: _active(stage).get("reason") == "BadParameters", 30, "the check is inactive", process.tail)
        assert "the controller cannot read the MultiKueueConfigs of the manager cluster" in _active(stage)["message"]
    finally:
        _patch_rules(stage, rules)
    _expect(stage, "Secret east in kueue-system cannot be read", process)


@pytest.mark.long
def test_a_policy_takes_a_configs_clusters_in_its_order(secrets: Clusters, stage: Stage, running: Controller) -> None:
    """The list is MultiKueue's: a gang fills it in its order, and one that waits goes on when it grows."""
    stage.build({"east": 2, "west": 2})
    with added(stage.manager, "multikueue"):
        _worker_clusters(stage, *CLUSTERS)
        for name in CLUSTERS:
            _put(stage, multikueue.cluster(OURS[name], name))
        _apply_policy(stage)
        said = f"names MultiKueueConfig {CONFIG}, which does not exist; create it"
        wait(lambda: said in _active(stage).get("message", ""), 30, "the check says so", running.tail)

        _put(stage, multikueue.config(CONFIG, OURS["west"]))
        wait(lambda: _active(stage).get("status") == "True", 30, "the check is active", running.tail)
        assert _active(stage)["message"] == f"Dispatches Ray workers to {OURS['west']}."
        stage.ray_cluster("pi", workers=3)
        wait(lambda: stage.state("pi") == PlacementState.WAITING, 60, "west alone is too small", running.tail)

        _put(stage, multikueue.config(CONFIG, OURS["west"], OURS["east"]))
        wait(lambda: stage.running(3), 90, "three workers run", running.tail)
        assert pods_by_cluster(stage.workers()) == {OURS["west"]: 2, OURS["east"]: 1}
        stage.manager.delete("raycluster", "pi", stage.name, wait=False)
        wait(lambda: not stage.leftovers(), 60, "nothing is left", running.tail)


@pytest.mark.parametrize(
    "silent",
    [
        pytest.param(False, marks=pytest.mark.brief, id="all well"),
        pytest.param(True, marks=pytest.mark.long, id="one cluster becomes unreachable"),
    ],
)
def test_stock_multikueue_works_beside_us(
    parked: Clusters, stage: Stage, process: Controller, lab: Lab, silent: bool
) -> None:
    """Jobs by MultiKueue and Ray workers by Rayspan, in the same clusters and by the same Secrets; neither touches
    the other's."""
    manager = parked.manager
    stage.build({"east": 3, "west": 3})
    with ExitStack() as stack:
        stack.callback(process.stop)
        stack.enter_context(multikueue.working(parked))
        stack.enter_context(added(manager, "multikueue"))
        for name in CLUSTERS:
            kubeconfig = stack.enter_context(multikueue.account(parked, name))
            stack.callback(manager.delete, "secret", name, names.KUEUE_NAMESPACE)
            multikueue.put_secret(manager, name, kubeconfig)
            _put(stage, multikueue.cluster(OURS[name], name))
            _bind(stage, name)
        _put(stage, multikueue.config(CONFIG, *OURS.values()))
        _jobs_queue(stage)
        _worker_clusters(stage, *CLUSTERS)
        _apply_policy(stage)
        logs = {name: Audit(worker) for name, worker in parked.workers.items()}
        process.start()
        wait(
            lambda: _all_active(stage),
            90,
            "MultiKueue sees its clusters",
            lambda: str(manager.items("multikueueclusters")),
        )
        wait(lambda: stage.connected(OURS.values()), 45, "we see them", process.tail)

        stage.ray_cluster("pi", workers=4)
        wait(lambda: stage.running(4), 90, "four Ray workers run", process.tail)
        for number in range(3):  # not before, for they would take the room that the gang was planned for
            _submit(stage, f"job-{number}")
        wait(lambda: _finished(stage) == 3, 90, "three Jobs are done", lambda: str(manager.items("jobs", stage.name)))
        assert pods_by_cluster(stage.workers()) == {OURS["east"]: 3, OURS["west"]: 1}
        swept = {name: log.sweeps() for name, log in logs.items()}
        wait(
            lambda: all(log.sweeps() > swept[name] + 1 for name, log in logs.items()),
            150,
            "MultiKueue's garbage collector has looked twice at what is there",
        )
        assert stage.running(4), "and left ours alone"
        mine = {name: _named(stage, name, names.MANAGER_LABEL) for name in CLUSTERS}
        assert all(mine.values())
        assert "clusterName" not in stage.workload("pi")["status"], "MultiKueue answers for its own check only"

        done = {f"job-{number}" for number in range(3)}
        if silent:
            stack.callback(faults.heal, lab)
            mine["west"] |= _one_is_silent(stage, process, lab)
            done.add("job-late")

        stage.manager.delete("raycluster", "pi", stage.name, wait=False)
        wait(lambda: not stage.leftovers(), 60, "nothing of ours is left", process.tail)
        theirs: set[str] = set()
        for name in CLUSTERS:
            by_us, by_them = _split(logs[name].writes(multikueue.USER, stage.name))
            assert by_us and {write.name for write in by_us} <= mine[name], f"{name}: we wrote to nothing else"
            assert not {write.name for write in by_them} & mine[name], f"{name}: nor did they to ours"
            theirs |= {write.name for write in by_them if write.resource == "jobs"}
        assert theirs == done, "and yet they ran there by the same account"
        manager.kubectl("-n", stage.name, "delete", "jobs", "--all")
        wait(lambda: not _left(stage), 60, "MultiKueue tidies up", lambda: str(_left(stage)))


def _one_is_silent(stage: Stage, process: Controller, lab: Lab) -> set[str]:
    """While east is unreachable, MultiKueue dispatches nothing to west either; Rayspan does, and tidies up there.

    Returns what Rayspan had there meanwhile.
    """
    manager = stage.manager
    faults.cut(lab, lab.cluster("east"), way="link")
    stage.ray_cluster("late", workers=1)
    _submit(stage, "job-late")
    wait(
        lambda: stage.where("late") == f"1 {OURS['west']}",
        30,
        "a gang is placed in the other cluster",
        process.tail,
    )
    wait(lambda: stage.running(5), 30, "and runs there", process.tail)
    late = _named(stage, "west", names.MANAGER_LABEL)
    stage.manager.delete("raycluster", "late", stage.name, wait=False)
    west = stage.fleet.workers["west"]
    wait(
        lambda: len(west.items("pods", stage.name, names.MANAGER_LABEL)) == 1,
        30,
        "and is gone from there",
        process.tail,
    )
    assert _finished(stage) == 3, "MultiKueue's Job has waited for the silent cluster meanwhile"
    faults.heal(lab)
    wait(lambda: _finished(stage) == 4, 90, "it goes on", lambda: str(manager.items("jobs", stage.name)))
    return late


@alone
@pytest.mark.long
def test_the_manuals_commands_give_the_rights_that_it_speaks_of(fleet: Clusters) -> None:
    """The commands run unchanged, in an account's place that had no right before; then the controller may read the
    Secrets."""
    east, manager, who = fleet.workers["east"], fleet.manager, f"system:serviceaccount:{MANUALS_ACCOUNT}"
    reading = ("system:serviceaccount:rayspan-system:rayspan-controller", "list", "secrets/east", "-n kueue-system")
    with ExitStack() as stack:
        for undo in (
            partial(east.delete, "clusterrolebinding", BINDINGS[0]),
            partial(east.delete, "rolebinding", BINDINGS[1], "default"),
            partial(east.delete, "rolebinding", BINDINGS[2], names.SYSTEM_NAMESPACE),
            partial(manager.kubectl, "delete", "-k", REPO / "kustomize/components/multikueue", "--ignore-not-found"),
        ):
            undo()  # what an interrupted run has left
            stack.callback(undo)
        manager.wait(lambda: not may(manager, *reading), 20, "the controller may not read the Secrets yet")
        east.wait(lambda: len(wrong(east, who, MANUALS_RIGHTS)) == 6, 20, "it may do nothing of what it is to be given")
        for where, words in _commands():
            {"east": east, "manager": manager}[where].kubectl(*words)
        east.wait(
            lambda: not wrong(east, who, MANUALS_RIGHTS), 20, "it may", lambda: str(wrong(east, who, MANUALS_RIGHTS))
        )
        manager.wait(lambda: may(manager, *reading), 20, "the controller may read the Secrets")


@pytest.mark.long
def test_the_manuals_objects_are_accepted(fleet: Clusters) -> None:
    """By the API server, strictly, under other names; the two are the kinds that the manual is about."""
    (block,) = _fenced("yaml")
    bodies = [{**body, "metadata": {"name": "it-manual"}} for body in yaml.safe_load_all(block)]
    how = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    said = fleet.manager.kubectl(*how, input=yaml.safe_dump_all(bodies)).splitlines()
    assert said == [
        f"{kind}.{names.DOMAIN}/it-manual created (server dry run)" for kind in ("workercluster", "dispatchpolicy")
    ]


# --- what the tests make ----------------------------------------------------------------------------------------------


def _put(stage: Stage, body: Raw) -> None:
    stage.manager.apply(yaml.safe_dump(body))
    plural = f"{body['kind'].lower()}.{body['apiVersion'].partition('/')[0]}"
    made = (stage.manager, plural, body["metadata"]["name"])
    if made not in stage.made:
        stage.made.append(made)


def _source(**more: str) -> Raw:
    return {"spec": {"clusterSource": {"kubeConfig": {"location": "/etc/multikueue/kubeconfigs/east", **more}}}}


def _worker_clusters(stage: Stage, *clusters: str) -> None:
    for name in clusters:
        metadata = {"name": OURS[name], "annotations": meant(stage.fleet.workers[name])}
        body = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND, "metadata": metadata}
        _put(stage, {**body, "spec": {"source": {"multiKueueClusterRef": {"name": OURS[name]}}}})


def _apply_policy(stage: Stage) -> None:
    """The stage's policy takes its clusters from the MultiKueueConfig instead."""
    body = {"apiVersion": names.API_VERSION, "kind": names.DISPATCH_POLICY_KIND, "metadata": {"name": stage.name}}
    spec = {"clusters": {"multiKueueConfigRef": {"name": CONFIG}}, "reservationTimeout": "30s"}
    stage.manager.apply(yaml.safe_dump({**body, "spec": spec}))


def _patch_rules(stage: Stage, rules: list[Raw]) -> None:
    patch = json.dumps({"rules": rules})
    stage.manager.kubectl("patch", "clusterrole", "rayspan-controller", "--type=merge", "-p", patch)


def _bind(stage: Stage, name: str) -> None:
    """What docs/multikueue.md tells an admin to give MultiKueue's account, for this account and this namespace."""
    worker, ours = stage.fleet.workers[name], f"{names.KUEUE_NAMESPACE}:{multikueue.ACCOUNT}"
    given = [words for where, words in _commands() if where == "east" and "create" in words]
    assert [words[words.index("create") + 2] for words in given] == [*BINDINGS]
    stage.made.append((worker, "clusterrolebinding", BINDINGS[0]))
    worker.delete("rolebinding", BINDINGS[2], names.SYSTEM_NAMESPACE)  # of an earlier test; it goes with no stage
    for words in given:
        worker.kubectl(*(stage.name if word == "default" else word.replace(MANUALS_ACCOUNT, ours) for word in words))


def _jobs_queue(stage: Stage) -> None:
    """A queue for ordinary Jobs: with MultiKueue's check in the manager, and to the same ClusterQueue in the
    workers."""
    check, queue = f"{stage.name}-mk", f"{stage.name}-jobs"
    parameters = {"apiGroup": names.KUEUE_DOMAIN, "kind": "MultiKueueConfig", "name": CONFIG}
    spec: Raw = {"controllerName": multikueue.CHECK_CONTROLLER, "parameters": parameters}
    start = {"apiVersion": names.KUEUE_API_VERSION}
    _put(stage, {**start, "kind": "AdmissionCheck", "metadata": {"name": check}, "spec": spec})
    quota = {"name": stage.name, "resources": [{"name": "cpu", "nominalQuota": "10"}]}
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": check}]},
    }
    _put(stage, {**start, "kind": "ClusterQueue", "metadata": {"name": queue}, "spec": spec})
    for cluster in stage.fleet.all:
        target = queue if cluster is stage.manager else stage.name
        metadata = {"name": JOBS, "namespace": stage.name}
        body = {**start, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": target}}
        cluster.apply(yaml.safe_dump(body))
    wait(lambda: multikueue.active(stage.manager, "clusterqueues", queue), 60, "the queue for Jobs is active")


def _submit(stage: Stage, name: str) -> None:
    container = {"name": "c", "image": "rayproject/ray:2.60.0", "resources": {"requests": {"cpu": "100m"}}}
    pod = {"restartPolicy": "Never", "nodeSelector": FAKE_NODE, "tolerations": [TOLERATION], "containers": [container]}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": stage.name, "labels": {names.QUEUE_LABEL: JOBS}},
        "spec": {"template": {"spec": pod}},
    }
    stage.manager.apply(yaml.safe_dump(body))


def _fenced(language: str) -> list[str]:
    """The manual's fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", MANUAL, re.MULTILINE | re.DOTALL)


def _commands() -> list[tuple[str, list[str]]]:
    """The manual's commands: the context of each, and kubectl's arguments, with file paths that work from any
    folder."""
    lines = "".join(_fenced("sh")).replace("\\\n", "").splitlines()
    found = [shlex.split(line) for line in lines]
    assert all(words[:2] == ["kubectl", "--context"] for words in found), found
    return [
        (where, [str(REPO / word) if word.startswith("kustomize/") else word for word in words])
        for _, _, where, *words in found
    ]


# --- what they look at ------------------------------------------------------------------------------------------------


def _connected(stage: Stage, name: str = OURS["east"]) -> Raw:
    return condition(stage.manager.get("workerclusters", name), names.CONNECTED)


def _all_active(stage: Stage) -> bool:
    return all(multikueue.active(stage.manager, "multikueueclusters", ours) for ours in OURS.values())


def _expect(stage: Stage, text: str, running: Controller) -> None:
    def conditioned() -> bool:
        found = _connected(stage)
        return found.get("status") in ("False", "Unknown") and text in str(found.get("message"))

    wait(conditioned, 45, f"the WorkerCluster says: {text}", lambda: f"{_connected(stage)}\n{running.tail()}")
    events = partial(told, stage.manager, "workerclusters", OURS["east"])
    wait(lambda: any(text in said for said in events().values()), 10, "an event says so, too", lambda: str(events()))


def _active(stage: Stage) -> Raw:
    return condition(stage.manager.get("admissionchecks", stage.name), names.ACTIVE)


def _finished(stage: Stage) -> int:
    jobs = stage.manager.items("jobs", stage.name)
    return sum(condition(job, "Complete").get("status") == "True" for job in jobs)


def _named(stage: Stage, cluster: str, label: str) -> set[str]:
    worker = stage.fleet.workers[cluster]
    kinds = ("pods", "workloads", "configmaps")
    return {found["metadata"]["name"] for kind in kinds for found in worker.items(kind, stage.name, label)}


def _split(writes: list[Write]) -> tuple[list[Write], list[Write]]:
    """By program: both log in as the same account."""
    ours = [write for write in writes if write.agent.startswith("rayspan/")]
    return ours, [write for write in writes if write not in ours]


def _left(stage: Stage) -> list[str]:
    return [
        f"{name} {kind} {found['metadata']['name']}"
        for name, worker in stage.fleet.workers.items()
        for kind in ("workloads", "jobs")
        for found in worker.items(kind, stage.name, multikueue.ORIGIN_LABEL)
    ]
