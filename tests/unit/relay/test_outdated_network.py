"""Which jobs run with another key or address of the relay than new ones, as sentences."""

from typing import Any

import pytest

from adapter import names
from adapter.objects.relay_currency import RelayCurrency
from adapter.relay.outdated_network import key_problem, relay_currency

ADDRESS, OLD = "relay.example.com:30443", "10.0.0.1:30443"
CURRENT = names.ConditionReason.RELAY_CURRENT
KEY_CHANGED, ADDRESS_CHANGED = names.ConditionReason.RELAY_KEY_CHANGED, names.ConditionReason.RELAY_ADDRESS_CHANGED


def _pod(address: str, **annotations: str) -> Any:
    return {"metadata": {"annotations": {names.RELAY_ADDRESS_ANNOTATION: address, **annotations}}}


FOLLOWS_HEAD = _pod("10.1.0.1:29170", **{names.HEAD_IP_ANNOTATION: "10.1.0.1"})


@pytest.mark.parametrize(
    ("head_key", "present_key", "part"),
    [
        pytest.param("aa", "aa", "", id="the same"),
        pytest.param("", "aa", "", id="a head of an earlier version"),
        pytest.param("aa", "bb", "has the key bb now", id="another one"),
        pytest.param("aa", "", "has no key now", id="lost"),
    ],
)
def test_a_head_refuses_workers_of_another_key(head_key: str, present_key: str, part: str) -> None:
    problem = key_problem(head_key, present_key)
    assert part in problem and bool(problem) == bool(part)
    assert not part or "restore the Secret from a backup, or start the job again" in problem


@pytest.mark.parametrize(
    ("address", "head_keys", "workers", "reason", "parts"),
    [
        pytest.param(ADDRESS, {"a": "aa"}, {"a": [_pod(ADDRESS)]}, CURRENT, [ADDRESS], id="all is present"),
        pytest.param(ADDRESS, {"a": ""}, {"a": [{"metadata": {}}]}, CURRENT, [ADDRESS], id="of an earlier version"),
        pytest.param("", {"a": "aa"}, {"a": [FOLLOWS_HEAD]}, CURRENT, ["no relay"], id="flat, and dials the head"),
        pytest.param(ADDRESS, {"b": "bb", "a": "cc"}, {}, KEY_CHANGED, ["heads of a, b were"], id="another key"),
        pytest.param("", {"a": "bb"}, {}, KEY_CHANGED, ["heads of a were"], id="another key in a flat cluster"),
        pytest.param(
            ADDRESS, {}, {"a": [_pod(ADDRESS), _pod(OLD)]}, ADDRESS_CHANGED, [f"of a dial {OLD}", ADDRESS], id="address"
        ),
        pytest.param("", {}, {"a": [_pod(OLD)]}, ADDRESS_CHANGED, [OLD, "no address now"], id="flat by now"),
        pytest.param(
            ADDRESS, {"a": "bb"}, {"c": [_pod(OLD)]}, KEY_CHANGED, ["heads of a were", f"of c dial {OLD}"], id="both"
        ),
        pytest.param(
            ADDRESS,
            {f"job-{number}": "bb" for number in range(7)},
            {},
            KEY_CHANGED,
            ["job-0, job-1, job-2, job-3, job-4 and 2 more"],
            id="many jobs",
        ),
    ],
)
def test_the_condition_names_the_jobs(
    address: str,
    head_keys: dict[str, str],
    workers: dict[str, list[Any]],
    reason: names.ConditionReason,
    parts: list[str],
) -> None:
    currency = relay_currency(address, "aa", head_keys, workers)
    assert isinstance(currency, RelayCurrency) and currency.reason == reason
    assert currency.is_current == (reason == CURRENT)
    assert all(part in currency.message for part in parts), currency.message
