"""Secrets and ConfigMaps of a worker are copied to its worker cluster, follow their sources, and are deleted with
the job."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from adapter import names
from adapter.objects.references import Reference, find_in_spec
from adapter.rewrite.copied_objects import MAX_BYTES
from hack.testbed.clusters import Cluster, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, ray_cluster

MARKER = "a-value-that-nobody-may-show"  # in every Secret here
KEEPS_UP = 60  # seconds for a change to reach a copy: an interval of 30, and a busy machine
SPEC: dict[str, Any] = {
    "volumes": [
        {"name": "files", "secret": {"secretName": "files"}},
        {"name": "code", "configMap": {"name": "code"}},
        {"name": "both", "projected": {"sources": [{"secret": {"name": "part"}}, {"configMap": {"name": "code"}}]}},
        {"name": "spare", "secret": {"secretName": "never-made", "optional": True}},
    ],
    "imagePullSecrets": [{"name": "registry"}],
}
ENV = {
    "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "value"}}}],
    "envFrom": [{"secretRef": {"name": "settings"}}, {"configMapRef": {"name": "code"}}],
}
COPIED = sorted(["Secret files", "ConfigMap code", "Secret part", "Secret registry", "Secret token", "Secret settings"])


def test_copies_stand_beside_the_workers_follow_their_sources_and_go_with_the_job(
    stage: Stage, running: Controller
) -> None:
    """Every kind of reference, in two clusters: no name of the manager is left, and each share has one copy of each
    source."""
    stage.build({"east": 2, "west": 1})
    _sources(stage)
    _submit(stage, 3)
    wait(lambda: stage.running(3), 90, "three workers run", running.tail)
    for name, cluster in stage.fleet.workers.items():
        _stand(cluster, stage.name, name)

    _secret(stage, "token", "newer")
    wait(lambda: _values(stage) == {"newer"}, KEEPS_UP, "the copies are newer", running.tail)
    stage.manager.delete("secret", "files", stage.name)
    east = stage.fleet.workers["east"]
    east.delete("secret", _copies(east, stage.name)["Secret token"]["metadata"]["name"], stage.name)
    _secret(stage, "token", "newest")
    wait(lambda: _values(stage) == {"newest"}, KEEPS_UP, "the copies are newest", running.tail)
    wait(
        lambda: "Secret token" in _copies(east, stage.name), KEEPS_UP, "the one that was deleted is back", running.tail
    )
    copied = {origin for cluster in stage.fleet.workers.values() for origin in _copies(cluster, stage.name)}
    assert "Secret files" in copied, "what a running worker has mounted stays"

    stage.manager.delete("raycluster", "pi", stage.name, wait=False)
    wait(lambda: not stage.leftovers(), 60, "nothing is left", lambda: f"{stage.leftovers()}\n{running.tail()}")
    _nobody_tells(stage, running)


def test_a_missing_secret_is_waited_for_with_its_name(stage: Stage, running: Controller) -> None:
    """The job says which, holds nothing in any worker cluster, and starts once the Secret is there."""
    stage.build({"east": 1})
    _submit(stage, 1, {}, {"env": ENV["env"]})
    said = (
        "RayCluster pi: worker group workers: spec.containers[ray-worker].env[TOKEN].secretKeyRef is Secret token, "
        f"which does not exist in namespace {stage.name}; create it, and the job continues."
    )
    wait(
        lambda: stage.events("pi").get("FailedDispatch") == said, 60, "the job says so", lambda: str(stage.events("pi"))
    )
    wait(lambda: stage.check("pi").get("message") == said, 30, "its check says so", running.tail)
    assert stage.check("pi")["state"] == names.CHECK_PENDING and not stage.leftovers()
    _secret(stage, "token")
    wait(lambda: stage.running(1), 60, "the worker runs", running.tail)


@pytest.mark.long
def test_who_lacks_a_secret_gives_way(stage: Stage, running: Controller) -> None:
    """The manager's quota is not held for ever by a job that nobody completes."""
    stage.build({"east": 1}, manager_cpu=2)
    _submit(stage, 1, {}, {"env": ENV["env"]})
    wait(lambda: "FailedDispatch" in stage.events("pi"), 60, "it waits for its Secret", running.tail)
    stage.ray_cluster("whole", workers=1)
    wait(lambda: stage.running(1), 60, "the one behind it runs", running.tail)


