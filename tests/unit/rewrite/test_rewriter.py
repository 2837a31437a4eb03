"""A manager pod becomes a remote pod that joins the same RayCluster from another cluster, and nothing else changes."""

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter import names, programs
from adapter.admission import pod_validation
from adapter.objects.references import Reference
from adapter.objects.specs import HeadSpec
from adapter.rewrite import copied_objects
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.rewriter import referenced_objects, remote_pod
from adapter.rewrite.target import Target
from hack.corpus import golden
from tests.unit.rewrite import differences
from tests.unit.rewrite.differences import Case

Pod = dict[str, Any]
GOLDEN = golden.FOLDER
RECORDED = sorted(path.name.removesuffix(".in.yaml") for path in GOLDEN.glob("*.in.yaml"))
# The whole remote pod is recorded for these: the usual one, and those with most kinds of fields.
WHOLE = ("affinity", "gpu", "plain", "sidecar")
HEAD = "10.11.0.12"
HEAD6 = "fd00:11::c"
REMOTE_TOLERATION = {"key": "example.com/flavor", "operator": "Equal", "value": "far", "effect": "NoSchedule"}
POOL_TOLERATION = {"key": "rayspan.dev/pool", "operator": "Equal", "value": "remote", "effect": "NoSchedule"}
TARGET = Target(
    cluster="east",
    zone="us-east-1a",
    region="us-east-1",
    labels={"example.com/tier": "spot"},
    resources={"fast-disk": 2},
    queue="team-a",
    manager="mgr-1",
    workload="rayjob-sample-4f2a1",
    workload_uid="9b0c6a52-2d2c-4d0e-9a3c-0d6f3a1b2c3d",
    placement="rayjob-sample-4f2a1",
    share="rayspan-7d3f0a-east",
    round=2,
    manager_flavor_keys=frozenset({"example.com/flavor"}),
    manager_flavor_tolerations=(REMOTE_TOLERATION,),
)


def rewrite(pod: Pod, *, head: str = HEAD, target: Target = TARGET, pull_secrets: Sequence[Pod] = ()) -> Pod:
    return remote_pod(
        pod,
        head=HeadAddress.from_pod(pod, head),
        target=target,
        role="1f2e3d4c",
        slot="east/1f2e3d4c/0",
        anchor_uid="a-uid",
        pull_secrets=pull_secrets,
    )


def kuberay_pod(cluster: str = "raycluster", namespace: str = "demo", **container: Any) -> Pod:
    """A small worker pod as KubeRay 1.6.2 builds it; `container` sets fields of the ray container."""
    fqdn = f"{cluster}-head-svc.{namespace}.svc.cluster.local"
    start = f"ray start  --address={fqdn}:6379  --block  --num-cpus=1 "
    env = [
        *container.pop("env", []),
        {"name": "FQ_RAY_IP", "value": fqdn},
        {"name": "RAY_IP", "value": f"{cluster}-head-svc"},
        {"name": "RAY_CLOUD_INSTANCE_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "RAY_NODE_TYPE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['ray.io/group']"}}},
        {"name": "KUBERAY_GEN_RAY_START_CMD", "value": start},
        {"name": "RAY_ADDRESS", "value": f"{fqdn}:6379"},
    ]
    ray = {"name": "ray-worker", "image": "ray", "command": ["bash", "-c"], "args": [start], **container, "env": env}
    wait = f"until ray health-check --address {fqdn}:6379; do sleep 5; done"
    waiter = {"name": "wait-gcs-ready", "image": "ray", "args": [wait], "env": env[-6:-4]}
    return {
        "metadata": {
            "name": "raycluster-workers-worker-x7",
            "namespace": namespace,
            "uid": "pod-uid",
            "labels": {"ray.io/cluster": cluster, "ray.io/group": "workers"},
        },
        "spec": {"containers": [ray], "initContainers": [waiter]},
        "status": {"phase": "Pending"},
    }


def env_of(pod: Pod, kind: str = "containers", at: int = 0) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in pod["spec"][kind][at]["env"]}


# --- recorded pods ---------------------------------------------------------------------------------------------------


def recorded(name: str) -> Pod:
    found: Pod = golden.read(GOLDEN / f"{name}.in.yaml")
    return found


@pytest.mark.parametrize("name", WHOLE)
def test_whole_pods_are_rewritten_as_reviewed(name: str, same_as_golden: Callable[[str, Path], None]) -> None:
    text = json.dumps(rewrite(recorded(name))).replace(json.dumps(programs.DRAIN_HOOK), '"the program drain.py"')
    same_as_golden(yaml.safe_dump(json.loads(text), sort_keys=True, width=160), GOLDEN / f"{name}.out.yaml")


def test_the_differences_of_each_recorded_pod_are_as_reviewed(same_as_golden: Callable[[str, Path], None]) -> None:
    """All recorded pods, and one with each other head address mode: one line per changed field, in one file."""
    pods = {name: recorded(name) for name in ("plain", *(name for name in RECORDED if name != "plain"))}
    cases = [Case(name, pod, rewrite(pod), "" if name == "plain" else "plain") for name, pod in pods.items()]
    heads = {"mirrored": MIRRORED, "in a cluster set": CLUSTER_SET, "at the admin's name and port": STATIC_PORT}
    pod = pods["sidecar"]
    cases += [Case(f"sidecar, its head {how}", pod, rewrite(pod, target=to), "sidecar") for how, to in heads.items()]
    same_as_golden(differences.page(cases), GOLDEN / "differences.txt")


