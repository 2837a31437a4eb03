"""Counts the requests between two moments in the lab's audit logs, one line per request, by who sent them.

Lines are counted by the namespace of their object, so that other work on the lab is not counted. Requests for
cluster-scoped objects and Leases are left out: they do not grow with the workers of a gang.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from adapter.objects.unstructured import RawDict as Raw
from hack.lab.base.progress import LabError

# Our own measuring: recorder, kubectl, reader, all as the lab's admin.
MEASURING = ("rayspan", "kubectl", "OpenAPI-Generator")
_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """Requests that are counted together: `what` is the plural with its subresource, as in pods/status."""

    client: str
    verb: str
    what: str

    def __str__(self) -> str:
        return f"{self.client} {self.verb} {self.what}"


@dataclass(frozen=True, slots=True)
class Request:
    """One request that was answered."""

    kind: Kind
    namespace: str
    code: int
    name: str = field(default="", compare=False)  # of the object: requests are counted by what they have in common
    dry: bool = field(default=False, compare=False)  # a dry run: nothing was persisted
    at: str = field(default="", compare=False)  # when it was answered

    @property
    def failed(self) -> bool:
        return self.code >= 400


def read(line: str) -> Request | None:
    """The request that an audit line tells of; None where it is not the line that counts it, or not whole yet."""
    try:
        said: Raw = json.loads(line)
    except ValueError:
        return None
    verb = str(said.get("verb"))
    counted = (
        "ResponseStarted" if verb == "watch" else "ResponseComplete"
    )  # a watch ends minutes later, maybe elsewhere
    if said.get("stage") not in (counted, "Panic"):
        return None
    about: Raw = said.get("objectRef") or {}
    what = "/".join(filter(None, (about.get("resource") or "-", about.get("subresource"))))
    code = int((said.get("responseStatus") or {}).get("code") or 0)
    name = str(about.get("name") or "")
    dry = "dryRun=" in str(said.get("requestURI"))
    at = str(said.get("stageTimestamp") or "")
    return Request(Kind(_client(said), verb, what), about.get("namespace") or "", code, name, dry, at)


def about(requests: Iterable[Request], namespace: str, *, without: Iterable[str] = ()) -> list[Request]:
    """Requests for a namespace; `without` names clients that are left out, such as our own measuring."""
    ignored = frozenset(without)
    return [one for one in requests if one.namespace == namespace and one.kind.client not in ignored]


def count(requests: Iterable[Request]) -> Counter[Kind]:
    """How many there are of each kind."""
    return Counter(one.kind for one in requests)


def _client(said: Raw) -> str:
    """A service account's name; for others the program's, since the lab's admin is many programs."""
    user = str((said.get("user") or {}).get("username") or "")
    if user.startswith(_ACCOUNT):
        return user.rpartition(":")[2]
    program = str(said.get("userAgent") or "").partition("/")[0]
    return program or user


class Log:
    """An audit log from the moment on in which this is made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = path.stat()
        self._file, self._at = found.st_ino, found.st_size

    def take(self) -> list[Request]:
        """The requests since the last call; raises LabError where the log was rotated meanwhile."""
        with self._path.open("rb") as log:
            if self._path.stat().st_ino != self._file:
                raise LabError(
                    f"{self._path} was rotated during the measurement, so requests are missing: run it again."
                )
            log.seek(self._at)
            said = log.read()
        whole = said[: said.rfind(b"\n") + 1]
        self._at += len(whole)
        return list(self._requests(whole))

    @staticmethod
    def _requests(text: bytes) -> Iterator[Request]:
        found = (read(line) for line in text.decode(errors="replace").splitlines())
        return (request for request in found if request is not None)
