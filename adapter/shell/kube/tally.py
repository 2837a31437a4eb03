"""Which requests does a client make, and how are they answered? Counted as the answers come, a watch when it opens."""

from types import SimpleNamespace
from urllib.parse import urlsplit

import aiohttp

from adapter.shell import metrics
from adapter.shell.kube.resources import kind_of

_NO_ANSWER = "none"  # instead of HTTP's status
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}

_Asked = aiohttp.TraceRequestEndParams | aiohttp.TraceRequestExceptionParams


def of(cluster: str, server: str) -> aiohttp.TraceConfig:
    """What an aiohttp session is to call to have its requests to a cluster counted; `server` is the kubeconfig's URL."""
    base = urlsplit(server).path.rstrip("/")  # some servers are behind a path of somebody else's

    def count(asked: _Asked, code: str) -> None:
        kind, named = kind_of(asked.url.path.removeprefix(base))
        reads = "watch" if "watch" in asked.url.query else "get" if named else "list"
        metrics.REQUESTS.labels(cluster, _VERBS.get(asked.method, reads), kind, code).inc()

    async def answered(_: aiohttp.ClientSession, __: SimpleNamespace, asked: aiohttp.TraceRequestEndParams) -> None:
        count(asked, str(asked.response.status))

    async def broke(_: aiohttp.ClientSession, __: SimpleNamespace, asked: aiohttp.TraceRequestExceptionParams) -> None:
        count(asked, _NO_ANSWER)

    trace = aiohttp.TraceConfig()
    trace.on_request_end.append(answered)
    trace.on_request_exception.append(broke)
    return trace
