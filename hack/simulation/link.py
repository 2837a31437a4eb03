"""The parts of a network: processes, hosts, the links between them, and what passes on a link."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Process:
    """A process that sends requests; a dead one sends none."""

    name: str
    is_dead: bool = False
    writes: int = 0  # that it sent
    on_write: "Callable[[str, Request], None] | None" = None  # called before each with the host
    identity: str = ""  # with which it holds a Lease
    late: float = 0.0  # seconds by which its writes arrive late; it does not wait so long for the answer


PROCESS: ContextVar[Process] = ContextVar("process")


@dataclass(slots=True)
class Link:
    """The way between processes and a host, or between one process and it."""

    cut: str = ""  # silent: nothing arrives; refused: a connection is refused at once
    latency: tuple[float, float] = (0.001, 0.02)  # seconds each way
    answers_lost: float = 0.0  # share of writes whose answer does not come
    lag: tuple[float, float] = (0.001, 0.05)  # seconds of a watch event
    repeats: float = 0.0  # share of watch events that come twice
    opened: int = 0  # a watch of an earlier time is broken


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    kind: str  # content type


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    watch: Callable[[Callable[[bytes], None], Callable[[], None]], Callable[[], None]] | None = None


class Host(Protocol):
    def handle(self, request: Request) -> Answer: ...