def named(value: Any, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Every list in a pod whose entries have names, as those names."""
    if isinstance(value, list) and value and all(isinstance(item, dict) and "name" in item for item in value):
        yield path, [item["name"] for item in value]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from named(item, f"{path}/{item['name'] if isinstance(item, dict) and 'name' in item else key}")


@pytest.mark.parametrize("name", RECORDED)
def test_entries_of_a_recorded_pod_keep_their_order_and_new_ones_come_last(name: str) -> None:
    """The kubelet resolves a variable by those before it. The differences are by name, so they do not show the
    order."""
    pod = recorded(name)
    after = dict(named(rewrite(pod)["spec"]))
    for path, before in named(pod["spec"]):
        now = after.get(path, [])
        kept = [one for one in before if one in now]
        assert now[: len(kept)] == kept, path


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_pod_keeps_nothing_of_the_head_service(name: str) -> None:
    pod = recorded(name)
    # As a whole word: `other-sidecar-head-svc` is another Service.
    assert not re.search(rf"(?<![\w-]){env_of(pod)['RAY_IP']}", yaml.safe_dump(rewrite(pod), width=10_000))


@pytest.mark.parametrize("name", ["autoscaled", "gpu", "plain", "sidecar"])
def test_a_recorded_pod_has_the_head_address_in_all_six_places(name: str) -> None:
    out = rewrite(recorded(name))
    env = env_of(out)
    assert env["FQ_RAY_IP"] == env["RAY_IP"] == HEAD
    assert env["RAY_ADDRESS"] == f"{HEAD}:6379"
    assert f"--address={HEAD}:6379" in env["KUBERAY_GEN_RAY_START_CMD"]
    assert f"--address={HEAD}:6379" in out["spec"]["containers"][0]["args"][0]
    assert f"--address {HEAD}:6379" in out["spec"]["initContainers"][-1]["args"][0]


def test_the_recorded_cases_exist() -> None:
    assert tuple(RECORDED) == golden.CHOSEN


# --- the head's address ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    id: str
    text: str
    want: str
    why: str
    head: str = HEAD


NAME = "raycluster-head-svc"
TEXTS = [
    Text("the full name becomes the address", f"{NAME}.demo.svc.cluster.local:6379", f"{HEAD}:6379", "the usual place"),
    Text(
        "a name without the cluster domain becomes the address",
        f"http://{NAME}.demo.svc/x",
        f"http://{HEAD}/x",
        "it resolves there",
    ),
    Text(
        "a name with the namespace alone becomes the address", f"ping {NAME}.demo", f"ping {HEAD}", "it resolves there"
    ),
    Text(
        "the short name becomes the address",
        f"curl {NAME}:8265",
        f"curl {HEAD}:8265",
        "it resolves in the manager's namespace",
    ),
    Text("a sentence's full stop stays", f"Ask {NAME}.", f"Ask {HEAD}.", "it is not part of the name"),
    Text("another cluster's head stays", f"my-{NAME}:1", f"my-{NAME}:1", "its name only ends like ours"),
    Text("a longer name stays", f"{NAME}-2:1", f"{NAME}-2:1", "its name only begins like ours"),
    Text(
        "a Service of that name in another namespace stays",
        f"{NAME}.prod:1",
        f"{NAME}.prod:1",
        "another namespace's head is another head",
    ),
    Text("every mention is replaced", f"{NAME} {NAME}", f"{HEAD} {HEAD}", "one is enough to fail"),
    Text("IPv6 gets brackets before a port", f"a={NAME}:6379", f"a=[{HEAD6}]:6379", "else the port is eaten", HEAD6),
    Text("IPv6 gets brackets before a port variable", f"{NAME}:$P", f"[{HEAD6}]:$P", "else the port is eaten", HEAD6),
    Text("IPv6 gets brackets in a URL", f"http://{NAME}/x", f"http://[{HEAD6}]/x", "RFC 3986 wants them", HEAD6),
    Text(
        "IPv6 has no brackets where no port follows", f"ip {NAME}: up", f"ip {HEAD6}: up", "a colon is no port", HEAD6
    ),
]


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.id)
def test_head_names_in_users_text(case: Text) -> None:
    pod = kuberay_pod(
        args=[case.text],
        env=[{"name": "MINE", "value": case.text}],
        livenessProbe={"exec": {"command": ["sh", case.text]}},
        lifecycle={"preStop": {"exec": {"command": [case.text]}}},
    )
    pod["spec"]["containers"].append({"name": "sidecar", "command": [case.text]})
    out = rewrite(pod, head=case.head)
    ray, sidecar = out["spec"]["containers"]
    assert ray["args"] == sidecar["command"] == [case.want], case.why
    assert env_of(out)["MINE"] == case.want, case.why
    assert ray["livenessProbe"]["exec"]["command"] == ["sh", case.want], case.why
    assert ray["lifecycle"]["preStop"]["exec"]["command"] == [case.want], case.why


def test_a_head_service_named_like_a_command_leaves_the_command_alone() -> None:
    # headService.metadata.name may be anything, also `ray`.
    pod = json.loads(json.dumps(kuberay_pod(args=["ray start --address=ray:6379; curl http://ray/x"])))
    pod = json.loads(json.dumps(pod).replace("raycluster-head-svc", "ray"))
    out = rewrite(pod)
    assert out["spec"]["containers"][0]["args"] == [f"ray start --address={HEAD}:6379; curl http://{HEAD}/x"]
    assert env_of(out)["RAY_IP"] == HEAD
    assert env_of(out)["KUBERAY_GEN_RAY_START_CMD"].startswith(f"ray start  --address={HEAD}:6379 ")


def test_an_ipv6_head_has_brackets_in_the_start_command_only() -> None:
    env = env_of(rewrite(kuberay_pod(), head=HEAD6))
    assert (env["FQ_RAY_IP"], env["RAY_IP"], env["RAY_ADDRESS"]) == (HEAD6, HEAD6, f"[{HEAD6}]:6379")
    assert f"--address=[{HEAD6}]:6379 " in env["KUBERAY_GEN_RAY_START_CMD"]


# --- head address modes -----------------------------------------------------------------------------------------------

FQDN = f"{NAME}.demo.svc.cluster.local"
MIRRORED = replace(TARGET, head=HeadSpec(address="ServiceMirror"))
CLUSTER_SET = replace(TARGET, head=HeadSpec(address="ClusterSet"))


def static(template: str) -> Target:
    return replace(TARGET, head=HeadSpec(address="Static", template=template))


STATIC = static("{service}.{namespace}.{cluster}.ray.example.com")
STATIC_PORT = static("{cluster}.example.com:16379")
GATEWAY = "raycluster.example.com"


@dataclass(frozen=True)
class How:
    id: str
    target: Target
    host: str
    short: str
    port: str = "6379"


HOWS = [
    How("ServiceMirror: the name in the manager", MIRRORED, FQDN, NAME),
    How("ClusterSet: the name in the cluster set", CLUSTER_SET, *[f"{NAME}.demo.svc.clusterset.local"] * 2),
    How("Static: a name of the admin's", STATIC, *[f"{NAME}.demo.raycluster.ray.example.com"] * 2),
    How("Static: a name and a port of the admin's", STATIC_PORT, GATEWAY, GATEWAY, "16379"),
]


@pytest.mark.parametrize("how", HOWS, ids=lambda how: how.id)
def test_the_head_address_of_each_mode(how: How) -> None:
    pod = kuberay_pod(env=[{"name": "RAY_PORT", "value": "6379"}, {"name": "MINE", "value": f"http://{NAME}:8265"}])
    out = rewrite(pod, target=how.target)
    env, dialled = env_of(out), f"{how.host}:{how.port}"
    assert (env["FQ_RAY_IP"], env["RAY_IP"], env["RAY_PORT"]) == (how.host, how.short, how.port)
    assert env["RAY_ADDRESS"] == dialled
    assert f"--address={dialled} " in env["KUBERAY_GEN_RAY_START_CMD"]
    assert f"--address={dialled} " in out["spec"]["containers"][0]["args"][0]
    assert f"--address {dialled};" in out["spec"]["initContainers"][0]["args"][0]
    assert env["MINE"] == f"http://{how.short}:8265", "only the GCS's port is another one"


@pytest.mark.parametrize(
    ("target", "want"),
    [
        pytest.param(
            TARGET, {names.HEAD_IP_ANNOTATION: HEAD}, id="PodIP: the IP, so that the pod is replaced when it changes"
        ),
        pytest.param(
            MIRRORED,
            {names.HEAD_IP_ANNOTATION: HEAD, names.HEAD_SERVICE_ANNOTATION: NAME},
            id="ServiceMirror: the IP and the mirrored name",
        ),
        pytest.param(CLUSTER_SET, {}, id="ClusterSet: no annotation"),
        pytest.param(STATIC, {}, id="Static: no annotation"),
    ],
)
def test_a_remote_pod_notes_its_head_address(target: Target, want: dict[str, str]) -> None:
    forged = kuberay_pod()
    forged["metadata"]["annotations"] = {names.HEAD_IP_ANNOTATION: "6.6.6.6", names.HEAD_SERVICE_ANNOTATION: "x"}
    said = rewrite(forged, target=target)["metadata"]["annotations"]
    assert {key: value for key, value in said.items() if key.startswith(f"{names.DOMAIN}/head")} == want


@pytest.mark.parametrize("text", [f"{NAME}:63790", f"{NAME}:8265", f"{NAME}", f"{NAME}:$RAY_PORT"])
def test_a_port_other_than_the_gcs_port_stays(text: str) -> None:
    pod = kuberay_pod(args=[text], env=[{"name": "RAY_PORT", "value": "6379"}])
    assert rewrite(pod, target=STATIC_PORT)["spec"]["containers"][0]["args"] == [text.replace(NAME, GATEWAY)]


def test_a_name_of_another_namespace_is_not_mirrored() -> None:
    """Otherwise a Service would be written into a namespace that is not the worker's own."""
    pod = json.loads(json.dumps(kuberay_pod()).replace(f"{NAME}.demo.svc", f"{NAME}.kube-system.svc"))
    assert HeadAddress.from_pod(pod, HEAD).service_key is None
    assert HeadAddress.from_pod(kuberay_pod(), HEAD).service_key == ("demo", NAME)


# --- downward API -----------------------------------------------------------------------------------------------------


def reference(path: str) -> Pod:
    return {"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


# Kubernetes copies these labels from the node to a pod that it binds.
LOCATION_PATHS = [f"metadata.labels['topology.kubernetes.io/{field}']" for field in ("zone", "region")]


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("metadata.name", {"value": "raycluster-workers-worker-x7"}),
        ("metadata.namespace", {"value": "demo"}),
        ("metadata.uid", {"value": "pod-uid"}),
        ("metadata.labels['ray.io/group']", {"value": "workers"}),
        ("metadata.labels['no/such']", {"value": ""}),
        ("metadata.annotations['price']", {"value": "$$(HOME) 5$$"}),
        ("status.podIP", reference("status.podIP")),
        ("status.hostIP", reference("status.hostIP")),
        ("spec.nodeName", reference("spec.nodeName")),
        *((path, reference(path)) for path in LOCATION_PATHS),
        ("metadata.annotations['topology.kubernetes.io/zone']", {"value": ""}),
    ],
)
def test_a_field_of_the_manager_pod_becomes_a_literal(path: str, want: Pod) -> None:
    """Names and labels of the remote pod differ or are missing. Only its own cluster knows its node, zone and IPs."""
    pod = kuberay_pod(env=[{"name": "MINE", **reference(path)}])
    pod["metadata"]["annotations"] = {"price": "$(HOME) 5$"}  # a literal would be expanded, so its dollars are doubled
    pod["spec"]["initContainers"][0]["env"] = [{"name": "MINE", **reference(path)}]
    out = rewrite(pod)
    assert out["spec"]["containers"][0]["env"][0] == {"name": "MINE", **want}
    assert out["spec"]["initContainers"][0]["env"] == [{"name": "MINE", **want}]


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("metadata.name", "metadata.name"),
        ("metadata.uid", "metadata.labels['rayspan.dev/pod-uid']"),
        ("metadata.labels['ray.io/group']", "metadata.labels['rayspan.dev/ray-group']"),
        ("metadata.labels['team']", "metadata.labels['team']"),
        ("metadata.annotations['ray.io/x']", "metadata.annotations['ray.io/x']"),
        ("metadata.labels", "metadata.labels"),
        *((path, path) for path in LOCATION_PATHS),
    ],
)
def test_downward_api_files_keep_their_content(path: str, want: str) -> None:
    """A kubelet writes an empty file for a label that does not exist."""

    def files(path: str) -> list[Pod]:
        source = {"items": [{"path": "f", "fieldRef": {"fieldPath": path}}]}
        return [
            {"name": "a", "downwardAPI": source},
            {"name": "b", "projected": {"sources": [{"downwardAPI": source}, {"configMap": {"name": ""}}]}},
            {"name": "c", "emptyDir": {}},
        ]

    pod = kuberay_pod()
    pod["spec"]["volumes"] = files(path)
    out = rewrite(pod)
    assert out["spec"]["volumes"] == files(want)
    assert "rayspan.dev" not in want or want.split("'")[1] in out["metadata"]["labels"], "and that label is there"


