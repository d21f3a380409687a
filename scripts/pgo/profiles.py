"""Takes CPU profiles of sidecars under load, by their admin APIs, one load after the
other. See ../pgo.sh."""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import time
import urllib.request

import dubbo
from harness import certificates
from mesh import Mesh
from processes import PATIENCE, Failed
from stack import Stack, Tools, wrk

# Load before and after a profile, in seconds: within it, connections are there and
# hedging has learned its delay.
AROUND = 2


def closed(servers, seconds, script="post.lua"):
    if failed := wrk(servers.url, 64, seconds, script)["errors"]:
        raise Failed(f"{failed} requests failed")


def low_rate(servers, seconds):
    """An open loop with so few requests that each is a wake-up of its own."""
    cmd = [servers.tools.lab, "load", "--rate", "2000", "--warmup", "0s", "--duration", f"{seconds}s", servers.url]
    done = subprocess.run(cmd, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(cmd)}: {done.stdout}{done.stderr}")


def loads(tools, directory):
    """Name, servers, and the load that they are put under. All take the same time: a
    load counts for as much as it keeps its sidecars busy."""
    programs = {"remora": tools.remora, "remora-lab": tools.lab}
    chain = ["consumer", "provider"]
    return [
        ("one-hop", Stack(tools, ["single"]), closed),
        ("two-hops", Stack(tools, chain), closed),
        ("tls", Stack(tools, chain, certificates(directory, "pgo")), closed),
        ("low-rate", Stack(tools, chain), low_rate),
        ("hedged", Mesh(programs, "remora", "{mode: on}", 1), lambda mesh, seconds: mesh.load(1000, seconds)),
        ("dubbo", dubbo.Mesh(tools, ["--mode", "fast"]), lambda mesh, seconds: closed(mesh, seconds, "form.lua")),
    ]


def admins(servers):
    """The admin ports of the sidecars to profile; a hedged mesh has only the consumer's."""
    return [servers.admin] if isinstance(servers.admin, int) else servers.admin


def fetch(port, seconds, file):
    url = f"http://127.0.0.1:{port}/debug/pprof/profile?seconds={seconds}"
    with urllib.request.urlopen(url, timeout=seconds + PATIENCE) as r, open(file, "wb") as f:
        f.write(r.read())


def take(name, servers, load, directory, seconds):
    print(f"{name}: {seconds} s", file=sys.stderr)
    with servers, concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(load, servers, seconds + 2 * AROUND)
        time.sleep(AROUND)
        fetching = [pool.submit(fetch, port, seconds, os.path.join(directory, f"{name}-{i}.pprof"))
                    for i, port in enumerate(admins(servers))]
        for each in [*fetching, running]:
            each.result()
        servers.alive()


def main():
    a = argparse.ArgumentParser(prog="scripts/pgo.sh", description=__doc__)
    a.add_argument("--seconds", type=int, default=15, help="of each load's profile")
    a.add_argument("--binaries", required=True, help=argparse.SUPPRESS)
    a.add_argument("--out", required=True, help=argparse.SUPPRESS)
    o = a.parse_args()
    for name, servers, load in loads(Tools(o.binaries), o.out):
        take(name, servers, load, o.out, o.seconds)


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        sys.exit(f"pgo: {e}")
