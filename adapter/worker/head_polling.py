"""When each Ray head is asked for its nodes, and which heads are asked next.

Users decide how long a head takes to answer. So answering, new and unresponsive heads have separate polls, which
namespaces share equally. shell/observe/head_client.py sends the requests; cluster_loss.py uses the answers.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from adapter.objects.unstructured import Key

# The interval of an answering head. Ray gives up a node after about a minute, and we notice that at most ten seconds
# later.
POLL_SECONDS = 10.0
# The longest interval of an unresponsive head: if it answers again, it is asked before Ray gives up a node.
MAX_BACKOFF_SECONDS = 60.0
# Concurrent polls of each kind of head. An unresponsive head takes 2 s, or 5 s if it accepts the connection: four
# hundred are polled in one to two minutes.
POLLS_AT_ONCE = 16
POLLS_PER_NAMESPACE = POLLS_AT_ONCE // 2  # one tenant's heads leave polls to others

HeadId = tuple[str, str, str]  # namespace, RayCluster, uid of the head's pod


@dataclass(frozen=True, slots=True)
class HeadPollState:
    due_at: float = 0.0
    failures: int | None = None  # None: never polled

    @property
    def kind(self) -> Literal["new", "answers", "silent"]:
        return "new" if self.failures is None else "silent" if self.failures else "answers"


def ray_cluster_key(head: HeadId) -> Key:
    return head[0], head[1]


def state_after_poll(state: HeadPollState, answered: bool, now: float) -> HeadPollState:
    if answered:
        return HeadPollState(now + POLL_SECONDS, 0)
    failures = (state.failures or 0) + 1
    return HeadPollState(now + min(POLL_SECONDS * 2 ** min(failures - 1, 9), MAX_BACKOFF_SECONDS), failures)


def heads_to_poll(
    states: Mapping[HeadId, HeadPollState], in_flight: Mapping[HeadId, HeadPollState], now: float
) -> list[HeadId]:
    """The heads to poll now, beside those in flight."""
    due = sorted(
        (head for head, state in states.items() if state.due_at <= now and head not in in_flight),
        key=lambda head: states[head].due_at,
    )
    heads: list[HeadId] = []
    for kind in ("answers", "new", "silent"):
        busy = Counter(head[0] for head, state in in_flight.items() if state.kind == kind)
        heads += _pick_fairly([head for head in due if states[head].kind == kind], busy)
    return heads


def _pick_fairly(due: Iterable[HeadId], busy: Counter[str]) -> list[HeadId]:
    """Give free polls to heads of one kind, namespaces with the fewest polls (`busy`) first."""
    waiting: dict[str, deque[HeadId]] = defaultdict(deque)
    for head in due:
        waiting[head[0]].append(head)
    heads: list[HeadId] = []
    while waiting and busy.total() < POLLS_AT_ONCE:
        # Of equal namespaces the first is taken, because its head waits longest.
        namespace = min(waiting, key=lambda key: busy[key])
        if busy[namespace] >= POLLS_PER_NAMESPACE:
            break
        heads.append(waiting[namespace].popleft())
        busy[namespace] += 1
        if not waiting[namespace]:
            del waiting[namespace]
    return heads
