"""With which certificate is it served? One that it makes of itself when it starts, for as long as it runs.

The API server's service proxy asks for TLS and for no name in it, so nobody has to hand one out or renew it: what it keeps off is who
listens between the two. The program openssl, which the image has for its root certificates, makes it; the key is in memory only.
"""

import asyncio
import ssl
import tempfile
from pathlib import Path

from adapter import names


class OpensslFailed(Exception):
    """There is none to serve with."""


async def self_signed_context() -> ssl.SSLContext:
    """A server's context; raises NoCertificate."""
    with tempfile.TemporaryDirectory() as folder:  # /tmp of the pod is in memory
        key, certificate = Path(folder, "key"), Path(folder, "certificate")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        about = ["-days", "3650", "-subj", f"/CN={names.ACCESS_ACCOUNT}", "-keyout", str(key), "-out", str(certificate)]
        try:
            made = await asyncio.create_subprocess_exec(
                *command, *about, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
            )
        except OSError as error:
            raise OpensslFailed(f"openssl cannot be run: {error.strerror}") from None
        if await made.wait():
            raise OpensslFailed(f"openssl ended with {made.returncode}")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        return context
