"""Properties of every rewritten pod: no exception, the same bytes, nothing lost without a listed change, nothing
gained.

RAYSPAN_EXAMPLES=100000 runs that many examples of each property, and does not search for the smallest failing one.
"""

import copy
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from adapter import names
from adapter.admission import pod_validation
from adapter.cli.pod_diff import diff_pods
from adapter.objects import pod_requests
from adapter.objects.named_objects import NamedObject, NamedPath
from adapter.objects.specs import PodMapping
from adapter.objects.unstructured import RawDict as Raw
from adapter.rewrite import gcs_waiter, group_workload, rewriter
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target
from tests.unit.rewrite.test_rewriter import GOLDEN, HEAD, HEAD6, RECORDED, TARGET, kuberay_pod

EXAMPLES = int(os.environ.get("RAYSPAN_EXAMPLES", "0"))
many = (
    settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        database=None,
        derandomize=False,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    if EXAMPLES
    else settings()
)

MAPPING = PodMapping(
    node_selector={"pool": "ray"},
    tolerations=({"key": "ray", "operator": "Exists"},),
    service_account="there",
    scheduler="mine",
    runtime_class="gvisor",
    image_registries={"docker.io": "hub.east"},
    labels={"team": "fleet"},
    annotations={"karpenter.sh/do-not-disrupt": "true"},
    env={"A": "there", "C": "there"},
    service_accounts=(NamedObject(name="a"),),
    claims=(NamedObject(name="*", read_only=True),),
    host_paths=(NamedPath(prefix="/data"),),
    extended_resources={"nvidia.com/gpu": "amd.com/gpu"},
    runtime_classes=(NamedObject(name="a", renamed="b"),),
    schedulers=(NamedObject(name="worker", renamed="volcano"),),
    priority_classes=(NamedObject(name="a", renamed="b"),),
)
TARGETS = st.sampled_from([TARGET, replace(TARGET, pods=MAPPING)])
HEADS = st.sampled_from([HEAD, HEAD6])
PODS = [yaml.safe_load((GOLDEN / f"{name}.in.yaml").read_text()) for name in RECORDED]


def rewrite(pod: Raw, target: Target = TARGET, head: str = HEAD) -> Raw:
    return rewriter.remote_pod(
        pod,
        head=HeadAddress.from_pod(pod, head),
        target=target,
        role="r",
        slot="east/2/r/0",
        anchor_uid="a-uid",
    )


# --- pods -------------------------------------------------------------------------------------------------------------

