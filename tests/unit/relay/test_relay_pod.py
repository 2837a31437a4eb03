"""What a pod of a relayed network gets. That Ray joins with it: tests/islands/test_relay.py."""

import json
import re
from typing import Any

import pytest
import yaml

from adapter import names, programs
from adapter.objects.specs import HeadSpec
from adapter.relay import relay_objects, relay_pod
from adapter.relay.frp_config import FOLDER
from adapter.relay.relay_network import RelayNetwork
from adapter.relay.relay_objects import KeyPair, RelaySecrets
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.rewriter import remote_pod
from adapter.rewrite.target import Target
from hack.corpus import golden

NETWORK = RelayNetwork("abcde01234", "team-a")
DOMAIN = "rayspan-relay-abcde01234-east.team-a.svc.cluster.local"
IMAGE = "example.com/relay:1"
RECORDED = sorted(golden.FOLDER.glob("*.in.yaml"))
TARGET = Target(
    cluster="east",
    zone="a",
    queue="team-a",
    manager="mgr",
    workload="w",
    workload_uid="u",
    placement="p",
    share="s",
    round=1,
    head=HeadSpec.model_construct(address="Static", template=NETWORK.head_node),  # no administrator may write it
)


def _pod(**container: Any) -> dict[str, Any]:
    ray = {"name": "ray-worker", "args": ["ulimit -n 65536; ray start  --address=head:6379  --block "], **container}
    waiter = {"name": names.GCS_WAITER, "args": ["until ray health-check; do :; done"]}
    spec = {"containers": [ray, {"name": "own"}], "initContainers": [waiter], "volumes": [{"name": "data"}]}
    return {"metadata": {"name": "w-1", "namespace": "team-a"}, "spec": spec}


def _env(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def _worker(**container: Any) -> dict[str, Any]:
    spec: dict[str, Any] = relay_pod.worker_pod(_pod(**container), NETWORK, "east", IMAGE)["spec"]
    return spec


def test_what_a_user_excludes_from_a_proxy_stays_excluded() -> None:
    (ray, own) = _worker(env=[{"name": "no_grpc_proxy", "value": "db.example.com"}])["containers"]
    assert _env(ray)["no_grpc_proxy"] == f"{_env(own)['no_grpc_proxy']},db.example.com"


def test_a_worker_has_its_name_and_its_sidecar_before_all_else() -> None:
    spec = _worker()
    assert (spec["hostname"], spec["subdomain"]) == ("w-1", "rayspan-relay-abcde01234-east")
    assert [container["name"] for container in spec["initContainers"]] == [names.RELAY_CLIENT, names.GCS_WAITER]
    client = spec["initContainers"][0]
    assert (client["restartPolicy"], client["image"]) == ("Always", IMAGE)
    assert client["resources"]["requests"] == {"cpu": "50m", "memory": "40Mi"}
    assert _env(client)["RAYSPAN_NODE"] == f"w-1.{DOMAIN}"
    token = client["env"][1]["valueFrom"]["secretKeyRef"]
    assert token == {"name": "rayspan-relay-abcde01234-w-1", "key": "w-1.token"}


def test_a_worker_mounts_no_file_of_the_head_and_no_token() -> None:
    data, volume = _worker()["volumes"]
    assert data == {"name": "data"}
    keys = {item["key"] for item in volume["secret"]["items"]}
    assert keys == {"ca.crt", "tls.crt", "tls.key", "frpc.json"}


def test_every_container_asks_the_proxy_but_for_its_own_cluster_and_itself() -> None:
    spec = _worker()
    for container in (*spec["initContainers"][1:], *spec["containers"]):
        env = _env(container)
        assert env["grpc_proxy"] == f"http://127.0.0.1:{names.RELAY_PROXY_PORT}"
        assert env["RAY_grpc_enable_http_proxy"] == "1"
        assert env["no_grpc_proxy"] == f".{DOMAIN},$(RAYSPAN_POD_IP),127.0.0.1,localhost"
        assert container["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}, "before its use"
    assert not any(env in _env(spec["initContainers"][0]) for env in ("grpc_proxy", "RAY_grpc_enable_http_proxy"))


@pytest.mark.parametrize(
    ("env", "want"),
    [
        pytest.param([], "25", id="unset"),
        pytest.param([{"name": relay_pod.HEALTH_CHECKS_ENV, "value": "5"}], "25", id="too low"),
        pytest.param([{"name": relay_pod.HEALTH_CHECKS_ENV, "value": "60"}], "60", id="higher"),
        pytest.param([{"name": relay_pod.HEALTH_CHECKS_ENV, "value": "many"}], "25", id="no number"),
        pytest.param([{"name": relay_pod.HEALTH_CHECKS_ENV, "valueFrom": {}}], None, id="a reference stays"),
    ],
)
def test_ray_is_patient_enough_and_a_users_greater_patience_stays(env: list[dict[str, Any]], want: str | None) -> None:
    container = _worker(env=env)["containers"][0]
    assert _env(container)[relay_pod.HEALTH_CHECKS_ENV] == want
    assert [entry["name"] for entry in container["env"]].count(relay_pod.HEALTH_CHECKS_ENV) == 1


def test_a_users_own_proxy_is_replaced_and_other_variables_stay_in_order() -> None:
    own = [{"name": "A", "value": "1"}, {"name": "grpc_proxy", "value": "http://elsewhere"}, {"name": "B", "value": ""}]
    names_of_env = [entry["name"] for entry in _worker(env=own)["containers"][0]["env"]]
    assert names_of_env[:3] == ["RAYSPAN_POD_IP", "A", "B"]
    assert len(names_of_env) == len(set(names_of_env))


def test_ray_starts_with_the_nodes_name() -> None:
    (args,) = _worker()["containers"][0]["args"]
    assert args == f"ulimit -n 65536; ray start --node-ip-address=w-1.{DOMAIN}  --address=head:6379  --block "
    (waiter,) = _worker()["initContainers"][1]["args"]
    assert waiter == "until ray health-check; do :; done"


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".in.yaml"))
def test_a_remote_pod_that_kuberay_made_joins_the_head_by_its_name(path: Any) -> None:
    recorded = yaml.safe_load(path.read_text())
    head = HeadAddress.from_pod(recorded, "10.1.1.1")
    pod = remote_pod(recorded, head=head, target=TARGET, role="r", slot="east/1/r/0", anchor_uid="a")
    relayed = relay_pod.worker_pod(pod, NETWORK, "east", IMAGE)
    text = json.dumps(relayed["spec"])
    assert head.fqdn not in text and NETWORK.head_node in text
    starts = re.findall(r'(?<![\w-])ray start(?![\w-])[^;&|"]*', text)
    name = NETWORK.node_name(pod["metadata"]["name"], "east")
    assert starts and [start for start in starts if f"--node-ip-address={name} " not in start] == []
    assert relayed["spec"]["initContainers"][0]["name"] == names.RELAY_CLIENT


