"""How does the user hear of it: one Event for each thing worth saying, on the object that the user looks at.

The same sentence is said once: an Event's name is made of its object and reason, so a restart repeats nothing and a
sentence that changes replaces the older one. Sentences that replace one another all the time are many things of one kind, as of
pods that somebody labelled by hand: some are written, and then one that says how many there are, now and then.
"""

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from adapter import names
from adapter.actions import EmitEvent
from adapter.objects.unstructured import format_time, printable, truncate
from adapter.objects.workload import Job
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import EVENTS
from adapter.shell.rate_limit import TokenBucket

log = logging.getLogger(__name__)

# API servers forget an Event after an hour: a job that waits for longer shall still say why.
REPEATED_SECONDS = 30 * 60.0
_LONGEST = 1024  # characters; the API server refuses longer ones
_LONGEST_PREFIX = (
    253 - 17
)  # of an Event's name, beside the digest that tells it from others: a job's name may be as long as any


# Of one reason about one object. client-go lets 25 pass, and then one in five minutes (k8s:client-go/tools/record/
# events_cache.go); who waits for a job looks more often than that.
EVENT_BURST, EVERY_SECONDS = 10, 60.0
MOST_COUNTED = 1_000  # sentences that are told apart: more than that are "or more"


@dataclass(slots=True)
class _EventHistory:
    """What was said about one object, of one reason."""

    rate: TokenBucket = field(default_factory=lambda: TokenBucket(EVENT_BURST, EVERY_SECONDS))
    message: str = ""  # the last one that was written
    written_at: float = 0.0  # and when that was
    requested_at: float = 0.0  # when anything was to be said
    suppressed: set[int] = field(default_factory=set)  # hashes of those that were not written since

    def should_write(self, message: str, now: float) -> bool:
        """Whether it is to be written now."""
        self.requested_at = now
        if self.message == message and not self.suppressed and now - self.written_at < REPEATED_SECONDS:
            return False
        if self.rate.try_take(now):
            return True
        if message != self.message and len(self.suppressed) < MOST_COUNTED:
            self.suppressed.add(hash(message))
        return False

    def message_text(self, message: str) -> str:
        """The sentence, with how many others it stands for."""
        others = len(self.suppressed - {hash(message)})
        if not others:
            return message
        many = f"{others} or more" if others >= MOST_COUNTED - 1 else str(others)
        return f"{truncate(message, _LONGEST - 100)} (And {many} other messages of this kind since the last one.)"


class EventRecorder:
    """Writes Events in the manager cluster."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._histories: dict[tuple[str, str], _EventHistory] = {}  # by object, or by whose it is, and reason
        self._tidied_at = clock()

    async def record_event(
        self, about: Job, reason: str, message: str, *, warning: bool = False, names_job: bool = False
    ) -> None:
        """Write an Event, or bring the one of the same reason up to date; not what was just said, nor more than a few a minute.

        Of a RayCluster that KubeRay made of a RayService it is said there, too: its user wrote that, and the RayCluster's name ends in
        letters that change with each upgrade. `names_job`: the message begins with its name already.
        """
        await self._record_on(about, about.uid, reason, message, warning)
        if about.service:
            of, whose = f"{about.kind} {about.name}: ", f"{about.service.uid}/{about.uid}"
            text = message if names_job else of + message
            await self._record_on(about.service, whose, reason, text, warning)

    async def _record_on(self, about: Job, event_key: str, reason: str, message: str, warning: bool) -> None:
        """Write an Event on an object; `whose` tells it from those of the same reason there: a service has two RayClusters for a while."""
        now = self._clock()
        self._forget_expired(now)
        known = self._histories.setdefault((event_key, reason), _EventHistory())
        if not known.should_write(message, now):
            return
        body = _event_body(about, event_key, reason, known.message_text(message), warning)
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            await self._client.create(EVENTS.path(namespace), body)
        except ApiError as error:
            if not error.is_conflict:
                raise
            fresh = {key: body[key] for key in ("message", "lastTimestamp", "type")}
            await self._client.merge_patch(EVENTS.path(namespace, name), fresh)
        log.info("%s/%s %s: %s", about.namespace, about.name, reason, printable(message, _LONGEST))
        known.message, known.written_at, known.suppressed = message, now, set()

    def _forget_expired(self, now: float) -> None:
        """Forget what nobody says any more; once a minute, for a thousand jobs may have something to say at once."""
        if now - self._tidied_at < EVERY_SECONDS:
            return
        self._tidied_at = now
        self._histories = {
            key: told for key, told in self._histories.items() if now - told.requested_at < REPEATED_SECONDS
        }

    async def emit_event(self, action: EmitEvent) -> None:
        """The same for an action; what cannot be said must not hold up what is done."""
        try:
            await self.record_event(
                action.regarding, action.reason, action.message, warning=action.warning, names_job=action.names_job
            )
        except (ApiError, Unreachable) as trouble:
            log.warning("event %s on %s %s: %s", action.reason, action.regarding.kind, action.regarding.name, trouble)


def _event_body(about: Job, event_key: str, reason: str, message: str, warning: bool) -> dict[str, Any]:
    digest = hashlib.sha256(f"{event_key}/{reason}".encode()).hexdigest()[:16]
    now, beginning = format_time(datetime.now(UTC)), about.name[:_LONGEST_PREFIX].rstrip("-.")
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
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
