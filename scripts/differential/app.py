"""Echoes what a Python server saw of a request. WSGI and ASGI servers import wsgi and
asgi; "app.py tornado|aiohttp PORT" runs servers that are libraries."""
import asyncio
import sys


def echo(method, target, headers, body, key=b"header"):
    """The header lines and the body of the response. One to HEAD has the echo in a header."""
    pairs = [(b"method", method), (b"target", target), (b"body", body)]
    pairs += [(key, name + b": " + value) for name, value in headers]
    said = b"early" if is_early(target) else b"\n".join(key + b"=" + value.hex().encode() for key, value in pairs)
    lines = {"Content-Type": "text/plain", "Content-Length": str(len(said))}
    if method == b"HEAD":
        lines["X-Echo"], said = said.decode().replace("\n", " "), b""
    return lines, said


def is_early(target):
    return target.startswith(b"/early")


def wsgi(environ, start_response):
    latin = {key: value.encode("latin-1") for key, value in environ.items() if isinstance(value, str)}
    query = latin.get("QUERY_STRING")
    target = latin.get("RAW_URI") or latin.get("REQUEST_URI") or latin["PATH_INFO"] + (b"?" + query if query else b"")
    headers = [(key[5:].encode(), value) for key, value in latin.items() if key.startswith("HTTP_")]
    # gevent has no end of the body of an upgrade.
    body = b"" if is_early(target) or "HTTP_UPGRADE" in latin else environ["wsgi.input"].read()
    lines, said = echo(latin["REQUEST_METHOD"], target, headers, body, b"cgi")
    start_response("200 OK", list(lines.items()))
    return [said]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    query, raw = scope["query_string"], scope.get("raw_path") or scope["path"].encode()
    target = raw if b"?" in raw or not query else raw + b"?" + query
    body, more = b"", not is_early(target)
    while more:
        event = await receive()
        if event["type"] != "http.request":
            return  # the client has left
        body, more = body + event.get("body", b""), event.get("more_body", False)
    lines, said = echo(scope["method"].encode(), target, scope["headers"], body)
    headers = [(name.lower().encode(), value.encode()) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})


async def tornado(port):
    from tornado.httpserver import HTTPServer
    from tornado.httputil import HTTPHeaders, ResponseStartLine

    def handle(request):
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.get_all()]
        lines, said = echo(request.method.encode(), request.uri.encode("latin-1"), headers, request.body)
        request.connection.write_headers(ResponseStartLine("HTTP/1.1", 200, "OK"), HTTPHeaders(lines), said)
        request.connection.finish()

    HTTPServer(handle).listen(port, "127.0.0.1")
    await asyncio.Event().wait()


async def aiohttp(port):
    from aiohttp import web

    async def handle(request):
        target = request.raw_path.encode("utf-8", "surrogateescape")
        body = b"" if is_early(target) else await request.read()
        lines, said = echo(request.method.encode(), target, request.raw_headers, body)
        return web.Response(headers=lines, body=said or None)

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run({"tornado": tornado, "aiohttp": aiohttp}[sys.argv[1]](int(sys.argv[2])))
