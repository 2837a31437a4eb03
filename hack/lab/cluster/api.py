"""Sends single requests to a cluster's API server, as the lab's admin, with the standard library alone.

kubectl would cost a tenth of a second of processor time per request, and the lab sends many while it waits. It does not
watch or retry, and knows no kinds.
"""

import http.client
import json
import ssl
import time
from collections.abc import Callable
from typing import Any

from hack.lab.base import commands
from hack.lab.base.lab import Cluster
from hack.lab.base.progress import LabError
from hack.lab.cluster import certificates

JSON_PATCH = "application/json-patch+json"
_TIMEOUT = 5.0  # seconds for one answer of an API server on the same machine; a cut link must not hold us for long
_PAUSE = 0.2


class Refused(Exception):
    """The API server answered, and not with success. `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def get(cluster: Cluster, path: str, *, timeout: float = _TIMEOUT) -> Any:
    return call(cluster, "GET", path, timeout=timeout)


def call(
    cluster: Cluster,
    method: str,
    path: str,
    body: object = None,
    *,
    content: str = "application/json",
    timeout: float = _TIMEOUT,
) -> Any:
    """The answer, decoded; text where it is not JSON (as /readyz). Raises Refused or OSError."""
    connection = http.client.HTTPSConnection(cluster.address, 6443, timeout=timeout, context=_tls(cluster))
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": content, "Accept": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
    except http.client.HTTPException as broken:
        raise OSError(str(broken)) from broken
    finally:
        connection.close()
    if response.status >= 300:
        raise Refused(response.status, _message(text))
    return json.loads(text) if text.startswith("{") else text


def wait(what: str, ready: Callable[[], bool], *, seconds: float, advice: str) -> None:
    """Poll until `ready` is true; errors mean "not yet", and the last one is reported after the timeout."""
    deadline = time.monotonic() + seconds
    last = ""
    while True:
        commands.check()
        try:
            if ready():
                return
        except (OSError, Refused) as failure:
            last = f" ({failure})"
        if time.monotonic() > deadline:
            raise LabError(f"{what} is not ready after {seconds:.0f} s{last}: {advice}.")
        time.sleep(_PAUSE)


def _tls(cluster: Cluster) -> ssl.SSLContext:
    place = certificates.directory(cluster)
    context = ssl.create_default_context(cafile=str(place / "ca.crt"))
    context.load_cert_chain(place / "admin.crt", place / "admin.key")
    return context


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()[:300]
