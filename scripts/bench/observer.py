"""Who looks at sidecars while they work: a scraper of their metrics, and a
receiver of their traces."""

import http.server
import threading
import urllib.request

# How often metrics are asked for, in seconds, and the shares of all requests that
# are logged and traced.
SCRAPE = 1
LOGGED, TRACED = 0.01, 0.001


class Observer:
    """Scrapes the admin ports and takes spans, until it is closed."""

    def __init__(self, admin):
        self.receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.receiver.serve_forever), threading.Thread(target=self.scrape, args=[admin])]
        self.scrapes = 0
        for t in self.threads:
            t.start()

    def config(self, log):
        """What a sidecar's configuration says of it."""
        return (f"access_log: {{path: {log}, sample: {LOGGED}}}\n"
                f'tracing: {{endpoint: "http://127.0.0.1:{self.receiver.server_port}", sample: {TRACED}}}\n')

    def scrape(self, admin):
        while not self.over.wait(SCRAPE):
            for port in admin:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as r:
                        r.read()
                    self.scrapes += 1
                except OSError:
                    pass  # not there yet, or no more: close tells whether there was any

    def close(self):
        """Returns whether there was anything to see."""
        self.over.set()
        self.receiver.shutdown()
        for t in self.threads:
            t.join()
        self.receiver.server_close()
        return self.scrapes > 0 and Receiver.exports > 0


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes exports of OTLP/HTTP and forgets them."""

    protocol_version = "HTTP/1.1"
    exports = 0

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        Receiver.exports += 1
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass
