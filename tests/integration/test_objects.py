"""What do people see of our own kinds: refusals that say what to do, columns that answer, and `kubectl explain`?"""

import subprocess
from pathlib import Path

import pytest
import yaml

from adapter import names
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.testbed.clusters import Clusters, program
from hack.testbed.reader import Raw

KUSTOMIZATIONS = sorted(
    path.parent for root in (REPO / "manifests", REPO / "kustomize") for path in root.rglob("kustomization.yaml")
)
SOURCE = {"kubeConfig": {"secretRef": {"name": "x"}}}

REFUSED = [
    ("a zone that is no label value", "WorkerCluster", {"source": SOURCE, "zone": "us east"},
     '"us east" cannot be a label value'),
    ("no way to reach it", "WorkerCluster", {"zone": "x"}, "spec.source: Required value"),
    (
        "a label that has a field of its own",
        "WorkerCluster",
        {"source": SOURCE, "labels": {"ray.io/availability-zone": "x"}},
        "use spec.zone",
    ),
    ("half a resource", "WorkerCluster", {"source": SOURCE, "resources": {"disk": 0.5}}, "spec.resources.disk"),
    ("an unknown strategy for the head", "WorkerCluster", {"source": SOURCE, "head": {"address": "Magic"}}, "PodIP"),
    ("a static name without its template", "WorkerCluster", {"source": SOURCE, "head": {"address": "Static"}},
     "address Static needs a template"),
    ("a template that nobody reads", "WorkerCluster", {"source": SOURCE, "head": {"template": "{service}.x"}},
     "address is PodIP: remove the template"),
    ("a port that is none", "WorkerCluster", {"source": SOURCE,
        "head": {"address": "Static", "template": "{service}:65536"}}, "has a port above 65535"),
    ("an unknown placeholder", "WorkerCluster",
     {"source": SOURCE, "head": {"address": "Static", "template": "{service}.{zone}"}}, "is not a host name"),
    ("one name for every head", "WorkerCluster",
     {"source": SOURCE, "head": {"address": "Static", "template": "ray.example.com"}},
     "neither {service} nor {cluster}"),
    ("a drain that moves nothing", "WorkerCluster", {"source": SOURCE, "maxUnavailable": 0},
     "greater than or equal to 1"),
    ("a label of Ray for pods", "WorkerCluster", {"source": SOURCE, "pods": {"labels": {"ray.io/cluster": "x"}}},
     '"ray.io/cluster" is reserved for Ray'),
    ("a label that is none", "WorkerCluster", {"source": SOURCE, "pods": {"labels": {"a b": "x"}}},
     '"a b" cannot be a label'),
    ("an annotation of Kueue", "WorkerCluster",
     {"source": SOURCE, "pods": {"annotations": {"x.kueue.x-k8s.io/a": "x"}}}, "is reserved for Ray, Kueue or Rayspan"),
    ("a node label of ours", "WorkerCluster", {"source": SOURCE, "pods": {"nodeSelector": {"rayspan.dev/pool": "x"}}},
     "use a node label of your own"),
    ("a toleration without a key", "WorkerCluster", {"source": SOURCE, "pods": {"tolerations": [{"value": "x"}]}},
     "set that operator, or a key"),
    ("a toleration that looks twice", "WorkerCluster",
     {"source": SOURCE, "pods": {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]}},
     "remove the value"),
    ("a toleration that never ends", "WorkerCluster",
     {"source": SOURCE, "pods": {"tolerations": [{"key": "a", "tolerationSeconds": 5}]}}, "NoExecute only"),
    ("an account that is no name", "WorkerCluster", {"source": SOURCE, "pods": {"serviceAccountName": "Ray"}},
     '"Ray" is not the name of a service account'),
    ("an account for pods that name none", "WorkerCluster",
     {"source": SOURCE, "pods": {"serviceAccounts": [{"name": "default"}]}}, "set spec.pods.serviceAccountName"),
    ("a named account that is no name", "WorkerCluster",
     {"source": SOURCE, "pods": {"serviceAccounts": [{"name": "a", "as": "*"}]}},
     '"*" is not the name of a service account'),
    ("a claim of no namespace", "WorkerCluster",
     {"source": SOURCE, "pods": {"persistentVolumeClaims": [{"name": "*", "namespaces": ["*"]}]}},
     '"*" is not the name of a namespace'),
    ("the root of the nodes", "WorkerCluster", {"source": SOURCE, "pods": {"hostPaths": [{"prefix": "/"}]}},
     '"/" cannot be named'),
    ("a host path that goes upwards", "WorkerCluster",
     {"source": SOURCE, "pods": {"hostPaths": [{"prefix": "/a/../etc"}]}}, '"/a/../etc" cannot be named'),
    ("a host path with a slash at its end", "WorkerCluster",
     {"source": SOURCE, "pods": {"hostPaths": [{"prefix": "/a/"}]}}, '"/a/" cannot be named'),
    ("a path beneath a writable one", "WorkerCluster",
     {"source": SOURCE, "pods": {"hostPaths": [{"prefix": "/a", "readOnly": False}, {"prefix": "/a/b"}]}},
     "No path beneath a writable one can be named"),
    ("a resource that is no extended one", "WorkerCluster",
     {"source": SOURCE, "pods": {"extendedResources": {"cpu": "amd.com/gpu"}}},
     'the key "cpu" is not the name of an extended resource'),
    ("a resource of Kubernetes", "WorkerCluster",
     {"source": SOURCE, "pods": {"extendedResources": {"nvidia.com/gpu": "kubernetes.io/batteries"}}},
     'the value of "nvidia.com/gpu" is not the name of an extended resource'),
    ("a resource that is renamed twice", "WorkerCluster",
     {"source": SOURCE, "pods": {"extendedResources": {"nvidia.com/gpu": "amd.com/gpu", "amd.com/gpu": "a.b/c"}}},
     "A value is one of the keys"),
    ("any priority class", "WorkerCluster", {"source": SOURCE, "pods": {"priorityClasses": [{"name": "*"}]}},
     '"*" is not the name of a PriorityClass'),
    ("a RuntimeClass that is no name", "WorkerCluster",
     {"source": SOURCE, "pods": {"runtimeClasses": [{"name": "Kata"}]}}, '"Kata" is not the name of a RuntimeClass'),
    ("a variable of Ray", "WorkerCluster", {"source": SOURCE, "pods": {"env": {"RAY_ADDRESS": "x"}}},
     '"RAY_ADDRESS" is set by Ray, KubeRay or Rayspan'),
    ("a variable that is none", "WorkerCluster", {"source": SOURCE, "pods": {"env": {"a-b": "x"}}},
     '"a-b" cannot be a variable'),
    ("a registry that is none", "WorkerCluster", {"source": SOURCE, "pods": {"imageRegistries": {"rayproject": "a.b"}}},
     '"rayproject" does not begin with a registry'),
    ("a registry with a slash", "WorkerCluster", {"source": SOURCE, "pods": {"imageRegistries": {"a.b": "c.d/"}}},
     'the value of "a.b" does not begin'),
    ("a registry that goes on", "WorkerCluster",
     {"source": SOURCE, "pods": {"imageRegistries": {"a.b": "c.d/x", "c.d": "e.f"}}}, "would be replaced again"),
    ("a policy without clusters", "DispatchPolicy", {}, "spec.clusters: Required value"),
    ("a cluster named twice", "DispatchPolicy", {"clusters": {"names": ["east", "east"]}},
     '"east" is listed more than once'),
    ("two ways to choose clusters", "DispatchPolicy",
     {"clusters": {"names": ["x"], "multiKueueConfigRef": {"name": "all"}}}, "Set exactly one"),
    ("no way to choose clusters", "DispatchPolicy", {"clusters": {}}, "Set exactly one"),
    ("an empty selector", "DispatchPolicy", {"clusters": {"selector": {}}}, "The selector is empty"),
    ("a part of unknown size", "DispatchPolicy", {"clusters": {"names": ["x"]}, "gang": "BestEffort"},
     "minWorkers and gang BestEffort belong together"),
    ("together and apart", "DispatchPolicy", {"clusters": {"names": ["x"]}, "gang": "SameCluster",
        "strategy": "Spread"}, "contradict each other"),
    ("two ways to reach it", "WorkerCluster", {"source": {**SOURCE, "multiKueueClusterRef": {"name": "x"}}},
     "Name exactly one"),
    ("a Secret and a profile", "WorkerCluster", {"source": {**SOURCE, "clusterProfileRef": {"name": "x"}}},
     "Name exactly one"),
    ("a profile without a name", "WorkerCluster", {"source": {"clusterProfileRef": {}}},
     "clusterProfileRef.name: Required value"),
    ("a price in words", "WorkerCluster", {"source": SOURCE, "pricePerHour": {"cpu": "cheap"}},
     "is not a decimal number"),
    ("a deadline that is none", "DispatchPolicy", {"clusters": {"names": ["x"]}, "reservationTimeout": "soon"},
     '"soon" is not a time'),
    ("a deadline for next week", "DispatchPolicy", {"clusters": {"names": ["x"]}, "reservationTimeout": "200h"},
     "from 5s to 1h"),
    ("a start in no time", "DispatchPolicy", {"clusters": {"names": ["x"]}, "workerStartTimeout": "5s"},
     "from 10s to 24h"),
    ("a minimum in no time", "DispatchPolicy", {"clusters": {"names": ["x"]}, "minWorkersTimeout": "5s"},
     "from 10s to 24h"),
    ("a strategy that does not exist", "DispatchPolicy", {"clusters": {"names": ["x"]}, "strategy": "Best"},
     "FillInOrder"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "spec", "sentence"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused_with_a_sentence(fleet: Clusters, kind: str, spec: Raw, sentence: str) -> None:
    with pytest.raises(LabError) as refusal:
        _dry_run(fleet, kind, spec)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("WorkerCluster", {"source": SOURCE}), ("DispatchPolicy", {"clusters": {"names": ["x"]}})],
    ids=["WorkerCluster", "DispatchPolicy"],
)
def test_the_smallest_object_is_enough(fleet: Clusters, kind: str, spec: Raw) -> None:
    assert "created" in _dry_run(fleet, kind, spec)


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("workerclusters", "NAME ZONE READY CONNECTED REACHABLE WORKERS CORDONED DRAINING AGE REASON MESSAGE"),
        ("wc", "NAME ZONE READY CONNECTED REACHABLE WORKERS CORDONED DRAINING AGE REASON MESSAGE"),
        ("dispatchpolicies", "NAME READY CLUSTERS STRATEGY GANG AGE TIMEOUT REASON MESSAGE"),
    ],
)
def test_columns(fleet: Clusters, kind: str, columns: str) -> None:
    header = fleet.manager.kubectl("get", kind, "-o", "wide").splitlines()[0]
    assert header.split()[: len(columns.split())] == columns.split()


