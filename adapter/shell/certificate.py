"""With which certificate does a server answer? That in a folder, as a Secret of type kubernetes.io/tls is mounted, read anew when it changes.

It makes none, and judges none: whether it has ended, and whose it is, is for whoever connects to say. It keeps no copy of the key. What
cannot be read takes nothing away: the one before stays.
"""

import asyncio
import hashlib
import logging
import ssl
from pathlib import Path

from adapter import names

log = logging.getLogger(__name__)

REREAD_SECONDS = 60.0  # a kubelet takes as long to write a Secret that changed


class UnreadableCertificate(Exception):
    """None can be read; where, and why not."""


class Certificate:
    """What is in the folder. `tls` shows it to those who connect."""

    def __init__(self, folder: Path) -> None:
        """Raises NoCertificate."""
        self._folder = folder
        self._files = folder / names.TLS_CERT_KEY, folder / names.TLS_PRIVATE_KEY_KEY
        self._digest = ""
        self._current = self._read_changed() or _tls_context()
        self.tls = self._current
        self.tls.sni_callback = self._select_context  # of each handshake, also where no name is asked for

    async def reload_periodically(self, every: float = REREAD_SECONDS) -> None:
        """Look into the folder again and again, and show what is new to those who connect from then on; until cancelled."""
        while True:
            await asyncio.sleep(every)
            try:
                if new := self._read_changed():
                    self._current = new
                    log.info("the certificate in %s was read anew", self._folder)
            except (
                UnreadableCertificate
            ) as error:  # one of the files may be newer than the other: the next look has both
                log.warning("the certificate that was read before stays: %s", error)

    def _select_context(self, connection: ssl.SSLObject, *_: object) -> None:
        connection.context = self._current

    def _read_changed(self) -> ssl.SSLContext | None:
        """What is there, if it is another one than before; raises NoCertificate.

        In a context of its own: one that takes a second certificate keeps the first beside it, where their keys are of two types, and
        loses its key where they do not belong together. A key with a password is refused: nobody is there to type it.
        """
        try:
            seen = hashlib.sha256(b"".join(file.read_bytes() for file in self._files)).hexdigest()
            if seen == self._digest:
                return None
            context = _tls_context()
            context.load_cert_chain(*self._files, password="")
        except OSError as error:
            raise UnreadableCertificate(
                f"{self._folder} has no tls.crt and tls.key that can be read: {_error_reason(error)}"
            ) from None
        self._digest = seen
        return context


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # whatever the image's openssl.cnf says
    return context


def _error_reason(error: OSError) -> str:
    """An error of TLS has a reason, that of a file what the system says of it; neither quotes what is in the file."""
    said = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return said or type(error).__name__