# --- zone -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Zone:
    id: str
    env: list[Pod]
    want: dict[str, Any]
    why: str


OUR_LABELS = (
    '{"example.com/tier": "spot", "ray.io/availability-region": "us-east-1", '
    '"ray.io/availability-zone": "us-east-1a", "rayspan.dev/cluster": "east"}'
)
OUR_RESOURCES = '{"fast-disk": 2, "zone:us-east-1a": 1000000}'
ZONES = [
    Zone(
        "a worker gets its zone, region, labels and resources",
        [],
        {
            "RAY_NODE_ZONE": "us-east-1a",
            "RAY_NODE_REGION": "us-east-1",
            "RAY_OVERRIDE_LABELS": OUR_LABELS,
            "RAY_OVERRIDE_RESOURCES": OUR_RESOURCES,
        },
        "no part of the command changes for it",
    ),
    Zone(
        "a user's own values are merged, and win",
        [
            {"name": "RAY_OVERRIDE_LABELS", "value": '{"rayspan.dev/cluster": "mine", "a": "b"}'},
            {"name": "RAY_OVERRIDE_RESOURCES", "value": '{"fast-disk": 9}'},
        ],
        {
            "RAY_OVERRIDE_LABELS": '{"a": "b", ' + OUR_LABELS.removeprefix("{").replace('"east"', '"mine"'),
            "RAY_OVERRIDE_RESOURCES": OUR_RESOURCES.replace("2,", "9,"),
        },
        "whoever sets an override means it",
    ),
    Zone(
        "a user's own values that cannot be parsed stay",
        [{"name": "RAY_OVERRIDE_LABELS", "value": "[" * 9999}],
        {"RAY_OVERRIDE_LABELS": "[" * 9999},
        "Ray says what is wrong with them",
    ),
    Zone(
        "a user's zone replaces ours everywhere",
        [{"name": "RAY_NODE_ZONE", "value": "mine"}],
        {
            "RAY_NODE_ZONE": "mine",
            "RAY_OVERRIDE_LABELS": OUR_LABELS.replace('"ray.io/availability-zone": "us-east-1a", ', ""),
        },
        "Ray prefers the override label to the variable, so ours would win",
    ),
    Zone(
        "a user's value that is no JSON object stays",
        [{"name": "RAY_OVERRIDE_LABELS", "value": "[1"}, {"name": "RAY_OVERRIDE_RESOURCES", "value": "3"}],
        {"RAY_OVERRIDE_LABELS": "[1", "RAY_OVERRIDE_RESOURCES": "3"},
        "Ray says what is wrong with it better than we could",
    ),
    Zone(
        "a user's value from a field reference stays",
        [{"name": "RAY_OVERRIDE_LABELS", **reference("status.podIP")}],
        {"RAY_OVERRIDE_LABELS": reference("status.podIP")["valueFrom"]},
        "it cannot be merged with",
    ),
    Zone(
        "the last of two entries counts",
        [{"name": "RAY_OVERRIDE_RESOURCES", "value": "{}"}, {"name": "RAY_OVERRIDE_RESOURCES", "value": '{"a": 1}'}],
        {"RAY_OVERRIDE_RESOURCES": '{"a": 1, ' + OUR_RESOURCES.removeprefix("{")},
        "the container sees the last",
    ),
    Zone(
        "an empty value counts as missing",
        [{"name": "RAY_OVERRIDE_RESOURCES", "value": ""}],
        {"RAY_OVERRIDE_RESOURCES": OUR_RESOURCES},
        "Ray, too, reads it as none",
    ),
]


