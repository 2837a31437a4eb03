"""Makes the webhooks' certificate in their Secret, and puts its authority into the webhook configurations.

A Job runs this, with rights that the webhooks lack. The authority signs only this certificate, and the authority's key
is never stored, so a reader of the Secret can impersonate only the webhooks. No key is in a log or an argument.
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

# Nothing warns of the expiry, after which no worker can be created. So the certificate outlives the cluster, and each
# upgrade renews it when less than a year remains.
LIFETIME_DAYS, LEAST_REMAINING_SECONDS = 3650, 365 * 86_400
AUTHORITY, CERTIFICATE, KEY = "ca.crt", names.TLS_CERT_KEY, names.TLS_PRIVATE_KEY_KEY
_HOST = f"{names.ADMISSION_COMPONENT}.{names.SYSTEM_NAMESPACE}.svc"
_WEBHOOK_CONFIGURATIONS = (
    (resources.GATE_WEBHOOKS, names.GATE_POLICY, names.GATE_WEBHOOK),
    (resources.WARNING_WEBHOOKS, names.WARNINGS_CONFIGURATION, names.WARNINGS_WEBHOOK),
)
_PEM_END = b"-----END CERTIFICATE-----"
_OPENSSL_SECONDS = 30.0  # one call takes milliseconds
_KEY_OPTIONS = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


async def ensure_certificate(client: Client) -> None:
    """Ensure that the Secret has a valid certificate which the configurations trust; raises ApiError or Unreachable."""
    path = resources.SECRETS.path(names.SYSTEM_NAMESPACE, names.ADMISSION_COMPONENT)
    secret = await client.get(path)
    files = _secret_files(secret)
    is_new = not is_still_valid(files)
    if is_new:
        files = new_certificate()
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        # The patch fails if another Job has written the Secret since.
        await client.merge_patch(
            path, {"metadata": {"resourceVersion": meta(secret).get("resourceVersion")}, "data": data}
        )
        log.info("Secret %s has a new certificate for %s", names.ADMISSION_COMPONENT, _HOST)
    for resource, name, webhook in _WEBHOOK_CONFIGURATIONS:
        # The gate's configuration is optional. That of the warnings is applied after this Job, which is retried until
        # it exists.
        read = client.get if name == names.WARNINGS_CONFIGURATION else client.find
        operations = trust_patch(await read(resource.path(name=name)) or {}, webhook, files[AUTHORITY], anew=is_new)
        if operations:
            await client.json_patch(resource.path(name=name), operations, names.ADMISSION_FIELD_MANAGER)
            log.info("%s %s trusts it", resource.plural, name)


def trust_patch(configuration: Raw, webhook: str, authority: bytes, *, anew: bool) -> list[Raw]:
    """The JSON patch that makes a webhook trust an authority; empty if it already does.

    With a new authority (`anew`), the previous one stays until the next patch: replicas serve the old certificate for a
    minute or two.
    """
    for index, entry in enumerate(configuration.get("webhooks") or ()):
        bundle = _decode_base64((entry.get("clientConfig") or {}).get("caBundle"))
        wanted = authority + (_first_certificate(bundle) if anew else b"")
        if entry.get("name") == webhook and bundle != wanted:
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
    body, end, _ = bundle.partition(_PEM_END)
    return body + end + b"\n" if end else b""


def is_still_valid(files: dict[str, bytes]) -> bool:
    """Whether these are a certificate for our host, with key and authority, valid for a year or longer."""
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
            _openssl_output(folder, command)
            for command in (["pkey", "-in", KEY, "-pubout"], ["x509", "-in", CERTIFICATE, "-noout", "-pubkey"])
        ]
        return keys[0] == keys[1] != b"" and _openssl_output(folder, verify) != b""


def new_certificate() -> dict[str, bytes]:
    """An authority, a certificate and its key, by file name."""
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
    result = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, timeout=_OPENSSL_SECONDS, check=False)
    return b"" if result.returncode else result.stdout


def _run_openssl(folder: str, words: Sequence[str]) -> None:
    subprocess.run(["openssl", *words], cwd=folder, capture_output=True, timeout=_OPENSSL_SECONDS, check=True)
