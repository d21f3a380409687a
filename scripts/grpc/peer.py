"""gRPC's interop test client and server on grpcio: the cases that its other libraries bring along.

    peer.py serve PORT
    peer.py call PORT CASE...    a line "ok CASE" or "FAIL CASE WHY" for each

Its directory of modules made of gRPC's test.proto is in PYTHONPATH.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import grpc
import empty_pb2
import messages_pb2 as m
import test_pb2_grpc

INITIAL, TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"
REQUESTS, RESPONSES = (27182, 8, 1828, 45904), (31415, 9, 2653, 58979)


def payload(size):
    return m.Payload(body=bytes(size))


class Service(test_pb2_grpc.TestServiceServicer):
    """The server's part."""

    def EmptyCall(self, request, context):
        return empty_pb2.Empty()

    def UnaryCall(self, request, context):
        echo_metadata(context)
        abort_as_asked(request, context)
        if request.response_compressed.value:
            context.set_compression(grpc.Compression.Gzip)
        return m.SimpleResponse(payload=payload(request.response_size))

    def StreamingOutputCall(self, request, context):
        for p in request.response_parameters:
            time.sleep(p.interval_us / 1e6)
            yield m.StreamingOutputCallResponse(payload=payload(p.size))

    def StreamingInputCall(self, request_iterator, context):
        return m.StreamingInputCallResponse(aggregated_payload_size=sum(len(r.payload.body) for r in request_iterator))

    def FullDuplexCall(self, request_iterator, context):
        echo_metadata(context)
        for request in request_iterator:
            abort_as_asked(request, context)
            yield from self.StreamingOutputCall(request, context)

    HalfDuplexCall = FullDuplexCall


def abort_as_asked(request, context):
    if request.response_status.code:
        code = next(c for c in grpc.StatusCode if c.value[0] == request.response_status.code)
        context.abort(code, request.response_status.message)


def echo_metadata(context):
    sent = dict(context.invocation_metadata())
    if INITIAL in sent:
        context.send_initial_metadata([(INITIAL, sent[INITIAL])])
    if TRAILING in sent:
        context.set_trailing_metadata([(TRAILING, sent[TRAILING])])


