"""Who are the webhooks to the API server: a certificate in their Secret, and its authority in the configurations that lead to them?

A Job does it, by rights that the webhooks themselves have not. The authority signs this one certificate, and its key is written nowhere, so
whoever reads the Secret can be the webhooks and nobody else. What is there and good is left as it is; where only a configuration lacks its
authority, as after it was made anew, that alone is put in. No key is in a log or an argument.
"""

import base64
import binascii
import logging
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from adapter import names
from adapter.objects.unstructured import Raw, meta
from adapter.shell.kube import resources
from adapter.shell.kube.client import Client

log = logging.getLogger(__name__)

# Nobody is told before it ends, and then no worker is made: so it outlives the cluster. It is made anew a year before, by whoever applies
# the component again, as each upgrade does.
LIFETIME_DAYS, LEAST_REMAINING_SECONDS = 3650, 365 * 86_400
AUTHORITY, CERTIFICATE, KEY = "ca.crt", names.TLS_CERT_KEY, names.TLS_PRIVATE_KEY_KEY
_HOST = f"{names.ADMISSION_COMPONENT}.{names.SYSTEM_NAMESPACE}.svc"
_WEBHOOK_CONFIGURATIONS = (
    (resources.GATE_WEBHOOKS, names.GATE_POLICY, names.GATE_WEBHOOK),
    (resources.WARNING_WEBHOOKS, names.WARNINGS_CONFIGURATION, names.WARNINGS_WEBHOOK),
)
_PEM_END = b"-----END CERTIFICATE-----"
_OPENSSL_SECONDS = 30.0  # for one call of openssl, which takes milliseconds
_KEY_OPTIONS = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


async def ensure_certificate(client: Client) -> None:
    """Have a certificate that lasts, and have it trusted; raises ApiError or Unreachable, and may be done again."""
    place = resources.SECRETS.path(names.SYSTEM_NAMESPACE, names.ADMISSION_COMPONENT)
    secret = await client.get(place)
    files = _secret_files(secret)
    anew = not is_still_valid(files)
    if anew:
        files = new_certificate()
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        # Refused if another Job wrote it meanwhile.
        await client.merge_patch(
            place, {"metadata": {"resourceVersion": meta(secret).get("resourceVersion")}, "data": data}
        )
        log.info("Secret %s has a new certificate for %s", names.ADMISSION_COMPONENT, _HOST)
    for resource, name, webhook in _WEBHOOK_CONFIGURATIONS:
        # The gate's may be left out. The other one comes with this Job, and is applied last: until it is there, this is tried again.
        look = client.get if name == names.WARNINGS_CONFIGURATION else client.find
        operations = trust_patch(await look(resource.path(name=name)) or {}, webhook, files[AUTHORITY], anew=anew)
        if operations:
            await client.json_patch(resource.path(name=name), operations, names.ADMISSION_FIELD_MANAGER)
            log.info("%s %s trusts it", resource.plural, name)


def trust_patch(configuration: Raw, webhook: str, authority: bytes, *, anew: bool) -> list[Raw]:
    """The JSON patch by which a configuration's webhook trusts an authority, empty where it does or is not there.

    Beside one that was made anew the one before stays until the next time: its certificate is shown until each replica has read the
    new one, in a minute or two.
    """
    for index, one in enumerate(configuration.get("webhooks") or ()):
        now = _decode_base64((one.get("clientConfig") or {}).get("caBundle"))
        wanted = authority + (_first_certificate(now) if anew else b"")
        if one.get("name") == webhook and now != wanted:
            return [
                {"op": "test", "path": f"/webhooks/{index}/name", "value": webhook},
                {
                    "op": "add",
                    "path": f"/webhooks/{index}/clientConfig/caBundle",
                    "value": base64.b64encode(wanted).decode(),
                },
            ]
    return []


def _first_certificate(bundle: bytes) -> bytes:
    """The first of the certificates in a bundle, empty where there is none."""
    one, end, _ = bundle.partition(_PEM_END)
    return one + end + b"\n" if end else b""


def is_still_valid(files: dict[str, bytes]) -> bool:
    """Whether these are a certificate for our host with its key and authority, and good for a year or longer."""
    if {*files} != {AUTHORITY, CERTIFICATE, KEY}:
        return False
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            _write_private_file(Path(folder, name), content)
        verify = [
            "verify",
            "-CAfile",
            AUTHORITY,
            "-verify_hostname",
            _HOST,
            "-attime",
            str(int(time.time()) + LEAST_REMAINING_SECONDS),
            CERTIFICATE,
        ]
        keys = [
            _openssl_output(folder, one)
            for one in (["pkey", "-in", KEY, "-pubout"], ["x509", "-in", CERTIFICATE, "-noout", "-pubkey"])
        ]
        return keys[0] == keys[1] != b"" and _openssl_output(folder, verify) != b""


def new_certificate() -> dict[str, bytes]:
    """A new one, by the names of its files."""
    with tempfile.TemporaryDirectory() as folder:
        usage = ["-addext", "keyUsage=critical,keyCertSign"]
        subject = f"/CN={names.ADMISSION_COMPONENT}"
        _run_openssl(
            folder,
            [
                "req",
                "-x509",
                *_KEY_OPTIONS,
                "-keyout",
                "ca.key",
                "-subj",
                subject,
                "-days",
                str(LIFETIME_DAYS),
                *usage,
                "-out",
                AUTHORITY,
            ],
        )
        _run_openssl(folder, ["req", "-new", *_KEY_OPTIONS, "-keyout", KEY, "-subj", subject, "-out", "request"])
        _write_private_file(
            Path(folder, "extensions"), f"extendedKeyUsage=serverAuth\nsubjectAltName=DNS:{_HOST}\n".encode()
        )
        authority = ["-CA", AUTHORITY, "-CAkey", "ca.key", "-extfile", "extensions", "-days", str(LIFETIME_DAYS)]
        _run_openssl(folder, ["x509", "-req", "-in", "request", *authority, "-out", CERTIFICATE])
        return {name: Path(folder, name).read_bytes() for name in (AUTHORITY, CERTIFICATE, KEY)}


def _secret_files(secret: Raw) -> dict[str, bytes]:
    data = secret.get("data") or {}
    return {name: _decode_base64(data[name]) for name in (AUTHORITY, CERTIFICATE, KEY) if name in data}


def _decode_base64(text: object) -> bytes:
    try:
        return base64.b64decode(str(text or ""), validate=True)
    except (ValueError, binascii.Error):
        return b""


def _write_private_file(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _openssl_output(folder: str, words: Sequence[str]) -> bytes:
    """What openssl answers, empty where it refuses."""
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, timeout=_OPENSSL_SECONDS, check=False)
    return b"" if done.returncode else done.stdout


def _run_openssl(folder: str, words: Sequence[str]) -> None:
    subprocess.run(["openssl", *words], cwd=folder, capture_output=True, timeout=_OPENSSL_SECONDS, check=True)