def test_the_head_has_server_and_hook_too_and_reaches_its_own_services() -> None:
    spec = relay_pod.head_spec(_pod()["spec"], NETWORK, IMAGE, ["rc-head-svc"])
    assert (spec["hostname"], spec["subdomain"]) == ("head", "rayspan-relay-abcde01234")
    sidecars = [names.RELAY_HOOK, names.RELAY_SERVER, names.RELAY_CLIENT]
    assert [container["name"] for container in spec["initContainers"]] == [*sidecars, names.GCS_WAITER]
    direct = _env(spec["containers"][0])["no_grpc_proxy"]
    assert direct.startswith(".rayspan-relay-abcde01234.team-a.svc.cluster.local,rc-head-svc,$(RAYSPAN_POD_IP),")
    keys = {item["key"] for item in spec["volumes"][-1]["secret"]["items"]}
    assert {"server.key", "frps.json", "names.key", "connect.secret", "nodes.json"} < keys


def test_the_head_mounts_what_its_secret_has_and_runs_the_hook_of_it() -> None:
    pair = KeyPair("c", "k")
    files = relay_objects.head_secret(NETWORK, RelaySecrets("a", "0f" * 32, "s"), pair, pair)["stringData"]
    spec = relay_pod.head_spec(_pod()["spec"], NETWORK, IMAGE)
    hook, _, client, _ = spec["initContainers"]
    token = client["env"][1]["valueFrom"]["secretKeyRef"]["key"]
    mounted = {item["key"] for item in spec["volumes"][-1]["secret"]["items"]}
    assert {*mounted, token} == set(files)
    assert hook["command"][:2] == ["python3", f"{FOLDER}/{relay_objects.HOOK_KEY}"]
    assert files[relay_objects.HOOK_KEY] == programs.RELAY_HOOK


def test_the_changes_leave_the_pod_as_it_was() -> None:
    pod = _pod()
    relay_pod.worker_pod(pod, NETWORK, "east", IMAGE)
    assert pod == _pod()
