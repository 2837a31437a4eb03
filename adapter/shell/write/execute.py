"""Who does each action?

The table alone: what an action writes, and by which precondition doing it twice changes nothing more, stands with who does it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from adapter.actions import (
    Action,
    AssignSlot,
    CreatePod,
    DeletePod,
    DeleteSlice,
    Forget,
    LookAgain,
    MirrorHead,
    PatchStatus,
    Plan,
    PutSlice,
    Record,
    Rejoin,
    Release,
    Repoint,
    Reserve,
    Say,
    SetCheck,
    TryCopy,
    Vacate,
    Yield,
)
from adapter.shell.write.dry_run_requests import Trier
from adapter.shell.write.endpoint_slices import SliceWriter
from adapter.shell.write.events import Announcer
from adapter.shell.write.gang_writer import GangWriter
from adapter.shell.write.pod_writer import PodWriter


class Executor:
    """Does actions; raises ApiError or Unreachable when one could not be done."""

    def __init__(
        self, gangs: GangWriter, trier: Trier, pods: PodWriter, slices: SliceWriter, announcer: Announcer
    ) -> None:
        self._do: dict[type, Callable[[Any], Awaitable[None]]] = {
            Plan: gangs.plan,
            Repoint: gangs.repoint,
            TryCopy: trier.ask,
            Reserve: gangs.reserve,
            Vacate: gangs.vacate,
            Release: gangs.release,
            SetCheck: gangs.set_check,
            Yield: gangs.step_aside,
            Rejoin: gangs.rejoin,
            Record: gangs.record,
            Forget: gangs.forget,
            Say: announcer.tell,
            AssignSlot: pods.assign,
            MirrorHead: pods.mirror_head,
            CreatePod: pods.create_pod,
            DeletePod: pods.delete_pod,
            PatchStatus: pods.patch_status,
            PutSlice: slices.put,
            DeleteSlice: slices.delete,
        }

    async def do(self, action: Action) -> None:
        """Do one action."""
        if not isinstance(action, LookAgain):
            await self._do[type(action)](action)
