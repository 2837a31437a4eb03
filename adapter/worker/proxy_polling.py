"""When each proxy of Ray Serve is polled, and which proxies count as unresponsive.

While a worker cluster is unreachable, readiness is not mirrored, and Ray's head takes a minute to miss a node. So we
poll the proxy's health, as its kubelet does. A proxy that has never answered may be unreachable for us alone, for
example by a network policy: its failures do not count. shell/observe/proxy_health.py sends the requests;
service_endpoints.py uses the results.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

HEALTH_PATH = "/-/healthz"  # ray:python/ray/serve/_private/proxy.py; KubeRay's readiness probe asks it
# After this time a poll has failed, because a dropped connection gives no error. A healthy proxy answers in
# milliseconds, across an ocean in tenths of a second.
DEADLINE_SECONDS = 2.0
# The interval in an unreachable cluster. With the deadline, a proxy that is cut off counts as unresponsive after seven
# seconds at most.
POLL_SECONDS = 3.0
# The failures in a row that make a proxy unresponsive: one failure may be a lost packet, or a proxy that starts a Serve
# replica.
FAILURE_THRESHOLD = 2
# The longest interval of a proxy that has never answered.
MAX_BACKOFF_SECONDS = 60.0
# Concurrent polls; each holds only a socket. Two hundred unresponsive proxies are known within fifteen seconds.
POLLS_AT_ONCE = 128
POLLS_PER_NAMESPACE = POLLS_AT_ONCE // 2  # one tenant's proxies leave polls to others

ProxyId = tuple[str, str, str]  # namespace and uid of the worker's pod, address of its proxy


@dataclass(frozen=True, slots=True)
class ProxyPollState:
    polled_at: float = -math.inf
    ever_answered: bool = False
    failures: int = 0

    @property
    def is_unresponsive(self) -> bool:
        return self.ever_answered and self.failures >= FAILURE_THRESHOLD

    def due_at(self, unreachable: bool) -> float:
        """When the next poll is due; a proxy that has answered is polled only while its cluster is unreachable."""
        if not self.ever_answered:
            return self.polled_at + min(POLL_SECONDS * (1 << min(self.failures, 9)), MAX_BACKOFF_SECONDS)
        return self.polled_at + POLL_SECONDS if unreachable else math.inf


def state_after_poll(state: ProxyPollState, healthy: bool, now: float) -> ProxyPollState:
    return ProxyPollState(now, state.ever_answered or healthy, 0 if healthy else state.failures + 1)


def without_failures(state: ProxyPollState) -> ProxyPollState:
    """The state once the cluster is reachable: its failures are of an earlier outage."""
    return ProxyPollState(state.polled_at, True) if state.ever_answered else state


def proxies_to_poll(
    states: Mapping[ProxyId, ProxyPollState],
    unreachable: Collection[ProxyId],
    in_flight: Collection[ProxyId],
    now: float,
) -> list[ProxyId]:
    """The proxies to poll now, longest wait first."""
    due = {proxy: state.due_at(proxy in unreachable) for proxy, state in states.items() if proxy not in in_flight}
    busy, proxies = Counter(proxy[0] for proxy in in_flight), list[ProxyId]()
    for proxy in sorted((proxy for proxy, due_at in due.items() if due_at <= now), key=lambda proxy: due[proxy]):
        if busy.total() < POLLS_AT_ONCE and busy[proxy[0]] < POLLS_PER_NAMESPACE:
            busy[proxy[0]] += 1
            proxies.append(proxy)
    return proxies
