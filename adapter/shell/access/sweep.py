"""When do WorkerAccesses go that are over? Once in a while all are read, and those that serve nobody any more are deleted.

Who creates them does not delete them: a command line may be interrupted at any moment, and needs no right to it so.
"""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Final

from adapter.access import grant
from adapter.objects.raw import key_of, uid_of
from adapter.objects.shape import odd
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.pages import listed
from adapter.shell.kube.resources import WORKER_ACCESSES

log = logging.getLogger(__name__)

# What is over serves nobody, and only takes room: a grant is in etcd for a minute longer than it is good.
EVERY_SECONDS: Final = 60.0


async def run(manager: Client) -> None:
    """Sweep for as long as the process runs; an API server that does not answer is asked again the next time."""
    while True:
        try:
            await once(manager)
        except (ApiError, Unreachable) as error:
            log.warning("WorkerAccesses cannot be swept: %s", error)
        await asyncio.sleep(EVERY_SECONDS)


async def once(manager: Client) -> None:
    """Delete those that are over now."""
    found, _ = await listed(manager, WORKER_ACCESSES.path())
    for one in grant.over((raw for raw in found if not odd(raw)), datetime.now(UTC)):
        await manager.delete(WORKER_ACCESSES.path(*key_of(one)), uid_of(one))
