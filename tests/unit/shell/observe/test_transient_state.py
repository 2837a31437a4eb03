"""What is noted of a job that runs for weeks stays in proportion to what exists of it now."""

from adapter.objects.placement import Placement, ShareKey, parse_placement
from adapter.objects.unstructured import MAX_ITEM_LENGTH
from adapter.shell.observe.transient_state import TransientState
from tests.unit.builders import make_placement, make_workload

_RAW = make_placement(make_workload())


def _placement(round_: int) -> Placement:
    return parse_placement({**_RAW, "spec": {**_RAW["spec"], "round": round_}})


def test_refusals_of_pods_that_are_gone_are_forgotten() -> None:
    state = TransientState()
    for round_ in range(500):
        state.note_pod_refused(_placement(round_), ShareKey("east", round_), f"pod-{round_}", "no " * MAX_ITEM_LENGTH)
    uid = _placement(0).uid
    state.keep_only([uid], ["pod-499"], [], [])
    assert list(state._pod_refusals[uid]) == [ShareKey("east", 499)]
    (reason,) = state.unusable_shares(_placement(499), ["pod-499"]).values()
    assert len(reason) <= MAX_ITEM_LENGTH


def test_refusals_of_shares_are_those_of_the_current_round() -> None:
    state = TransientState()
    for round_ in range(500):
        for cluster in ("east", "west"):
            state.note_share_refused(_placement(round_), cluster, f"refused {round_}")
    assert state.share_refusals(_placement(499)) == {"east": "refused 499", "west": "refused 499"}
    assert len(state._share_refusals[_placement(0).uid]) == 2
