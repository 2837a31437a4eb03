"""Maps each action to its writer. Executing an action twice changes nothing more."""

from collections.abc import Awaitable, Callable
from typing import Any

from adapter.actions import (
    Action,
    AssignSlot,
    CreatePod,
    Deactivate,
    DeleteEndpointSlice,
    DeletePlacement,
    DeletePod,
    DeleteShare,
    DeleteSharePods,
    DryRunPod,
    EmitEvent,
    MirrorHead,
    PatchPodStatus,
    Plan,
    PutEndpointSlice,
    Reactivate,
    RecordExclusions,
    RequeueAfter,
    Reserve,
    RetargetPlacement,
    SetCheck,
    UpdatePlacementStatus,
)
from adapter.shell.write.dry_run_requests import DryRunner
from adapter.shell.write.endpoint_slices import EndpointSliceWriter
from adapter.shell.write.events import EventRecorder
from adapter.shell.write.gang_writer import GangWriter
from adapter.shell.write.pod_writer import PodWriter


class Executor:
    """Executes actions; raises ApiError or Unreachable."""

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
            RetargetPlacement: gang_writer.retarget_placement,
            DryRunPod: dry_runner.dry_run,
            Reserve: gang_writer.reserve_share,
            DeleteSharePods: gang_writer.delete_share_pods,
            DeleteShare: gang_writer.delete_share,
            SetCheck: gang_writer.set_check,
            RecordExclusions: gang_writer.record_exclusions,
            Deactivate: gang_writer.deactivate,
            Reactivate: gang_writer.reactivate,
            UpdatePlacementStatus: gang_writer.update_placement_status,
            DeletePlacement: gang_writer.delete_placement,
            EmitEvent: recorder.emit_event,
            AssignSlot: pod_writer.assign_slot,
            MirrorHead: pod_writer.mirror_head,
            CreatePod: pod_writer.create_pod,
            DeletePod: pod_writer.delete_pod,
            PatchPodStatus: pod_writer.patch_status,
            PutEndpointSlice: slice_writer.put_slice,
            DeleteEndpointSlice: slice_writer.delete_slice,
        }

    async def execute(self, action: Action) -> None:
        if not isinstance(action, RequeueAfter):
            await self._handlers[type(action)](action)
