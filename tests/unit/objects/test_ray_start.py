"""The addresses in a worker's `ray start`."""

import time

import pytest

from adapter.objects.ray_start import (
    MAX_COMMAND_LENGTH,
    names_node_by_service,
    replace_service_addresses,
    service_of_address,
    set_node_address,
)

HEAD, SERVICE = "10.9.8.7:6379", "train-head-svc.demo.svc.cluster.local"
MESH = r"$(hostname -I | tr -d ' ' | sed 's/\./-/g').ray-nodes.demo.svc.cluster.local"


@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param("ray start --address=my-ray:6380 --block", f"ray start --address={HEAD} --block", id="short"),
        pytest.param("ray start --address my-ray.demo.svc:1;x", f"ray start --address {HEAD};x", id="with a space"),
        pytest.param("ray start --address=my-ray:$RAY_PORT", f"ray start --address={HEAD}", id="a variable as port"),
        pytest.param("ray start --address=head.example.com:6379", None, id="a public name"),
        pytest.param("ray start --address=10.0.0.1:6379", None, id="an IP"),
        pytest.param("ray start --address=$FQ_RAY_IP:6379", None, id="a variable"),
        pytest.param("ray start --address=auto", None, id="a word of Ray's"),
        pytest.param(f"ray start --address={SERVICE}:6379", None, id="the head's own Service, which is mirrored"),
        pytest.param("ray start --address=train-head-svc:6379", None, id="its short name"),
        pytest.param("curl --address=my-ray:6379", None, id="another program"),
        pytest.param("ray starter --address=my-ray:6379", None, id="a longer word"),
        pytest.param("my-ray start --address=my-ray:6379", None, id="a program with a longer name"),
        pytest.param(
            f"ray start --node-ip-address={MESH} --block", "ray start --block", id="the node's name in a mesh"
        ),
        pytest.param("ray start --node-ip-address=$ME.nodes.demo.svc", "ray start", id="by a variable"),
        pytest.param("ray start --node-ip-address=$(x (y).nodes.demo.svc", None, id="no whole word"),
        pytest.param("ray start --node-ip-address=$MY_POD_IP --block", None, id="the pod's IP"),
        pytest.param("ray start --node-ip-address=$(hostname -i) -v", None, id="a program's answer"),
    ],
)
def test_services_in_a_start_command_are_replaced(command: str, want: str | None) -> None:
    replaced = replace_service_addresses(command, "demo", SERVICE, HEAD)
    assert replaced == (command if want is None else want)
    assert replace_service_addresses(replaced, "demo", SERVICE, HEAD) == replaced


@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param("ray start --block", "ray start --node-ip-address=a.b --block", id="unset"),
        pytest.param("ray start", "ray start --node-ip-address=a.b", id="alone"),
        pytest.param("x; ray start --node-ip-address=$IP -v; y", "x; ray start --node-ip-address=a.b -v; y", id="set"),
        pytest.param(
            "ray start --resources='{\"a\": 1}' --block",
            "ray start --node-ip-address=a.b --resources='{\"a\": 1}' --block",
            id="quotes",
        ),
        pytest.param("my-ray starter --block", None, id="another program"),
        pytest.param("echo", None, id="no start"),
        pytest.param("ray start " + "x" * MAX_COMMAND_LENGTH, None, id="too long"),
    ],
)
def test_a_start_command_names_the_node(command: str, want: str | None) -> None:
    named = set_node_address(command, "a.b")
    assert named == (command if want is None else want)
    assert set_node_address(named, "a.b") == named


def test_without_a_head_the_address_stays() -> None:
    assert replace_service_addresses("ray start --address=my-ray:1", "demo", "", "") == "ray start --address=my-ray:1"


def test_the_parameters_are_judged_like_the_command() -> None:
    assert service_of_address("my-ray.demo.svc:6379", "demo") == "my-ray.demo.svc"
    assert not service_of_address("$SVC.demo.svc:6379", "demo")
    assert names_node_by_service(MESH) and not names_node_by_service("$(hostname -I)")


def test_another_command_of_the_line_keeps_its_address() -> None:
    command = "ray start --address=my-ray:1 --block && exporter --address=metrics-db:9121"
    want = f"ray start --address={HEAD} --block && exporter --address=metrics-db:9121"
    assert replace_service_addresses(command, "demo", SERVICE, HEAD) == want


@pytest.mark.parametrize(
    "text", ["ray start" + " " * 90_000, "ray start " + '--node-ip-address="' * 5_000, "ray start $(" * 8_000]
)
def test_a_hostile_command_takes_no_long_time(text: str) -> None:
    """A worker's user writes it, and the controller reads it between all others."""
    for length in (MAX_COMMAND_LENGTH, len(text)):
        before = time.process_time()
        replace_service_addresses(text[:length], "demo", SERVICE, HEAD)
        assert time.process_time() - before < 0.2
