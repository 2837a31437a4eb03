"""What do probe pods run? A server that greets, tells its clock and swallows what it is sent, and a client that measures such servers.

Plain Python of any version from 3.8 on, passed to `python3 -c`, so that any image with a Python will do. Nothing here is run.
"""

# Run by `python3 -c` with a word by which the right pod is known, and the port. The clock is asked for line by line.
SERVER = """\
import socket, socketserver, sys, time

word, port = sys.argv[1], int(sys.argv[2])


class Answer(socketserver.StreamRequestHandler):
    timeout = 30
    disable_nagle_algorithm = True

    def handle(self):
        self.wfile.write(b"rayspan %s\\n" % word.encode())
        for line in self.rfile:
            if line != b"time\\n":
                break
            self.wfile.write(b"%r\\n" % time.time())
        count = 0
        while piece := self.rfile.read(1 << 16):
            count += len(piece)
        self.wfile.write(b"%d\\n" % count)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64
    allow_reuse_address = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request, address):
        pass  # whoever asked tells


Server(("", port), Answer).serve_forever()
"""

# Run by `python3 -c` with what to ask as JSON, and the file for the answer. All are dialled at once, for those that do not answer take
# their time, and then measured one by one, so that this pod's own measurements do not disturb each other.
CLIENT = """\
import json, os, socket, sys, time
from concurrent.futures import ThreadPoolExecutor

asked = json.loads(sys.argv[1])
silence, seconds = asked["silence"], asked["seconds"]


def dial(peer):
    end = time.monotonic() + silence
    while True:
        try:
            return socket.create_connection((peer["address"], peer["port"]), max(end - time.monotonic(), 0.1))
        except ConnectionRefusedError:  # it may be about to listen
            if time.monotonic() > end - 0.2:
                return "refused"
            time.sleep(0.2)
        except TimeoutError:
            return "timeout"
        except OSError as error:
            return "unreachable" if error.errno in (101, 113) else str(error)[:100]


def measured(link, word):
    link.settimeout(silence)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    talk = link.makefile("rwb")
    if talk.readline(200).split() != [b"rayspan", word.encode()]:
        return {"error": "stranger"}
    trips = []
    for _ in range(20):
        clock, start = time.time(), time.perf_counter()
        talk.write(b"time\\n")
        talk.flush()
        there = float(talk.readline(200))
        trip = time.perf_counter() - start
        trips.append((trip, there - clock - trip / 2))
    trips.sort()
    return {"ms": round(trips[len(trips) // 2][0] * 1000, 3), "ahead": round(trips[0][1], 3), **bulk(link, talk)}


def bulk(link, talk):
    start = time.perf_counter()
    piece = bytes(1 << 16)
    # What is slow is acknowledged bit by bit; what is too large for the way never is.
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence * 1000))
    link.settimeout(30)
    try:
        link.sendall(b"bulk\\n")
        while time.perf_counter() < start + seconds:
            link.sendall(piece)
        link.shutdown(socket.SHUT_WR)
        count = int(talk.readline(200))
    except (OSError, ValueError):
        return {"error": "stalled"}
    return {"mbit": round(count * 8 / (time.perf_counter() - start) / 1e6, 1)}


def tried(link, peer):
    if isinstance(link, str):
        return {"error": link}
    try:
        with link:
            return measured(link, peer["word"])
    except TimeoutError:
        return {"error": "timeout"}
    except (OSError, ValueError):
        return {"error": "broken"}


def resolved(name):
    try:
        return {"address": socket.getaddrinfo(name, 443)[0][4][0]}
    except OSError as error:
        return {"error": str(error)[:100]}


pool = ThreadPoolExecutor(64)
name = pool.submit(resolved, asked["name"])
links = pool.map(dial, asked["peers"])
found = {"peers": [tried(link, peer) for link, peer in zip(links, asked["peers"])]}
try:
    found["dns"] = name.result(silence)
except Exception:
    found["dns"] = {"error": "no answer in %g s" % silence}
text = json.dumps(found)
with open(sys.argv[2], "w") as file:
    file.write(text)
print(text, flush=True)
os._exit(0)  # a resolver may hang for longer
"""
