"""Starts what docs/getting-started.md says, word for word, on ports of its own.

The page's fenced blocks say in their info string what they are: `sh start=NAME`
runs until it is ended, `sh try` ends by itself, and a `text` block right after
one tells what that prints. The page's ports, in its commands and in the files
of docs/examples, are exchanged for free ones, and services get longer to be
connected, for a machine that does much else; nothing else is changed.
"""

import os
import re
import shutil
import subprocess

from harness import PATIENCE, free_ports

FENCE = re.compile(r"^```(\S*)[ ]?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DISCOVER = re.compile(r"^( +)(discover: )", re.MULTILINE)
ADDRESS = re.compile(r"\b127\.0\.0\.1:(\d+)")


class Guide:
    """A working copy of the page: its commands, and the files they name."""

    def __init__(self, suite, root, binaries):
        self.suite = suite
        self.dir = os.path.join(suite.dir, "guide")
        shutil.copytree(os.path.join(root, "docs", "examples"), os.path.join(self.dir, "docs", "examples"))
        os.symlink(binaries, os.path.join(self.dir, "bin"))
        with open(os.path.join(root, "docs", "getting-started.md"), encoding="utf-8") as f:
            page = f.read()
        self.blocks = [(lang, info, body) for lang, info, body in FENCE.findall(page)]

        examples = os.path.join(self.dir, "docs", "examples")
        files = [entry.path for entry in os.scandir(examples) if entry.is_file()]  # the folders are of other pages
        texts = [page] + [self.read(file) for file in files]
        used = sorted({int(p) for text in texts for p in ADDRESS.findall(text)} | {2379, 2380})
        self.ports = dict(zip(used, free_ports(len(used))))
        for file in files:
            text = DISCOVER.sub(r"\1connect_timeout: 10s\n\1\2", self.moved(self.read(file)))
            with open(file, "w", encoding="utf-8") as f:
                f.write(text)

    @staticmethod
    def read(file):
        with open(file, encoding="utf-8") as f:
            return f.read()

    def moved(self, text):
        """The text with the page's ports and directories exchanged for the suite's."""
        text = ADDRESS.sub(lambda m: f"127.0.0.1:{self.ports[int(m.group(1))]}", text)
        return text.replace("/tmp/", self.suite.dir + "/")

    def etcd_environment(self):
        """What moves etcd, whose command names no port."""
        client, peer = (f"http://127.0.0.1:{self.ports[p]}" for p in (2379, 2380))
        return {"ETCD_LISTEN_CLIENT_URLS": client, "ETCD_ADVERTISE_CLIENT_URLS": client,
                "ETCD_LISTEN_PEER_URLS": peer, "ETCD_INITIAL_ADVERTISE_PEER_URLS": peer,
                "ETCD_INITIAL_CLUSTER": f"default={peer}"}

    def port_of(self, name, command):
        """The port that a command of the page makes its process listen on."""
        if name == "etcd":
            return self.ports[2379]
        if file := re.search(r"-c (\S+)", command):
            command = re.search(r"listeners:.*?address: (\S+)", self.read(os.path.join(self.dir, file.group(1))),
                                re.DOTALL).group(1)
        return int(ADDRESS.search(command).group(1))

    def start(self):
        """Starts all long-running commands in the order of the page."""
        started = []
        for lang, info, body in self.blocks:
            if lang == "sh" and info.startswith("start="):
                name, command = info.removeprefix("start="), self.moved(body.strip())
                env = self.etcd_environment() if name == "etcd" else None
                # exec: the process is the command itself, with its own id.
                p = self.suite.process(name, ["sh", "-c", "exec " + command], self.port_of(name, command),
                                       env=env, cwd=self.dir)
                started.append(p.start())
        return started

    def tries(self):
        """Runs the commands that end; yields (command, what the page promises, what came)."""
        for (lang, info, body), (then, _, promised) in zip(self.blocks, self.blocks[1:]):
            if lang == "sh" and info == "try":
                ran = subprocess.run(["sh", "-c", self.moved(body)], cwd=self.dir, stdin=subprocess.DEVNULL,
                                     capture_output=True, text=True, timeout=PATIENCE, check=False)
                yield body.strip(), promised.strip() if then == "text" else "", (ran.stdout + ran.stderr).strip()
