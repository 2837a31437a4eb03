"""Records Events, on the object that the user looks at.

An Event's name is made of object and reason, so a restart repeats nothing, and a changed sentence replaces the older
one. Sentences that keep replacing each other are written a few times; then an Event now and then counts them.
"""

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from adapter import names
from adapter.actions import EmitEvent
from adapter.objects.unstructured import format_time, printable, truncate
from adapter.objects.workload import Job
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import EVENTS
from adapter.shell.rate_limit import TokenBucket

log = logging.getLogger(__name__)

# When an unchanged Event is written again. API servers drop an Event after an hour, and a waiting job must still show
# the reason.
REPEATED_SECONDS = 30 * 60.0
_LONGEST = 1024  # characters; API servers reject more
# The most characters of an object's name in its Event's name: the name may have the full length, and a digest follows.
_LONGEST_PREFIX = 253 - 17


# So many Events of one reason on one object pass at once, then one in EVERY_SECONDS. client-go lets 25 pass, then one
# in five minutes (k8s:client-go/tools/record/events_cache.go), but a user who waits for a job looks more often.
EVENT_BURST, EVERY_SECONDS = 10, 60.0
MOST_COUNTED = 1_000  # beyond that the text says "or more"


@dataclass(slots=True)
class _EventHistory:
    """The Events of one reason on one object."""

    rate: TokenBucket = field(default_factory=lambda: TokenBucket(EVENT_BURST, EVERY_SECONDS))
    message: str = ""
    written_at: float = 0.0
    requested_at: float = 0.0  # written or not
    suppressed: set[int] = field(default_factory=set)  # hashes of the messages not written since the last write

    def should_write(self, message: str, now: float) -> bool:
        self.requested_at = now
        if self.message == message and not self.suppressed and now - self.written_at < REPEATED_SECONDS:
            return False
        if self.rate.try_take(now):
            return True
        if message != self.message and len(self.suppressed) < MOST_COUNTED:
            self.suppressed.add(hash(message))
        return False

    def message_text(self, message: str) -> str:
        others = len(self.suppressed - {hash(message)})
        if not others:
            return message
        count = f"{others} or more" if others >= MOST_COUNTED - 1 else str(others)
        return f"{truncate(message, _LONGEST - 100)} (And {count} other messages of this kind since the last one.)"


class EventRecorder:
    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._histories: dict[tuple[str, str], _EventHistory] = {}  # by event key and reason
        self._tidied_at = clock()

    async def record_event(
        self, about: Job, reason: str, message: str, *, warning: bool = False, names_job: bool = False
    ) -> None:
        """Write an Event, or update the one of its reason; skip repetitions and more than a few a minute.

        An Event on a RayService's RayCluster, whose name changes with each upgrade, is recorded on the RayService too.
        `names_job`: the message begins with the job's name.
        """
        await self._record_on(about, about.uid, reason, message, warning)
        if about.service:
            prefix, event_key = f"{about.kind} {about.name}: ", f"{about.service.uid}/{about.uid}"
            text = message if names_job else prefix + message
            await self._record_on(about.service, event_key, reason, text, warning)

    async def _record_on(self, about: Job, event_key: str, reason: str, message: str, warning: bool) -> None:
        """Record on one object; `event_key` separates a RayService's two RayClusters in an upgrade."""
        now = self._clock()
        self._forget_expired(now)
        history = self._histories.setdefault((event_key, reason), _EventHistory())
        if not history.should_write(message, now):
            return
        body = _event_body(about, event_key, reason, history.message_text(message), warning, self._client.clock.now())
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            await self._client.create(EVENTS.path(namespace), body)
        except ApiError as error:
            if not error.is_conflict:
                raise
            patch = {key: body[key] for key in ("message", "lastTimestamp", "type")}
            await self._client.merge_patch(EVENTS.path(namespace, name), patch)
        log.info("%s/%s %s: %s", about.namespace, about.name, reason, printable(message, _LONGEST))
        history.message, history.written_at, history.suppressed = message, now, set()

    def _forget_expired(self, now: float) -> None:
        """Drop expired histories, once a minute: a thousand jobs may record Events at once."""
        if now - self._tidied_at < EVERY_SECONDS:
            return
        self._tidied_at = now
        self._histories = {
            key: history for key, history in self._histories.items() if now - history.requested_at < REPEATED_SECONDS
        }

    async def emit_event(self, action: EmitEvent) -> None:
        """Record an action's Event; log a failure, which must not block other actions."""
        try:
            await self.record_event(
                action.regarding, action.reason, action.message, warning=action.warning, names_job=action.names_job
            )
        except (ApiError, Unreachable) as error:
            log.warning("event %s on %s %s: %s", action.reason, action.regarding.kind, action.regarding.name, error)


def _event_body(about: Job, event_key: str, reason: str, message: str, warning: bool, now: datetime) -> dict[str, Any]:
    digest = hashlib.sha256(f"{event_key}/{reason}".encode()).hexdigest()[:16]
    timestamp, beginning = format_time(now), about.name[:_LONGEST_PREFIX].rstrip("-.")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{beginning}.{digest}", "namespace": about.namespace or "default"},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
        "reason": reason,
        "message": truncate(message, _LONGEST),
        "type": "Warning" if warning else "Normal",
        "source": {"component": names.EVENT_SOURCE},
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
    }
