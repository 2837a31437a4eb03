"""Serves the TLS certificate of a folder, where a Secret of type kubernetes.io/tls is mounted; reloads it on change.

No copy of the key is kept. A new certificate that cannot be read leaves the previous one.
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
    def __init__(self, folder: Path) -> None:
        """Read the certificate; raises UnreadableCertificate."""
        self._folder = folder
        self._files = folder / names.TLS_CERT_KEY, folder / names.TLS_PRIVATE_KEY_KEY
        self._digest = ""
        self._current = self._read_changed() or _tls_context()

    @property
    def tls(self) -> ssl.SSLContext:
        """The context for a new connection."""
        return self._current

    async def reload_periodically(self, every: float = REREAD_SECONDS) -> None:
        """Reload the certificate periodically, for new connections."""
        while True:
            await asyncio.sleep(every)
            try:
                if new := self._read_changed():
                    self._current = new
                    log.info("the certificate in %s was read again", self._folder)
            except UnreadableCertificate as error:
                # During an update one file may be newer than the other.
                log.warning("the certificate that was read before stays: %s", error)

    def _read_changed(self) -> ssl.SSLContext | None:
        """A context with the certificate if it has changed, else None; raises UnreadableCertificate.

        Each certificate gets its own context. In one context, it would not replace a certificate whose key is of
        another type, and a key that does not match would be lost. A key with a password is an error.
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
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # whatever the image's openssl.cnf says
    return context


def _error_reason(error: OSError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return reason or type(error).__name__
