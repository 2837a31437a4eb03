"""Which heads are asked next, and when is each asked again?

Each head has a schedule of its own. How long one takes to answer is up to its user, so those who answer, those who were never
asked and those who gave no answer last time have places of their own, and within these every namespace has the same chance.
What is asked, and how, is shell/observe/head_client.py's; what follows from an answer is cluster_loss.py's.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from adapter.objects.unstructured import Key

# Ray takes about a minute to give a node up: asked six times in that, we are at most ten seconds later than it.
POLL_SECONDS = 10.0
# Between two questions to a head that gives no answer: one that is well again is asked within what Ray itself takes for a node.
MAX_BACKOFF_SECONDS = 60.0
# Of each kind that are asked at the same time. One that is silent holds its place for 2 s, or for 5 s when it takes the
# connection: four hundred silent heads are through in one to two minutes, and nobody who answers waits for one of them.
POLLS_AT_ONCE = 16
POLLS_PER_NAMESPACE = POLLS_AT_ONCE // 2  # of these: one tenant's heads leave places to others

HeadId = tuple[str, str, str]  # namespace, RayCluster, uid of the head's pod


@dataclass(frozen=True, slots=True)
class HeadPollState:
    """When a head is asked, and how often in a row it gave no answer; None: it was never asked."""

    due_at: float = 0.0  # not before
    failures: int | None = None

    @property
    def kind(self) -> Literal["new", "answers", "silent"]:
        """Whose places it takes."""
        return "new" if self.failures is None else "silent" if self.failures else "answers"


def ray_cluster_key(head: HeadId) -> Key:
    """Namespace and name of the head's RayCluster."""
    return head[0], head[1]


def state_after_poll(state: HeadPollState, answered: bool, now: float) -> HeadPollState:
    """The next turn of a head that was asked: soon after an answer, later and later without one."""
    if answered:
        return HeadPollState(now + POLL_SECONDS, 0)
    misses = (state.failures or 0) + 1
    return HeadPollState(now + min(POLL_SECONDS * 2 ** min(misses - 1, 9), MAX_BACKOFF_SECONDS), misses)


def heads_to_poll(
    states: Mapping[HeadId, HeadPollState], in_flight: Mapping[HeadId, HeadPollState], now: float
) -> list[HeadId]:
    """Those to be asked now, beside those that are being asked, each with the turn that it was asked by."""
    due = sorted(
        (one for one, turn in states.items() if turn.due_at <= now and one not in in_flight),
        key=lambda h: states[h].due_at,
    )
    found: list[HeadId] = []
    for kind in ("answers", "new", "silent"):
        busy = Counter(head[0] for head, turn in in_flight.items() if turn.kind == kind)
        found += _pick_fairly([head for head in due if states[head].kind == kind], busy)
    return found


def _pick_fairly(due: Iterable[HeadId], busy: Counter[str]) -> list[HeadId]:
    """As many of one kind as there are places left, each from the namespace that has the fewest; `busy` counts these."""
    waiting: dict[str, deque[HeadId]] = defaultdict(deque)
    for head in due:
        waiting[head[0]].append(head)
    found: list[HeadId] = []
    while waiting and busy.total() < POLLS_AT_ONCE:
        namespace = min(waiting, key=lambda one: busy[one])  # the first of several: its head waits longest
        if busy[namespace] >= POLLS_PER_NAMESPACE:
            break
        found.append(waiting[namespace].popleft())
        busy[namespace] += 1
        if not waiting[namespace]:
            del waiting[namespace]
    return found