@pytest.mark.long
@pytest.mark.alone
def test_a_secret_that_goes_before_its_worker_is_made(stage: Stage, running: Controller) -> None:
    """A worker that is replaced after a restart, while a source is gone: told once, made when the source is back."""
    stage.build({"east": 1})
    _secret(stage, "token")
    _submit(stage, 1, {}, {"env": ENV["env"]})
    wait(lambda: stage.running(1), 90, "the worker runs", running.tail)
    running.stop()
    stage.manager.delete("secret", "token", stage.name)
    stage.manager.delete("pod", stage.workers()[0]["metadata"]["name"], stage.name, wait=False)
    running.start()
    said = (
        "A worker for east is not created: spec.containers[ray-worker].env[TOKEN].secretKeyRef is Secret token, which "
        f"does not exist in namespace {stage.name}; create it, and the job continues."
    )
    wait(
        lambda: stage.events("pi").get("WorkerFailing") == said, 60, "the job says so", lambda: str(stage.events("pi"))
    )
    _secret(stage, "token", "other")
    wait(lambda: stage.running(1), 60, "a worker runs again", running.tail)
    assert _values(stage) == {"other"}


@pytest.mark.long
def test_too_much_is_refused(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1})
    each, some = 900 * 1024, [f"big-{number}" for number in range(MAX_BYTES // (900 * 1024) + 1)]
    for name in some:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "x" * each}}
        stage.manager.kubectl("-n", stage.name, "create", "-f", "-", input=json.dumps(body))
    _submit(stage, 1, {}, {"envFrom": [{"configMapRef": {"name": name}} for name in some]})
    wait(lambda: "Rejected" in stage.events("pi"), 60, "the job says so", running.tail)
    assert stage.told("pi", "Rejected") == (
        "RayCluster pi: the Secrets and ConfigMaps of its worker groups hold 4.4 MiB, and at most 4.0 MiB are copied "
        "to worker clusters; put large files, such as ConfigMap big-0 with 0.9 MiB, into the image or object storage. "
        "Then delete the job, and submit it again."
    )
    assert not stage.leftovers()


@pytest.fixture
def unbound(stage: Stage) -> Iterator[Stage]:
    """The manager without the binding that lets the controller read every namespace's Secrets."""
    manager = stage.manager
    binding = manager.get("clusterrolebindings", names.COPIED_OBJECTS_ROLE)
    manager.kubectl("delete", "clusterrolebinding", names.COPIED_OBJECTS_ROLE)
    yield stage
    manager.apply(yaml.safe_dump({**binding, "metadata": {"name": names.COPIED_OBJECTS_ROLE}}))


@pytest.mark.long
def test_without_the_right_it_waits_and_says_what_to_bind(unbound: Stage, running: Controller) -> None:
    """With a binding for its namespace alone, the same job goes on."""
    stage = unbound
    stage.build({"east": 1})
    _secret(stage, "token")
    _submit(stage, 1, {}, {"env": ENV["env"]})
    wait(lambda: "FailedDispatch" in stage.events("pi"), 60, "the job says so", running.tail)
    assert stage.told("pi", "FailedDispatch") == (
        "RayCluster pi: worker group workers: spec.containers[ray-worker].env[TOKEN].secretKeyRef is Secret token, "
        f"which the controller may not read in namespace {stage.name}; bind ClusterRole rayspan-copies to "
        "ServiceAccount rayspan-controller of namespace rayspan-system there, and the job continues."
    )
    assert stage.check("pi")["state"] == names.CHECK_PENDING and not stage.leftovers()
    account = f"--serviceaccount={names.SYSTEM_NAMESPACE}:{names.CONTROLLER_ACCOUNT}"
    command = (
        "create",
        "rolebinding",
        names.COPIED_OBJECTS_ROLE,
        f"--clusterrole={names.COPIED_OBJECTS_ROLE}",
        account,
    )
    stage.manager.kubectl("-n", stage.name, *command)
    wait(lambda: stage.running(1), 60, "the worker runs", running.tail)


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 2, 4])
def test_killed_between_the_writes(stage: Stage, process: Controller, count: int) -> None:
    """The next process finds the copies under their names, and writes what is missing."""
    process.start(die_after=("Copy", count, stage.name))
    stage.build({"east": 1, "west": 1})
    _sources(stage)
    _submit(stage, 2)
    process.wait_for_death()
    _secret(stage, "token", "newer")
    process.start()
    wait(lambda: stage.running(2), 90, "two workers run", process.tail)
    for name, cluster in stage.fleet.workers.items():
        _stand(cluster, stage.name, name)
    assert _values(stage) == {"newer"}
    stage.manager.delete("raycluster", "pi", stage.name, wait=False)
    wait(lambda: not stage.leftovers(), 60, "nothing is left", lambda: f"{stage.leftovers()}\n{process.tail()}")


