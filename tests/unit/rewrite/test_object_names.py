"""A remote pod has the account, the claims and the host paths that its WorkerCluster names, and no others."""

from dataclasses import replace
from typing import Any

import pytest

from adapter.admission import pod_validation
from adapter.cli.pod_diff import UNKNOWN_REASON, diff_pods
from adapter.objects.unstructured import Raw
from adapter.rewrite import dry_run_pod, group_workload
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.rewriter import remote_pod
from adapter.rewrite.target import Target
from tests.unit.rewrite.test_pod_mapping import TARGET, mapped

NAMESPACE = "demo"
ACCOUNTS = {"serviceAccounts": [{"name": "raydata", "as": "ray-ksa", "namespaces": [NAMESPACE]}, {"name": "other"}]}
READ_ONLY = {"readOnly": True, "recursiveReadOnly": "IfPossible"}


def rewrite(spec: Raw, target: Target, namespace: str = NAMESPACE) -> Raw:
    spec = {"containers": [{"name": "ray"}], **spec}
    pod = {"metadata": {"name": "p", "uid": "pod-uid", "namespace": namespace}, "spec": spec}
    remote = remote_pod(
        pod, head=HeadAddress.from_pod(pod, "10.0.0.1"), target=target, role="r", slot="s", anchor_uid="a"
    )
    assert [change for change in diff_pods(pod, remote) if change.reason == UNKNOWN_REASON] == []
    out: Raw = remote["spec"]
    return out


def problem(spec: Raw, target: Target, namespace: str = NAMESPACE) -> str:
    """What the check before the creation says of the remote pod."""
    return pod_validation.remote_pod_problem(rewrite(spec, target, namespace), spec, target.pods, namespace)


# --- accounts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("account", "namespace", "pods", "want", "refused"),
    [
        pytest.param("raydata", NAMESPACE, ACCOUNTS, "ray-ksa", False, id="another name there"),
        pytest.param("other", NAMESPACE, ACCOUNTS, "other", False, id="the same name there"),
        pytest.param("raydata", "b", ACCOUNTS, None, True, id="another namespace"),
        pytest.param("admin", NAMESPACE, ACCOUNTS, None, True, id="an account that is not named"),
        pytest.param("default", NAMESPACE, {"serviceAccounts": [{"name": "*"}]}, None, False, id="the default account"),
        pytest.param(
            "admin", NAMESPACE, {**ACCOUNTS, "serviceAccountName": "ray"}, "ray", False,
            id="the account of all others",
        ),
        pytest.param(
            "raydata", NAMESPACE, {**ACCOUNTS, "serviceAccountName": "ray"}, "ray-ksa", False,
            id="the list is before the account of all others",
        ),
        pytest.param("", NAMESPACE, {**ACCOUNTS, "serviceAccountName": "ray"}, "ray", False, id="no account is named"),
    ],
)  # fmt: skip
def test_the_account_of_a_remote_pod(account: str, namespace: str, pods: Raw, want: str | None, refused: bool) -> None:
    spec = {"serviceAccountName": account, "serviceAccount": account}
    out = rewrite(spec, mapped(**pods), namespace)
    assert (out.get("serviceAccountName"), out.get("serviceAccount")) == (want, None)
    assert bool(problem(spec, mapped(**pods), namespace)) is refused


def test_a_token_goes_with_a_named_account_and_a_token_of_the_manager_does_not() -> None:
    """A webhook in the manager (IRSA) adds such a token to the pod of an account that it knows."""
    token = {"name": "aws", "projected": {"sources": [{"serviceAccountToken": {"audience": "sts", "path": "t"}}]}}
    spec = {"serviceAccountName": "raydata", "volumes": [token], "automountServiceAccountToken": False}
    assert problem(spec, mapped(**ACCOUNTS)) == ""
    out = rewrite(spec, mapped(**ACCOUNTS))
    assert out["volumes"] == [token] and out["automountServiceAccountToken"] is False
    assert "has a serviceAccountToken: its WorkerCluster does not name it" in problem(
        spec, mapped(serviceAccountName="ray")
    )
    for pods in (ACCOUNTS, {"serviceAccountName": "ray"}, {**ACCOUNTS, "serviceAccountName": "ray"}):
        assert "has a serviceAccountToken: it is issued in the manager" in problem(
            {**spec, "serviceAccountName": "default"}, mapped(**pods)
        )


# --- RuntimeClasses, schedulers and priority classes -----------------------------------------------------------------

CLASSES = {
    "runtimeClasses": [{"name": "kata", "as": "kata-qemu", "namespaces": [NAMESPACE]}],
    "schedulers": [{"name": "volcano", "as": "volcano-east", "namespaces": [NAMESPACE]}, {"name": "kai"}],
    "priorityClasses": [{"name": "gold", "as": "high", "namespaces": [NAMESPACE]}],
}
OWN = {"runtimeClassName": "kata", "schedulerName": "volcano", "priorityClassName": "gold"}
FIELDS = tuple(OWN)