@pytest.mark.long
@pytest.mark.parametrize(
    "field", ["workercluster.spec.zone", "dispatchpolicy.spec.reservationTimeout", "rpl.status.state"]
)
def test_every_field_is_explained(fleet: Clusters, field: str) -> None:
    said = fleet.manager.kubectl("explain", field)
    assert "DESCRIPTION:" in said and "<empty>" not in said


@pytest.mark.long
@pytest.mark.parametrize("directory", KUSTOMIZATIONS, ids=lambda path: str(path.relative_to(REPO)))
def test_a_kustomization_renders_without_a_warning(directory: Path) -> None:
    done = subprocess.run([program(), "kustomize", directory], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    objects = [document for document in yaml.safe_load_all(done.stdout) if document]
    identities = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
    assert len(identities) == len(set(identities))
    assert identities or not yaml.safe_load((directory / "kustomization.yaml").read_text()).get("resources")
    # One apply cannot define a kind and make objects of it: kubectl looks up every kind first.
    defined = {o["spec"]["names"]["kind"] for o in objects if o["kind"] == "CustomResourceDefinition"}
    assert not defined & {o["kind"] for o in objects}


def _dry_run(fleet: Clusters, kind: str, spec: Raw) -> str:
    body = {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": "it-trial"}, "spec": spec}
    return fleet.manager.kubectl("apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump(body))