def _stand(cluster: Cluster, namespace: str, name: str) -> None:
    """In one worker cluster: the copies exist, its anchor owns them, and its pods refer to nothing else."""
    found = _copies(cluster, namespace)
    assert sorted(found) == COPIED, name
    (anchor,) = [one for one in cluster.items("configmaps", namespace, names.MANAGER_LABEL) if _is_anchor(one)]
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": anchor["metadata"]["name"],
        "uid": anchor["metadata"]["uid"],
    }
    for origin, made in found.items():
        assert made["metadata"]["ownerReferences"] == [owner], origin
        assert names.CLUSTER_LABEL in made["metadata"]["labels"], origin
    assert found["Secret registry"]["type"] == "kubernetes.io/dockerconfigjson"
    assert found["ConfigMap code"]["data"] == {"main": "print()"}
    copied = {Reference(made["kind"], made["metadata"]["name"]) for made in found.values()}
    for pod in cluster.items("pods", namespace, names.MANAGER_LABEL):
        spec = {**pod["spec"], "volumes": [one for one in pod["spec"]["volumes"] if "kube-api" not in one["name"]]}
        refers = {one for one, field in find_in_spec(spec).items() if field}
        assert refers == copied


def _is_anchor(config_map: Raw) -> bool:
    return "ownerReferences" not in config_map["metadata"]


def _copies(cluster: Cluster, namespace: str) -> dict[str, Raw]:
    """What was copied: source -> copy."""
    found = [
        {"kind": kind, **one}
        for kind, plural in (("Secret", "secrets"), ("ConfigMap", "configmaps"))
        for one in cluster.items(plural, namespace, names.MANAGER_LABEL)
        if not (kind == "ConfigMap" and _is_anchor(one))
    ]
    return {one["metadata"]["annotations"][names.COPIED_FROM_ANNOTATION]: one for one in found}


def _values(stage: Stage) -> set[str]:
    """What the copies of the Secret `token` hold."""
    made = (_copies(cluster, stage.name).get("Secret token") for cluster in stage.fleet.workers.values())
    texts = [base64.b64decode(one["data"]["value"]).decode() for one in made if one]
    return {text.removeprefix(f"{MARKER}-") for text in texts}


def _sources(stage: Stage) -> None:
    for name in ("files", "part", "token", "settings"):
        _secret(stage, name)
    _make(stage, {"kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"main": "print()"}})
    auths = {".dockerconfigjson": json.dumps({"auths": {"registry": {"auth": MARKER}}})}
    _make(
        stage,
        {
            "kind": "Secret",
            "metadata": {"name": "registry"},
            "stringData": auths,
            "type": "kubernetes.io/dockerconfigjson",
        },
    )


def _secret(stage: Stage, name: str, value: str = "old") -> None:
    _make(stage, {"kind": "Secret", "metadata": {"name": name}, "stringData": {"value": f"{MARKER}-{value}"}})


def _make(stage: Stage, body: Raw) -> None:
    text = json.dumps({"apiVersion": "v1", **body})
    stage.manager.kubectl("-n", stage.name, "apply", "--server-side", "-f", "-", input=text)


def _submit(stage: Stage, workers: int, spec: Raw = SPEC, container: Raw = ENV) -> None:
    """Submit a RayCluster whose worker template has more in its spec and in its container."""
    body = ray_cluster("pi", stage.name, {"workers": workers})
    template = body["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    template |= spec
    template["containers"][0] |= container
    head = body["spec"]["headGroupSpec"]["template"]["spec"]
    head["nodeSelector"] = {"type": "kwok"}
    stage.manager.apply(yaml.safe_dump(body))


def _nobody_tells(stage: Stage, running: Controller) -> None:
    """No value is in the log, nor in what people read; encoded, the marker would be `YS12YWx1ZS10aGF0`…"""
    manager, encoded = stage.manager, base64.b64encode(MARKER.encode()).decode()[:24]
    kinds = ("events", "placements", "workloads", "pods", "rayclusters")
    shown = [running.log.read_text(), *(str(manager.items(kind, stage.name)) for kind in kinds)]
    shown += [
        str(c.items(kind, stage.name)) for c in stage.fleet.workers.values() for kind in ("pods", "workloads", "events")
    ]
    assert not [text for text in shown if MARKER in text or encoded in text]
