"""The policy on heads of relayed RayClusters, on a real API server: it makes of a head that KubeRay created what
`relay_pod.head_spec` makes, once, and of no other pod. Scheduling gates hold all heads, so none runs.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from adapter import names
from adapter.relay import relay_pod
from adapter.relay.relay_network import RelayNetwork, head_services
from hack.lab.base import versions
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.release import overlays
from hack.testbed.clusters import Cluster, Clusters, wait
from hack.testbed.reader import Raw

pytestmark = pytest.mark.alone  # the policies are of the whole cluster

NAMESPACE = "it-relay-head"
NETWORK = RelayNetwork("abcde01234", NAMESPACE)
IMAGE = overlays.RELAY_DEVELOPED
POLICY = REPO / "kustomize/components/relay/head-policy.yaml"
TOKEN_VOLUME = "kube-api-access-"  # each pod has one, with a random end
HELD = {"schedulingGates": [{"name": "example.com/held"}]}
LABELS = {"ray.io/node-type": "head", "ray.io/cluster": "written"}
_OWN_NUMBERS = [
    {"name": relay_pod.HEALTH_CHECKS_ENV, "value": "60"},
    {"name": relay_pod.RECONNECT_ENV, "value": "60"},
    {"name": "grpc_proxy", "value": "http://elsewhere"},
    {"name": "no_grpc_proxy", "value": "db.example.com"},
    {"name": "AFTER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
]
_COMMANDS = (
    "ray start", "ray start --head", "xray start", "x-ray start --head", "ray starting", "ray start-all",
    "ray startray start", "ray stop; ray start --head --block", "ray start --head || ray start --head --port=1",
    "bash -c 'ray start --head'", "until\nray start --head\ndo :; done", "$(ray start --head)", "ray start;",
    "ray  start", "", "ray start --head|tee log",
)  # fmt: skip


def _ray(**container: Any) -> dict[str, Any]:
    requests = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return {"name": "ray-head", "image": f"rayproject/ray:{versions.RAY}", **requests, **container}


def _helper(name: str, **container: Any) -> dict[str, Any]:
    return {"name": name, "image": "example.com/helper:1", **container}


# Head groups and other parts of the RayCluster, as users write them for KubeRay.
_OVERWRITTEN = {"metadata": {"annotations": {"ray.io/overwrite-container-cmd": "true"}}}
_SCRIPT = {"command": ["/bin/bash", "-lc", "--"], "args": ["ulimit -n 65536; exec $KUBERAY_GEN_RAY_START_CMD"]}
CLUSTERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({"template": {"spec": {"containers": [_ray()]}}}, {}),
    "own-containers": (
        {
            "template": {
                "spec": {
                    "initContainers": [_helper("first", env=_OWN_NUMBERS), _helper("second", restartPolicy="Always")],
                    "containers": [_ray(env=_OWN_NUMBERS), _helper("beside", ports=[{"containerPort": 8080}])],
                    "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}],
                }
            }
        },
        {},
    ),
    "own-script": ({"template": {**_OVERWRITTEN, "spec": {"containers": [_ray(**_SCRIPT)]}}}, {}),
    "own-start": (
        {"template": {"spec": {"containers": [_ray(command=["bash", "-c"], args=["echo; ray start --head --block"])]}}},
        {},
    ),
    "no-volumes": (
        {
            "rayStartParams": {"plasma-directory": "/tmp", "num-cpus": "0"},
            "template": {"spec": {"automountServiceAccountToken": False, "containers": [_ray()]}},
        },
        {},
    ),
    "autoscaled": ({"template": {"spec": {"containers": [_ray()]}}}, {"enableInTreeAutoscaling": True}),
}


@pytest.fixture(scope="module")
def manager(fleet: Clusters) -> Iterator[Cluster]:
    """The manager with the policies in force."""
    cluster = fleet.manager
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    try:
        cluster.kubectl("apply", "-f", POLICY)
        cluster.apply(json.dumps(namespace))
        wait(lambda: _is_in_force(cluster), 60, "the API server applies the policies")
        yield cluster
    finally:
        cluster.kubectl("delete", "-f", POLICY, "--ignore-not-found")
        cluster.delete("namespace", NAMESPACE)


@pytest.fixture(scope="module")
def heads(manager: Cluster) -> dict[str, Raw]:
    """The heads that KubeRay makes of CLUSTERS, whose templates have no label."""
    for name, (group, rest) in CLUSTERS.items():
        manager.apply(json.dumps(_ray_cluster(name, group, **rest)))
    return {name: _await_head(manager, name) for name in CLUSTERS}


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_head_becomes_what_the_code_makes_of_it(manager: Cluster, heads: dict[str, Raw], name: str) -> None:
    written = _pod(_spec(heads[name]), heads[name]["metadata"]["labels"])
    assert _spec(_create(manager, _labelled(written))) == _expected(manager, written, name)


def test_kuberay_creates_such_a_head(manager: Cluster, heads: dict[str, Raw]) -> None:
    group = {
        "template": {**CLUSTERS["plain"][0]["template"], "metadata": {"labels": {names.RELAY_LABEL: NETWORK.identity}}}
    }
    manager.apply(json.dumps(_ray_cluster("labelled", group)))
    created = _spec(_await_head(manager, "labelled"))
    plain = _pod(_spec(heads["plain"]), heads["plain"]["metadata"]["labels"])
    assert created == _expected(manager, plain, "labelled")
    assert created["initContainers"][0]["name"] == names.RELAY_HOOK


def test_each_command_is_changed_as_the_code_changes_it(manager: Cluster) -> None:
    env = [{"name": f"COMMAND_{index}", "value": command} for index, command in enumerate(_COMMANDS)]
    containers = [_ray(env=env, command=list(_COMMANDS[::2])), _helper("beside", args=list(_COMMANDS[1::2]))]
    written = _pod({"containers": containers}, LABELS)
    assert _spec(_create(manager, _labelled(written))) == _expected(manager, written, "written")


@pytest.mark.parametrize(
    "value",
    ["", "24", "25", "025", "+30", "1e3", "many", "999999999", "1000000000", "٣٠", {"fieldPath": "metadata.name"}],
)
def test_a_number_is_raised_where_the_code_raises_it(manager: Cluster, value: str | dict[str, str]) -> None:
    own = {"value": value} if isinstance(value, str) else {"valueFrom": {"fieldRef": value}}
    env = [{"name": relay_pod.HEALTH_CHECKS_ENV, "value": "1"}, {"name": relay_pod.HEALTH_CHECKS_ENV, **own}]
    written = _pod({"containers": [_ray(env=env)]}, LABELS)
    assert _spec(_create(manager, _labelled(written))) == _expected(manager, written, "written")


def test_the_largest_head_is_changed(manager: Cluster) -> None:
    written = _pod({"containers": _containers(32, 512, 32, 1024)}, LABELS)
    assert _spec(_create(manager, _labelled(written))) == _expected(manager, written, "written")


def test_a_second_time_changes_nothing(manager: Cluster, heads: dict[str, Raw]) -> None:
    once = _create(
        manager, _labelled(_pod(_spec(heads["own-containers"]), heads["own-containers"]["metadata"]["labels"]))
    )
    assert once["spec"]["hostname"] == "head"
    assert _spec(_create(manager, _labelled(_pod(_spec(once), once["metadata"]["labels"])))) == _spec(once)


def test_other_pods_stay_as_they_are(manager: Cluster, heads: dict[str, Raw]) -> None:
    head = heads["own-containers"]
    labels = head["metadata"]["labels"]
    assert _spec(_create(manager, _pod(_spec(head), labels))) == _spec(head), "a head without the label"
    worker = _labelled(_pod(_spec(head), {**labels, "ray.io/node-type": "worker"}))
    assert _spec(_create(manager, worker)) == _spec(head), "a worker with the label"


@pytest.mark.parametrize(
    ("containers", "sentence"),
    [
        pytest.param(
            lambda: _containers(33),
            "spec has 33 containers, 0 variables and 0 commands with `ray start`, these of 0 characters; a head that "
            "needs the relay may have 32, 512, 32 and 32768. Remove some of them (RelayHeadTooLarge).",
            id="too many containers",
        ),
        pytest.param(lambda: _containers(1, 513), " 513 variables and 0 commands", id="too many variables"),
        pytest.param(lambda: _containers(1, 40, 33), " and 33 commands with `ray start`", id="too many commands"),
        pytest.param(lambda: _containers(1, 3, 3, 11000), " these of 33000 characters", id="too long commands"),
        pytest.param(
            lambda: [_ray(), _helper(names.RELAY_HOOK, restartPolicy="Always")],
            "name no container rayspan-relay-hook (RelayHeadUnchanged).",
            id="a hook of its own",
        ),
        pytest.param(
            lambda: [_ray(args=["ray start --head --node-ip-address=$MY_IP --block"])],
            "Remove node-ip-address from headGroupSpec.rayStartParams, or from the command (RelayHeadCommand).",
            id="an address of its own",
        ),
        pytest.param(
            lambda: [_ray(args=["ray start --head --labels=ray start"])],
            "one command has `ray start` twice",
            id="two starts in one command",
        ),
        pytest.param(
            lambda: [_ray(args=["ray start --head " + "#" * 16384])], "more than 16384 characters", id="a long command"
        ),
    ],
)
def test_what_the_policy_cannot_change_is_refused_with_a_sentence(
    manager: Cluster, containers: Any, sentence: str
) -> None:
    made = containers()
    inits, rest = ([each for each in made if ("restartPolicy" in each) == native] for native in (True, False))
    with pytest.raises(LabError) as refusal:
        _create(manager, _labelled(_pod({"initContainers": inits, "containers": rest}, LABELS)))
    assert "denied request: Pod head: " in str(refusal.value) and sentence in str(refusal.value)


def _containers(count: int = 1, variables: int = 0, starts: int = 0, length: int = 0) -> list[Raw]:
    """So many containers with so many variables altogether, of which the last start Ray by commands of this length."""
    values = ["long" * 100] * (variables - starts)
    values += [f"ray start --head --number={index}".ljust(length, "#") for index in range(starts)]
    env = [{"name": f"V{index}", "value": value} for index, value in enumerate(values)]
    return [_helper(f"c{index}", env=env[index::count]) for index in range(count)]


def _ray_cluster(name: str, group: dict[str, Any], **rest: Any) -> dict[str, Any]:
    template = group["template"]
    template = {**template, "spec": {**HELD, **template["spec"]}}
    spec = {"rayVersion": versions.RAY, "headGroupSpec": {"rayStartParams": {}, **group, "template": template}, **rest}
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


def _await_head(manager: Cluster, name: str) -> Raw:
    selector = f"ray.io/cluster={name},ray.io/node-type=head"
    (head,) = manager.wait(lambda: manager.items("pods", NAMESPACE, selector), 60, f"KubeRay makes the head of {name}")
    return head


def _pod(spec: Raw, labels: Raw) -> dict[str, Any]:
    metadata = {"name": "head", "namespace": NAMESPACE, "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _labelled(pod: dict[str, Any]) -> dict[str, Any]:
    labels = {**pod["metadata"]["labels"], names.RELAY_LABEL: NETWORK.identity}
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}


def _expected(manager: Cluster, pod: Raw, cluster: str) -> Raw:
    """The spec of a head by the code, with the defaults of the API server."""
    spec = relay_pod.head_spec(pod["spec"], NETWORK, IMAGE, head_services(cluster, NAMESPACE))
    return _spec(_create(manager, {**pod, "spec": spec}))


def _create(manager: Cluster, pod: Raw) -> Raw:
    """The pod as the API server would store it. Raises LabError with its refusal."""
    created: Raw = json.loads(
        manager.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(pod))
    )
    return created


def _is_in_force(manager: Cluster) -> bool:
    """Whether one policy changes a head, and the other one refuses a head."""
    try:
        created = _create(manager, _labelled(_pod({"containers": [_ray()]}, LABELS)))
    except LabError:  # the second one is, the first one is not
        return False
    try:
        _create(manager, _labelled(_pod({"containers": _containers(33)}, LABELS)))
    except LabError:
        return bool(created["spec"].get("hostname") == "head")
    return False


def _spec(pod: Raw) -> dict[str, Any]:
    """The pod's spec without the token of its account, whose volume has a random name, and whose place depends on when
    the API server adds it.
    """
    kinds = {
        kind: [_without_token(container, "volumeMounts") for container in pod["spec"][kind]]
        for kind in ("initContainers", "containers")
        if kind in pod["spec"]
    }
    return _without_token({**pod["spec"], **kinds}, "volumes")


def _without_token(part: Raw, key: str) -> dict[str, Any]:
    rest = [each for each in part.get(key, ()) if not each["name"].startswith(TOKEN_VOLUME)]
    return {**{name: value for name, value in part.items() if name != key}, **({key: rest} if rest else {})}
