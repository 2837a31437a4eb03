"""The component relay has the code's router, ports and names, and its pods have no rights.

tests/islands/test_relay.py runs such routers.
"""

from typing import Any

import pytest
import yaml

from adapter import names
from adapter.relay.relay_network import RelayNetwork
from adapter.relay.router_config import MAX_CONNECTIONS, router_config
from hack.lab.base.lab import OPEN_PORT
from hack.lab.base.paths import REPO
from hack.lab.images import images
from hack.release import overlays

_FOLDER = REPO / "kustomize/components/relay"
_OBJECTS = overlays.objects(overlays.RELAY, overlays.DEVELOPED, overlays.RELAY_DEVELOPED)


def _object(kind: str, name: str) -> dict[str, Any]:
    """The object of that name, or the only one whose name begins so: kustomize adds a hash to some names."""
    found = {each["metadata"]["name"]: each for each in _OBJECTS if each["kind"] == kind}
    if name in found:
        return found[name]
    (raw,) = (each for each_name, each in found.items() if each_name.startswith(name))
    return raw


ROUTERS = _object("Deployment", "rayspan-relay-router")
POD = ROUTERS["spec"]["template"]["spec"]
LABELS = ROUTERS["spec"]["template"]["metadata"]["labels"]
(CONTAINER,) = POD["containers"]


def test_the_router_has_the_codes_configuration_for_its_own_namespace(request: pytest.FixtureRequest) -> None:
    file, wanted = _FOLDER / "router.cfg", router_config(names.SYSTEM_NAMESPACE)
    if request.config.getoption("--update-golden"):
        file.write_text(wanted)
    assert file.read_text() == wanted, "read the difference, then run this test with --update-golden"
    config = _object("ConfigMap", "rayspan-relay-router")
    assert config["data"] == {"router.cfg": wanted}
    (volume,) = POD["volumes"]
    assert volume["configMap"]["name"] == config["metadata"]["name"] != "rayspan-relay-router", "with a hash"
    (mount,) = CONTAINER["volumeMounts"]
    assert f"{mount['mountPath']}/router.cfg" == CONTAINER["command"][-1]
    assert {ROUTERS["metadata"]["namespace"], config["metadata"]["namespace"]} == {names.SYSTEM_NAMESPACE}


def test_the_routers_are_as_the_islands_run_them() -> None:
    assert CONTAINER["image"] == overlays.RELAY_DEVELOPED == images.reference("relay")
    assert CONTAINER["command"] == ["haproxy", "-W", "-db", "-f", "/config/router.cfg"]
    assert ROUTERS["spec"]["replicas"] == 2
    assert ROUTERS["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert _object("PodDisruptionBudget", "")["spec"]["maxUnavailable"] == 1


def test_the_routers_have_no_rights_and_no_credentials() -> None:
    assert POD["automountServiceAccountToken"] is False and "serviceAccountName" not in POD
    assert {each for volume in POD["volumes"] for each in volume} == {"name", "configMap"}
    assert "env" not in CONTAINER and "envFrom" not in CONTAINER
    accounts = {
        subject["name"] for each in _OBJECTS if "roleRef" in each for subject in each.get("subjects", ())
    }  # fmt: skip
    assert accounts == {names.CONTROLLER_ACCOUNT}


def test_the_routers_are_restricted_pods_with_bounded_memory() -> None:
    assert POD["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert CONTAINER["resources"]["requests"].keys() == {"cpu", "memory"}
    limit = CONTAINER["resources"]["limits"]["memory"]
    assert int(limit.removesuffix("Mi")) << 20 > MAX_CONNECTIONS * (32 << 10), "two buffers of 16 KiB a connection"


def test_one_port_is_open() -> None:
    (port,) = CONTAINER["ports"]
    assert (port["name"], port["containerPort"]) == ("relay", names.RELAY_ROUTER_PORT)
    assert CONTAINER["readinessProbe"]["tcpSocket"] == {"port": port["name"]}
    service = _object("Service", "rayspan-relay")["spec"]
    assert (service["type"], service["externalTrafficPolicy"]) == ("NodePort", "Local")
    wanted = {"name": "relay", "port": names.RELAY_ROUTER_PORT, "targetPort": "relay", "nodePort": OPEN_PORT}
    assert service["ports"] == [wanted]
    assert service["selector"] == LABELS == ROUTERS["spec"]["selector"]["matchLabels"]


def test_the_routers_reach_dns_and_heads_alone() -> None:
    policy = _object("NetworkPolicy", "rayspan-relay-router")["spec"]
    assert policy["podSelector"]["matchLabels"] == LABELS
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": names.RELAY_ROUTER_PORT}]}]
    dns, heads = policy["egress"]
    assert {(each["protocol"], each["port"]) for each in dns["ports"]} == {
        (protocol, port) for protocol in ("UDP", "TCP") for port in (53, 5353)
    }
    assert heads == {"ports": [{"protocol": "TCP", "port": names.RELAY_SERVER_PORT}]}


def test_the_controller_writes_objects_of_the_codes_names_alone() -> None:
    spec = _object("ValidatingAdmissionPolicy", "rayspan-relay")["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["secrets", "services"], ["CREATE", "UPDATE", "DELETE"])
    account = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{names.CONTROLLER_ACCOUNT}"
    (condition,) = spec["matchConditions"]
    assert condition["expression"] == f"request.userInfo.username == '{account}'"
    everywhere, own = spec["validations"][0]["expression"].split(" || ")
    network = RelayNetwork("abcde01234", "team-a")
    for name in (network.secret, network.node_service("east"), network.node_service("")):
        assert any(name.startswith(prefix) for prefix in _prefixes(everywhere)), name
    assert f"request.namespace == '{names.SYSTEM_NAMESPACE}'" in own and "== 'services'" in own
    assert any(network.router_service.startswith(prefix) for prefix in _prefixes(own))
    binding = _object("ValidatingAdmissionPolicyBinding", "rayspan-relay")["spec"]
    assert (binding["policyName"], binding["validationActions"], spec["failurePolicy"]) == (
        "rayspan-relay",
        ["Deny"],
        "Fail",
    )


def _prefixes(expression: str) -> list[str]:
    return [part.partition("'")[0] for part in expression.split("variables.name.startsWith('")[1:]]


def test_the_release_replaces_both_images() -> None:
    image = "registry.example:5000/own/rayspan:v1@sha256:0"
    (routers,) = (each for each in overlays.objects(overlays.RELAY, image) if each["kind"] == "Deployment")
    container = routers["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example:5000/own/rayspan-relay:v1", "without the digest of another image"
    assert overlays.RELAY_DEVELOPED not in yaml.safe_dump(overlays.objects(overlays.RELAY, image))
