"""What happened in a trial, line by line: its digest, its last lines, and what was violated."""

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from adapter import names
from adapter.objects.unstructured import Raw, condition, key_of, meta
from hack.simulation import virtualtime

_QUIET = ("leases", "events")  # kinds that explain no trace
_REMEMBERED = 4_000  # lines


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken. `rule` is its name."""

    at: float  # seconds of the trial
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:10.3f} {self.rule}: {self.text}"


class Trace:
    """All writes, faults and violations; the digest says whether two trials are the same."""

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        """`show` gets each line at once."""
        self.lines: deque[str] = deque(maxlen=_REMEMBERED)
        self.violations: list[Violation] = []
        self.count = 0
        self.on_violation: Callable[[str], object] = lambda _: None  # called with its rule
        self._hash, self._show = hashlib.blake2b(digest_size=16), show
        self._broken: set[tuple[str, str]] = set()

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    @staticmethod
    def now() -> float:
        """Seconds since the trial began."""
        return virtualtime.CLOCK.now - virtualtime.START

    def write(self, cluster: str, who: str, what: str, path: str, raw: Raw) -> None:
        """An object changed."""
        kind = path.rpartition("/")[2]
        about = meta(raw)
        line = f"{cluster} {who} {what} {kind} {'/'.join(key_of(raw))} {about.get('resourceVersion')}"
        self._add(f"{line} {_summary(kind, raw)}", quiet=kind in _QUIET)

    def note(self, text: str) -> None:
        """Something else happened."""
        self._add(f"--- {text}")

    def violate(self, rule: str, about: str, text: str) -> None:
        """Record a broken promise, once for each object."""
        if (rule, about) not in self._broken:
            self._broken.add((rule, about))
            self.violations.append(Violation(self.now(), rule, text))
            self._add(f"!!! {rule}: {text}")
            self.on_violation(rule)

    def _add(self, text: str, *, quiet: bool = False) -> None:
        line = f"{self.now():10.3f} {text}"
        self.count += 1
        self._hash.update(line.encode())
        if not quiet:
            self.lines.append(line)
            if self._show:
                self._show(line)


def _summary(kind: str, raw: Raw) -> str:
    status = raw.get("status") or {}
    if kind == "pods":
        ready = next((one["status"] for one in status.get("conditions") or () if one["type"] == "Ready"), "")
        ends = "deleting" if meta(raw).get("deletionTimestamp") else ""
        words = (status.get("phase"), f"ready={ready}", status.get("reason"), status.get("podIP"), ends)
        return " ".join(str(word) for word in words if word)
    if kind == "workloads":
        true = [one["type"] for one in status.get("conditions") or () if one["status"] == "True"]
        states = [f"{one['state']}: {one['message']}" for one in status.get("admissionChecks") or ()]
        return " ".join([*true, *states])
    if kind == "placements":
        shares = [f"{one.get('cluster')}" for one in (raw.get("spec") or {}).get("shares") or ()]
        return f"{status.get('state')} {','.join(shares)} {status.get('reason', '')}"
    if kind == "workerclusters":
        return f"{condition(raw, names.CONNECTED).get('status')} lostSince={status.get('lostSince')}"
    return ""
