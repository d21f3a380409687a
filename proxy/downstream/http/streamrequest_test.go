package http_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/race"
)

// TestStreamRequest: what a stream begins with, by the headers of its request and the settings of its service.
func TestStreamRequest(t *testing.T) {
	const (
		grpc, connect = "content-type: application/grpc+proto", "content-type: application/connect+json"
		route         = 15 * time.Second
	)
	for _, c := range []struct {
		header, service string
		timeout         time.Duration
		told            bool // the endpoint is told how much of it is left
		interactive     bool
		grpc            bool
		repeats         int
		host            string // for TLS
	}{
		{header: "a: b", timeout: route},
		{header: "x-remora-timeout-ms: 2000", timeout: 2 * time.Second, told: true},
		{header: "a: b", service: "timeout_header: true", timeout: route, told: true},
		{header: "x-remora-timeout-ms: 2000", service: "timeout_header: true", timeout: 2 * time.Second, told: true},
		{header: grpc, timeout: route, interactive: true, grpc: true},
		{header: connect, timeout: route, interactive: true},
		{header: "content-type: application/grpc-web", timeout: route, interactive: true},
		{header: "x-remora-idempotent: 1", service: "retry: {on: [reset]}", timeout: route, repeats: 1},
		{header: "a: b", service: "retry: {on: [reset]}", timeout: route},
		{header: "a: b", service: "tls: {ca: system, sni: host}", timeout: route, host: "compute"},
	} {
		name := c.header + " " + c.service
		m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: c.service, Limits: proxytest.SmallMessages})
		m.DialAndSend(proxytest.Egress, "POST / HTTP/1.1\r\nHost: Compute:80\r\nx-request-id: id\r\nContent-Length: 100000\r\n"+c.header+"\r\n\r\n")
		m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
		r := streams.Requests[0]
		fits := func(d time.Duration) bool { return d <= c.timeout && d >= c.timeout-onTheWay }
		_, rest, told := strings.Cut(strings.ToLower(string(r.Head)), "x-remora-timeout-ms: ")
		left, _ := strconv.Atoi(strings.Split(rest, "\r\n")[0])
		if !fits(r.Timeout) || told != c.told || told && !fits(time.Duration(left)*time.Millisecond) {
			t.Errorf("%s: it has %v, and the endpoint is told %d ms", name, r.Timeout, left)
		}
		if r.Interactive != c.interactive || r.GRPC != c.grpc || r.Repeats != c.repeats {
			t.Errorf("%s: interactive %t, gRPC %t, %d repeats", name, r.Interactive, r.GRPC, r.Repeats)
		}
		if r.Service != "compute" || r.Host != c.host || string(r.RequestID) != "id" || r.Record != nil || r.Opener == nil {
			t.Errorf("%s: left as %+v", name, r)
		}
		proxytest.CheckStreamsSettled(m, streams)
	}
}

// TestFailedStreamCounts: a stream that fails counts as a gRPC call if it is one.
func TestFailedStreamCounts(t *testing.T) {
	for kind, isCall := range map[string]bool{"application/grpc+proto": true, "application/connect+json": false, "text/plain": false} {
		m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
		m.DialAndSend(proxytest.Egress, "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 100000\r\nContent-Type: "+kind+"\r\n\r\n")
		m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
		m.Consumer.Update("compute") // no endpoint
		m.W.Run(time.Millisecond)
		failed := false
		streams.Requests[0].Opener.Open("compute", func(_ *race.Stream, _ race.Target, f *fault.Failure) { failed = f != nil })
		m.RunUntil("the failure of the stream", func() bool { return failed })
		if n := m.Consumer.Stats("compute").GRPC[fault.NoEndpoint.GRPC()]; (n > 0) != isCall {
			t.Errorf("%s: %d gRPC calls have failed", kind, n)
		}
		proxytest.CheckStreamsSettled(m, streams)
	}
}

// TestRecordOfStream: a stream has an access line, if there is a log.
func TestRecordOfStream(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages + "\n" + proxytest.LogAll})
	m.DialAndSend(proxytest.Egress, handoffCases()[0].head)
	m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
	if streams.Requests[0].Record == nil {
		t.Error("the stream has no record")
	}
	proxytest.CheckStreamsSettled(m, streams)
}

// TestChunksOfAnswer: a response that is a stream is sent in chunks if its length is unknown and the client knows chunks.
func TestChunksOfAnswer(t *testing.T) {
	for version, chunks := range map[string]bool{"HTTP/1.1": true, "HTTP/1.0": false} {
		for _, a := range proxytest.StreamResponses[:2] {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages})
			m.Apps[0].RespondWith(a.Says)
			m.DialAndSend(proxytest.Egress, strings.Replace(proxytest.StreamRequest, "HTTP/1.1", version, 1))
			m.RunUntil("a stream", func() bool { return len(streams.Responses) == 1 })
			got := streams.Responses[0]
			if want := chunks && a.Name != "long"; got.Chunks != want || strings.Contains(string(got.Head), "chunked") != want {
				t.Errorf("%s, %s: chunks %t, head %q", version, a.Name, got.Chunks, got.Head)
			}
			proxytest.CheckStreamsSettled(m, streams)
		}
	}
}

// TestEmptyStreamHasLength: a response that another sidecar gives as a stream although its length is 0 is sent with that length.
func TestEmptyStreamHasLength(t *testing.T) {
	m, consumer, provider := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
	m.RespondOverLink(&protocol.Response{Status: 200, StreamToken: make([]byte, 16)})
	m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
	m.RunUntil("a stream", func() bool { return len(consumer.Responses) == 1 })
	if a := consumer.Responses[0]; a.Chunks || !strings.Contains(string(a.Head), "Content-Length: 0\r\n") {
		t.Errorf("chunks %t, head %q", a.Chunks, a.Head)
	}
	proxytest.CheckStreamsSettled(m, consumer, provider)
}

// TestTrailersOfStream: the trailers of a request that leaves the loop are filtered as those of a message.
func TestTrailersOfStream(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
	m.DialAndSend(proxytest.Egress, handoffCases()[1].head+handoffCases()[1].body)
	m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
	var left []string
	for _, h := range streams.Requests[0].Trailers([]protocol.Header{{Name: []byte("x-sum")}, {Name: []byte("via")}, {Name: []byte("x-remora-class")}}) {
		left = append(left, string(h.Name))
	}
	proxytest.Equal(t, "trailers", strings.Join(left, " "), "x-sum")
	proxytest.CheckStreamsSettled(m, streams)
}
