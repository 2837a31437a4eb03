"""The hook of a head's frp server: decides who may log in, which name a node gets, and who must leave.

Runs in a head's sidecar as the file `hook` of the head's Secret, with four arguments: the RayCluster's identity, the
name of its head's node, the port to listen on, and the folder with the Secret's other files `names.key`,
`connect.secret` and `nodes.json`. It needs Python 3.8 or later and nothing of ours. Source: frp:pkg/plugin/server,
version 0.65.
- A node's token is the time of its issue and the HMAC-SHA256 of that time and the node's name with names.key, so a
  token proves exactly one name.
- All nodes are one user of frp. A visitor needs no login, but is let in only as the user of what it visits, and only a
  client with a login has a user.
- A new proxy is answered with what its node gets, not with a verdict on what it asked for. So no other
  option of frp can be claimed, such as groups, wildcards and ports.
- A login with another client's run id would take its connections over, so a node may not name another node's. Run ids
  of nodes that left are forgotten, as frp's server closes a connection that is silent for half a minute.
- A token is revoked if it was issued before the time `since` of nodes.json, and the node is not among the present ones
  of its cluster there. A change of the file counts at once. frp asks again at each heartbeat, and closes the connection
  of a node that is refused then, so its name is not found any more. Connections of Ray that stand stay until they end.
  When this program fails, frp refuses.
"""

import hashlib
import hmac
import json
import sys
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, Dict

IDENTITY, HEAD, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[4])
NAMES_KEY = bytes.fromhex((FOLDER / "names.key").read_text())
CONNECT_SECRET = (FOLDER / "connect.secret").read_text()
MAX_BODY = 65536
MAX_NODES = 65536  # more than a head has; each node that is present asks again in ten seconds
last_run_ids: Dict[str, str] = {}  # node -> run id; the node that asked last is the last one
lock = Lock()


@lru_cache(maxsize=1)
def read_nodes(inode: int, changed_at: int) -> Dict[str, Any]:
    nodes: Dict[str, Any] = json.loads((FOLDER / "nodes.json").read_text())
    return nodes


def is_revoked(node: str, issued_at: int) -> bool:
    file = (FOLDER / "nodes.json").stat()
    nodes = read_nodes(file.st_ino, file.st_mtime_ns)
    pod, _, domain = node.partition(".")
    return issued_at < nodes["since"] and pod not in nodes["clusters"].get(domain, [pod])


def refusal(operation: str, content: Dict[str, Any]) -> str:
    user = content if operation == "Login" else content.get("user") or {}
    metadata = user.get("metas") or {}
    node, run_id = metadata.get("name") or "", user.get("run_id") or ""
    issued_at, _, proof = str(metadata.get("token")).partition(".")
    expected = hmac.new(NAMES_KEY, (issued_at + " " + node).encode(), hashlib.sha256).hexdigest()
    if not node or not hmac.compare_digest(expected.encode(), proof.encode()):
        return "no valid token for " + (node or "a node without a name")
    if is_revoked(node, int(issued_at)):
        return node + " is revoked"
    if user.get("user") != IDENTITY:
        return node + " is of another user"
    if operation == "Login" and (content.get("client_spec") or {}).get("always_auth_pass"):
        return node + " is no client of a node"
    with lock:
        if run_id and any(last == run_id and other != node for other, last in last_run_ids.items()):
            return node + " has another node's run id"
        if operation != "Login":
            note_run_id(node, run_id)
    return ""


def note_run_id(node: str, run_id: str) -> None:
    last_run_ids.pop(node, None)
    last_run_ids[node] = run_id
    while len(last_run_ids) > MAX_NODES:
        del last_run_ids[next(iter(last_run_ids))]


def answer(operation: str, content: Dict[str, Any]) -> Dict[str, Any]:
    reason = refusal(operation, content)
    if not reason and operation == "NewProxy":
        node = content["user"]["metas"]["name"]
        own: Dict[str, Any] = {"proxy_type": "tcpmux", "multiplexer": "httpconnect", "custom_domains": [node]}
        connect = {"proxy_type": "stcp", "sk": CONNECT_SECRET}
        proxies = {IDENTITY + "." + node: own}
        if node == HEAD:
            proxies[IDENTITY + ".connect"] = connect
        name = content.get("proxy_name") or ""
        allowed = proxies.get(name)
        domains = content.get("custom_domains") or [node]
        if allowed and content.get("proxy_type") == allowed["proxy_type"] and domains == [node]:
            return {"unchange": False, "content": {"user": content["user"], "proxy_name": name, **allowed}}
        reason = node + " may not have the proxy " + name
    return {"reject": True, "reject_reason": reason} if reason else {"reject": False, "unchange": True}


class Hook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(min(int(self.headers["Content-Length"]), MAX_BODY)))
        result = answer(request["op"], request["content"])
        body = json.dumps(result).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if result.get("reject"):
            reason = result["reject_reason"][:500]  # with a name that its client chose
            print("refused " + request["op"] + ": " + (reason if reason.isprintable() else repr(reason)), flush=True)

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Hook)
print("listens on port", server.server_port, flush=True)
server.serve_forever()
