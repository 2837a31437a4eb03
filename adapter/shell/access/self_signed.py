"""Makes the access server's self-signed certificate at each start, with the key in memory only.

The API server's service proxy requires TLS but verifies no name. The image has openssl anyway, for its root
certificates.
"""

import asyncio
import ssl
import tempfile
from pathlib import Path

from adapter import names


class OpensslFailed(Exception):
    """openssl made no certificate."""


async def self_signed_context() -> ssl.SSLContext:
    """A server's TLS context with a new certificate; raises OpensslFailed."""
    with tempfile.TemporaryDirectory() as folder:  # the pod's /tmp is in memory
        key, certificate = Path(folder, "key"), Path(folder, "certificate")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        flags = ["-days", "3650", "-subj", f"/CN={names.ACCESS_ACCOUNT}", "-keyout", str(key), "-out", str(certificate)]
        try:
            process = await asyncio.create_subprocess_exec(
                *command, *flags, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
            )
        except OSError as error:
            raise OpensslFailed(f"openssl cannot be run: {error.strerror}") from None
        if await process.wait():
            raise OpensslFailed(f"openssl ended with {process.returncode}")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        return context
