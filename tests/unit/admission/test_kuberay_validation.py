"""KubeRay's rejection ends soon after a correction, and an invalid job is tried once after an edit or a restart."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.admission.kuberay_validation import DOUBT_SECONDS, ValidationNote, is_rejected, update_note
from adapter.objects.kuberay_events import RayClusterRevision, RejectionEvent

SOON, LATER = DOUBT_SECONDS / 2, DOUBT_SECONDS * 2
EVENT = RejectionEvent(version="90", object_version="70", reason="InvalidRayClusterSpec", message="no.")
NAMED = RayClusterRevision(version="70", generation=2, accepted_generation=1, suspended=True)
EDITED = replace(NAMED, version="71", generation=3)
RESUMED = replace(EDITED, version="72", generation=4, suspended=False)


def note(edited_at: float, event_at: float) -> ValidationNote:
    return ValidationNote(3, True, edited_at, EVENT.version, event_at)


@pytest.mark.parametrize(
    ("revision", "edited_at", "event_at", "now", "rejected", "rejected_when_placed"),
    [
        pytest.param(NAMED, 50, 0, 50, True, True, id="the event names the version that is stored"),
        pytest.param(
            replace(EDITED, accepted_generation=0), 50, 0, 500, True, True, id="KubeRay never accepted the RayCluster"
        ),
        pytest.param(
            replace(EDITED, accepted_generation=3), 50, 50, 50, False, False, id="KubeRay accepted this generation"
        ),
        pytest.param(EDITED, 50, 0, 50, False, False, id="an edit after the event"),
        pytest.param(EDITED, 50, 50 + LATER, 50 + LATER, True, True, id="an event long after the edit"),
        pytest.param(EDITED, 50, 50, 50 + SOON, True, False, id="an event beside the edit, for a while"),
        pytest.param(EDITED, 50, 50 + SOON, 50 + LATER, False, False, id="an event beside the edit, and silence since"),
        pytest.param(RESUMED, 50, 50, 50 + SOON, True, False, id="a job that was just resumed may yet be accepted"),
        pytest.param(RESUMED, 50, 50, 50 + LATER, False, True, id="a job that was resumed and not accepted"),
    ],
)
def test_a_rejection_counts_for_the_object_as_it_is(
    revision: RayClusterRevision,
    edited_at: float,
    event_at: float,
    now: float,
    rejected: bool,
    rejected_when_placed: bool,
) -> None:
    at = note(edited_at, event_at)
    assert is_rejected(revision, EVENT, at, now, is_placed=False) is rejected
    assert is_rejected(revision, EVENT, at, now, is_placed=True) is rejected_when_placed


@pytest.mark.parametrize(
    ("revision", "event", "edited_at", "event_at"),
    [
        pytest.param(EDITED, EVENT, 10, 20, id="nothing changed"),
        pytest.param(replace(EDITED, version="80"), EVENT, 10, 20, id="the status changed"),
        pytest.param(RESUMED, EVENT, 10, 20, id="Kueue resumed it"),
        pytest.param(replace(EDITED, generation=4), EVENT, 99, 20, id="it was edited"),
        pytest.param(replace(RESUMED, generation=5), EVENT, 99, 20, id="it was edited and resumed"),
        pytest.param(EDITED, replace(EVENT, version="91"), 10, 99, id="the event was repeated"),
    ],
)
def test_a_note_has_the_times_of_the_last_edit_and_of_the_last_event(
    revision: RayClusterRevision, event: RejectionEvent, edited_at: float, event_at: float
) -> None:
    updated = update_note(note(10, 20), revision, event, 99)
    assert (updated.edited_at, updated.event_at) == (edited_at, event_at)
    assert updated.generation == revision.generation
    assert updated.event_version == event.version


def test_a_first_note_is_in_doubt() -> None:
    first = update_note(None, EDITED, EVENT, 99)
    assert first.edited_at == first.event_at == 99


@dataclass
class Model:
    """A RayCluster with KubeRay, Kueue and one controller process; an event arrives up to a second late."""

    valid: bool
    status_changes: bool  # whether KubeRay's status shows that it accepted an edit
    now: float = 0.0
    revision: RayClusterRevision = field(default_factory=lambda: RayClusterRevision("1", 0, 0, suspended=True))
    event: RejectionEvent | None = None
    arriving: list[tuple[float, RejectionEvent]] = field(default_factory=list)
    recorded: RejectionEvent | None = None  # as the API server has it
    memory: ValidationNote | None = None
    placed: bool = False
    changed_at: float = 0.0  # by a user, or by a restart of the controller, as the controller observed it
    observed: bool = True
    tries: int = 0  # since then
    version: int = 1

    def __post_init__(self) -> None:
        self.write_spec(lag=0.0)

    def next_version(self) -> str:
        self.version += 1
        return str(self.version)

    def write_spec(self, *, lag: float) -> None:
        """Write a generation; KubeRay then accepts it, or records the event."""
        self.revision = replace(self.revision, version=self.next_version(), generation=self.revision.generation + 1)
        if not self.valid:
            object_version = self.recorded.object_version if self.recorded else self.revision.version
            self.recorded = RejectionEvent(self.next_version(), object_version, "Invalid", "no.")
            self.arriving.append((self.now + lag, self.recorded))
        elif self.status_changes or not self.revision.accepted_generation:
            accepted = self.revision.generation
            self.revision = replace(self.revision, version=self.next_version(), accepted_generation=accepted)

    def flip(self, *, lag: float) -> None:
        """Kueue resumes or suspends it, which changes the status of a RayCluster that is accepted."""
        self.revision = replace(self.revision, suspended=not self.revision.suspended)
        before, self.status_changes = self.status_changes, True
        self.write_spec(lag=lag)
        self.status_changes = before

    def edit(self, *, valid: bool, lag: float) -> None:
        self.valid, self.observed, self.tries = valid, False, 0
        self.write_spec(lag=lag)

    def restart(self) -> None:
        self.memory, self.observed, self.tries = None, False, 0

    def step(self, seconds: float, lag: float) -> None:
        """Let the time pass, and let the controller reconcile."""
        self.now += seconds
        if not self.observed:
            self.changed_at, self.observed = self.now, True
        for due, event in [entry for entry in self.arriving if entry[0] <= self.now]:
            self.event = event
            self.arriving.remove((due, event))
        rejected = self.is_rejected()
        if self.placed and rejected:
            self.placed = False
            if not self.revision.suspended:
                self.flip(lag=lag)
        elif not self.placed and not rejected:
            self.placed = True
            self.tries += 1
            self.flip(lag=lag)

    def is_rejected(self) -> bool:
        if self.event is None:
            return False
        self.memory = update_note(self.memory, self.revision, self.event, self.now)
        return is_rejected(self.revision, self.event, self.memory, self.now, is_placed=self.placed)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["valid", "invalid", "restart", "nothing"]),
        st.floats(0, 2 * DOUBT_SECONDS),  # the time that passes before it
        st.floats(0, 1),
    ),
    min_size=1,
    max_size=6,
)


@given(first=st.booleans(), status_changes=st.booleans(), changes=CHANGES)
def test_a_corrected_job_is_placed_and_an_invalid_one_holds_nothing(
    first: bool, status_changes: bool, changes: list[tuple[str, float, float]]
) -> None:
    """Whatever is edited and restarted, also while events are on their way."""
    model = Model(valid=first, status_changes=status_changes)
    for change, delay, lag in changes:
        for _ in range(4):
            model.step(delay / 4, lag)
        if change == "restart":
            model.restart()
        elif change != "nothing":
            model.edit(valid=change == "valid", lag=lag)
    placed_seconds = late_seconds = 0.0
    for _ in range(int(8 * DOUBT_SECONDS)):
        model.step(0.5, 0.25)
        placed_seconds += 0.5 * model.placed
        if model.now > model.changed_at + DOUBT_SECONDS + 2:
            late_seconds += 0.5 * (not model.placed)
    if model.valid:
        # A new process evicts a resumed job once if KubeRay's status does not show that it accepted the last edit.
        assert model.placed and late_seconds <= 1, "a corrected job waits no longer"
    else:
        assert not model.placed
        assert model.tries <= 3, "an invalid job is not tried again and again"
        assert placed_seconds <= DOUBT_SECONDS + 5, "an invalid job gives back what it holds"
