package stream

import (
	"io"
	"net"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// TestCodeOfCall: the code of a gRPC call is that of its response, and otherwise what its caller takes the end of the stream for.
func TestCodeOfCall(t *testing.T) {
	header := func(name, value string) []protocol.Header {
		return []protocol.Header{{Name: []byte(name), Value: []byte(value)}}
	}
	for name, c := range map[string]struct {
		head     *protocol.Response // nil means that none came
		trailers []protocol.Header
		why      *fault.Failure
		failure  *fault.Failure
		client   clientState
		whole    bool
		counts   int // the status that the head counts as
		code     protocol.GRPCCode
		said     bool // by trailers, so that the response is whole
	}{
		"reset":                        {code: protocol.GRPCInternal},
		"reset within the response":    {head: &protocol.Response{Status: 200}, counts: 200, code: protocol.GRPCInternal},
		"the caller leaves":            {client: clientLeft, code: protocol.GRPCCancelled},
		"cut, and the caller leaves":   {why: fault.TooManyStreams, client: clientLeft, code: fault.TooManyStreams.GRPC()},
		"no endpoint":                  {failure: fault.Deadline, code: protocol.GRPCDeadlineExceeded},
		"leaves before it has failed":  {failure: fault.Deadline, client: clientLeft, code: protocol.GRPCCancelled},
		"whole, without a code":        {head: &protocol.Response{Status: 200}, counts: 200, whole: true, code: protocol.GRPCOther},
		"whole, and the caller leaves": {head: &protocol.Response{Status: 200}, counts: 200, whole: true, client: clientLeft, code: protocol.GRPCOther},
		"trailers":                     {head: &protocol.Response{Status: 200}, counts: 200, trailers: header("grpc-status", "3"), client: clientLeft, code: 3, said: true},
		"other trailers":               {head: &protocol.Response{Status: 200}, counts: 200, trailers: header("a", "3"), code: protocol.GRPCInternal},
		"the head":                     {head: &protocol.Response{Status: 200, Headers: header("grpc-status", "4")}, counts: 504, code: 4},
		"another sidecar":              {head: &protocol.Response{Status: 504, Headers: header("x-remora-error", "deadline")}, counts: 504, code: 4},
		"no gRPC":                      {head: &protocol.Response{Status: 404}, counts: 404, code: protocol.GRPCOfHTTP(404)},
	} {
		t.Run(name, func(t *testing.T) {
			p, call := &pair{client: c.client}, new(call)
			p.why.Store(c.why)
			if c.head != nil {
				if counts := call.onHead(c.head); counts != c.counts {
					t.Errorf("the head counts as %d, want %d", counts, c.counts)
				}
			}
			if c.trailers != nil {
				call.onTrailers(c.trailers)
			}
			e := accesslog.StreamEnd{Failure: c.failure, Cut: true}
			if call.end(p, nil, &e, c.whole); !e.GRPC || e.Code != c.code || e.Cut == c.said {
				t.Errorf("%+v, want code %d", e, c.code)
			}
		})
	}
	var none *call
	e := accesslog.StreamEnd{Cut: true}
	if none.end(&pair{}, nil, &e, true); e.GRPC || !e.Cut || none.onHead(&protocol.Response{Status: 404, Headers: header("grpc-status", "4")}) != 404 {
		t.Errorf("a stream that is no call ends as %+v", e)
	}
}

// TestFailedCallLeft: a gRPC call that has failed has its own code, although its caller leaves as soon as it knows.
func TestFailedCallLeft(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{more: "access_log: {path: /log}"}, a.addr)
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		r := s.put(http1.Head{Framing: http1.FixedLength, Length: 4})
		r.GRPC, r.Record = true, s.srv.worker().StreamRecord("in", "client", "app")
		s.srv.Request(socket{nc}, r)
	}))
	_, _ = io.WriteString(client, "body")
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "\r\n\r\nbody")
	(&end{conn: server, tcp: server}).reset()
	_, _ = io.Copy(io.Discard, client)
	client.Close()
	s.counts.waitIdle()
	s.counts.wantFailure(fault.Reset.Code)
	if l := s.log.line(0); l.GRPC != "unavailable" || l.Error != fault.Reset.Code {
		t.Errorf("%+v", l)
	}
}
