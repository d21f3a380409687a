"""An ASGI application with responses without end: Server-Sent Events and WebSocket.

Each event leaves when the reader has acknowledged the one before, so an event that is
held back anywhere stops them all.

    app.py PORT
"""

import asyncio
import sys

import uvicorn
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute

READERS = {}


class Reader:
    """A reader of events: the number that it has acknowledged, and whether it is gone."""

    def __init__(self):
        self.acknowledged, self.changed, self.gone = 0, asyncio.Event(), asyncio.Event()

    async def has(self, n):
        while self.acknowledged < n:
            self.changed.clear()
            await self.changed.wait()


def reader(request):
    return READERS.setdefault(request.path_params["id"], Reader())


async def paced(request, each):
    """Items. Each waits until the one before is acknowledged."""
    r = reader(request)
    try:
        n = 0
        while True:
            yield each(n)
            n += 1
            await r.has(n)
    finally:
        r.gone.set()


async def events(request):
    return EventSourceResponse(paced(request, lambda n: {"id": str(n), "data": f"event {n}"}))


async def pausing(request):
    """The same as a chunked response without a telling type."""
    return StreamingResponse(paced(request, lambda n: f"part {n}\n"), media_type="text/plain")


async def acknowledge(request):
    r = reader(request)
    r.acknowledged = int(request.path_params["n"])
    r.changed.set()
    return PlainTextResponse("ok")


async def gone(request):
    """Responds once the reader of these events is gone."""
    await reader(request).gone.wait()
    return PlainTextResponse("gone")


async def socket(ws):
    """Echoes; "close CODE" closes, "count N" sends N messages."""
    await ws.accept(subprotocol="echo" if "echo" in ws.scope["subprotocols"] else None)
    while True:
        m = await ws.receive()
        if m["type"] == "websocket.disconnect":
            READERS.setdefault("ws", Reader()).gone.set()
            return
        text = m.get("text")
        if text is None:
            await ws.send_bytes(m["bytes"])
        elif text.startswith("close "):
            await ws.close(int(text.split()[1]), "as you wish")
            return
        elif text.startswith("count "):
            for i in range(int(text.split()[1])):
                await ws.send_text(str(i))
        else:
            await ws.send_text(text)


app = Starlette(routes=[
    Route("/events/{id}", events),
    Route("/pausing/{id}", pausing),
    Route("/acknowledge/{id}/{n}", acknowledge, methods=["POST"]),
    Route("/gone/{id}", gone),
    WebSocketRoute("/ws", socket),
])

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", ws_max_size=64 << 20)
