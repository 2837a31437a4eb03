"""The relay's hook, as a head's pod runs it: what it answers to frp's requests."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from adapter import programs
from adapter.relay.relay_network import RelayNetwork, node_token
from adapter.relay.relay_objects import HOOK_KEY, present_nodes

NETWORK = RelayNetwork("abcde01234", "team-a")
KEY, HEAD = "0f" * 32, NETWORK.head_node
NODE, OTHER, ABSENT = (NETWORK.node_name(pod, "east") for pod in ("w-1", "w-2", "w-3"))
SINCE = 1_000
STAYS = {"reject": False, "unchange": True}
Ask = Callable[[str, dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Send a request as frp does."""
    with _asking(tmp_path_factory.mktemp("secret"), programs.RELAY_HOOK) as send:
        yield send


@contextmanager
def _asking(folder: Path, program: str) -> Iterator[Ask]:
    nodes = present_nodes(NETWORK, SINCE, {"east": ["w-2", "w-1"], "north": []})
    files = {"names.key": KEY, "connect.secret": "word", "nodes.json": nodes, HOOK_KEY: program}
    for name, content in files.items():
        (folder / name).write_text(content)
    with _hook(folder) as process:
        assert process.stdout
        port = int(process.stdout.readline().split()[-1])
        opener = build_opener(ProxyHandler({}))

        def send(operation: str, content: dict[str, Any]) -> dict[str, Any]:
            body = json.dumps({"version": "0.1.0", "op": operation, "content": content}).encode()
            with opener.open(Request(f"http://127.0.0.1:{port}/", body), timeout=10) as response:
                answer: dict[str, Any] = json.load(response)
            return answer

        try:
            yield send
        finally:
            process.kill()


