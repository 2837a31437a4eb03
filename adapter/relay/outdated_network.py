"""Finds running jobs whose head has credentials of another key, or whose workers dial another address, than new ones.

Nothing reloads these in a pod that runs: frps reads its certificates once, and so does the hook its key. A client reads
its certificates at each dial, so a Secret of another key would cut it off from its server. frpc takes new proxies
while it runs, and no other address. Sources: frp:server/service.go (NewService), frp:client/connector.go (realConnect),
frp:client/admin_api.go (apiReload), version 0.65. So a job keeps the key that its head was started with, and a worker
the address that it was created with.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from adapter import names
from adapter.objects.relay_currency import RelayCurrency
from adapter.objects.unstructured import Raw, annotation, printable_list

_MAX_JOBS, _MAX_ADDRESSES = 5, 2  # in one sentence
_SECRET: Final = f"Secret {names.SYSTEM_NAMESPACE}/{names.RELAY_KEY_SECRET}"


def key_problem(head_key: str, present_key: str) -> str:
    """Why a head refuses new workers, a fragment; empty if it does not, or if an earlier version started it.

    Both keys are fingerprints. `present_key` is empty if there is none.
    """
    if head_key in ("", present_key):
        return ""
    return (
        f"the job's head was started with the key {head_key} of {_SECRET}, which {_present(present_key)}, and refuses "
        f"workers of another key; restore the Secret from a backup, or start the job again"
    )


def relay_currency(
    address: str, present_key: str, head_keys: Mapping[str, str], workers: Mapping[str, Iterable[Raw]]
) -> RelayCurrency:
    """What a WorkerCluster's condition says.

    `address` is its own, empty with mode Flat. `head_keys` are fingerprints by job, of jobs that may have workers
    there, and `workers` the remote pods there by job.
    """
    refusing = sorted(job for job, key in head_keys.items() if key_problem(key, present_key))
    old = {job: sorted(_other_addresses(pods, address)) for job, pods in workers.items()}
    old = {job: addresses for job, addresses in old.items() if addresses}
    texts = [_key_text(refusing, present_key)] if refusing else []
    texts += [_address_text(old, address)] if old else []
    if not texts:
        text = f"Its workers dial {address}, and heads accept new ones." if address else "It dials no relay."
        return RelayCurrency(names.ConditionReason.RELAY_CURRENT, text)
    reason = names.ConditionReason.RELAY_KEY_CHANGED if refusing else names.ConditionReason.RELAY_ADDRESS_CHANGED
    return RelayCurrency(reason, " ".join(texts), len({*refusing, *old}))


def _other_addresses(pods: Iterable[Raw], address: str) -> set[str]:
    """The relay's addresses that pods dial, but for this one; those that dial the head itself follow it."""
    dialled = {
        annotation(pod, names.RELAY_ADDRESS_ANNOTATION) for pod in pods if not annotation(pod, names.HEAD_IP_ANNOTATION)
    }
    return dialled - {"", address}


def _key_text(jobs: list[str], present_key: str) -> str:
    return (
        f"The heads of {printable_list(jobs, _MAX_JOBS)} were started with another key than that of {_SECRET}, which "
        f"{_present(present_key)}. They keep their workers and refuse new ones, so no new ones are created. Restore "
        "the Secret from a backup, or start these jobs again."
    )


def _address_text(old: Mapping[str, list[str]], address: str) -> str:
    addresses = sorted({text for texts in old.values() for text in texts})
    present = f"spec.network.address is {address} now" if address else "spec.network has no address now"
    return (
        f"Workers of {printable_list(sorted(old), _MAX_JOBS)} dial {printable_list(addresses, _MAX_ADDRESSES)}, and "
        f"{present}. Only new workers dial that. Replace the others before their address ends: delete their pods, or "
        "move them away by `kubectl rayspan drain`."
    )


def _present(key: str) -> str:
    return f"has the key {key} now" if key else "has no key now"
