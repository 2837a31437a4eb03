"""Reads an API server, by any kubeconfig and of any kind, through the official Python client.

kubectl costs a tenth of a second of processor time per request, too much for tests and a demo that poll several times a
second. It finds a kind as kubectl does, by discovery, and writes nothing (writer.py does); what it posts are questions.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config

from hack.lab.base.progress import LabError

Raw = dict[str, Any]

_TIMEOUT = 10.0  # seconds for one answer; a cut link must not hold a test for long
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class Unreachable(LabError):
    """No answer: no connection, none in time, or an API server that comes, goes or has too much to do."""


class Refused(LabError):
    """The API server answered, and not with success. `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotThere(Refused):
    """The requested object does not exist, or not yet."""


class Reader:
    """One API server."""

    def __init__(self, kubeconfig: Path) -> None:
        settings = client.Configuration()
        try:
            config.load_kube_config(str(kubeconfig), client_configuration=settings)
        except config.ConfigException as wrong:
            raise LabError(f"The kubeconfig {kubeconfig} is of no use: {wrong}") from wrong
        settings.retries = False  # a waiting caller retries anyway
        self._api = client.ApiClient(settings)
        self._kinds: dict[str, tuple[str, str, bool]] = {}

    def text(self, path: str, query: Mapping[str, str] | None = None, accept: str = "application/json") -> str:
        """The body at a path. Raises Refused or Unreachable; any other exception is a fault of ours and propagates."""
        return self.ask("GET", path, query, {"Accept": accept})

    def post(self, path: str, question: Raw) -> Raw:
        """The answer to a question that is an object: a review, which the API server fills in and does not keep."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        answer: Raw = json.loads(self.ask("POST", path, None, headers, question))
        return answer

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Raw:
        found: Raw = json.loads(self.text(path, query))
        return found

    def path(self, kind: str, name: str | None = None, namespace: str | None = None) -> str:
        """Where objects of a kind are; `kind` is what kubectl takes: plural, singular, short name, or plural.group."""
        prefix, plural, namespaced = self._kind(kind)
        place = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return f"{prefix}{place}/{plural}" + (f"/{name}" if name else "")

    def namespaced(self, kind: str) -> bool:
        return self._kind(kind)[2]

    def ask(
        self, verb: str, path: str, query: Mapping[str, str] | None, headers: dict[str, str], body: Raw | None = None
    ) -> str:
        """The body of an answer. Raises Refused or Unreachable."""
        request = self._api.param_serialize(
            verb, path, query_params=list((query or {}).items()), header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        try:
            answer = self._api.call_api(*request, _request_timeout=_TIMEOUT)
            said = bytes(answer.read()).decode(errors="replace")
        except (urllib3.exceptions.HTTPError, OSError) as broken:
            raise Unreachable(f"{verb} {path}: {broken}") from broken
        except client.ApiException as broken:
            if broken.status:
                raise
            raise Unreachable(
                f"{verb} {path}: {broken.reason}"
            ) from broken  # how the client tells of a broken TLS connection
        if answer.status >= 300:
            raise trouble(answer.status, verb, path, _message(said))
        return said

    def _kind(self, kind: str) -> tuple[str, str, bool]:
        if kind.lower() not in self._kinds:
            self._kinds = dict(self._discover())
        try:
            return self._kinds[kind.lower()]
        except KeyError:
            raise NotThere(404, f"the API server knows no kind {kind}") from None

    def _discover(self) -> Iterator[tuple[str, tuple[str, str, bool]]]:
        """Every name of every kind; where groups share a name, the core group, then the first, comes last and wins."""
        for root in ("/apis", "/api"):
            for group in reversed(json.loads(self.text(root, accept=_DISCOVERY))["items"]):
                named = group["metadata"].get("name") or ""
                for version in reversed(group["versions"]):  # the preferred one is first and wins
                    prefix = "/".join(filter(None, (root, named, version["version"])))
                    for resource in version.get("resources") or ():
                        where = (prefix, resource["resource"], resource["scope"] == "Namespaced")
                        yield from ((word, where) for word in _words(resource, named))


def trouble(status: int, verb: str, path: str, said: str) -> LabError:
    """The exception for an answer that is not success.

    An API server that is killed, starts or has lost etcd answers 429 or 5xx; a log answers 400 before its container has
    begun.
    """
    words = f"{verb} {path}: {said}"
    if status == 429 or status >= 500:
        return Unreachable(words)
    absent = status == 404 or (status == 400 and path.endswith("/log"))
    return NotThere(status, words) if absent else Refused(status, words)


def _words(resource: Raw, group: str) -> list[str]:
    names = [resource["resource"], resource.get("singularResource") or "", *(resource.get("shortNames") or ())]
    words = [name for name in names if name]
    return words + [f"{word}.{group}" for word in words if group]


def _message(body: str) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.strip()[:300]
