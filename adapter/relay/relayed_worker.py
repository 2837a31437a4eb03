"""What a worker needs to join its head through the relay."""

from dataclasses import dataclass

from adapter.relay.frp_config import RelayAddress
from adapter.relay.relay_network import RelayNetwork


@dataclass(frozen=True, slots=True)
class RelayedWorker:
    network: RelayNetwork
    cluster: str
    address: RelayAddress  # what its sidecar dials: the routers, or the head itself where pods reach it
    head_ip: str  # where routers find the head's server
    head_key: str = ""  # the fingerprint of the key that the head was started with