@pytest.mark.parametrize("case", ZONES, ids=lambda case: case.id)
def test_zone(case: Zone) -> None:
    env = env_of(rewrite(kuberay_pod(env=case.env)))
    assert {name: env[name] for name in case.want} == case.want, case.why


@pytest.mark.parametrize(
    ("env", "told"), [([], "spot"), ([{"name": "RAY_NODE_MARKET_TYPE", "value": "on-demand"}], None)]
)
def test_a_users_market_type_overrides_ours(env: list[Pod], told: str | None) -> None:
    target = replace(TARGET, labels={"ray.io/market-type": "spot"})
    found = env_of(rewrite(kuberay_pod(env=env), target=target))
    assert json.loads(found["RAY_OVERRIDE_LABELS"]).get("ray.io/market-type") == told


def test_only_the_ray_container_gets_the_zone() -> None:
    pod = kuberay_pod()
    sidecar = {"name": "sidecar", "image": "s"}
    pod["spec"]["containers"].append(sidecar)
    copied = rewrite(pod)["spec"]["containers"][1]
    assert copied == {**sidecar, "terminationMessagePolicy": "FallbackToLogsOnError"}


def test_without_a_region_there_is_no_region_variable() -> None:
    bare = Target(
        cluster="c", zone="z", queue="q", manager="m", workload="w", workload_uid="u", placement="p", share="s", round=0
    )
    env = env_of(rewrite(kuberay_pod(), target=bare))
    assert "RAY_NODE_REGION" not in env
    assert json.loads(env["RAY_OVERRIDE_LABELS"]) == {"ray.io/availability-zone": "z", "rayspan.dev/cluster": "c"}


# --- removed and added fields -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Strip:
    id: str
    given: Pod
    want: Pod
    why: str


NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
STRIPS = [
    Strip(
        "the scheduling gate is removed", {"schedulingGates": [{"name": names.GATE}]}, {}, "nobody would lift it there"
    ),
    Strip("the node name is removed", {"nodeName": "n"}, {}, "it is the scheduler's choice there"),
    Strip(
        "the service account is removed",
        {"serviceAccountName": "default", "serviceAccount": "default"},
        {},
        "own default",
    ),
    Strip(
        "pull secrets of that account are removed",
        {"imagePullSecrets": [{"name": "p"}]},
        {},
        "admission added them here",
    ),
    Strip(
        "the priority is left to Kueue", {"priority": 5, "priorityClassName": "p", "preemptionPolicy": "Never"}, {}, ""
    ),
    Strip("hostname and subdomain are removed", {"hostname": "h", "subdomain": "s"}, {}, "its Service is not there"),
    Strip("debug containers are removed", {"ephemeralContainers": [{"name": "d"}]}, {}, "refused at creation"),
    Strip(
        "overhead is left to the RuntimeClass",
        {"overhead": {"cpu": "1"}, "runtimeClassName": "k"},
        {"runtimeClassName": "k"},
        "",
    ),
    Strip(
        "the manager's own node selectors are removed, the user's stays",
        {
            "nodeSelector": {
                names.LOCK_NODE_SELECTOR: "only",
                "rayspan.dev/pool": "remote",
                "example.com/flavor": "far",
                "gpu": "a100",
            }
        },
        {"nodeSelector": {"gpu": "a100"}},
        "a flavor's labels are on no node there, the user's may be",
    ),
    Strip(
        "a node selector that becomes empty is removed",
        {"nodeSelector": {names.LOCK_NODE_SELECTOR: "only"}},
        {},
        "no empty shell",
    ),
    Strip(
        "only equal tolerations are removed",
        {"tolerations": [NOT_READY, REMOTE_TOLERATION, {**NOT_READY, "tolerationSeconds": 5}]},
        {"tolerations": [{**NOT_READY, "tolerationSeconds": 5}]},
        "a user's own tolerance is a user's own",
    ),
    Strip(
        "a toleration of our taint is removed",
        {"tolerations": [POOL_TOLERATION, {"key": "rayspan.dev/pool", "operator": "Exists"}, {"operator": "Exists"}]},
        {"tolerations": [{"operator": "Exists"}]},
        "in a manager that is a worker cluster, too, it would open the flavor for its own remote workers",
    ),
    Strip("an unknown field stays", {"brandNew": {"x": 1}}, {"brandNew": {"x": 1}}, "remove only what is known"),
]


@pytest.mark.parametrize("case", STRIPS, ids=lambda case: case.id)
def test_strip(case: Strip) -> None:
    pod = kuberay_pod()
    pod["spec"] |= case.given
    rest = {key: value for key, value in rewrite(pod)["spec"].items() if key not in ("containers", "initContainers")}
    assert rest == case.want, case.why


def test_the_remote_pod_has_its_own_metadata() -> None:
    pod = kuberay_pod()
    pod["metadata"] |= {
        "resourceVersion": "7", "generation": 1, "creationTimestamp": "t", "deletionTimestamp": "t",
        "managedFields": [],
        "ownerReferences": [{"kind": "RayCluster", "controller": True}], "generateName": "g", "finalizers": ["f"],
        "deletionGracePeriodSeconds": 0, "selfLink": "s", "brandNew": 1,
        "labels": {
            "ray.io/cluster": "raycluster", "ray.io/group": "workers", "ray.io/node-type": "worker", "team": "vision",
            "app.kubernetes.io/name": "kuberay", "app.kubernetes.io/created-by": "kuberay-operator",
            "kueue.x-k8s.io/podset": "workers", names.PLACEMENT_LABEL: "old", "rayspan.dev/elastic": "true",
        },
        "annotations": {"kueue.x-k8s.io/workload": "w", "provreq.kueue.x-k8s.io/x": "y", names.SLOT_ANNOTATION: "old",
                        "note": "x", "head": "raycluster-head-svc:8265"},
    }  # fmt: skip
    out = rewrite(pod)
    assert (out["apiVersion"], out["kind"]) == ("v1", "Pod")
    assert "status" not in out
    assert out["metadata"] == {
        "name": "raycluster-workers-worker-x7",
        "namespace": "demo",
        "brandNew": 1,
        "labels": {
            "team": "vision",
            "rayspan.dev/ray-cluster": "raycluster",
            "rayspan.dev/ray-group": "workers",
            "rayspan.dev/ray-node-type": "worker",
            "rayspan.dev/manager": "mgr-1",
            "rayspan.dev/workload-uid": TARGET.workload_uid,
            "rayspan.dev/placement": TARGET.placement,
            "rayspan.dev/cluster": "east",
            "rayspan.dev/pod-uid": "pod-uid",
            "kueue.x-k8s.io/queue-name": "team-a",
            "kueue.x-k8s.io/managed": "true",
        },
        "annotations": {
            "karpenter.sh/do-not-disrupt": "true",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            "note": "x",
            "head": f"{HEAD}:8265",
            "rayspan.dev/workload": TARGET.workload,
            "rayspan.dev/round": "2",
            "rayspan.dev/slot": "east/1f2e3d4c/0",
            "rayspan.dev/head": HEAD,
            "kueue.x-k8s.io/pod-suspending-parent": "rayspan.dev",
            "kueue.x-k8s.io/pod-group-name": TARGET.share,
            "kueue.x-k8s.io/prebuilt-workload-name": TARGET.share,
            "kueue.x-k8s.io/pod-group-total-count": "1",
            "kueue.x-k8s.io/role-hash": "1f2e3d4c",
            "kueue.x-k8s.io/pod-group-serving": "true",
        },
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": TARGET.share, "uid": "a-uid"}],
    }


def test_the_managers_api_token_and_its_mounts_are_removed() -> None:
    mine = {"name": "kube-api-access-mine", "emptyDir": {}}
    pod = kuberay_pod(volumeMounts=[{"name": "kube-api-access-x1"}, {"name": "kube-api-access-mine"}])
    pod["spec"]["volumes"] = [{"name": "kube-api-access-x1", "projected": {"sources": []}}, mine]
    pod["spec"]["initContainers"][0]["volumeMounts"] = [{"name": "kube-api-access-x1"}]
    spec = rewrite(pod)["spec"]
    assert spec["volumes"] == [mine]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "kube-api-access-mine"}]
    assert "volumeMounts" not in spec["initContainers"][0]


# --- references to Secrets and ConfigMaps -----------------------------------------------------------------------------


