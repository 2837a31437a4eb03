"""Workers as users configure them: sidecars, own commands, other ports, RayService. Each joins from elsewhere and stays
whole.

Pods are as KubeRay 1.6.2 makes them of such templates (docs/upstream.md, "The worker pod that KubeRay makes").
"""

import json

import pytest

from adapter import names
from adapter.objects.pod_requests import pod_requests
from adapter.objects.unstructured import Raw
from adapter.rewrite import ray_node_env
from tests.unit.rewrite.test_rewriter import HEAD, HEAD6, TARGET, env_of, kuberay_pod, rewrite

FQDN = "raycluster-head-svc.demo.svc.cluster.local"


def command_of(pod: Raw, at: int = 0) -> str:
    return " ".join(pod["spec"]["containers"][at]["args"])


# --- the start command ------------------------------------------------------------------------------------------------

COMMANDS = [
    ("ulimit -n 65536; ray start --address={}:6379 --block", "KubeRay's own command"),
    ("pip install x && ray start --address={}:6379 --block", "the user's command before KubeRay's"),
    ("ray start --address {}:6379 --num-cpus=2 & wait", "the user's own `ray start`"),
    ("ray start --address='{}:6380'", "another GCS port"),
    ("RAY_ADDRESS={}:6379 python train.py --head={}", "two mentions"),
    ("curl http://{}:8265/api/version; nc -z {} 10001", "other ports of the head"),
]


@pytest.mark.parametrize(("text", "why"), COMMANDS, ids=[row[1] for row in COMMANDS])
@pytest.mark.parametrize(
    "shell", [["/bin/bash", "-c", "--"], ["/bin/bash", "-lc", "--"], []], ids=["bash", "login", "none"]
)
def test_a_command_that_names_the_head_reaches_it(text: str, why: str, shell: list[str]) -> None:
    """A login shell reads profiles first; its words are the same."""
    out = rewrite(kuberay_pod(command=shell, args=[text.replace("{}", FQDN)]))
    assert out["spec"]["containers"][0]["command"] == shell
    assert command_of(out) == text.replace("{}", HEAD), why


VARIABLES = [
    "eval $KUBERAY_GEN_RAY_START_CMD",
    "ray start --address=$RAY_ADDRESS --block",
    "ray start --address=$FQ_RAY_IP:6379",
    "until nc -z ${RAY_IP} $RAY_PORT; do sleep 1; done",
    "$(KUBERAY_GEN_RAY_START_CMD)",
]


@pytest.mark.parametrize("text", VARIABLES)
def test_a_command_that_reads_a_variable_finds_the_head_in_it(text: str) -> None:
    """`ray.io/overwrite-container-cmd`: KubeRay leaves the command alone, and still sets the variables."""
    pod = kuberay_pod(command=["/bin/bash", "-c"], args=[text])
    pod["metadata"]["annotations"] = {"ray.io/overwrite-container-cmd": "true"}
    out = rewrite(pod)
    assert command_of(out) == text
    env = env_of(out)
    assert (env["FQ_RAY_IP"], env["RAY_IP"], env["RAY_ADDRESS"]) == (HEAD, HEAD, f"{HEAD}:6379")
    assert env["KUBERAY_GEN_RAY_START_CMD"].startswith(f"ray start  --address={HEAD}:6379 ")


def test_another_port_and_another_name_of_the_head_service() -> None:
    """rayStartParams.port of the head, and headService.metadata.name."""
    text = json.dumps(kuberay_pod()).replace("6379", "7777").replace("raycluster-head-svc", "front")
    env = env_of(rewrite(json.loads(text)))
    assert (env["FQ_RAY_IP"], env["RAY_ADDRESS"]) == (HEAD, f"{HEAD}:7777")


def test_another_cluster_domain() -> None:
    out = rewrite(json.loads(json.dumps(kuberay_pod()).replace("cluster.local", "corp.example")))
    assert env_of(out)["RAY_ADDRESS"] == f"{HEAD}:6379"
    assert "corp.example" not in str(out)


def test_an_address_set_by_the_user_stays() -> None:
    """rayStartParams.address or RAY_ADDRESS: KubeRay leaves both, and so does the rewriter unless they name a
    Service of this head."""
    pod = kuberay_pod(args=["ray start --address=gateway.example:6379"])
    pod["spec"]["containers"][0]["env"][-1]["value"] = "gateway.example:6379"
    out = rewrite(pod)
    assert command_of(out) == "ray start --address=gateway.example:6379"
    assert env_of(out)["RAY_ADDRESS"] == "gateway.example:6379"


