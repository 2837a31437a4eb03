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
from adapter.actions import Say
from adapter.objects.unstructured import bounded, quoted, timestamp
from adapter.objects.workload import Job
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import EVENTS
from adapter.shell.rate_limit import Bucket

log = logging.getLogger(__name__)

# API servers forget an Event after an hour: a job that waits for longer shall still say why.
REPEATED_SECONDS = 30 * 60.0
_LONGEST = 1024  # characters; the API server refuses longer ones
_LONGEST_PREFIX = (
    253 - 17
)  # of an Event's name, beside the digest that tells it from others: a job's name may be as long as any


# Of one reason about one object. client-go lets 25 pass, and then one in five minutes (k8s:client-go/tools/record/
# events_cache.go); who waits for a job looks more often than that.
BURST, EVERY_SECONDS = 10, 60.0
MOST_COUNTED = 1_000  # sentences that are told apart: more than that are "or more"


@dataclass(slots=True)
class _Told:
    """What was said about one object, of one reason."""

    pace: Bucket = field(default_factory=lambda: Bucket(BURST, EVERY_SECONDS))
    message: str = ""  # the last one that was written
    when: float = 0.0  # and when that was
    heard: float = 0.0  # when anything was to be said
    held: set[int] = field(default_factory=set)  # hashes of those that were not written since

    def wanted(self, message: str, now: float) -> bool:
        """Whether it is to be written now."""
        self.heard = now
        if self.message == message and not self.held and now - self.when < REPEATED_SECONDS:
            return False
        if self.pace.take(now):
            return True
        if message != self.message and len(self.held) < MOST_COUNTED:
            self.held.add(hash(message))
        return False

    def text(self, message: str) -> str:
        """The sentence, with how many others it stands for."""
        others = len(self.held - {hash(message)})
        if not others:
            return message
        many = f"{others} or more" if others >= MOST_COUNTED - 1 else str(others)
        return f"{bounded(message, _LONGEST - 100)} (And {many} other messages of this kind since the last one.)"


class Announcer:
    """Writes Events in the manager cluster."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._now = client, clock
        self._said: dict[tuple[str, str], _Told] = {}  # by object, or by whose it is, and reason
        self._tidied = clock()

    async def say(self, about: Job, reason: str, message: str, *, warning: bool = False) -> None:
        """Write an Event, or bring the one of the same reason up to date; not what was just said, nor more than a few a minute.

        Of a RayCluster that KubeRay made of a RayService it is said there, too: its user wrote that, and the RayCluster's name ends in
        letters that change with each upgrade.
        """
        await self._say(about, about.uid, reason, message, warning)
        if about.service:
            of, whose = f"{about.kind} {about.name}: ", f"{about.service.uid}/{about.uid}"
            text = message if message.startswith(of) else of + message
            await self._say(about.service, whose, reason, text, warning)

    async def _say(self, about: Job, whose: str, reason: str, message: str, warning: bool) -> None:
        """Write an Event on an object; `whose` tells it from those of the same reason there: a service has two RayClusters for a while."""
        now = self._now()
        self._tidy(now)
        known = self._said.setdefault((whose, reason), _Told())
        if not known.wanted(message, now):
            return
        body = _event(about, whose, reason, known.text(message), warning)
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            await self._client.create(EVENTS.path(namespace), body)
        except ApiError as error:
            if not error.conflict:
                raise
            fresh = {key: body[key] for key in ("message", "lastTimestamp", "type")}
            await self._client.merge(EVENTS.path(namespace, name), fresh)
        log.info("%s/%s %s: %s", about.namespace, about.name, reason, quoted(message, _LONGEST))
        known.message, known.when, known.held = message, now, set()

    def _tidy(self, now: float) -> None:
        """Forget what nobody says any more; once a minute, for a thousand jobs may have something to say at once."""
        if now - self._tidied < EVERY_SECONDS:
            return
        self._tidied = now
        self._said = {key: told for key, told in self._said.items() if now - told.heard < REPEATED_SECONDS}

    async def tell(self, what: Say) -> None:
        """The same for an action; what cannot be said must not hold up what is done."""
        try:
            await self.say(what.about, what.reason, what.message, warning=what.warning)
        except (ApiError, Unreachable) as trouble:
            log.warning("event %s on %s %s: %s", what.reason, what.about.kind, what.about.name, trouble)


def _event(about: Job, whose: str, reason: str, message: str, warning: bool) -> dict[str, Any]:
    digest = hashlib.sha256(f"{whose}/{reason}".encode()).hexdigest()[:16]
    now, beginning = timestamp(datetime.now(UTC)), about.name[:_LONGEST_PREFIX].rstrip("-.")
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
        "message": bounded(message, _LONGEST),
        "type": "Warning" if warning else "Normal",
        "source": {"component": names.EVENT_SOURCE},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
