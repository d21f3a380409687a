"""A stand-in for your service: plain HTTP/1.1 on Python's own server.

    python3 app.py 127.0.0.1:8081

    /echo            the request's body back, with its x-nonce; by the query also
                     ?chunked (in chunks), ?trailers (and its SHA-256 after
                     them), ?close (ended by the end of the connection)
    /request         what the service saw of the request, as JSON
    /size/N          N bytes
    /status/N        a response with that status
    /healthz         200
"""

import hashlib
import json
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # a response leaves in one write, if it fits
    disable_nagle_algorithm = True

    def handle_expect_100(self):
        go_on = super().handle_expect_100()
        self.wfile.flush()
        return go_on

    def read_body(self):
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while (line := self.rfile.readline().strip()):
            name, _, value = line.decode().partition(":")
            self.trailers.append([name, value.strip()])
        return body

    def handle_any(self):
        self.trailers = []
        body = self.read_body()
        path, _, query = self.path.partition("?")
        parts = path.strip("/").split("/")
        match parts:
            case ["echo"]:
                self.reply(200, body, query.split("&"))
            case ["request"]:
                self.reply(200, json.dumps({
                    "method": self.command, "target": self.path, "version": self.request_version,
                    "headers": self.headers.items(), "trailers": self.trailers, "body": len(body)}).encode())
            case ["size", n]:
                self.reply(200, b"x" * int(n))
            case ["status", n]:
                self.reply(int(n), b"status %s\n" % n.encode())
            case ["healthz"]:
                self.reply(200, b"ok\n")
            case _:
                self.reply(404, b"the service has no such page\n")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = handle_any

    def reply(self, status, body, how=()):
        self.send_response(status)
        self.send_header("x-served-by", "%s:%d" % self.server.server_address)
        self.send_header("content-type", self.headers.get("content-type", "text/plain"))
        if nonce := self.headers.get("x-nonce"):
            self.send_header("x-nonce", nonce)
        # Two field lines of one name, to see that both arrive.
        self.send_header("set-cookie", "a=1")
        self.send_header("set-cookie", "b=2")
        if status in (204, 304):
            self.end_headers()
        elif "close" in how:
            self.send_header("connection", "close")
            self.end_headers()
            self.write(body)
        elif "chunked" in how or "trailers" in how:
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for i in range(0, len(body), 10_000):
                chunk = body[i:i + 10_000]
                self.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            trailer = b"x-sha256: %s\r\n" % hashlib.sha256(body).hexdigest().encode() if "trailers" in how else b""
            self.write(b"0\r\n%s\r\n" % trailer)
        else:
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.write(body)

    def write(self, data):
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    address_family = socket.AF_INET


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    Server((host, int(port)), Handler).serve_forever()