# --- other containers -------------------------------------------------------------------------------------------------

SIDECARS: list[tuple[str, Raw]] = [
    ("initContainers", {"name": "fluent", "image": "f", "restartPolicy": "Always", "args": ["--to", f"{FQDN}:24224"]}),
    ("initContainers", {"name": "fetch", "image": "f", "args": [f"http://{FQDN}:8265"],
                        "env": [{"name": "FQ_RAY_IP", "value": FQDN}]}),
    ("containers", {"name": "collector", "image": "c", "args": ["--role=Worker"],
                    "env": [{"name": "FQ_RAY_IP", "value": FQDN}]}),
    ("containers", {"name": "proxy", "image": "p", "args": ["--upstream", "raycluster-head-svc:8000"]}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "sidecar"), SIDECARS, ids=[one["name"] for _, one in SIDECARS])
def test_a_container_beside_ray_finds_the_head_and_is_otherwise_unchanged(kind: str, sidecar: Raw) -> None:
    """A sidecar with restartPolicy Always, a user's init container, the history server's collector, a plain
    container."""
    pod = kuberay_pod()
    pod["spec"][kind].append(sidecar)
    out = rewrite(pod)["spec"][kind][-1]
    assert "raycluster-head-svc" not in str(out) and HEAD in str(out)
    told = ("args", "env", "terminationMessagePolicy")
    assert {k: v for k, v in out.items() if k not in told} == {k: v for k, v in sidecar.items() if k not in told}
    assert "preStop" not in str(out) and "RAY_NODE_ZONE" not in str(out), "only Ray's own container is a Ray node"


def test_only_the_first_container_is_a_ray_node() -> None:
    pod = kuberay_pod()
    pod["spec"]["containers"].append({"name": "second", "image": "rayproject/ray", "args": ["ray", "status"]})
    out = rewrite(pod)
    second = {**pod["spec"]["containers"][1], "terminationMessagePolicy": "FallbackToLogsOnError"}
    assert out["spec"]["containers"][1] == second
    assert "RAY_NODE_ZONE" in env_of(out)


def test_a_pod_without_the_init_container_of_kuberay() -> None:
    """ENABLE_INIT_CONTAINER_INJECTION=false."""
    pod = kuberay_pod()
    del pod["spec"]["initContainers"]
    assert "initContainers" not in rewrite(pod)["spec"]


def test_a_serve_worker_keeps_its_timeouts_and_its_probe() -> None:
    extra = [
        {"name": "RAY_timeout_ms_task_wait_for_death_info", "value": "0"},
        {"name": "RAY_gcs_server_request_timeout_seconds", "value": "5"},
        {"name": "RAY_SERVE_KV_TIMEOUT_S", "value": "5"},
    ]
    probe = {"exec": {"command": ["bash", "-c", "wget -q localhost:8000/-/healthz"]}, "failureThreshold": 1}
    out = rewrite(kuberay_pod(env=extra, readinessProbe=probe))
    assert {entry["name"]: entry["value"] for entry in extra}.items() <= env_of(out).items()
    assert out["spec"]["containers"][0]["readinessProbe"] == probe


# --- resources and other fields ---------------------------------------------------------------------------------------