def _hook(folder: Path) -> "subprocess.Popen[str]":
    words = [sys.executable, str(folder / HOOK_KEY), NETWORK.identity, HEAD, "0", str(folder)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def _user(node: str = NODE, token: str | None = None, **rest: Any) -> dict[str, Any]:
    metas = {"name": node, "token": node_token(KEY, node) if token is None else token}
    return {"user": NETWORK.identity, "metas": metas, **rest}


def _proxy(node: str = NODE, of: str | None = None, **rest: Any) -> dict[str, Any]:
    name = f"{NETWORK.identity}.{of or node}"
    return {
        "user": _user(node),
        "proxy_name": name,
        "proxy_type": "tcpmux",
        "multiplexer": "httpconnect",
        "custom_domains": [node],
        **rest,
    }


def test_a_node_logs_in_and_stays(ask: Ask) -> None:
    assert ask("Login", _user()) == STAYS
    assert ask("Ping", {"user": _user(run_id="r1")}) == STAYS
    assert ask("Login", _user(run_id="r1")) == STAYS, "again after its connection broke"


@pytest.mark.parametrize(
    ("login", "reason"),
    [
        pytest.param(_user(token=""), f"no valid token for {NODE}", id="no token"),
        pytest.param(_user(OTHER, node_token(KEY, NODE)), f"no valid token for {OTHER}", id="another's name"),
        pytest.param(_user(token=node_token("00" * 32, NODE)), f"no valid token for {NODE}", id="another network's"),
        pytest.param(_user(token="ü"), f"no valid token for {NODE}", id="no ASCII"),
        pytest.param({"user": NETWORK.identity}, "no valid token for a node without a name", id="no name"),
        pytest.param({**_user(), "user": "root"}, f"{NODE} is of another user", id="another user"),
        pytest.param(_user(ABSENT), f"{ABSENT} is revoked", id="a node that left"),
        pytest.param(
            _user(client_spec={"always_auth_pass": True}), f"{NODE} is no client of a node", id="as frp's SSH gateway"
        ),
    ],
)
def test_others_do_not_log_in(ask: Ask, login: dict[str, Any], reason: str) -> None:
    assert ask("Login", login) == {"reject": True, "reject_reason": reason}


def test_a_node_that_left_must_leave(ask: Ask) -> None:
    assert ask("Ping", {"user": _user(ABSENT, run_id="r3")})["reject"]


@pytest.mark.parametrize(
    ("pod", "cluster", "issued_at", "logs_in"),
    [
        pytest.param("w-3", "east", SINCE - 1, False, id="not present"),
        pytest.param("w-3", "east", SINCE, True, id="may just be created"),
        pytest.param("w-1", "east", 0, True, id="present, however old"),
        pytest.param("w-1", "north", 0, False, id="present in another cluster alone"),
        pytest.param("w-3", "west", 0, True, id="of a cluster of which nothing is known"),
        pytest.param("head", "", 0, True, id="the head"),
    ],
)
def test_a_token_is_valid_while_its_node_may_be_present(
    ask: Ask, pod: str, cluster: str, issued_at: int, logs_in: bool
) -> None:
    node = NETWORK.node_name(pod, cluster)
    answer = ask("Login", _user(node, node_token(KEY, node, issued_at)))
    assert answer == (STAYS if logs_in else {"reject": True, "reject_reason": f"{node} is revoked"})


def test_a_token_cannot_be_made_younger(ask: Ask) -> None:
    proof = node_token(KEY, ABSENT).partition(".")[2]
    assert ask("Login", _user(ABSENT, f"{SINCE}.{proof}"))["reject_reason"] == f"no valid token for {ABSENT}"


def test_no_node_takes_over_the_connections_of_another(ask: Ask) -> None:
    assert ask("Ping", {"user": _user(OTHER, run_id="r2")}) == STAYS
    refused = {"reject": True, "reject_reason": f"{NODE} has another node's run id"}
    assert ask("Login", _user(run_id="r2")) == refused


def test_run_ids_of_nodes_that_asked_long_ago_are_forgotten(tmp_path: Path) -> None:
    """The server has closed their connections, so there is nothing to take over."""
    program = programs.RELAY_HOOK.replace("MAX_NODES = 65536", "MAX_NODES = 2")
    assert program != programs.RELAY_HOOK
    with _asking(tmp_path, program) as ask:
        for node, run_id in ((HEAD, "r0"), (NODE, "r1"), (HEAD, "r0"), (OTHER, "r2")):
            assert ask("Ping", {"user": _user(node, run_id=run_id)}) == STAYS
        assert ask("Login", _user(OTHER, run_id="r0"))["reject"], "the head asked again, so it stays"
        assert ask("Login", _user(OTHER, run_id="r1")) == STAYS


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(_proxy(), id="as it should be"),
        pytest.param(_proxy(group="g", group_key="k"), id="a group"),
        pytest.param(_proxy(route_by_http_user="u", http_user="u", http_pwd="p"), id="by user"),
        pytest.param(_proxy(sub_domain="x"), id="a subdomain"),
    ],
)
def test_a_node_gets_its_own_name_and_nothing_that_it_asks_for(ask: Ask, request_: dict[str, Any]) -> None:
    assert ask("NewProxy", request_) == {
        "unchange": False,
        "content": {
            "user": request_["user"],
            "proxy_name": f"{NETWORK.identity}.{NODE}",
            "proxy_type": "tcpmux",
            "multiplexer": "httpconnect",
            "custom_domains": [NODE],
        },
    }


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(_proxy(custom_domains=[OTHER]), id="another's domain"),
        pytest.param(_proxy(custom_domains=[HEAD]), id="the head's domain"),
        pytest.param(_proxy(custom_domains=[NODE, OTHER]), id="two domains"),
        pytest.param(_proxy(custom_domains=["*"]), id="a wildcard"),
        pytest.param(_proxy(of=OTHER), id="another's proxy"),
        pytest.param(_proxy(proxy_type="tcp", remote_port=22), id="a port of the server"),
        pytest.param(_proxy(of="connect", proxy_type="stcp", sk="word", custom_domains=[]), id="the way to all names"),
    ],
)
def test_a_node_gets_no_other_proxy(ask: Ask, request_: dict[str, Any]) -> None:
    assert ask("NewProxy", request_)["reject_reason"].startswith(f"{NODE} may not have the proxy ")


def test_the_head_alone_offers_the_way_to_all_names(ask: Ask) -> None:
    request = _proxy(HEAD, of="connect", proxy_type="stcp", sk="of the client", custom_domains=[])
    content = ask("NewProxy", request)["content"]
    assert (content["proxy_type"], content["sk"]) == ("stcp", "word")
    assert "allow_users" not in content
