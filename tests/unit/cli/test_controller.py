"""The controller's process serves its metrics as its command line says. Its manager does not answer."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from adapter.shell.admission import webhook_certificate
from hack.lab.base.paths import REPO
from hack.testbed.clusters import wait
from tests.unit.apiserver import PATIENCE, kubeconfig

HOST = "rayspan-admission.rayspan-system.svc"  # the name in these certificates
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # an Internet proxy does not reach it


@contextmanager
def running(folder: Path, port: int, *words: str, serves: int) -> Iterator[None]:
    """Runs a controller with a health port and a metrics port, and checks that it ends cleanly on a signal."""
    config = folder / "kubeconfig"
    config.write_text(yaml.safe_dump(kubeconfig("https://127.0.0.1:1", cluster={"insecure-skip-tls-verify": True})))
    ports = f"--port={port}", f"--plan-port={_free_port()}"
    command = [sys.executable, "-m", "adapter", "controller", "--no-leader-elect", *ports, *words]
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(command, cwd=REPO, env={**os.environ, "KUBECONFIG": str(config)}, stderr=log)
    try:
        wait(lambda: child.poll() is not None or _listens(serves), PATIENCE, "it serves", (folder / "log").read_text)
        yield
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 0
    finally:
        child.kill()
        child.wait()


def test_metrics_are_served_over_tls_alone_with_a_certificate(tmp_path: Path) -> None:
    for name, content in webhook_certificate.new_certificate().items():
        (tmp_path / name).write_bytes(content)
    port, secured = _free_port(), _free_port()
    words = f"--metrics-certificate={tmp_path}", f"--metrics-port={secured}"
    with running(tmp_path, port, *words, serves=secured):
        assert "rayspan_leader" in _over_tls(secured, tmp_path / "ca.crt")
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            _direct.open(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE)
        refused.value.close()


def test_metrics_are_served_over_http_without_a_certificate(tmp_path: Path) -> None:
    port = _free_port()
    with running(tmp_path, port, serves=port):
        with _direct.open(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
            assert b"rayspan_leader" in answer.read()


def _over_tls(port: int, authority: Path) -> str:
    """urllib would need a certificate for 127.0.0.1."""
    context = ssl.create_default_context(cafile=str(authority))
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as bare:
        with context.wrap_socket(bare, server_hostname=HOST) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\nHost: here\r\n\r\n")
            return b"".join(iter(lambda: connection.recv(65_536), b"")).decode()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