def expect(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: {str(got)[:200]!r}, want {str(want)[:200]!r}")


def fails(code, call, message=None):
    """call() raises an error with this code."""
    try:
        call()
    except grpc.RpcError as e:
        expect("code", e.code(), code)
        expect("message", e.details() if message is not None else None, message)
    else:
        raise AssertionError(f"no error, want {code}")


def asks(size, response):
    return m.StreamingOutputCallRequest(payload=payload(size), response_parameters=[m.ResponseParameters(size=response)])


class Cases:
    """The client's part: a method for each case."""

    def __init__(self, port):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_retries", 0)])
        self.stub = test_pb2_grpc.TestServiceStub(self.channel)

    def empty_unary(self):
        expect("response", self.stub.EmptyCall(empty_pb2.Empty()), empty_pb2.Empty())

    def large_unary(self):
        got = self.stub.UnaryCall(m.SimpleRequest(response_size=314159, payload=payload(271828)))
        expect("length", len(got.payload.body), 314159)

    def client_compressed_unary(self):
        for gzip in (True, False):
            request = m.SimpleRequest(expect_compressed=m.BoolValue(value=gzip), response_size=314159, payload=payload(271828))
            got = self.stub.UnaryCall(request, compression=grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression)
            expect("length", len(got.payload.body), 314159)

    def server_compressed_unary(self):
        for gzip in (True, False):
            request = m.SimpleRequest(response_compressed=m.BoolValue(value=gzip), response_size=314159, payload=payload(271828))
            expect("length", len(self.stub.UnaryCall(request).payload.body), 314159)

    def client_streaming(self):
        got = self.stub.StreamingInputCall(m.StreamingInputCallRequest(payload=payload(n)) for n in REQUESTS)
        expect("sum", got.aggregated_payload_size, sum(REQUESTS))

    def server_streaming(self):
        request = m.StreamingOutputCallRequest(response_parameters=[m.ResponseParameters(size=n) for n in RESPONSES])
        expect("lengths", tuple(len(r.payload.body) for r in self.stub.StreamingOutputCall(request)), RESPONSES)

    def ping_pong(self):
        requests = Queue()
        responses = self.stub.FullDuplexCall(iter(requests.get, None))
        for request, response in zip(REQUESTS, RESPONSES):
            requests.put(asks(request, response))
            expect("length", len(next(responses).payload.body), response)
        requests.put(None)
        expect("the end", list(responses), [])

    def empty_stream(self):
        expect("responses", list(self.stub.FullDuplexCall(iter(()))), [])

    def cancel_after_begin(self):
        call = self.stub.StreamingInputCall.future(iter(Queue().get, None))
        call.cancel()
        expect("code", call.code(), grpc.StatusCode.CANCELLED)

    def cancel_after_first_response(self):
        requests = Queue()
        responses = self.stub.FullDuplexCall(iter(requests.get, None))
        requests.put(asks(27182, 31415))
        expect("length", len(next(responses).payload.body), 31415)
        responses.cancel()
        fails(grpc.StatusCode.CANCELLED, lambda: next(responses))

    def timeout_on_sleeping_server(self):
        request = m.StreamingOutputCallRequest(payload=payload(27182), response_parameters=[m.ResponseParameters(interval_us=500_000)])
        for last in (False, False, True):  # now and then the server's clock is first, and resets the call
            call = self.stub.FullDuplexCall(iter([request]), timeout=0.01)
            if call.code() != grpc.StatusCode.CANCELLED or last:
                return expect("code", call.code(), grpc.StatusCode.DEADLINE_EXCEEDED)

    def status_code_and_message(self, message="test status message"):
        status = m.EchoStatus(code=2, message=message)
        fails(grpc.StatusCode.UNKNOWN, lambda: self.stub.UnaryCall(m.SimpleRequest(response_status=status)), message)
        request = m.StreamingOutputCallRequest(response_status=status)
        fails(grpc.StatusCode.UNKNOWN, lambda: list(self.stub.FullDuplexCall(iter([request]))), message)

    def special_status_message(self):
        self.status_code_and_message(SPECIAL)

    def custom_metadata(self):
        sent = ((INITIAL, "test_initial_metadata_value"), (TRAILING, b"\x0a\x0b\x0a\x0b\x0a\x0b"))
        _, unary = self.stub.UnaryCall.with_call(m.SimpleRequest(response_size=1, payload=payload(1)), metadata=sent)
        stream = self.stub.FullDuplexCall(iter([asks(1, 1)]), metadata=sent)
        expect("responses", len(list(stream)), 1)
        for call in (unary, stream):
            expect("initial", dict(call.initial_metadata()).get(INITIAL), sent[0][1])
            expect("trailing", dict(call.trailing_metadata()).get(TRAILING), sent[1][1])

    def unimplemented_method(self):
        fails(grpc.StatusCode.UNIMPLEMENTED, lambda: self.stub.UnimplementedCall(empty_pb2.Empty()))

    def unimplemented_service(self):
        stub = test_pb2_grpc.UnimplementedServiceStub(self.channel)
        fails(grpc.StatusCode.UNIMPLEMENTED, lambda: stub.UnimplementedCall(empty_pb2.Empty()))


def serve(port):
    server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
    test_pb2_grpc.add_TestServiceServicer_to_server(Service(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def call(port, names):
    for name in names:
        try:
            getattr(Cases(port), name)()
            print("ok", name, flush=True)
        except Exception as e:  # pylint: disable=broad-except
            print("FAIL", name, type(e).__name__, " ".join(str(e).split()), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        call(sys.argv[2], sys.argv[3:])
