"""How long a 300-byte request takes beside 4 MiB bodies on the same link."""

import json
import os

from harness import PATIENCE, free_ports, listens, report_of, wait_for

MiB = 1 << 20

# One loop on each side, so that there is one link and everything is on it.
PROVIDER = """
loops: 1
node: {{id: provider-big}}
admin: {{address: "127.0.0.1:{0}"}}
listeners: [{{name: ingress, address: "127.0.0.1:{1}", protocol: link, service: local}}]
services: {{local: {{discover: static, endpoints: ["127.0.0.1:{2}"], protocol: http, connect_timeout: 10s}}}}
"""

CONSUMER = """
loops: 1
node: {{id: consumer-big}}
admin: {{address: "127.0.0.1:{3}"}}
listeners: [{{name: egress, address: "127.0.0.1:{4}", protocol: http}}]
routes: [{{service: big}}]
services: {{big: {{discover: static, endpoints: ["127.0.0.1:{1}"], protocol: link, connect_timeout: 10s}}}}
"""

# A link that sent one message after the other would hold a small request up for
# about as long as a large one takes; shared frame by frame, it waits for a few
# frames of 16 KiB. Both run on the same machine at the same time, so their ratio
# does not depend on it. The bound in milliseconds is only there to be absurd.
RATIO = 1.5
GENEROUS_MS = 5000

# How many bodies there are at least, however long they take.
BODIES = 20


def bystander(suite, binaries):
    lab, remora = (os.path.join(binaries, name) for name in ("remora-lab", "remora"))
    ports = free_ports(5)
    suite.process("big-server", [lab, "replica", "--mode", "fast", "--listen", f"127.0.0.1:{ports[2]}"],
                  ports[2]).start()
    for name, text, port in (("big-provider", PROVIDER, ports[1]), ("big-consumer", CONSUMER, ports[4])):
        suite.sidecar(name, remora, text.format(*ports), port).start()
    wait_for("the consumer", PATIENCE, lambda: listens(ports[4]))
    large = os.path.join(suite.dir, "4MiB")
    with open(large, "wb") as f:
        f.write(os.urandom(4 * MiB))
    url = f"http://127.0.0.1:{ports[4]}/echo"

    def load(*options):
        return report_of([lab, "load", "--json", "--warmup", "1s", "--timeout", "60s", *options, url])

    def small():
        out, _ = load("--rate", "200", "--connections", "4", "--duration", "6s").communicate(timeout=PATIENCE)
        return json.loads(out)

    alone = small()
    stream = load("--closed", "--connections", "4", "--duration", "8s", "--requests", str(BODIES), "--body", large)
    beside = small()
    bodies = json.loads(stream.communicate(timeout=PATIENCE)[0])

    print(f"{'':14}{'p50 ms':>10}{'p99 ms':>10}{'max ms':>10}")
    for name, r in (("alone", alone), ("beside", beside), ("4 MiB bodies", bodies)):
        print(f"{name:14}{r['p50_ms']:10.2f}{r['p99_ms']:10.2f}{r['max_ms']:10.2f}")
    print(f"{bodies['requests']} bodies up and down, {bodies['achieved_rate'] * 8:.0f} MiB/s", flush=True)
    for name, r in (("alone", alone), ("beside", beside), ("bodies", bodies)):
        suite.check(f"{name}: no errors", r["errors"] == 0, str(r["error_kinds"]))
    suite.check("the stream of bodies was one", bodies["requests"] >= BODIES, str(bodies["requests"]))
    suite.check(f"small requests beside it: p50 under a body's by {RATIO}", beside["p50_ms"] * RATIO < bodies["p50_ms"],
                f"{beside['p50_ms']} and {bodies['p50_ms']} ms")
    suite.check(f"small requests beside it: p99 under {GENEROUS_MS} ms", beside["p99_ms"] < GENEROUS_MS,
                str(beside["p99_ms"]))