@pytest.mark.parametrize(
    ("spec", "namespace", "pods", "want"),
    [
        pytest.param(OWN, NAMESPACE, CLASSES, ("kata-qemu", "volcano-east", "high"), id="the names there"),
        pytest.param(OWN, "b", CLASSES, ("kata", None, None), id="another namespace"),
        pytest.param(OWN, NAMESPACE, {}, ("kata", None, None), id="nothing is named"),
        pytest.param({"schedulerName": "kai"}, "b", CLASSES, (None, "kai", None), id="the same name there"),
        pytest.param(OWN, NAMESPACE, {**CLASSES, "schedulerName": "mine", "runtimeClassName": "runc"},
            ("kata-qemu", "volcano-east", "high"), id="a list is before the name for all others"),
        pytest.param({}, NAMESPACE, {**CLASSES, "schedulerName": "mine", "runtimeClassName": "runc"},
            ("runc", "mine", None), id="a pod that names none"),
        pytest.param({"schedulerName": "default-scheduler"}, NAMESPACE,
            {"schedulers": [{"name": "*", "as": "mine"}], "schedulerName": "other"}, (None, "other", None),
            id="the default scheduler is no name of its own"),
        pytest.param({"schedulerName": "yunikorn"}, NAMESPACE, {"schedulers": [{"name": "*"}]},
            (None, "yunikorn", None), id="any scheduler"),
    ],
)  # fmt: skip
def test_the_classes_of_a_remote_pod(spec: Raw, namespace: str, pods: Raw, want: tuple[str | None, ...]) -> None:
    out = rewrite(spec, mapped(**pods), namespace)
    assert tuple(out.get(field) for field in FIELDS) == want
    assert not {"priority", "preemptionPolicy"} & rewrite({**spec, "priority": 9}, mapped(**pods), namespace).keys()


def test_a_share_has_the_runtime_and_the_scheduler_of_its_pods_and_no_priority_class() -> None:
    """Kueue adds the overhead of the RuntimeClass; a priority class could replace the share's priority."""
    containers = [{"name": "ray", "resources": {"requests": {"cpu": "1"}}}]
    template = {"spec": {**OWN, "containers": containers}}
    workload = group_workload.build_workload(mapped(**CLASSES), NAMESPACE, [("w", 1, template)], "a")
    spec = workload["spec"]["podSets"][0]["template"]["spec"]
    assert tuple(spec.get(field) for field in FIELDS) == ("kata-qemu", "volcano-east", None)


def test_a_runtime_class_that_is_not_in_the_list_is_refused() -> None:
    assert problem({"runtimeClassName": "nvidia"}, mapped(**CLASSES)) == (
        "spec.runtimeClassName is nvidia: its WorkerCluster does not name it; add spec.pods.runtimeClasses: "
        "[{name: nvidia, namespaces: [demo]}] to it"
    )
    assert problem({"runtimeClassName": "nvidia"}, mapped()) == ""


# --- claims and host paths --------------------------------------------------------------------------------------------


def volumes(*entries: Raw, **mount: Any) -> Raw:
    mounts = [{"name": entry["name"], "mountPath": f"/{entry['name']}", **mount} for entry in entries]
    containers = [{"name": "ray", "volumeMounts": [*mounts, {"name": "e", "mountPath": "/e"}]}, {"name": "sidecar"}]
    inits = [{"name": "init", "volumeMounts": mounts}]
    return {"containers": containers, "initContainers": inits, "volumes": [*entries, {"name": "e", "emptyDir": {}}]}


CLAIM = {"name": "d", "persistentVolumeClaim": {"claimName": "models"}}
HOST = {"name": "d", "hostPath": {"path": "/models/llama", "type": "Directory"}}


def test_a_named_claim_has_its_name_there() -> None:
    target = mapped(persistentVolumeClaims=[{"name": "models", "as": "fsx"}])
    out = rewrite(volumes(CLAIM), target)
    assert out["volumes"][0] == {"name": "d", "persistentVolumeClaim": {"claimName": "fsx"}}
    assert out["containers"][0]["volumeMounts"][0] == {"name": "d", "mountPath": "/d"}
    assert problem(volumes(CLAIM), target) == ""