KEY = st.sampled_from(
    ["ray.io/group", "ray.io/x", "rayspan.dev/pool", "kueue.x-k8s.io/y", "volcano.sh/q", "app", "gpu"]
)
VALUE = st.sampled_from(["", "a", "worker"])
LABELS = st.dictionaries(KEY, VALUE, max_size=4)
EXPRESSION = st.builds(lambda key, value: {"key": key, "operator": "In", "values": [value]}, KEY, VALUE)
EXPRESSIONS = st.lists(EXPRESSION, max_size=3)
SELECTOR = st.builds(lambda labels, more: {"matchLabels": labels, "matchExpressions": more}, LABELS, EXPRESSIONS)
TERM = st.builds(
    lambda selector, keys, other: {"labelSelector": selector, "matchLabelKeys": keys, "mismatchLabelKeys": other},
    SELECTOR | st.none(), st.lists(KEY, max_size=2), st.lists(KEY, max_size=2),
)  # fmt: skip
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
NODES = st.builds(
    lambda terms, wishes: {
        REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]},
        PREFERRED: [{"weight": 1, "preference": {"matchExpressions": wish}} for wish in wishes],
    },
    st.lists(EXPRESSIONS, max_size=2), st.lists(EXPRESSIONS, max_size=2),
)  # fmt: skip
OTHERS = st.builds(
    lambda terms, wishes: {REQUIRED: terms, PREFERRED: [{"weight": 1, "podAffinityTerm": wish} for wish in wishes]},
    st.lists(TERM, max_size=2), st.lists(TERM, max_size=2),
)  # fmt: skip
AFFINITY = st.fixed_dictionaries({}, optional={"nodeAffinity": NODES, "podAffinity": OTHERS, "podAntiAffinity": OTHERS})
TOLERATION = st.fixed_dictionaries({}, optional={"key": KEY, "operator": st.just("Exists"), "effect": VALUE})
PIECE = st.sampled_from(["{fqdn}", "{short}", "{fqdn}:6379", "http://{short}:8265", "$FQ_RAY_IP", "word", " ", "é"])
TEXT = st.lists(PIECE, max_size=4).map(
    lambda pieces: (
        " ".join(pieces)
        .replace("{fqdn}", "raycluster-head-svc.demo.svc.cluster.local")
        .replace("{short}", "raycluster-head-svc")
    )
)
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.sampled_from(["0", "1", "500m", "2Gi"]), max_size=3
)
ENV = st.builds(
    lambda name, value: {"name": name, "value": value},
    st.sampled_from(["A", "B", "RAY_NODE_ZONE", "RAY_OVERRIDE_LABELS"]),
    TEXT,
)
MOUNT = st.sampled_from(["kube-api-access-1", "data"]).map(lambda name: {"name": name, "mountPath": f"/{name}"})
CONTAINER = st.fixed_dictionaries(
    {"image": st.sampled_from(["ray", "rayproject/ray:2.60.0", "ghcr.io/x/y@sha256:a"])},
    optional={
        "args": st.lists(TEXT, max_size=2), "env": st.lists(ENV, max_size=3),
        "volumeMounts": st.lists(MOUNT, max_size=2),
        "resources": st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS}),
        "restartPolicy": st.just("Always"), "livenessProbe": TEXT.map(lambda text: {"exec": {"command": [text]}}),
    },
)  # fmt: skip
DATA: list[Raw] = [
    {"emptyDir": {}}, {"hostPath": {"path": "/data/a"}}, {"persistentVolumeClaim": {"claimName": "data"}},
]  # fmt: skip
SPEC = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": LABELS, "tolerations": st.lists(TOLERATION, max_size=3), "affinity": AFFINITY,
        "topologySpreadConstraints": st.lists(TERM, max_size=2), "schedulerName": VALUE, "serviceAccountName": VALUE,
        "volumes": st.sampled_from(DATA).map(
            lambda data: [{"name": "kube-api-access-1", "projected": {}}, {"name": "data", **data}]
        ),
        "priority": st.integers(-9, 9), "terminationGracePeriodSeconds": st.integers(0, 90),
        "runtimeClassName": VALUE, "hostPID": st.booleans(), "overhead": AMOUNTS,
    },
)  # fmt: skip


@st.composite
def pods(draw: st.DrawFn) -> Raw:
    """A worker as KubeRay makes it, with fields that users write."""
    pod = kuberay_pod(env=draw(st.lists(ENV, max_size=2)), args=[draw(TEXT)])
    for kind in ("initContainers", "containers"):
        more = draw(st.lists(CONTAINER, max_size=2))
        pod["spec"][kind] += [{"name": f"{kind}-{at}", **one} for at, one in enumerate(more)]
    pod["spec"] |= draw(SPEC)
    pod["metadata"]["labels"] |= draw(LABELS)
    pod["metadata"]["annotations"] = draw(st.dictionaries(KEY, TEXT, max_size=3))
    return pod


# --- mutations: shapes that no schema of ours describes ---------------------------------------------------------------

NEW = {"brandNew": {"deep": ["x", {"name": "raycluster-head-svc"}]}}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All parents below the fields of metadata and spec."""
    if len(path) > 1:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


@st.composite
def mutated(draw: st.DrawFn) -> Raw:
    """A recorded or a generated pod with some parts removed, emptied, doubled, reworded, or new.

    A part keeps its type, which the API server validates.
    """
    pod = copy.deepcopy(draw(st.sampled_from(PODS) | pods()))
    for _ in range(draw(st.integers(1, 4))):
        *way, last = draw(st.sampled_from(list(places(pod))))
        holder = pod
        for step in way:
            holder = holder[step]
        _mutate(draw, holder, last)
    return pod


def _mutate(draw: st.DrawFn, holder: Any, last: Any) -> None:
    value = holder[last]
    field = isinstance(holder, dict) and not isinstance(value, str | bool | int)
    match draw(st.sampled_from(["gone", "empty", "twice", "new", *(["null"] if field else [])])):
        case "gone":
            del holder[last]
        case "null":
            holder[last] = None
        case "empty" if isinstance(value, str):
            holder[last] = draw(TEXT)
        case "empty" if value is not None:
            holder[last] = type(value)()
        case "twice" if isinstance(holder, list):
            holder.insert(last, copy.deepcopy(value))
        case "new" if isinstance(value, dict) and not all(isinstance(item, str) for item in value.values()):
            value |= copy.deepcopy(NEW)


# --- properties -------------------------------------------------------------------------------------------------------


@many
@given(mutated(), TARGETS, HEADS)
def test_any_pod_is_rewritten_to_the_same_bytes_and_not_changed(pod: Raw, target: Target, head: str) -> None:
    before = json.dumps(pod)
    first = json.dumps(rewrite(pod, target, head))
    assert json.dumps(rewrite(json.loads(before), target, head)) == first
    assert json.dumps(pod) == before
    diff_pods(pod, json.loads(first))
    group_workload.reserved_template(pod, target)


@many
@given(pods(), TARGETS, HEADS)
def test_rewriting_again_changes_nothing(pod: Raw, target: Target, head: str) -> None:
    """matchLabelKeys are left out: the API server merges them again each time."""
    for term in [t for t in _dicts(pod["spec"]) if "matchLabelKeys" in t]:
        term["matchLabelKeys"] = []
    for field in ("schedulerName", "runtimeClassName"):  # the names of one cluster are foreign to the next one
        pod["spec"].pop(field, None)
    target = replace(target, pods=replace(target.pods, scheduler=""))
    once = rewrite(pod, target, head)
    again = rewrite({**pod, "spec": once["spec"]}, target, head)
    assert _without_ours(again["spec"]) == _without_ours(once["spec"])


def _without_ours(spec: Raw) -> Raw:
    """Labels of our domain mean the manager's nodes before the rewrite, and other pods after it."""
    return {key: value for key, value in spec.items() if key != "affinity"}


