"""New connections get the newest readable certificate of the folder. Handshakes are real, in memory."""

import contextlib
import logging
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from adapter.shell import certificate as module
from adapter.shell.admission import webhook_certificate as maker
from adapter.shell.certificate import Certificate, UnreadableCertificate
from hack.lab.base.paths import REPO

HOST = "rayspan-admission.rayspan-system.svc"
MADE, OTHER = maker.new_certificate(), maker.new_certificate()


def put(folder: Path, files: dict[str, bytes], *names: str) -> None:
    for name in names or files:
        (folder / name).write_bytes(files[name])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path, MADE)
    return tmp_path


def shakes(certificate: Certificate, trusted: dict[str, bytes], host: str = HOST) -> str:
    """The version of TLS on which a client that trusts one authority agrees with it; raises SSLError."""
    client = ssl.create_default_context(cadata=trusted["ca.crt"].decode())
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = client.wrap_bio(back, there, server_hostname=host), certificate.tls.wrap_bio(there, back, server_side=True)
    for side in (*sides, *sides):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return sides[0].version() or ""


class Enough(Exception):
    """It has looked often enough."""


async def looks(certificate: Certificate, times: int = 3) -> None:
    """Let it look so many times, with no time between."""
    left = iter(range(times))

    async def sleep(_: float) -> None:
        if next(left, None) is None:
            raise Enough

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Enough):
        patch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))
        await certificate.reload_periodically()


def test_the_certificate_is_served_over_current_tls(folder: Path) -> None:
    certificate = Certificate(folder)
    assert shakes(certificate, MADE) == "TLSv1.3"
    assert certificate.tls.minimum_version == ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLCertVerificationError):
        shakes(certificate, OTHER)


async def test_a_renewed_certificate_is_served(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    certificate = Certificate(folder)
    put(folder, OTHER)
    await looks(certificate)
    assert shakes(certificate, OTHER) == "TLSv1.3"
    assert caplog.messages == [f"the certificate in {folder} was read again"], "exactly once"


async def test_a_certificate_with_another_key_type_is_served(folder: Path) -> None:
    certificate = Certificate(folder)
    _of_rsa(folder)
    await looks(certificate)
    assert shakes(certificate, {"ca.crt": (folder / "tls.crt").read_bytes()}) == "TLSv1.3"


async def test_a_half_renewed_certificate_keeps_the_previous_one(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = Certificate(folder)
    put(folder, OTHER, "tls.crt")
    await looks(certificate)
    said = f"the certificate that was read before stays: {folder} has no tls.crt and tls.key that can be read: "
    assert {*caplog.messages} == {said + "KEY_VALUES_MISMATCH"}
    assert shakes(certificate, MADE) == "TLSv1.3"
    caplog.clear()
    caplog.set_level(logging.INFO)
    put(folder, OTHER, "tls.key")
    await looks(certificate)
    assert shakes(certificate, OTHER) == "TLSv1.3"


def _of_rsa(folder: Path) -> None:
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "tls.key", "-out", "tls.crt"]
    name = ["-subj", "/CN=a", "-addext", f"subjectAltName=DNS:{HOST}"]
    subprocess.run([*words, *name], cwd=folder, capture_output=True, check=True, timeout=60)


def _a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _locked(folder: Path) -> None:
    """A key with a password, which cannot be requested."""
    words = ["openssl", "ec", "-aes256", "-passout", "pass:swordfish", "-in", "tls.key", "-out", "tls.key"]
    subprocess.run(words, cwd=folder, capture_output=True, check=True, timeout=30)


BROKEN: dict[str, Callable[[Path], object]] = {
    "gone": lambda folder: (folder / "tls.crt").unlink(),
    "without its key": lambda folder: (folder / "tls.key").unlink(),
    "empty": lambda folder: (folder / "tls.crt").write_bytes(b""),
    "no certificate": lambda folder: (folder / "tls.crt").write_bytes(b"swordfish"),
    "no key": lambda folder: (folder / "tls.key").write_bytes(b"swordfish"),
    "of another key": lambda folder: put(folder, OTHER, "tls.key"),
    "a folder": lambda folder: _a_folder(folder / "tls.key"),
    "with a password": _locked,
}


@pytest.mark.parametrize("how", BROKEN)
async def test_an_unreadable_certificate_is_reported_and_the_previous_one_stays(
    how: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = Certificate(folder)
    BROKEN[how](folder)
    await looks(certificate)
    (said,) = {*caplog.messages}
    assert said.startswith("the certificate that was read before stays: ") and "swordfish" not in said
    assert shakes(certificate, MADE) == "TLSv1.3"


def test_no_password_is_requested(folder: Path) -> None:
    """OpenSSL would read the password from a terminal or standard input, and block the process."""
    _locked(folder)
    tries = (
        "import sys, pathlib; from adapter.shell import certificate; certificate.Certificate(pathlib.Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", tries, str(folder)]
    with subprocess.Popen(
        command, cwd=REPO, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as child:
        try:
            assert child.wait(30) == 1
        finally:
            child.kill()


@pytest.mark.parametrize("how", BROKEN)
def test_a_start_without_a_certificate_fails_with_a_message(how: str, folder: Path) -> None:
    BROKEN[how](folder)
    with pytest.raises(
        UnreadableCertificate, match=rf"^{folder} has no tls\.crt and tls\.key that can be read: \w[\w ]+$"
    ):
        Certificate(folder)