@pytest.mark.parametrize(
    ("volume", "pods"),
    [
        pytest.param(CLAIM, {"persistentVolumeClaims": [{"name": "*", "readOnly": True}]}, id="a claim"),
        pytest.param(HOST, {"hostPaths": [{"prefix": "/models"}]}, id="a host path"),
    ],
)
def test_a_read_only_volume_is_read_only_in_each_container(volume: Raw, pods: Raw) -> None:
    spec = volumes(volume, readOnly=False, mountPropagation="Bidirectional", recursiveReadOnly="Disabled")
    out = rewrite(spec, mapped(**pods))
    for container in (out["containers"][0], out["initContainers"][0]):
        assert container["volumeMounts"][0] == {"name": "d", "mountPath": "/d", **READ_ONLY}
    assert out["containers"][0]["volumeMounts"][1] == {"name": "e", "mountPath": "/e"}
    assert out["volumes"][0].get("persistentVolumeClaim", {}).get("readOnly", True) is True
    assert out["volumes"][0].get("hostPath") == volume.get("hostPath")
    assert problem(spec, mapped(**pods)) == ""


def test_a_stricter_mount_stays() -> None:
    spec = volumes(HOST, readOnly=True, recursiveReadOnly="Enabled")
    assert rewrite(spec, mapped(hostPaths=[{"prefix": "/models"}]))["containers"] == rewrite(spec, TARGET)["containers"]


def test_a_writable_host_path_keeps_its_mounts() -> None:
    target = mapped(hostPaths=[{"prefix": "/models/llama", "readOnly": False}])
    spec = volumes(HOST, mountPropagation="HostToContainer")
    assert rewrite(spec, target)["containers"] == rewrite(spec, TARGET)["containers"]
    assert problem(spec, target) == ""


@pytest.mark.parametrize(
    ("volume", "pods"),
    [
        pytest.param(CLAIM, {}, id="a claim that is not named"),
        pytest.param(
            CLAIM, {"persistentVolumeClaims": [{"name": "models", "namespaces": ["b"]}]}, id="a claim of others"
        ),
        pytest.param(
            CLAIM, {"persistentVolumeClaims": [{"name": "a", "as": "models"}]}, id="the name there is not a name here"
        ),
        pytest.param(HOST, {"hostPaths": [{"prefix": "/models/llam"}]}, id="a path that only begins alike"),
        pytest.param(HOST, {"hostPaths": [{"prefix": "/models", "namespaces": ["b"]}]}, id="a path of others"),
        pytest.param(HOST, {"hostPaths": [{"prefix": "/models", "readOnly": False}]}, id="beneath a writable path"),
    ],
)
def test_what_is_not_named_is_refused_before_the_creation(volume: Raw, pods: Raw) -> None:
    """The template may be edited after admission, and the WorkerCluster, too."""
    assert problem(volumes(volume), mapped(**pods)).startswith("spec.volumes[d].")


# --- environment ------------------------------------------------------------------------------------------------------


def test_the_clusters_variables_replace_those_of_rays_container_alone() -> None:
    env = [{"name": "A", "value": "mine"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    spec = {"containers": [{"name": "ray", "env": env}, {"name": "sidecar", "env": env[:1]}]}
    out = rewrite(spec, mapped(env={"C": "c", "A": "theirs", "B": "b"}))
    ray, sidecar = (container["env"] for container in out["containers"])
    assert [entry for entry in ray if not entry["name"].startswith("RAY_")] == [
        {"name": "A", "value": "theirs"}, {"name": "B", "value": "b"}, {"name": "C", "value": "c"},
    ]  # fmt: skip
    assert sidecar == env[:1]


# --- the dry run ------------------------------------------------------------------------------------------------------


def test_a_variable_that_is_set_twice_is_replaced_twice() -> None:
    """The last one counts for a kubelet."""
    spec = {"containers": [{"name": "ray", "env": [{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]}]}
    (ray,) = rewrite(spec, mapped(env={"A": "theirs"}))["containers"]
    assert {entry["value"] for entry in ray["env"] if entry["name"] == "A"} == {"theirs"}


def test_jobs_that_need_other_objects_share_no_dry_run() -> None:
    """The account of one may exist where that of the other does not."""
    specs: list[Raw] = [{}, {"serviceAccountName": "a"}, {"serviceAccountName": "b"}, {"volumes": [CLAIM]}]
    digests = {dry_run_pod.digest({"spec": {"containers": [{"name": "r"}], **spec}}, "g", TARGET) for spec in specs}
    assert len(digests) == len(specs)


def test_a_dry_run_has_the_names_of_the_cluster() -> None:
    template = {"spec": {"containers": [{"name": "r"}], "serviceAccountName": "raydata", "volumes": [CLAIM]}}
    target = replace(mapped(**ACCOUNTS, persistentVolumeClaims=[{"name": "models", "as": "fsx"}]), workload_uid="uid")
    spec = dry_run_pod.build_pod(template, "g", target, NAMESPACE)["spec"]
    assert spec["serviceAccountName"] == "ray-ksa"
    assert spec["volumes"][0]["persistentVolumeClaim"]["claimName"] == "fsx"
