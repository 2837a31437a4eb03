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
from adapter.shell.write.dry_run_requests import DryRunner
from adapter.shell.write.endpoint_slices import EndpointSliceWriter
from adapter.shell.write.events import EventRecorder
from adapter.shell.write.gang_writer import GangWriter
from adapter.shell.write.pod_writer import PodWriter


class Executor:
    """Does actions; raises ApiError or Unreachable when one could not be done."""

    def __init__(
        self,
        gang_writer: GangWriter,
        dry_runner: DryRunner,
        pod_writer: PodWriter,
        slice_writer: EndpointSliceWriter,
        recorder: EventRecorder,
    ) -> None:
        self._handlers: dict[type, Callable[[Any], Awaitable[None]]] = {
            Plan: gang_writer.write_plan,
            Repoint: gang_writer.retarget_placement,
            TryCopy: dry_runner.dry_run,
            Reserve: gang_writer.reserve_share,
            Vacate: gang_writer.delete_share_pods,
            Release: gang_writer.delete_share,
            SetCheck: gang_writer.set_check,
            Yield: gang_writer.deactivate,
            Rejoin: gang_writer.reactivate,
            Record: gang_writer.update_placement_status,
            Forget: gang_writer.delete_placement,
            Say: recorder.emit_event,
            AssignSlot: pod_writer.assign_slot,
            MirrorHead: pod_writer.mirror_head,
            CreatePod: pod_writer.create_pod,
            DeletePod: pod_writer.delete_pod,
            PatchStatus: pod_writer.patch_status,
            PutSlice: slice_writer.put_slice,
            DeleteSlice: slice_writer.delete_slice,
        }

    async def execute(self, action: Action) -> None:
        """Do one action."""
        if not isinstance(action, LookAgain):
            await self._handlers[type(action)](action)
