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

HEALTH_PATH = "/-/healthz"  # ray:python/ray/serve/_private/proxy.py; KubeRay asks it in the worker's readiness probe
# Of a connection that is dropped nothing comes back: what is well answers within milliseconds, over the sea within a few tenths of a second.
DEADLINE_SECONDS = 2.0
# Between two questions while the cluster is silent. With the deadline, who is cut off counts as silent after seven seconds at most.
POLL_SECONDS = 3.0
# In a row: one is a lost packet, or a proxy that is busy starting a replica.
FAILURE_THRESHOLD = 2
# Between two questions to one that has never answered.
MAX_BACKOFF_SECONDS = 60.0
# That are asked at the same time: each holds a socket and no more, and two hundred that are silent are known within fifteen seconds.
POLLS_AT_ONCE = 128
POLLS_PER_NAMESPACE = POLLS_AT_ONCE // 2  # of these: one tenant's proxies leave places to others

ProxyId = tuple[str, str, str]  # namespace and uid of the worker's pod, where its proxy listens


@dataclass(frozen=True, slots=True)
class ProxyPollState:
    """When a proxy was asked, whether it ever answered, and how often in a row it did not since."""

    polled_at: float = -math.inf
    ever_answered: bool = False
    failures: int = 0

    @property
    def is_unresponsive(self) -> bool:
        """Whether it answered once, and does not now."""
        return self.ever_answered and self.failures >= FAILURE_THRESHOLD

    def due_at(self, unreachable: bool) -> float:
        """When it is to be asked, `unseen`: while its cluster cannot be seen. Never again once it answered, until then."""
        if not self.ever_answered:
            return self.polled_at + min(POLL_SECONDS * (1 << min(self.failures, 9)), MAX_BACKOFF_SECONDS)
        return self.polled_at + POLL_SECONDS if unreachable else math.inf


def state_after_poll(state: ProxyPollState, healthy: bool, now: float) -> ProxyPollState:
    """The turn of a proxy that was asked."""
    return ProxyPollState(now, state.ever_answered or healthy, 0 if healthy else state.failures + 1)


def without_failures(state: ProxyPollState) -> ProxyPollState:
    """The turn of one whose cluster can be seen: what it did not answer before is of another silence."""
    return ProxyPollState(state.polled_at, True) if state.ever_answered else state


def proxies_to_poll(
    states: Mapping[ProxyId, ProxyPollState],
    unreachable: Collection[ProxyId],
    in_flight: Collection[ProxyId],
    now: float,
) -> list[ProxyId]:
    """Those to be asked now, beside those that are being asked; who waits longest is first."""
    due = {one: turn.due_at(one in unreachable) for one, turn in states.items() if one not in in_flight}
    busy, found = Counter(one[0] for one in in_flight), list[ProxyId]()
    for one in sorted((one for one, when in due.items() if when <= now), key=lambda one: due[one]):
        if busy.total() < POLLS_AT_ONCE and busy[one[0]] < POLLS_PER_NAMESPACE:
            busy[one[0]] += 1
            found.append(one)
    return found
