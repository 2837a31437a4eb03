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
ASK_SECONDS = 10.0
# Between two questions to a head that gives no answer: one that is well again is asked within what Ray itself takes for a node.
SELDOM_SECONDS = 60.0
# Of each kind that are asked at the same time. One that is silent holds its place for 2 s, or for 5 s when it takes the
# connection: four hundred silent heads are through in one to two minutes, and nobody who answers waits for one of them.
AT_ONCE = 16
OF_NAMESPACE = AT_ONCE // 2  # of these: one tenant's heads leave places to others

Head = tuple[str, str, str]  # namespace, RayCluster, uid of the head's pod


@dataclass(frozen=True, slots=True)
class Turn:
    """When a head is asked, and how often in a row it gave no answer; None: it was never asked."""

    due: float = 0.0  # not before
    misses: int | None = None

    @property
    def kind(self) -> Literal["new", "answers", "silent"]:
        """Whose places it takes."""
        return "new" if self.misses is None else "silent" if self.misses else "answers"


def ray_cluster(head: Head) -> Key:
    """Namespace and name of the head's RayCluster."""
    return head[0], head[1]


def after(turn: Turn, answered: bool, now: float) -> Turn:
    """The next turn of a head that was asked: soon after an answer, later and later without one."""
    if answered:
        return Turn(now + ASK_SECONDS, 0)
    misses = (turn.misses or 0) + 1
    return Turn(now + min(ASK_SECONDS * 2 ** min(misses - 1, 9), SELDOM_SECONDS), misses)


def chosen(turns: Mapping[Head, Turn], flying: Mapping[Head, Turn], now: float) -> list[Head]:
    """Those to be asked now, beside those that are being asked, each with the turn that it was asked by."""
    due = sorted(
        (one for one, turn in turns.items() if turn.due <= now and one not in flying), key=lambda h: turns[h].due
    )
    found: list[Head] = []
    for kind in ("answers", "new", "silent"):
        busy = Counter(head[0] for head, turn in flying.items() if turn.kind == kind)
        found += _picked([head for head in due if turns[head].kind == kind], busy)
    return found


def _picked(due: Iterable[Head], busy: Counter[str]) -> list[Head]:
    """As many of one kind as there are places left, each from the namespace that has the fewest; `busy` counts these."""
    waiting: dict[str, deque[Head]] = defaultdict(deque)
    for head in due:
        waiting[head[0]].append(head)
    found: list[Head] = []
    while waiting and busy.total() < AT_ONCE:
        namespace = min(waiting, key=lambda one: busy[one])  # the first of several: its head waits longest
        if busy[namespace] >= OF_NAMESPACE:
            break
        found.append(waiting[namespace].popleft())
        busy[namespace] += 1
        if not waiting[namespace]:
            del waiting[namespace]
    return found
