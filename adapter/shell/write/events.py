"""How does the user hear of it: one Event for each thing worth saying, on the object that the user looks at.

The same sentence is said once: an Event's name is made of its object and reason, so a restart repeats nothing and a
sentence that changes replaces the older one.
"""

import hashlib
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from adapter import names
from adapter.actions import Say
from adapter.objects.raw import timestamp
from adapter.objects.workload import Job
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import EVENTS

log = logging.getLogger(__name__)

# API servers forget an Event after an hour: a job that waits for longer shall still say why.
REPEATED_AFTER = timedelta(minutes=30)


class Announcer:
    """Writes Events in the manager cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._said: dict[
            tuple[str, str], tuple[str, datetime]
        ] = {}  # object uid and reason -> the last sentence, and when

    async def say(self, about: Job, reason: str, message: str, *, warning: bool = False) -> None:
        """Write an Event, or bring the one of the same reason up to date."""
        now, known = datetime.now(UTC), self._said.get((about.uid, reason))
        if known and known[0] == message and now - known[1] < REPEATED_AFTER:
            return
        body = _event(about, reason, message, warning)
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            await self._client.create(EVENTS.path(namespace), body)
        except ApiError as error:
            if not error.conflict:
                raise
            fresh = {key: body[key] for key in ("message", "lastTimestamp", "type")}
            await self._client.merge(EVENTS.path(namespace, name), fresh)
        log.info("%s/%s %s: %s", about.namespace, about.name, reason, message)
        self._said = {key: said for key, said in self._said.items() if now - said[1] < REPEATED_AFTER}
        self._said[about.uid, reason] = (message, now)

    async def tell(self, what: Say) -> None:
        """The same for an action; what cannot be said must not hold up what is done."""
        try:
            await self.say(what.about, what.reason, what.message, warning=what.warning)
        except (ApiError, Unreachable) as trouble:
            log.warning("event %s on %s %s: %s", what.reason, what.about.kind, what.about.name, trouble)


def _event(about: Job, reason: str, message: str, warning: bool) -> dict[str, Any]:
    digest = hashlib.sha256(f"{about.uid}/{reason}".encode()).hexdigest()[:16]
    now = timestamp(datetime.now(UTC))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about.name}.{digest}", "namespace": about.namespace or "default"},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
        "reason": reason,
        "message": message[:1024],  # the API server refuses longer ones
        "type": "Warning" if warning else "Normal",
        "source": {"component": names.EVENT_SOURCE},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
