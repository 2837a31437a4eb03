"""Serves the TLS certificate in a folder, where a Secret of type kubernetes.io/tls is mounted; reloads it on change.

It creates no certificate and checks none: expiry and owner are for the client to check. It keeps no copy of the key.
When a new certificate cannot be read, the previous one stays.
"""

import asyncio
import hashlib
import logging
import ssl
from pathlib import Path

from adapter import names

log = logging.getLogger(__name__)

REREAD_SECONDS = 60.0  # the kubelet takes as long to update a mounted Secret


class UnreadableCertificate(Exception):
    """No certificate can be read; the text names the folder and the reason."""


class Certificate:
    """The certificate in the folder. `tls` presents it to clients."""

    def __init__(self, folder: Path) -> None:
        """Raises UnreadableCertificate."""
        self._folder = folder
        self._files = folder / names.TLS_CERT_KEY, folder / names.TLS_PRIVATE_KEY_KEY
        self._digest = ""
        self._current = self._read_changed() or _tls_context()
        self.tls = self._current
        self.tls.sni_callback = self._select_context  # called at each handshake, also without a server name

    async def reload_periodically(self, every: float = REREAD_SECONDS) -> None:
        """Reload the certificate periodically, for new connections; until cancelled."""
        while True:
            await asyncio.sleep(every)
            try:
                if new := self._read_changed():
                    self._current = new
                    log.info("the certificate in %s was read anew", self._folder)
            except UnreadableCertificate as error:
                # One of the files may be newer than the other: the next reload has both.
                log.warning("the certificate that was read before stays: %s", error)

    def _select_context(self, connection: ssl.SSLObject, *_: object) -> None:
        connection.context = self._current

    def _read_changed(self) -> ssl.SSLContext | None:
        """A context with the certificate if it has changed, else None; raises UnreadableCertificate.

        Each certificate gets a context of its own. A context that takes a second one keeps the first beside it when the
        keys are of two types. It loses its key when key and certificate do not match. A key with a password is an
        error, since it cannot be typed in.
        """
        try:
            digest = hashlib.sha256(b"".join(file.read_bytes() for file in self._files)).hexdigest()
            if digest == self._digest:
                return None
            context = _tls_context()
            context.load_cert_chain(*self._files, password="")
        except OSError as error:
            raise UnreadableCertificate(
                f"{self._folder} has no tls.crt and tls.key that can be read: {_error_reason(error)}"
            ) from None
        self._digest = digest
        return context


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # independent of the image's openssl.cnf
    return context


def _error_reason(error: OSError) -> str:
    """The reason of a TLS error, or the system's text for a file error; neither quotes the file."""
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return reason or type(error).__name__
