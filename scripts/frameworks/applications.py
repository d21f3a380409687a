"""An application on each framework: GET / returns its name, POST /orders its name and what was sent."""

import os

from harness.process import free_port, run, tool

HERE = os.path.dirname(os.path.abspath(__file__))


def _python(name):
    return os.path.join(os.path.dirname(os.environ["PYTHON"]), name)


def _flask(port, idle):
    return [_python("gunicorn"), "--worker-class", "gthread", "--threads", "8", "--keep-alive", idle, "--bind", f"127.0.0.1:{port}",
            "app:flask_app"]


def _fastapi(port, idle):
    return [_python("uvicorn"), "--port", port, "--timeout-keep-alive", idle, "--log-level", "warning", "app:fastapi_app"]


def _node(framework):
    return lambda port, idle: ["node", os.path.join(os.environ["NODE_APP"], "app.mjs"), framework]


def _spring(port, idle):
    return ["java", "-XX:TieredStopAtLevel=1", "-jar", os.environ["SPRING_APP"], f"--server.port={port}", "--server.address=127.0.0.1",
            f"--server.tomcat.keep-alive-timeout={idle}s"]


# The command line of each for a port, and the seconds after which it closes an idle connection. Where there is no
# option for these, the environment has them.
COMMANDS = {"Flask": _flask, "FastAPI": _fastapi, "Express": _node("express"), "Fastify": _node("fastify"),
            "Spring Boot": _spring, "Gin": lambda port, idle: [tool("gin")]}
LIGHT = ("Flask", "FastAPI", "Gin")


def application(suite, framework, name, idle=60, port=None, host="127.0.0.1"):
    """An application that is not running yet, on p.port. Only Gin's may be at another host."""
    port = port or free_port()

    def ready():
        return run(["curl", "-sf", "-o", os.devnull, f"http://{host}:{port}/"], check=False).returncode == 0

    p = suite.process(name, [str(word) for word in COMMANDS[framework](port, idle)], ready,
                      {"HOST": host, "PORT": str(port), "IDLE": str(idle), "NAME": name}, cwd=HERE)
    p.port = port
    return p
