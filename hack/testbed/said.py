"""The bytes that a server sends over HTTP, legally or not, with their repetitions and pauses.

Requests and answers are data, so that neither a liar nor a test needs a socket. Their meaning is not known here.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def watch(self) -> bool:
        return "watch" in self.query

    @property
    def version(self) -> int:
        """From which version a watch is to go on."""
        said = self.query.get("resourceVersion", "")
        return int(said) if said.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Said:
    """Bytes that are said so many times, with a pause before each; each time is so many lies."""

    what: bytes
    times: int = 1
    pause: float = 0.0
    lies: int = 0


Answer = tuple[Said, ...]


def head(status: str = "200 OK", *headers: str, kind: str = "application/json") -> bytes:
    """The head of an answer, after which the connection ends."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode()


def chunk(body: bytes) -> bytes:
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


LAST_CHUNK = b"0\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked"


def whole(body: bytes, status: str = "200 OK", *headers: str, kind: str = "application/json") -> Answer:
    return (Said(head(status, f"Content-Length: {len(body)}", *headers, kind=kind) + body, lies=1),)


def as_json(body: object, status: str = "200 OK") -> Answer:
    return whole(json.dumps(body).encode(), status)


def stream(lines: Iterable[bytes], pause: float = 0.0) -> Answer:
    """A watch of these lines, which ends soon after."""
    told = (Said(chunk(line + b"\n"), lies=1, pause=pause) for line in lines)
    return (Said(head("200 OK", CHUNKED)), *told, Said(LAST_CHUNK, pause=0.05))


def event(kind: object, body: object) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode()


def wire(said: Answer) -> Iterator[bytes]:
    """All that goes over the wire, part by part: never in one piece."""
    return chain.from_iterable((part.what for _ in range(part.times)) for part in said)
