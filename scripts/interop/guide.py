"""Starts the processes of docs/getting-started.md, word for word, on free ports.

The info strings of the page's fenced blocks name their kinds: `sh start=NAME` runs
until it is stopped. The page's ports, in its commands and in the files of docs/examples,
are replaced by free ones, and services get a longer connect timeout for a busy machine.
Nothing else changes. scripts/readme.sh follows the page literally.
"""

import os
import re
import shutil

from harness.process import free_port

FENCE = re.compile(r"^```(\S*)[ ]?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DISCOVER = re.compile(r"^( +)(discover: )", re.MULTILINE)
ADDRESS = re.compile(r"\b127\.0\.0\.1:(\d+)")


class Guide:
    """A working copy of the page: its commands, and the files they name."""

    def __init__(self, suite, root):
        self.suite = suite
        self.dir = suite.path("guide")
        shutil.copytree(os.path.join(root, "docs", "examples"), os.path.join(self.dir, "docs", "examples"))
        os.symlink(os.environ["BIN"], os.path.join(self.dir, "bin"))
        page = self.read(os.path.join(root, "docs", "getting-started.md"))
        self.blocks = FENCE.findall(page)

        examples = os.path.join(self.dir, "docs", "examples")
        files = [entry.path for entry in os.scandir(examples) if entry.is_file()]  # the folders are of other pages
        texts = [page] + [self.read(file) for file in files]
        used = sorted({int(p) for text in texts for p in ADDRESS.findall(text)} | {2379, 2380})
        self.ports = {port: free_port() for port in used}
        for file in files:
            text = DISCOVER.sub(r"\1connect_timeout: 10s\n\1\2", self.moved(self.read(file)))
            with open(file, "w", encoding="utf-8") as f:
                f.write(text)

    @staticmethod
    def read(file):
        with open(file, encoding="utf-8") as f:
            return f.read()

    def moved(self, text):
        """The text with the suite's ports and directories in place of the page's."""
        text = ADDRESS.sub(lambda m: f"127.0.0.1:{self.ports[int(m.group(1))]}", text)
        return text.replace("/tmp/", self.suite.dir + "/")

    def etcd_environment(self):
        """The ports of etcd, whose command names none."""
        client, peer = (f"http://127.0.0.1:{self.ports[p]}" for p in (2379, 2380))
        return {"ETCD_LISTEN_CLIENT_URLS": client, "ETCD_ADVERTISE_CLIENT_URLS": client,
                "ETCD_LISTEN_PEER_URLS": peer, "ETCD_INITIAL_ADVERTISE_PEER_URLS": peer,
                "ETCD_INITIAL_CLUSTER": f"default={peer}"}

    def port_of(self, name, command):
        """The port on which the process of a command listens."""
        if name == "etcd":
            return self.ports[2379]
        if file := re.search(r"-c (\S+)", command):
            command = re.search(r"listeners:.*?address: (\S+)", self.read(os.path.join(self.dir, file.group(1))),
                                re.DOTALL).group(1)
        return int(ADDRESS.search(command).group(1))

    def start(self):
        """Starts all long-running commands in the order of the page."""
        for lang, info, body in self.blocks:
            if lang == "sh" and info.startswith("start="):
                name, command = info.removeprefix("start="), self.moved(body.strip())
                env = self.etcd_environment() if name == "etcd" else None
                # exec: the process is the command itself, with its own id.
                self.suite.process(name, ["sh", "-c", "exec " + command], self.port_of(name, command), env=env, cwd=self.dir).start()
