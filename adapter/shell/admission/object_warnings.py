"""Finds the warnings for an object: from its facts, and from the controller's plan for a job.

The plan is requested as `kubectl rayspan plan` requests it, and only for a job without other warnings. The user waits,
so the plan may take one second. At most one request is in flight, because requests of users wait behind it. After a
request without a response there is a pause.
"""

import asyncio
import logging
import time

from adapter import names
from adapter.admission import warnings
from adapter.objects.unstructured import UNREADABLE, Raw, key_of
from adapter.shell import supervise
from adapter.shell.admission.warning_cache import WarningCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable

log = logging.getLogger(__name__)

PLAN_SECONDS = 1.0
PAUSE_SECONDS = 10.0


class ObjectWarnings:
    def __init__(self, cache: WarningCache, client: Client) -> None:
        self._cache, self._client = cache, client
        self._plan_in_flight = False
        self._paused_until = 0.0

    async def warnings_for(self, raw: Raw) -> list[str]:
        """The warnings for an applied object; empty while the cache is not current."""
        if not self._cache.is_current:
            return []
        try:
            return warnings.limit_warnings(await self._find_warnings(raw))
        except (*UNREADABLE, RecursionError) as error:  # the schema, checked later, rejects the object
            log.debug("%s cannot be read: %s", raw.get("kind"), type(error).__name__)
        except Exception as error:
            supervise.report_failure("warnings", error)
        return []

    async def _find_warnings(self, raw: Raw) -> list[str]:
        if of_kind := warnings.WARNINGS_BY_KIND.get(str(raw.get("kind"))):
            return of_kind(raw, self._cache.admin_objects())
        verdict = warnings.job_warnings(raw, self._cache.namespace_objects(key_of(raw)[0]), self._cache.clock.now())
        plan = [] if verdict.job_to_plan is None else await self._plan_warnings(raw, verdict.job_to_plan)
        return [*verdict.sentences, *plan]

    async def _plan_warnings(self, raw: Raw, job: Raw) -> list[str]:
        if self._plan_in_flight or time.monotonic() < self._paused_until:
            return []
        question = {"namespace": key_of(raw)[0], "object": job}
        self._plan_in_flight = True
        try:
            async with asyncio.timeout(PLAN_SECONDS):
                answer = await self._client.create(resources.controller_proxy_path(names.PLAN_PATH), question)
        except (Unreachable, TimeoutError):
            self._pause_planning()
        except ApiError as error:
            if error.reason != names.INVALID_JOB_REASON:
                self._pause_planning()
        else:
            return warnings.plan_warnings(raw, answer)
        finally:
            self._plan_in_flight = False
        return []

    def _pause_planning(self) -> None:
        self._paused_until = time.monotonic() + PAUSE_SECONDS