def test_requests_for_devices_and_other_resources_stay() -> None:
    amounts = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2", "example.com/link": "1", "ephemeral-storage": "1Gi"}
    pod = kuberay_pod(resources={"limits": amounts, "requests": amounts})
    pod["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    out = rewrite(pod)
    assert pod_requests(out["spec"]) == pod_requests(pod["spec"])
    assert out["spec"]["tolerations"] == pod["spec"]["tolerations"]


KEPT: Raw = {
    "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["licence"]}],
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["10.0.0.10"]},
    "securityContext": {"runAsUser": 1000, "fsGroup": 2000},
    "runtimeClassName": "nvidia",
    "terminationGracePeriodSeconds": 60,
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "shareProcessNamespace": True,
    "restartPolicy": "Never",
    "activeDeadlineSeconds": 3600,
    "os": {"name": "linux"},
    "resources": {"requests": {"cpu": "2"}},
    "readinessGates": [{"conditionType": "x"}],
    "newInKubernetes": {"a": [1]},
    "nodeSelector": {"kubernetes.io/arch": "arm64"},
    "volumes": [
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "all", "projected": {"sources": [{"downwardAPI": {"items": []}}]}},
        {"name": "disk", "csi": {"driver": "ssd.example.com"}},
        {"name": "share", "nfs": {"server": "nfs", "path": "/"}},
    ],
}
STRIPPED: Raw = {
    "nodeName": "n", "schedulingGates": [{"name": "g"}], "ephemeralContainers": [], "overhead": {"cpu": "1"},
    "serviceAccountName": "ray", "serviceAccount": "ray", "priority": 2000001000,
    "priorityClassName": "system-node-critical", "preemptionPolicy": "PreemptLowerPriority", "hostname": "h",
    "subdomain": "s",
    "hostnameOverride": "h", "schedulingGroup": {"podGroupName": "g"}, "workloadRef": {"name": "w"},
    "schedulerName": "volcano",
}  # fmt: skip


@pytest.mark.parametrize("field", KEPT)
def test_kept(field: str) -> None:
    pod = kuberay_pod()
    pod["spec"][field] = KEPT[field]
    assert rewrite(pod)["spec"][field] == KEPT[field]


@pytest.mark.parametrize("field", STRIPPED)
def test_stripped(field: str) -> None:
    pod = kuberay_pod()
    pod["spec"][field] = STRIPPED[field]
    assert field not in rewrite(pod)["spec"]


# --- zone and labels set by the user ----------------------------------------------------------------------------------


def told(*env: tuple[str, str]) -> str:
    return ray_node_env.user_override_message([{"name": name, "value": value} for name, value in env], TARGET)


@pytest.mark.parametrize(
    ("env", "listed"),
    [
        pytest.param([], "", id="nothing set"),
        pytest.param([("RAY_NODE_ZONE", "us-east-1a")], "", id="the same zone"),
        pytest.param([("RAY_NODE_ZONE", "mars")], "RAY_NODE_ZONE", id="another zone"),
        pytest.param([("RAY_NODE_REGION", "eu")], "RAY_NODE_REGION", id="another region"),
        pytest.param([("RAY_OVERRIDE_LABELS", '{"a": "b"}')], "", id="a label of the user's own"),
        pytest.param(
            [("RAY_OVERRIDE_LABELS", '{"a": "b", "rayspan.dev/cluster": "mine"}')],
            "rayspan.dev/cluster in RAY_OVERRIDE_LABELS",
            id="a label of ours",
        ),
        pytest.param(
            [("RAY_OVERRIDE_RESOURCES", '{"fast-disk": 9}')], "fast-disk in RAY_OVERRIDE_RESOURCES", id="a resource"
        ),
        pytest.param([("RAY_OVERRIDE_RESOURCES", "oops")], "RAY_OVERRIDE_RESOURCES", id="no object"),
        pytest.param(
            [("RAY_NODE_ZONE", "mars"), ("RAY_OVERRIDE_LABELS", "[]")], "RAY_NODE_ZONE, RAY_OVERRIDE_LABELS", id="two"
        ),
    ],
)
def test_a_users_own_zone_or_label_is_reported(env: list[tuple[str, str]], listed: str) -> None:
    want = f"The worker template sets {listed}, which overrides the values of their WorkerCluster on its Ray nodes; "
    assert told(*env).startswith(want) if listed else told(*env) == ""


def test_a_reported_override_is_kept_in_the_pod() -> None:
    """One message for each overridden key, and none otherwise."""
    pod = kuberay_pod(env=[{"name": "RAY_NODE_ZONE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}])
    assert "RAY_NODE_ZONE" in ray_node_env.user_override_message(pod["spec"]["containers"][0]["env"], TARGET)
    assert env_of(rewrite(pod))["RAY_NODE_ZONE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_an_ipv6_head_and_a_port_of_the_users_own() -> None:
    out = rewrite(kuberay_pod(args=[f"ray start --address={FQDN}:6380"]), head=HEAD6)
    assert command_of(out) == f"ray start --address=[{HEAD6}]:6380"
    assert out["metadata"]["annotations"][names.HEAD_IP_ANNOTATION] == HEAD6
