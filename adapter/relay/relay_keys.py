"""Makes the credentials of a RayCluster's relayed network from one key of the controller.

Equal input gives equal bytes. So nothing of a network is stored but its Secrets, and a controller that was restarted
writes the same ones again. The key stays in the controller's namespace; a network's authority signs nothing else.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adapter import names
from adapter.objects.unstructured import Raw, mapping_field
from adapter.relay.relay_network import RelayNetwork
from adapter.relay.relay_objects import KeyPair, RelaySecrets

KEY_BYTES: Final = 32
_KEY: Final = "key"
_FINGERPRINT_LENGTH: Final = 12
_PERIOD: Final = timedelta(days=30)  # certificates made within one are equal
_VALID_FOR: Final = timedelta(days=400)
_CLOCK_SKEW: Final = timedelta(days=1)
_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SERIAL_BYTES: Final = 16


def read_key(secret: Raw | None) -> bytes:
    """The key in the controller's Secret; empty if the Secret is gone or has none of KEY_BYTES."""
    key = base64.b64decode(mapping_field(secret or {}, "data").get(_KEY) or "")
    return key if len(key) == KEY_BYTES else b""


def key_secret(key: bytes) -> dict[str, Any]:
    metadata = {"name": names.RELAY_KEY_SECRET, "namespace": names.SYSTEM_NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {_KEY: base64.b64encode(key).decode()}}


def fingerprint_of(key: bytes) -> str:
    """What shows whether two keys are the same, and nothing else of them; empty for no key."""
    return hmac.new(key, b"fingerprint", hashlib.sha256).hexdigest()[:_FINGERPRINT_LENGTH] if key else ""


class RelayKeys:
    """The credentials of one network at a time; `key` has KEY_BYTES random bytes."""

    def __init__(self, key: bytes, network: RelayNetwork, now: datetime) -> None:
        # The namespace is in it, so that no network of another namespace has the same credentials.
        self._seed = hmac.new(key, f"{network.namespace}/{network.identity}".encode(), hashlib.sha256).digest()
        self._network = network
        self._since = _EPOCH + (now - _EPOCH) // _PERIOD * _PERIOD
        self._authority_key = self._private_key("authority")
        self._authority_name = _name(f"{network.identity} authority")

    @property
    def secrets(self) -> RelaySecrets:
        builder = self._builder(self._authority_name, self._authority_key, "authority")
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        certificate = builder.add_extension(usage, critical=True).sign(self._authority_key, None)
        return RelaySecrets(
            _pem(certificate), self._derive("names").hex(), self._derive("connect").hex()[: 2 * _SERIAL_BYTES]
        )

    @property
    def server(self) -> KeyPair:
        return self._issue("server", self._network.server_name, [ExtendedKeyUsageOID.SERVER_AUTH])

    def client(self, cluster: str) -> KeyPair:
        """The certificate of all nodes in a cluster; MANAGER is the head's."""
        label = hashlib.sha256(cluster.encode()).hexdigest()[:10]
        return self._issue(
            f"client {cluster}", f"{label}.{self._network.server_name}", [ExtendedKeyUsageOID.CLIENT_AUTH]
        )

    def _issue(self, purpose: str, host: str, usages: Sequence[x509.ObjectIdentifier]) -> KeyPair:
        key = self._private_key(purpose)
        builder = self._builder(_name(host), key, purpose)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        return KeyPair(_pem(builder.sign(self._authority_key, None)), _private_pem(key))

    def _builder(self, subject: x509.Name, key: Ed25519PrivateKey, purpose: str) -> x509.CertificateBuilder:
        serial = int.from_bytes(self._derive(f"serial {purpose} {self._since.isoformat()}")[:_SERIAL_BYTES], "big")
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._authority_name)
            .public_key(key.public_key())
            .serial_number(serial or 1)
            .not_valid_before(self._since - _CLOCK_SKEW)
            .not_valid_after(self._since + _VALID_FOR)
        )

    def _private_key(self, purpose: str) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self._derive(f"key {purpose}"))

    def _derive(self, purpose: str) -> bytes:
        return hmac.new(self._seed, purpose.encode(), hashlib.sha256).digest()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _private_pem(key: Ed25519PrivateKey) -> str:
    encoding, layout = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, layout, serialization.NoEncryption()).decode()