@many
@given(pods(), TARGETS)
def test_no_trace_of_the_managers_head_service_is_left(pod: Raw, target: Target) -> None:
    assert "raycluster-head-svc" not in json.dumps(rewrite(pod, target))


def _dicts(value: Any) -> Iterator[Raw]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _dicts(item)


@many
@given(mutated(), TARGETS)
def test_a_lost_container_variable_or_mount_is_listed(pod: Raw, target: Target) -> None:
    out = rewrite(pod, target)
    listed = [change.path for change in diff_pods(pod, out)]
    for kind in ("initContainers", "containers"):
        after = {one.get("name"): one for one in out["spec"].get(kind) or ()}
        for container in pod["spec"].get(kind) or ():
            name = container.get("name")
            lost = [
                ("env", e.get("name"))
                for e in container.get("env") or ()
                if e not in (after.get(name, {}).get("env") or ())
            ]
            lost += [
                ("volumeMounts", m.get("name"))
                for m in container.get("volumeMounts") or ()
                if m not in (after.get(name, {}).get("volumeMounts") or ())
            ]
            assert not lost or any(path.startswith(f"spec.{kind}") for path in listed), lost
            assert name in after


@many
@given(pods(), TARGETS)
def test_no_field_is_added_that_says_nothing(pod: Raw, target: Target) -> None:
    """An absent field means the same, so it would make a copy differ for nothing."""
    assert _empty_fields(rewrite(pod, target)) <= _empty_fields(pod)
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    assert _empty_fields(group_workload.reserved_template(template, target)["spec"]) <= _empty_fields(pod["spec"])
    workers = {**pod["spec"], "initContainers": []}
    waiter = {"name": names.GCS_WAITER, "resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "200m"}}}
    for admitted in (None, {**workers, "initContainers": [waiter]}):
        reserved = group_workload.reserved_template({**template, "spec": workers}, target, admitted_spec=admitted)
        assert _empty_fields(reserved["spec"]) <= _empty_fields(workers)


def _empty_fields(value: Any, path: str = "") -> set[str]:
    """The paths, without the indexes of lists, at which an object says no more than an absent field."""
    items: list[tuple[str, Any]] = []
    if isinstance(value, dict | list):
        items = [*value.items()] if isinstance(value, dict) else [("[]", item) for item in value]
    # An empty selector selects all pods; without one, a term selects none.
    says_nothing = value is None or value is False or (value in ({}, []) and not path.endswith(".labelSelector"))
    return ({path} if says_nothing else set[str]()).union(
        *(_empty_fields(item, f"{path}.{key}") for key, item in items)
    )


@many
@given(pods(), TARGETS, st.data())
def test_an_unknown_field_stays(pod: Raw, target: Target, data: st.DataObject) -> None:
    """A new field of Kubernetes works without a new Rayspan, or is rejected in the worker cluster by its name."""
    at = data.draw(st.sampled_from(["metadata", "spec", "container", "init", "probe", "volume", "context"]))
    spec = pod["spec"]
    spec["volumes"] = [{"name": "data", "emptyDir": {}}]
    spec["containers"][0] |= {"startupProbe": {"exec": {}}, "securityContext": {"runAsUser": 1}}

    def holder(of: Raw) -> Raw:
        ray = of["spec"]["containers"][0]
        found: dict[str, Raw] = {
            "metadata": of["metadata"], "spec": of["spec"], "container": ray, "init": of["spec"]["initContainers"][0],
            "probe": ray["startupProbe"], "volume": of["spec"]["volumes"][0], "context": ray["securityContext"],
        }  # fmt: skip
        return found[at]

    holder(pod)["brandNew"] = {"deep": [1, None]}
    assert holder(rewrite(pod, target))["brandNew"] == {"deep": [1, None]}


@many
@given(pods(), TARGETS)
def test_a_pod_never_requests_more_than_was_reserved(pod: Raw, target: Target) -> None:
    """The pod is KubeRay's, with its init container; the reservation is made of the template alone. Resources that
    the template does not request at all are requested by that container only (`reservation`)."""
    inits = [container for container in pod["spec"]["initContainers"] if container["name"] != "wait-gcs-ready"]
    template = {"metadata": pod["metadata"], "spec": {**pod["spec"], "initContainers": inits}}
    waiter = {"name": "wait-gcs-ready", "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}}}
    made = {**pod, "spec": {**pod["spec"], "initContainers": [*inits, waiter]}}
    asked = pod_requests.pod_requests(rewrite(made, target)["spec"])
    reserved = pod_requests.pod_requests(group_workload.reserved_template(template, target)["spec"])
    requested = {name for container in (*inits, *pod["spec"]["containers"]) for name in _asked(container)}
    named = {target.pods.extended_resources.get(name, name) for name in requested}
    assert {n: a for n, a in asked.items() if n in named and a > reserved.get(n, 0)} == {}


@many
@given(pods(), TARGETS, st.sampled_from(["100m", "300m", "2", "0"]), st.booleans())
def test_the_raised_init_container_costs_no_quota(pod: Raw, target: Target, cpu: str, limited: bool) -> None:
    """What Kueue counts of a pod is the same, and the init container requests what the worker does, or KubeRay's."""
    amounts = {"cpu": "200m", "memory": "256Mi"}
    waiter = {"name": "wait-gcs-ready", "resources": {"requests": amounts, "limits": amounts}}
    inits = [container for container in pod["spec"]["initContainers"] if container["name"] != "wait-gcs-ready"]
    ray, *others = pod["spec"]["containers"]
    ray = {**ray, "resources": {"limits" if limited else "requests": {"cpu": cpu}}}
    spec = {**pod["spec"], "initContainers": [*inits, waiter], "containers": [ray, *others]}
    changed = gcs_waiter.with_worker_requests(spec)
    assert pod_requests.pod_requests(changed) == pod_requests.pod_requests(spec)
    raised = changed["initContainers"][-1]["resources"]
    assert raised["requests"]["cpu"] == raised["limits"]["cpu"] == (cpu if cpu in ("300m", "2") else "200m")
    assert raised["requests"]["memory"] == "256Mi"
    assert gcs_waiter.with_worker_requests(changed) == changed
    remote = rewrite({**pod, "spec": spec}, target)["spec"]["initContainers"][-1]
    assert remote["resources"] == raised


def _asked(container: Raw) -> set[str]:
    resources = container.get("resources") or {}
    return {*(resources.get("requests") or {}), *(resources.get("limits") or {})}


# --- a hostile pod ----------------------------------------------------------------------------------------------------

ANCHOR = [{"apiVersion": "v1", "kind": "ConfigMap", "name": TARGET.share, "uid": "a-uid"}]
DOMAINS = (names.DOMAIN, names.KUEUE_DOMAIN, names.RAY_DOMAIN)


@many
@given(mutated())
def test_no_pod_can_forge_labels_of_ours_kueue_or_kuberay(pod: Raw) -> None:
    """Labels by which others find, count, own and delete pods are set by us alone. KubeRay reads no annotation of a
    worker pod, so annotations of `ray.io` stay."""
    meta, plain = rewrite(pod)["metadata"], rewrite(kuberay_pod())["metadata"]

    def theirs(found: Raw) -> set[str]:
        prefix = f"{names.DOMAIN}/ray-"  # the pod's own labels, renamed
        return {key for key in found if key.partition("/")[0].endswith(DOMAINS) and not key.startswith(prefix)}

    assert theirs(meta["labels"]) == theirs(plain["labels"])
    read = {key for key in theirs(meta["annotations"]) if not key.startswith("ray.io/")}
    assert read == theirs(plain["annotations"])
    fixed = [key for key in theirs(plain["labels"]) if key != names.POD_UID_LABEL]
    assert {key: meta["labels"][key] for key in fixed} == {key: plain["labels"][key] for key in fixed}
    assert meta["ownerReferences"] == ANCHOR
    assert "finalizers" not in meta and "generateName" not in meta
    assert meta.get("namespace") == pod["metadata"].get("namespace")


@many
@given(mutated())
def test_no_pod_chooses_its_account_node_or_priority(pod: Raw) -> None:
    chosen: Raw = {
        "nodeName": "control-plane",
        "serviceAccountName": "admin",
        "serviceAccount": "admin",
        "priority": 2_000_001_000,
        "priorityClassName": "system-node-critical",
        "preemptionPolicy": "Never",
        "schedulingGates": [{"name": "mine"}],
    }
    spec = rewrite({**pod, "spec": {**pod["spec"], **chosen}})["spec"]
    assert not chosen.keys() & spec.keys()
    assert spec.get("schedulerName") in (None, "default-scheduler")


STRIPPED, REFUSED, KEPT = "stripped", "refused", "kept"  # kept: the worker cluster's own Pod Security admission decides
WISHES: list[tuple[str, Raw, str]] = [
    ("another account", {"serviceAccountName": "admin"}, REFUSED),
    ("a token for another audience", {"volumes": [{"name": "v",
        "projected": {"sources": [{"serviceAccountToken": {"audience": "vault", "path": "t"}}]}}]}, REFUSED),
    ("a certificate of the pod's account", {"volumes": [{"name": "v",
        "projected": {"sources": [{"podCertificate": {"signerName": "x/y"}}]}}]}, REFUSED),
    ("the host's files", {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, REFUSED),
    ("a claim of the worker cluster's namespace",
     {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "theirs"}}]},
     REFUSED),
    ("a copy of a claim of the worker cluster's namespace", {"volumes": [{"name": "v",
        "ephemeral": {"volumeClaimTemplate": {"spec": {"dataSource": {"kind": "PersistentVolumeClaim",
            "name": "theirs"}}}}}]}, REFUSED),
    ("a volume that exists already", {"volumes": [{"name": "v",
        "ephemeral": {"volumeClaimTemplate": {"spec": {"volumeName": "pv"}}}}]}, REFUSED),
    ("a volume that was made for others", {"volumes": [{"name": "v",
        "ephemeral": {"volumeClaimTemplate": {"spec": {"selector": {"matchLabels": {"team": "payroll"}}}}}}]}, REFUSED),
    ("a volume without a class", {"volumes": [{"name": "v",
        "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": ""}}}}]}, REFUSED),
    ("a disk of the worker cluster's cloud", {"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "db"}}]},
     REFUSED),
    ("a SecretProviderClass of the worker cluster", {"volumes": [{"name": "v",
        "csi": {"driver": "secrets-store.csi.k8s.io"}}]}, REFUSED),
    ("an export of a file server", {"volumes": [{"name": "v", "nfs": {"server": "10.0.0.5", "path": "/"}}]}, KEPT),
    ("a claimed device", {"resourceClaims": [{"name": "gpu", "resourceClaimName": "theirs"}]}, REFUSED),
    ("a device by a template", {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "theirs"}]}, REFUSED),
    ("the host's network", {"hostNetwork": True}, REFUSED),
    ("a node by its name", {"nodeName": "control-plane"}, REFUSED),
    ("a node by its name, in an affinity",
     {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name",
         "operator": "In", "values": ["n"]}]}]}}}}, REFUSED),
    ("the highest priority", {"priorityClassName": "system-node-critical", "priority": 2000001000}, STRIPPED),
    ("no preemption for others", {"preemptionPolicy": "Never"}, STRIPPED),
    ("a scheduler without quota", {"schedulerName": "mine"}, STRIPPED),
    ("the gang of another user", {"schedulingGroup": {"podGroupName": "theirs"}}, STRIPPED),
    ("the DNS name of another user", {"hostname": "db", "subdomain": "prod"}, STRIPPED),
    ("a gate that is never removed", {"schedulingGates": [{"name": "x"}]}, STRIPPED),
    ("a debugger", {"ephemeralContainers": [{"name": "d"}]}, STRIPPED),
    ("the host's processes", {"hostPID": True}, KEPT),
    ("the host's memory", {"hostIPC": True}, KEPT),
    ("root on the node", {"containers": [{"name": "ray", "resources": {"requests": {"cpu": "1"}},
        "securityContext": {"privileged": True}}]}, KEPT),
    ("the host's files by a driver", {"volumes": [{"name": "v", "csi": {"driver": "hostpath.csi.k8s.io"}}]}, KEPT),
    ("a node by its label", {"nodeSelector": {"kubernetes.io/hostname": "east-node-7"}}, KEPT),
    ("a node by its label, in an affinity",
     {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [
         {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}]}]}}}}, KEPT),
    ("a port of the node", {"containers": [{"name": "ray", "resources": {"requests": {"cpu": "1"}},
        "ports": [{"containerPort": 22, "hostPort": 22}]}]}, KEPT),
    ("another runtime", {"runtimeClassName": "runc"}, KEPT),
    ("a tainted node", {"tolerations": [{"operator": "Exists"}]}, KEPT),
]  # fmt: skip