def test_a_remote_pod_refers_to_its_jobs_copied_objects_only() -> None:
    token = {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": "raycluster", "key": "auth_token"}}}
    pod = kuberay_pod(env=[token])
    out = rewrite(pod)
    copied = copied_objects.copy_name(Reference("Secret", "raycluster"), TARGET.cluster, TARGET.workload_uid)
    assert env_of(out)["RAY_AUTH_TOKEN"] == {"secretKeyRef": {"name": copied, "key": "auth_token"}}
    assert referenced_objects(pod) == {
        Reference("Secret", "raycluster"): "spec.containers[ray-worker].env[RAY_AUTH_TOKEN].secretKeyRef"
    }


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": [{"env": [{"name": "A", "valueFrom": {"KEYREF": {"name": "NAME"}}}]}]}, id="env"),
        pytest.param({"containers": [{"envFrom": [{"REF": {"name": "NAME"}}]}]}, id="envFrom"),
        pytest.param({"initContainers": [{"env": [{"name": "A", "valueFrom": {"KEYREF": {"name": "NAME"}}}]}]},
                     id="env of an init container"),
        pytest.param({"initContainers": [{"envFrom": [{"REF": {"name": "NAME"}}]}]}, id="envFrom of an init container"),
        pytest.param({"volumes": [{"name": "v", "VOLUME": {"FIELD": "NAME"}}]}, id="a volume"),
        pytest.param({"volumes": [{"name": "v", "projected": {"sources": [{"VOLUME": {"name": "NAME"}}]}}]},
                     id="a projected volume"),
    ],
)  # fmt: skip
def test_no_field_of_a_remote_pod_refers_to_an_object_of_the_worker_cluster(spec: dict[str, Any], kind: str) -> None:
    """The text NAME stands for the reference: it must be gone from the whole pod, and the copy's name stand there."""
    key = {"Secret": "secret", "ConfigMap": "configMap"}[kind]
    words = {"KEYREF": f"{key}KeyRef", "REF": f"{key}Ref", "VOLUME": key,
             "FIELD": "secretName" if kind == "Secret" else "name", "NAME": "of-the-tenant"}  # fmt: skip
    text = json.dumps(spec)
    for word, value in words.items():
        text = text.replace(f'"{word}"', f'"{value}"')
    pod = kuberay_pod()
    pod["spec"] |= {"containers": [{"name": "ray-worker", "image": "ray"}], **json.loads(text)}
    remote = json.dumps(rewrite(pod)["spec"])
    assert '"of-the-tenant"' not in remote
    assert copied_objects.copy_name(Reference(kind, "of-the-tenant"), TARGET.cluster, TARGET.workload_uid) in remote


def test_pull_secrets_are_kept_if_the_template_names_them() -> None:
    """Pull secrets that admission added belong to the manager's account. The worker cluster's account has its own."""
    pod = kuberay_pod()
    pod["spec"]["imagePullSecrets"] = [{"name": "of-the-account"}]
    assert "imagePullSecrets" not in rewrite(pod)["spec"] and not referenced_objects(pod)
    mine, registry = [{"name": "registry"}], Reference("Secret", "registry")
    assert referenced_objects(pod, mine) == {registry: "spec.imagePullSecrets"}
    assert rewrite(pod, pull_secrets=mine)["spec"]["imagePullSecrets"] == [
        {"name": copied_objects.copy_name(registry, TARGET.cluster, TARGET.workload_uid)}
    ]


