"""The credentials of relayed networks: equal for equal input, and apart for all else."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from adapter.relay.relay_keys import RelayKeys
from adapter.relay.relay_network import MANAGER, RelayNetwork, identity_of
from adapter.relay.relay_objects import KeyPair

KEY, NOW = b"k" * 32, datetime(2026, 11, 30, tzinfo=UTC)
NETWORK = RelayNetwork(identity_of("uid-of-work"), "team-a")


def _all(key: bytes = KEY, network: RelayNetwork = NETWORK, now: datetime = NOW) -> list[object]:
    keys = RelayKeys(key, network, now)
    return [keys.secrets, keys.server, keys.client(MANAGER), keys.client("east")]


def test_a_controller_that_was_restarted_makes_the_same_credentials() -> None:
    assert _all() == _all(now=NOW + timedelta(hours=1))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(_all(b"o" * 32), id="another manager's key"),
        pytest.param(_all(network=RelayNetwork(NETWORK.identity, "team-b")), id="a forged identity in a namespace"),
        pytest.param(_all(network=RelayNetwork(identity_of("other"), "team-a")), id="another job of the namespace"),
    ],
)
def test_no_credential_of_another_network_is_equal(other: list[object]) -> None:
    assert not {repr(each) for each in _all()} & {repr(each) for each in other}
    own, its = _all()[0], other[0]
    assert own.names_key != its.names_key and own.connect_secret != its.connect_secret  # type: ignore[attr-defined]


def test_a_later_months_certificates_are_of_the_same_authority_and_valid_on() -> None:
    """Pods of both months know each other: the authority's key is the same."""
    later = RelayKeys(KEY, NETWORK, NOW + timedelta(days=70))
    first, last = (x509.load_pem_x509_certificate(each.client("east").certificate.encode()) for each in (
        RelayKeys(KEY, NETWORK, NOW), later))  # fmt: skip
    assert last.not_valid_after_utc > first.not_valid_after_utc > NOW + timedelta(days=360)
    first.verify_directly_issued_by(x509.load_pem_x509_certificate(later.secrets.authority.encode()))
    last.verify_directly_issued_by(
        x509.load_pem_x509_certificate(RelayKeys(KEY, NETWORK, NOW).secrets.authority.encode())
    )


def test_openssl_takes_the_certificates(tmp_path: Path) -> None:
    keys = RelayKeys(KEY, NETWORK, datetime.now(UTC))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=keys.secrets.authority)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cadata=keys.secrets.authority)
    _load(server, keys.server, tmp_path)
    _load(client, keys.client("east"), tmp_path)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=NETWORK.server_name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    assert _shake_hands(near, far)["subject"], "the client's certificate was asked for and taken"


def _load(context: ssl.SSLContext, pair: KeyPair, folder: Path) -> None:
    file = folder / "pair.pem"
    file.write_text(pair.certificate + pair.private_key)
    context.load_cert_chain(file)


def _shake_hands(near: ssl.SSLObject, far: ssl.SSLObject) -> dict[str, object]:
    done = set[ssl.SSLObject]()
    for _ in range(20):
        for each in (near, far):
            try:
                each.do_handshake()
                done.add(each)
            except ssl.SSLWantReadError:
                pass
        if len(done) == 2:
            return dict(far.getpeercert() or {})
    raise AssertionError("the handshake does not end")
