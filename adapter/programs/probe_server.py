"""The probe server: greets with the address that it sees, reports its clock, and counts the bytes that it receives.

Runs in a probe pod as `python3 -c` with a word that identifies the pod, and the port. For each line `time` it
sends its clock. It needs Python 3.8 or later and its standard library, so that any image with a Python will do.
"""

import socket
import socketserver
import sys
import time
from typing import Any

word, port = sys.argv[1], int(sys.argv[2])


class ProbeHandler(socketserver.StreamRequestHandler):
    timeout = 30
    disable_nagle_algorithm = True

    def handle(self) -> None:
        seen_address = self.client_address[0].replace("::ffff:", "")  # of IPv4 on a socket for both
        self.wfile.write(b"rayspan %s %s\n" % (word.encode(), seen_address.encode()))
        for line in self.rfile:
            if line != b"time\n":
                break
            self.wfile.write(b"%r\n" % time.time())
        count = 0
        while piece := self.rfile.read(1 << 16):
            count += len(piece)
        self.wfile.write(b"%d\n" % count)


class ProbeServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64
    allow_reuse_address = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client reports the error


ProbeServer(("", port), ProbeHandler).serve_forever()