def test_the_managers_api_token_is_no_reference() -> None:
    pod = kuberay_pod(volumeMounts=[{"name": "kube-api-access-x1"}])
    sources = [{"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "kube-root-ca.crt"}}]
    pod["spec"]["volumes"] = [{"name": "kube-api-access-x1", "projected": {"sources": sources}}]
    assert not referenced_objects(pod)


# --- rejection --------------------------------------------------------------------------------------------------------


def volume(**source: Any) -> Pod:
    return {"volumes": [{"name": "v", **source}]}


def container(**fields: Any) -> Pod:
    return {"containers": [{"name": "c", **fields}]}


def claim(**spec: Any) -> Pod:
    return volume(ephemeral={"volumeClaimTemplate": {"spec": spec}})


def node_affinity(**term: Any) -> Pod:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def pod_affinity(labels: dict[str, str], *expressions: Pod) -> Pod:
    terms = [{"labelSelector": {"matchLabels": labels, "matchExpressions": list(expressions)}, "topologyKey": "zone"}]
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


K8S_TOKENS = [{"name": "RAY_AUTH_MODE", "value": "token"}, {"name": "RAY_ENABLE_K8S_TOKEN_AUTH", "value": "True"}]
REFUSED = [
    ({"hostNetwork": True}, "spec.hostNetwork is true: "),
    (volume(hostPath={"path": "/data"}), "spec.volumes[v].hostPath is /data: "),
    (volume(persistentVolumeClaim={"claimName": "pvc"}), "spec.volumes[v].persistentVolumeClaim is pvc: "),
    (
        {"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]},
        "spec.resourceClaims[gpu].resourceClaimName is shared: ",
    ),
    (
        volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}),
        "spec.volumes[v].projected has a serviceAccountToken: ",
    ),
    (volume(projected={"sources": [{"podCertificate": {}}]}), "spec.volumes[v].projected has a podCertificate: "),
    (
        volume(projected={"sources": [{"clusterTrustBundle": {"name": "ca"}}]}),
        "spec.volumes[v].projected has a clusterTrustBundle: ",
    ),
    (
        {"containers": [{"name": "ray", "env": K8S_TOKENS}]},
        "spec.containers[ray].env has RAY_ENABLE_K8S_TOKEN_AUTH: the token's issuer is the cluster that a pod runs in",
    ),
    ({"nodeName": "node-1"}, "spec.nodeName is node-1: "),
    (
        node_affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n"]}]),
        "spec.affinity.nodeAffinity has matchFields metadata.name n: ",
    ),
    (
        pod_affinity({"ray.io/node-type": "head"}),
        "spec.affinity.podAffinity requires a pod with ray.io/node-type=head: ",
    ),
    (
        pod_affinity({}, {"key": "ray.io/node-type", "operator": "In", "values": ["head"]}),
        "spec.affinity.podAffinity requires a pod with ray.io/node-type=head: ",
    ),
    (claim(dataSource={"name": "snap"}), "spec.volumes[v].ephemeral.volumeClaimTemplate.spec.dataSource is snap: "),
    (claim(dataSourceRef={"name": "c"}), "spec.volumes[v].ephemeral.volumeClaimTemplate.spec.dataSourceRef is c: "),
    (claim(volumeName="pv"), "spec.volumes[v].ephemeral.volumeClaimTemplate.spec.volumeName is pv: "),
    ({"serviceAccountName": "ray"}, "spec.serviceAccountName is ray: "),
    ({"serviceAccount": "ray"}, "spec.serviceAccount is ray: "),
    (
        volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "s"}}),
        "spec.volumes[v].csi.nodePublishSecretRef is s: ",
    ),
    (
        volume(csi={"driver": "secrets-store.csi.k8s.io", "volumeAttributes": {"secretProviderClass": "theirs"}}),
        "spec.volumes[v].csi.driver is secrets-store.csi.k8s.io: ",
    ),
    (
        volume(csi={"driver": "file.csi.azure.com", "volumeAttributes": {"secretName": "storage-key"}}),
        "spec.volumes[v].csi.volumeAttributes.secretName is storage-key: ",
    ),
    (claim(selector={"matchLabels": {"team": "payroll"}}), "spec.volumes[v].ephemeral.volumeClaimTemplate.spec has se"),
    (claim(storageClassName=""), "spec.volumes[v].ephemeral.volumeClaimTemplate.spec.storageClassName is empty: "),
    (claim(newField="x"), "spec.volumes[v].ephemeral.volumeClaimTemplate.spec.newField is x: "),
    (
        volume(
            ephemeral={
                "volumeClaimTemplate": {
                    "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": ""}},
                    "spec": {"storageClassName": "fast"},
                }
            }
        ),
        "spec.volumes[v].ephemeral.volumeClaimTemplate.metadata.annotations has volume.beta.kubernetes.io/storage-cla",
    ),
    *(
        (volume(**{kind: {"name": "x"}}), f"spec.volumes[v].{kind} is set: ")
        for kind in (
            "gcePersistentDisk",
            "awsElasticBlockStore",
            "azureDisk",
            "azureFile",
            "cephfs",
            "cinder",
            "fc",
            "flexVolume",
            "flocker",
            "gitRepo",
            "glusterfs",
            "iscsi",
            "photonPersistentDisk",
            "portworxVolume",
            "quobyte",
            "rbd",
            "scaleIO",
            "storageos",
            "vsphereVolume",
            "ofALaterVersion",
        )
    ),
]
ALLOWED: list[Pod] = [
    {},
    {"hostNetwork": False, "serviceAccountName": "default", "serviceAccount": "", "imagePullSecrets": []},
    volume(emptyDir={}),
    volume(ephemeral={"volumeClaimTemplate": {"spec": {}}}),
    claim(storageClassName="fast", accessModes=["ReadWriteOnce"], resources={}, volumeMode="Filesystem"),
    volume(csi={"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": "b"}}),
    volume(nfs={"server": "nfs.example.com", "path": "/"}),
    volume(image={"reference": "models:1"}),
    volume(downwardAPI={"items": []}),
    volume(emptyDir=None),
    volume(projected={"sources": [{"clusterTrustBundle": {"name": "ca", "optional": True}}]}),
    node_affinity(matchExpressions=[{"key": "gpu", "operator": "Exists"}]),
    pod_affinity({"ray.io/cluster": "c"}),
    pod_affinity({}, {"key": "ray.io/node-type", "operator": "In", "values": ["head", "worker"]}),
    volume(secret={"secretName": "s"}),
    volume(projected={"sources": [{"configMap": {"name": "m"}}, {"downwardAPI": {}}]}),
    container(envFrom=[{"secretRef": {"name": "s"}}]),
    {"imagePullSecrets": [{"name": "p"}]},
    container(env=[{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
]


@pytest.mark.parametrize(("spec", "want"), REFUSED, ids=[want for _, want in REFUSED])
def test_a_template_that_cannot_run_elsewhere_is_rejected_with_field_value_and_remedy(spec: Pod, want: str) -> None:
    said = pod_validation.template_problem({"spec": spec})
    assert said is not None
    assert said.startswith(want)
    assert len(said) > len(want) + 20, "what to do is missing"
    assert not said.endswith("."), "a fragment, which the caller puts into a sentence"


@pytest.mark.parametrize("spec", ALLOWED, ids=str)
def test_a_template_that_can_run_elsewhere_is_not_rejected(spec: Pod) -> None:
    assert pod_validation.template_problem({"spec": {"resources": {"requests": {"cpu": "1"}}, **spec}}) is None


@pytest.mark.parametrize(
    ("containers", "refused"),
    [
        pytest.param([{"name": "ray"}, {"name": "sidecar"}], True, id="no resources"),
        pytest.param([{"name": "ray", "resources": {"requests": {"cpu": "0"}}}], True, id="a request of zero"),
        pytest.param([{"name": "ray", "resources": {"limits": {"cpu": "1"}}}], False, id="a limit counts as a request"),
        pytest.param(
            [{"name": "ray"}, {"name": "sidecar", "resources": {"requests": {"cpu": "1m"}}}],
            False,
            id="one of two containers",
        ),
    ],
)
def test_a_worker_without_requests_is_rejected(containers: list[Pod], refused: bool) -> None:
    """KubeRay's init container has requests in any case, so the pods would run on quota that was not reserved."""
    want = "spec.containers have no resources.requests: no quota could be reserved for a worker; set them"
    assert pod_validation.template_problem({"spec": {"containers": containers}}) == (want if refused else None)


@pytest.mark.parametrize("name", RECORDED)
def test_a_rewritten_pod_would_not_be_rejected(name: str) -> None:
    pod = recorded(name)
    assert pod_validation.template_problem(rewrite(pod)) is None


# --- properties -------------------------------------------------------------------------------------------------------

WORD = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
PIECE = st.sampled_from(
    ["{fqdn}", "{fqdn}:6379", "http://{fqdn}/", "{short}", "{short}.{ns}.svc", "$X", "at 10:30", " ", "é"]
)
TEXT = st.lists(PIECE, max_size=4).map(" ".join)
ENV_NAME = st.sampled_from(["A", "B", "RAY_NODE_ZONE", "RAY_NODE_REGION", "RAY_ADDRESS"])
ENV = st.builds(lambda name, value: {"name": name, "value": value}, ENV_NAME, TEXT)
OVERRIDE = st.builds(
    lambda name, value: {"name": name, "value": value},
    st.sampled_from(["RAY_OVERRIDE_LABELS", "RAY_OVERRIDE_RESOURCES"]),
    st.sampled_from(["", "{}", '{"x": "1"}', '{"ray.io/availability-zone": "q"}', "null", "oops"]),
)
HEADS = st.sampled_from([HEAD, HEAD6])


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    cluster, namespace = draw(WORD), draw(WORD)
    short = f"{cluster}-head-svc"

    def filled(value: Any) -> Any:
        fqdn = f"{short}.{namespace}.svc.cluster.local"
        text = json.dumps(value).replace("{fqdn}", fqdn).replace("{short}", short).replace("{ns}", namespace)
        return json.loads(text)

    mounts = st.lists(st.builds(lambda name: {"name": name, "mountPath": f"/{name}"}, WORD), max_size=2)
    fields = {"args": [draw(TEXT)], "env": draw(st.lists(ENV | OVERRIDE, max_size=4)), "volumeMounts": draw(mounts)}
    pod = kuberay_pod(cluster, namespace, **filled(fields))
    for at in range(draw(st.integers(0, 2))):
        sidecar = {"name": f"sidecar-{at}", "command": [draw(TEXT)], "env": draw(st.lists(ENV, max_size=2))}
        pod["spec"][draw(st.sampled_from(["containers", "initContainers"]))].append(filled(sidecar))
    return pod


def containers(pod: Pod) -> Iterator[Pod]:
    for kind in ("initContainers", "containers"):
        yield from pod["spec"].get(kind, [])


@given(pods(), HEADS)
def test_no_trace_of_the_head_service_is_left(pod: Pod, head: str) -> None:
    short = env_of(pod)["RAY_IP"]
    assert short not in json.dumps(rewrite(pod, head=head))


@given(pods(), st.sampled_from([CLUSTER_SET, STATIC, STATIC_PORT]))
def test_no_trace_of_the_managers_name_is_left_where_the_head_has_another_name(pod: Pod, target: Target) -> None:
    short, namespace = env_of(pod)["RAY_IP"], pod["metadata"]["namespace"]
    text = json.dumps(rewrite(pod, target=target))
    assert f"{short}.{namespace}.svc.cluster.local" not in text
    assert short not in re.sub(
        rf"{short}\.{namespace}\.(svc\.clusterset\.local|[a-z0-9-]+\.ray\.example\.com)", "", text
    )


@given(pods(), HEADS)
def test_with_a_mirrored_head_every_mention_of_it_stays(pod: Pod, head: str) -> None:
    out = rewrite(pod, head=head, target=MIRRORED)
    for before, after in zip(containers(pod), containers(out), strict=True):
        assert [after.get(field) for field in ("command", "args")] == [
            before.get(field) for field in ("command", "args")
        ]
        now = {entry["name"]: entry for entry in after.get("env", [])}
        same = [entry for entry in before.get("env", []) if "RAY_IP" in entry["name"] or "ADDRESS" in entry["name"]]
        assert all(now[entry["name"]] in before["env"] for entry in same)
    assert head not in json.dumps(out["spec"])


@given(pods())
def test_rewriting_again_for_a_cluster_set_changes_nothing(pod: Pod) -> None:
    once = rewrite(pod, target=CLUSTER_SET)
    assert rewrite({**pod, "spec": once["spec"]}, target=CLUSTER_SET)["spec"] == once["spec"]


@given(pods(), HEADS)
def test_rewriting_again_changes_nothing_in_the_containers(pod: Pod, head: str) -> None:
    once = rewrite(pod, head=head)
    again = rewrite({**pod, "spec": once["spec"]}, head=head)
    assert again["spec"] == once["spec"]


@given(pods(), HEADS)
def test_the_same_pod_gives_the_same_bytes_and_is_not_changed(pod: Pod, head: str) -> None:
    before = copy.deepcopy(pod)
    first = json.dumps(rewrite(pod, head=head))
    assert json.dumps(rewrite(copy.deepcopy(pod), head=head)) == first
    assert json.dumps(pod) == json.dumps(before)


@given(pods(), HEADS)
def test_no_container_variable_or_mount_of_the_user_is_lost(pod: Pod, head: str) -> None:
    out = rewrite(pod, head=head)
    for before, after in zip(containers(pod), containers(out), strict=True):
        assert after["name"] == before["name"]
        kept = [entry["name"] for entry in after.get("env", [])][: len(before.get("env", []))]
        assert kept == [entry["name"] for entry in before.get("env", [])]
        assert after.get("volumeMounts") == before.get("volumeMounts")
        assert set(before) <= set(after)


@given(pods())
def test_no_address_loses_its_port(pod: Pod) -> None:
    text = json.dumps(rewrite(pod, head=HEAD6))
    assert f"{HEAD6}:6379" not in text
    assert text.count(f"[{HEAD6}]:6379") == len(re.findall(r"cluster\.local:6379", json.dumps(pod)))


@pytest.mark.parametrize(
    ("mode", "joined"),
    [
        pytest.param(HeadSpec(), f"{HEAD}:6379", id="PodIP"),
        pytest.param(HeadSpec(address="ServiceMirror"), "raycluster-head-svc.demo.svc.cluster.local:6379", id="mirror"),
    ],
)
def test_a_worker_joins_its_own_head_whatever_service_it_names(mode: HeadSpec, joined: str) -> None:
    """The worker cluster may have a Service of that name with another head behind it."""
    start = "ray start --address=my-ray:6379 --node-ip-address=$(hostname).nodes.demo.svc --block"
    pod = kuberay_pod(args=[start], env=[{"name": "RAY_PORT", "value": "6379"}, {"name": "START", "value": start}])
    out = rewrite(pod, target=replace(TARGET, head=mode))
    assert out["spec"]["containers"][0]["args"] == [f"ray start --address={joined} --block"]
    assert env_of(out)["START"] == f"ray start --address={joined} --block"
