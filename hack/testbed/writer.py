"""How are the objects of a stage made and removed when there are many? By the API itself: no process for each.

kubectl costs a fifth of a second of processor time per call, and a stage is built and cleared hundreds of times. What a user
would do in a test still goes through kubectl.
"""

import json
from pathlib import Path

from kubernetes import client, config

from hack.lab.base.progress import LabError
from hack.testbed.reader import Raw, Reader

_TIMEOUT = 20.0  # seconds; a webhook of Kueue that has just started may take some of them
_APPLY = {"fieldManager": "rayspan-testbed", "force": "true"}


class Writer:
    """One API server, written to with the rights of its kubeconfig."""

    def __init__(self, kubeconfig: Path, reader: Reader) -> None:
        settings = client.Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=settings)
        settings.retries = False
        self._api, self._reader = client.ApiClient(settings), reader

    def apply(self, made: Raw) -> None:
        """Server-side apply; raises LabError with the server's complaint."""
        meta = made["metadata"]
        status, said = self._send(
            "PATCH", self._path(made["apiVersion"], made["kind"], meta["name"], meta.get("namespace")), made, _APPLY
        )
        if status >= 300:
            raise LabError(f"{made['kind']} {meta['name']} cannot be applied: {said}")

    def delete(self, kind: str, name: str, namespace: str | None = None) -> None:
        """Ask for its deletion, and wait for nothing. It is fine if it is not there."""
        status, said = self._send("DELETE", self._reader.path(kind, name, namespace), None, {})
        if status >= 300 and status != 404:
            raise LabError(f"{kind} {name} cannot be deleted: {said}")

    def _path(self, api_version: str, kind: str, name: str, namespace: str | None) -> str:
        group = api_version.rpartition("/")[0]
        return self._reader.path(f"{kind}.{group}" if group else kind, name, namespace)

    def _send(self, method: str, path: str, body: Raw | None, query: dict[str, str]) -> tuple[int, str]:
        headers = {"Accept": "application/json", "Content-Type": "application/apply-patch+yaml"}
        request = self._api.param_serialize(
            method, path, query_params=list(query.items()), header_params=headers if body else {"Accept": "application/json"},
            body=json.dumps(body) if body else None, auth_settings=["BearerToken"],
        )  # fmt: skip
        try:
            answer = self._api.call_api(*request, _request_timeout=_TIMEOUT)
            return answer.status, bytes(answer.read()).decode(errors="replace")[:500]
        except Exception as broken:  # urllib3's, ssl's and the client's own: all mean that there is no answer
            raise LabError(f"{method} {path}: {broken}") from broken
