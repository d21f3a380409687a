"""The servers on the other side of the network, for intercept.py.

    far.py

    9001-9003   replicas of a service: HTTP, "replica PORT"; each one freezes on
                every tenth request
    8080        HTTP, "original": the address of the service's name
    8081        HTTP, the head of the request as it arrived
    7001        lines: "+LINE" for each line, and at the end of file the count of
                bytes
    7002        speaks first: "220 ready", then "250 LINE" for each line
    7000        HTTP, requests so far by port, as JSON
"""

import json
import socket
import socketserver
import threading
import time

REPLICAS = (9001, 9002, 9003)
FREEZE = 0.3  # seconds; many times the delay of a hedge

counts = {port: 0 for port in (*REPLICAS, 8080, 8081)}
lock = threading.Lock()


class Server(socketserver.ThreadingTCPServer):
    """Accepts over IPv4 and IPv6."""
    address_family = socket.AF_INET6
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


class Http(socketserver.StreamRequestHandler):
    """Responds to GETs on a persistent connection."""

    def handle(self):
        while head := self.head():
            port = self.server.server_address[1]
            body = self.body(port, head).encode()
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def head(self):
        lines = []
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            lines.append(line.decode())
        return "".join(lines)

    def body(self, port, head):
        if port == 7000:
            with lock:
                return json.dumps(counts)
        with lock:
            counts[port] += 1
            n = counts[port]
        if port in REPLICAS:
            if n % 10 == 0:
                time.sleep(FREEZE)
            return f"replica {port}"
        return head if port == 8081 else "original"


class Lines(socketserver.StreamRequestHandler):
    """Responds to lines, and to the end of file."""

    def handle(self):
        n = 0
        for line in self.rfile:
            n += len(line)
            if line.endswith(b"\r\n") and len(line) < 100:
                self.wfile.write(b"+" + line)
        self.wfile.write(b":%d\r\n" % n)


class Greeter(socketserver.StreamRequestHandler):
    """Speaks first."""

    def handle(self):
        self.wfile.write(b"220 ready\r\n")
        for line in self.rfile:
            self.wfile.write(b"250 " + line)


def main():
    kinds = {7000: Http, 7001: Lines, 7002: Greeter, **{port: Http for port in counts}}
    for port, kind in kinds.items():
        server = Server(("::", port), kind)
        threading.Thread(target=server.serve_forever).start()


main()