@pytest.mark.parametrize(("wish", "fate"), [row[1:] for row in WISHES], ids=[row[0] for row in WISHES])
def test_a_dangerous_field_is_rejected_stripped_or_left_to_the_clusters_own_admission(wish: Raw, fate: str) -> None:
    template = {"spec": {"containers": [{"name": "ray", "resources": {"requests": {"cpu": "1"}}}], **wish}}
    assert bool(pod_validation.template_problem(template)) == (fate == REFUSED)
    pod = kuberay_pod()
    out = rewrite({**pod, "spec": {**pod["spec"], **wish}})["spec"]
    if fate == STRIPPED:
        assert not wish.keys() & out.keys()
    if fate == KEPT:
        kept = [value for key, value in wish.items() if key != "containers"]
        assert all(out[key] == value for key, value in wish.items() if key != "containers"), kept
        for field in ("securityContext", "ports"):
            assert [container.get(field) for container in wish.get("containers", ())] in (
                [], [None], [out["containers"][0].get(field)]
            )  # fmt: skip


FORGED = [
    ("labels", names.POD_UID_LABEL, "another-pod"),
    ("labels", names.MANAGER_LABEL, "another-manager"),
    ("labels", names.CLUSTER_LABEL, "west"),
    ("labels", names.QUEUE_LABEL, "rich"),
    ("labels", names.PRIORITY_CLASS_LABEL, "high"),
    ("labels", "kueue.x-k8s.io/pod-group-name", "theirs"),
    ("labels", "ray.io/cluster", "theirs"),
    ("annotations", names.GROUP_NAME_ANNOTATION, "theirs"),
    ("annotations", names.SLOT_ANNOTATION, "west/1/r/0"),
    ("annotations", "provreq.kueue.x-k8s.io/maxRunDurationSeconds", "9"),
    ("annotations", "kubernetes.io/config.mirror", "a kubelet's own"),
    ("annotations", "kubernetes.io/config.source", "file"),
    ("annotations", "iam.amazonaws.com/role", "payroll-admin"),
    ("annotations", "k8s.v1.cni.cncf.io/networks", "kube-system/host-macvlan"),
    ("annotations", "v1.multus-cni.io/default-network", "kube-system/host-macvlan"),
    ("annotations", "cni.projectcalico.org/ipv4pools", "payroll"),
    ("annotations", "ovn.kubernetes.io/logical_switch", "payroll"),
    ("annotations", "cdi.k8s.io/x", "nvidia.com/gpu=all"),
    ("annotations", "nvidia.cdi.k8s.io/x", "nvidia.com/gpu=all"),
    ("labels", "aadpodidbinding", "payroll"),
    ("labels", "runai/queue", "vip"),
]


@pytest.mark.parametrize(("kind", "key", "value"), FORGED, ids=[row[1] for row in FORGED])
def test_a_forged_label_or_annotation_is_removed(kind: str, key: str, value: str) -> None:
    pod = kuberay_pod()
    pod["metadata"].setdefault(kind, {})[key] = value
    assert rewrite(pod)["metadata"][kind].get(key) != value


@pytest.mark.parametrize("key", ["sidecar.istio.io/inject", "vault.hashicorp.com/role", "prometheus.io/scrape"])
def test_an_annotation_for_other_software_stays(key: str) -> None:
    """The user may set it in the manager in the namespace of that name. Its meaning is the worker cluster's
    business."""
    pod = kuberay_pod()
    pod["metadata"]["annotations"] = {key: "x"}
    assert rewrite(pod)["metadata"]["annotations"][key] == "x"
