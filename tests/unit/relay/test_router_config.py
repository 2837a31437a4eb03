"""The router leads a server's name to the Service of that head, in its own namespace only.

That HAProxy accepts the configuration: tests/islands/test_relay.py.
"""

import re

import pytest

from adapter.relay.relay_network import RelayNetwork
from adapter.relay.router_config import router_config

CONFIG = router_config("system")
RULES = [line.strip() for line in CONFIG.splitlines() if "tcp-request content" in line]


def _host(server_name: str) -> str:
    """What the rules make of a server's name, as HAProxy's converters do."""
    (pattern,) = re.findall(r"-m reg (\S+)", CONFIG)
    if not re.search(pattern, server_name):
        return ""
    for search, replacement in re.findall(r"regsub\(([^,]*),([^)]*)\)", CONFIG):
        server_name = re.sub(search, replacement, server_name, count=1)
    return server_name


def test_a_heads_name_becomes_its_service() -> None:
    network = RelayNetwork("abcde01234", "team-a")
    assert _host(network.server_name) == f"{network.router_service}.system.svc.cluster.local"


@pytest.mark.parametrize(
    "name",
    ["", "relay", ".relay", "kubernetes.default.relay", "x.y.svc.cluster.local", "abc.relay.example.com", "a_b.relay"],
)
def test_other_names_are_rejected(name: str) -> None:
    assert _host(name) == ""


def test_what_is_no_hello_or_has_no_head_is_rejected_before_it_is_passed_on() -> None:
    rejections = [rule for rule in RULES if " reject " in rule]
    assert [rule.partition("{ ")[2].split()[0] for rule in rejections] == [
        "req.ssl_hello_type",
        "var(sess.name)",
        "var(sess.head)",
        "sc1_conn_cur",
    ]
    assert "tcp-request content track-sc1 var(sess.name) table names" in RULES, "after the name is known"
    assert re.search(r"^backend names\n  stick-table type string .* store conn_cur$", CONFIG, re.MULTILINE)
    assert RULES[-1].startswith("tcp-request content set-dst")
    assert "WAIT_END" not in CONFIG, "it waits the whole delay, and then is true"
