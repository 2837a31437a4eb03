"""Which proxies of Ray Serve are asked next, and which of them count as silent?

While its worker cluster cannot be seen nobody mirrors whether a worker is ready, and Ray's head takes a minute to miss its node. So the
worker's proxy is asked whether it is well, as its kubelet asks it. One that has never answered may be out of our reach alone, by a policy
of the network say: its silence says nothing of those who send requests, and does not count. What is asked, and how, is
shell/observe/proxy_health.py's; what follows from it is service_endpoints.py's.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

PATH = "/-/healthz"  # ray:python/ray/serve/_private/proxy.py; KubeRay asks it in the worker's readiness probe
# Of a connection that is dropped nothing comes back: what is well answers within milliseconds, over the sea within a few tenths of a second.
DEADLINE_SECONDS = 2.0
# Between two questions while the cluster is silent. With the deadline, who is cut off counts as silent after seven seconds at most.
ASK_SECONDS = 3.0
# In a row: one is a lost packet, or a proxy that is busy starting a replica.
MISSES = 2
# Between two questions to one that has never answered.
SELDOM_SECONDS = 60.0
# That are asked at the same time: each holds a socket and no more, and two hundred that are silent are known within fifteen seconds.
AT_ONCE = 128
OF_NAMESPACE = AT_ONCE // 2  # of these: one tenant's proxies leave places to others

Proxy = tuple[str, str, str]  # namespace and uid of the worker's pod, where its proxy listens


@dataclass(frozen=True, slots=True)
class Turn:
    """When a proxy was asked, whether it ever answered, and how often in a row it did not since."""

    asked: float = -math.inf
    answered: bool = False
    misses: int = 0

    @property
    def silent(self) -> bool:
        """Whether it answered once, and does not now."""
        return self.answered and self.misses >= MISSES

    def due(self, unseen: bool) -> float:
        """When it is to be asked, `unseen`: while its cluster cannot be seen. Never again once it answered, until then."""
        if not self.answered:
            return self.asked + min(ASK_SECONDS * (1 << min(self.misses, 9)), SELDOM_SECONDS)
        return self.asked + ASK_SECONDS if unseen else math.inf


def after(turn: Turn, well: bool, now: float) -> Turn:
    """The turn of a proxy that was asked."""
    return Turn(now, turn.answered or well, 0 if well else turn.misses + 1)


def seen(turn: Turn) -> Turn:
    """The turn of one whose cluster can be seen: what it did not answer before is of another silence."""
    return Turn(turn.asked, True) if turn.answered else turn


def chosen(
    turns: Mapping[Proxy, Turn], unseen: Collection[Proxy], flying: Collection[Proxy], now: float
) -> list[Proxy]:
    """Those to be asked now, beside those that are being asked; who waits longest is first."""
    due = {one: turn.due(one in unseen) for one, turn in turns.items() if one not in flying}
    busy, found = Counter(one[0] for one in flying), list[Proxy]()
    for one in sorted((one for one, when in due.items() if when <= now), key=lambda one: due[one]):
        if busy.total() < AT_ONCE and busy[one[0]] < OF_NAMESPACE:
            busy[one[0]] += 1
            found.append(one)
    return found
