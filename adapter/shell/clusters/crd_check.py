"""Reads from the manager's API server which fields its CRDs declare. Every authenticated user may read that."""

import asyncio
import functools
import logging
from importlib.resources import files

import yaml

from adapter import names, shell
from adapter.admission import crd_fields
from adapter.admission.crd_fields import MissingFields
from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import ApiError, Client, Unreachable

log = logging.getLogger(__name__)

_PATH = f"/openapi/v3/apis/{names.API_VERSION}"
_TIMEOUT_SECONDS = 3.0  # a slow answer must not delay a new leader noticeably
# The last one is of a component that may not be installed; the access server has this version.
_KINDS = ("dispatchpolicies", "placements", "workerclusters", "workeraccesses")


@functools.cache
def shipped_schemas() -> dict[str, Raw]:
    """The schemas of this version's CRDs, by kind."""
    manifests = (files(shell) / f"crd-{kind}.yaml" for kind in _KINDS)
    specs = [yaml.safe_load(manifest.read_text(encoding="utf-8"))["spec"] for manifest in manifests]
    return {spec["names"]["kind"]: spec["versions"][0]["schema"]["openAPIV3Schema"] for spec in specs}


class CrdCheck:
    """What the manager's CRDs lacked at the last read; nothing until the first one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.missing: MissingFields = {}

    async def refresh(self) -> bool:
        """Read again; whether the answer has changed. An API server that does not answer changes nothing."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                document = await self._client.get(_PATH)
        except (ApiError, Unreachable, TimeoutError) as error:
            log.debug("the schemas of the CRDs cannot be read: %s", error)
            return False
        shipped = await asyncio.to_thread(shipped_schemas)  # parsing takes a while
        missing, before = crd_fields.missing_fields(shipped, document), self.missing
        self.missing = missing
        if missing != before:
            log.warning("%s", crd_fields.outdated_text(missing) or "The CRDs are as new as the controller.")
        return missing != before
