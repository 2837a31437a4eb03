"""The probe client: dials all probe servers, measures each path, and writes one line of JSON.

Runs in a probe pod as `python3 -c` with the request as JSON and the path of the file for the report. It dials all
servers at once, because servers that do not answer cost time. It measures the paths one by one, so that the
measurements do not disturb each other. It needs Python 3.8 or later and its standard library, so that any image with a
Python will do.
"""

import io
import json
import os
import socket
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Dict, List, Union

request = json.loads(sys.argv[1])
silence, seconds = request["silence"], request["seconds"]


def dial(peer: Dict[str, Any]) -> Union[socket.socket, str]:
    end = time.monotonic() + silence
    while True:
        try:
            return socket.create_connection((peer["address"], peer["port"]), max(end - time.monotonic(), 0.1))
        except ConnectionRefusedError:  # it may be about to listen
            if time.monotonic() > end - 0.2:
                return "refused"
            time.sleep(0.2)
        except (TimeoutError, socket.timeout):  # two classes before Python 3.10
            return "timeout"
        except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host
            return "unreachable" if getattr(error, "errno", 0) in (101, 113) else str(error)[:100]


def try_port(port: Dict[str, Any]) -> Dict[str, Any]:
    """A port of which only the connection is tried."""
    link = dial(port)
    if isinstance(link, str):
        return {"error": link}
    link.close()
    return {}


def measure_peer(link: socket.socket, word: str) -> Dict[str, Any]:
    link.settimeout(silence)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    talk = link.makefile("rwb")
    greeting = talk.readline(200).split()
    if greeting[:2] != [b"rayspan", word.encode()]:
        return {"error": "stranger"}
    return {**measure_link(link, talk), **find_translation(link, greeting[2:])}


def find_translation(link: socket.socket, words: List[bytes]) -> Dict[str, Any]:
    """The address that the server sees, if it is not ours; `words` are the rest of its greeting."""
    seen_address = b"".join(words).decode()
    return {} if seen_address in ("", link.getsockname()[0]) else {"seen": seen_address}


def measure_link(link: socket.socket, talk: io.BufferedRWPair) -> Dict[str, Any]:
    trips = []
    for _ in range(20):
        clock, start = time.time(), time.perf_counter()
        talk.write(b"time\n")
        talk.flush()
        remote_clock = float(talk.readline(200))
        trip = time.perf_counter() - start
        trips.append((trip, remote_clock - clock - trip / 2))
    trips.sort()
    return {
        "ms": round(trips[len(trips) // 2][0] * 1000, 3),
        "ahead": round(trips[0][1], 3),
        **measure_bandwidth(link, talk),
    }


def measure_bandwidth(link: socket.socket, talk: io.BufferedRWPair) -> Dict[str, Any]:
    start = time.perf_counter()
    piece = bytes(1 << 16)
    # On a slow path parts are acknowledged; packets above its MTU never are.
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence * 1000))
    link.settimeout(30)
    try:
        link.sendall(b"bulk\n")
        while time.perf_counter() < start + seconds:
            link.sendall(piece)
        link.shutdown(socket.SHUT_WR)
        count = int(talk.readline(200))
    except (OSError, ValueError):
        return {"error": "stalled"}
    return {"mbit": round(count * 8 / (time.perf_counter() - start) / 1e6, 1)}


def try_peer(link: Union[socket.socket, str], peer: Dict[str, Any]) -> Dict[str, Any]:
    if isinstance(link, str):
        return {"error": link}
    try:
        with link:
            return measure_peer(link, peer["word"])
    except (TimeoutError, socket.timeout):
        return {"error": "timeout"}
    except (OSError, ValueError):
        return {"error": "broken"}


def resolve_name(name: str) -> Dict[str, Any]:
    try:
        return {"address": socket.getaddrinfo(name, 443)[0][4][0]}
    except OSError as error:
        return {"error": str(error)[:100]}


def await_answer(answer: "Future[Dict[str, Any]]") -> Dict[str, Any]:
    try:  # a connection ends by itself after `silence`, and a resolver may hang
        return answer.result(silence + 3)
    except Exception:
        return {"error": f"no answer in {silence:g} s"}


pool = ThreadPoolExecutor(64)
name = pool.submit(resolve_name, request["name"])
links = pool.map(dial, request["peers"])
ports = [pool.submit(try_port, port) for port in request["ports"]]
report: Dict[str, Any] = {"peers": [try_peer(link, peer) for link, peer in zip(links, request["peers"])]}
report["ports"] = [await_answer(port) for port in ports]
report["dns"] = await_answer(name)
text = json.dumps(report)
with open(sys.argv[2], "w") as file:
    file.write(text)
print(text, flush=True)
os._exit(0)  # a resolver may hang for longer
