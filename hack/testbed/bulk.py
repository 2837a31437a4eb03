"""Makes, lists and removes hundreds of objects at once through one API server, and waits for them.

All have one label, so that the next run finds and removes what an interrupted run left.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.kube.client import Client
from adapter.shell.kube.resources import Resource
from hack.lab.base.progress import LabError

LABEL: Final = f"{names.DOMAIN}/oracle"
_MANAGER: Final = "rayspan-oracle"  # of fields: an applied object loses what it no longer says
_PATIENCE: Final = 120.0  # seconds for a step with hundreds of objects on two busy cores; a fifth is usual
_PAUSE: Final = 0.6  # seconds between two lists; one of hundreds of objects costs the API server a tenth of that


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[Client]:
    """Log in by a kubeconfig of ours, in any way in which it logs in."""
    client = await Client.for_user(str(kubeconfig), "")
    try:
        yield client
    finally:
        await client.close()


async def create(client: Client, kind: Resource, bodies: Iterable[Raw]) -> None:
    """Make objects; raises ApiError where one is refused."""
    ours = [labelled(body, {LABEL: "true"}) for body in bodies]
    await asyncio.gather(*(client.create(kind.path(body["metadata"].get("namespace", "")), body) for body in ours))


async def apply(client: Client, kind: Resource, bodies: Iterable[Raw]) -> None:
    """Make cluster-scoped objects, or make those that there are what is said here and nothing else."""
    ours = [labelled(body, {LABEL: "true"}) for body in bodies]
    await asyncio.gather(*(client.apply(kind.path(name=body["metadata"]["name"]), body, _MANAGER) for body in ours))


async def listed(client: Client, kind: Resource, selector: str) -> list[Raw]:
    """All objects of a kind with certain labels."""
    found: list[Raw] = (await client.get(kind.path(), labelSelector=selector))["items"]
    return found


async def delete(client: Client, kind: Resource, selector: str) -> None:
    """Delete all objects of a kind with certain labels, and wait until they are gone."""
    found = [one["metadata"] for one in await listed(client, kind, selector)]
    paths = [kind.path(one.get("namespace", ""), one["name"]) for one in found]
    await asyncio.gather(*(client.delete(path, one["uid"]) for path, one in zip(paths, found, strict=True)))

    async def gone() -> bool:
        return not await listed(client, kind, selector)

    await until(gone, f"no {kind.plural} are left")


async def until(done: Callable[[], Awaitable[bool]], what: str = "", patience: float = _PATIENCE) -> None:
    """Ask until it is done; when time is up, raise LabError if `what` names a thing that must happen."""
    deadline = time.monotonic() + patience
    while not await done():
        if time.monotonic() > deadline:
            if what:
                raise LabError(f"After {patience:.0f} s still not: {what}.")
            return
        await asyncio.sleep(_PAUSE)


def labelled(body: Raw, more: Mapping[str, str]) -> Raw:
    """The object with more labels."""
    labels = {**(body["metadata"].get("labels") or {}), **more}
    return body | {"metadata": body["metadata"] | {"labels": labels}}
