package exchange_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/registry"
)

// TestAccessLogBothSides: consumer and provider log a line for a request, with the same
// request ID.
func TestAccessLogBothSides(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.LogAll, Match: "match: {path: /}, rewrite: {path: /v2/}"})
	c := m.Complete(m.Get("/x?y=%22", "X-Request-Id: abc", "Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	m.OK(c)
	m.Settled()
	want := proxytest.AccessLine{
		Listener: "egress", Protocol: "http", RequestID: "abc", TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
		Method: "GET", Authority: "compute", Path: "/x?y=%22", Service: "compute", Endpoint: "10.0.1.1:15006",
		Outcome: "2xx", Status: 200, Attempts: 1,
	}
	for i, n := range m.Nodes {
		if i == 1 {
			want.Listener, want.Protocol, want.Service, want.Endpoint = "ingress", "link", "local", "10.0.1.1:8080"
			want.Path = "/v2/x?y=%22"
		}
		got := n.OnlyAccessLine()
		if since := got.Time.Sub(proxytest.Epoch); since < 0 || since > time.Second || got.Time.Location() != time.UTC {
			t.Errorf("%s: the time is %v", n.Host, got.Time)
		}
		if !strings.Contains(got.Client, ":") || got.BytesIn < 20 || got.BytesOut < 20 {
			t.Errorf("%s: client %s, %d bytes in, %d out", n.Host, got.Client, got.BytesIn, got.BytesOut)
		}
		if got.DurationMS < 1 || got.DurationMS > c.Took.Seconds()*1e3 {
			t.Errorf("%s: took %v ms, of %v", n.Host, got.DurationMS, c.Took)
		}
		got.Time, got.Client, got.BytesIn, got.BytesOut, got.DurationMS = time.Time{}, "", 0, 0, 0
		if got != want {
			t.Errorf("%s: got\n%+v\nwant\n%+v", n.Host, got, want)
		}
	}
}

// TestAccessLogFailures: the line of a failed request has the code that the client
// receives, even if the input was not a valid request.
func TestAccessLogFailures(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     proxytest.MeshOptions
		raw   string // instead of a request
		setup func(m *proxytest.Mesh)
		want  proxytest.AccessLine
	}{
		{"no endpoint", proxytest.MeshOptions{}, "", func(m *proxytest.Mesh) { m.Consumer.Update("compute") },
			proxytest.AccessLine{Service: "compute", Status: 503, Error: "no-endpoint", Attempts: 1}},
		{"no route", proxytest.MeshOptions{Match: "match: {path: /none}"}, "", nil, proxytest.AccessLine{Status: 404, Error: "no-route"}},
		{"deadline", proxytest.MeshOptions{Service: "timeout: 20ms"}, "",
			func(m *proxytest.Mesh) { m.Apps[0].Delay = func() time.Duration { return time.Minute } },
			proxytest.AccessLine{Service: "compute", Endpoint: "10.0.1.1:8080", Status: 504, Error: "deadline", Attempts: 1}},
		{"rate limit", proxytest.MeshOptions{Listener: "rate_limit: {rate: 1, burst: 1}"}, "", func(m *proxytest.Mesh) { m.WarmUp(1) },
			proxytest.AccessLine{Status: 429, Error: "rate-limited"}},
		{"no request", proxytest.MeshOptions{}, "GET nonsense\r\n\r\n", nil, proxytest.AccessLine{Status: 400, Error: "bad-request"}},
		{"no service left", proxytest.MeshOptions{Service: "max_pending: 1"}, "", func(m *proxytest.Mesh) {
			m.Apps[0].Delay = func() time.Duration { return time.Minute }
			m.Do(m.Post(1))
			m.W.Run(50 * time.Millisecond)
		}, proxytest.AccessLine{Service: "compute", Status: 503, Error: "overloaded"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Apps, c.o.OneHop, c.o.Limits = 1, true, "access_log: {path: /log, sample: 0, failed: true}"
			m := proxytest.NewMesh(t, c.o)
			if c.setup != nil {
				c.setup(m)
			}
			m.W.Run(time.Millisecond)
			k := m.Get("/x", "X-Request-Id: "+c.name)
			c.want.Method, c.want.Authority, c.want.Path, c.want.RequestID = "GET", "compute", "/x", strings.ReplaceAll(c.name, " ", "")
			k.Raw = bytes.ReplaceAll(k.Raw, []byte(c.name), []byte(c.want.RequestID))
			if c.raw != "" {
				k.Raw = []byte(c.raw)
				c.want.Method, c.want.Authority, c.want.Path, c.want.RequestID = "", "", "", ""
			}
			m.Complete(k)
			c.want.Listener, c.want.Protocol, c.want.Outcome = "egress", "http", "failed"
			got := m.Consumer.OnlyAccessLine()
			if c.want.Error == "bad-request" {
				c.want.Error = k.Code
			}
			if got.Error != k.Code || got.Status != k.Status {
				t.Errorf("the line has %d %s, the response %d %s", got.Status, got.Error, k.Status, k.Code)
			}
			got.Time, got.Client, got.BytesIn, got.DurationMS = time.Time{}, "", 0, 0
			if got != c.want {
				t.Errorf("got\n%+v\nwant\n%+v", got, c.want)
			}
		})
	}
}

// TestAccessLogHedge: the consumer's line shows that the hedge won, and its endpoint. The
// frozen provider logs a cancelled request. A fallback that has nothing to do changes nothing.
func TestAccessLogHedge(t *testing.T) {
	for _, match := range []string{"", "fallback: {on: [5xx], respond: {status: 203}}"} {
		t.Run(match, func(t *testing.T) { testAccessLogHedge(t, match) })
	}
}

func testAccessLogHedge(t *testing.T, match string) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: proxytest.HedgeOn, Limits: proxytest.LogAll, Match: match})
	m.WarmUp(20)
	m.Apps[0].FrozenUntil = m.W.Now() + 50*time.Millisecond
	calls := m.Burst(3, 10) // one of them meets the frozen replica
	m.OK(calls...)
	m.Settled()
	won := 0
	for _, l := range m.Consumer.AccessLines() {
		if !l.HedgeWon {
			continue
		}
		won++
		if l.Endpoint == "" || l.Endpoint == "10.0.1.1:15006" || l.Hedges != 1 || l.Attempts != 2 || l.Retries != 0 || l.Status != 200 || l.DurationMS < 5 {
			t.Errorf("the hedge that won: %+v", l)
		}
	}
	if n := m.Consumer.Stats("compute").HedgesWon; won == 0 || won != int(n) {
		t.Fatalf("%d lines of hedges that won, and %d hedges won", won, n)
	}
	withdrawn := slices.DeleteFunc(m.Nodes[1].AccessLines(), func(l proxytest.AccessLine) bool { return l.Outcome != "cancelled" })
	if len(withdrawn) != won || withdrawn[0].Status != 0 || withdrawn[0].Error != "" {
		t.Errorf("the frozen provider logged as cancelled: %+v", withdrawn)
	}
}

// TestAccessLogStream: the line of a response that is a stream has the bytes of its body. That of a call of gRPC whose body nobody takes
// has the code that its client gets.
func TestAccessLogStream(t *testing.T) {
	for _, c := range []struct {
		mime string
		end  func(src *race.StreamSource)
		want proxytest.AccessLine
	}{
		{"text/plain", func(src *race.StreamSource) { src.Record.End(accesslog.StreamEnd{Out: 7}) }, proxytest.AccessLine{Outcome: "2xx", BytesOut: 7}},
		{"text/plain", (*race.StreamSource).Close, proxytest.AccessLine{Outcome: "cut"}},
		{"application/grpc", (*race.StreamSource).Close, proxytest.AccessLine{Outcome: "cut", GRPC: "cancelled"}},
		{"application/grpc", func(src *race.StreamSource) { src.Refuse(fault.Overloaded) }, proxytest.AccessLine{Outcome: "failed", GRPC: "resource-exhausted"}},
	} {
		m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.LogAll})
		token := link.Token{1}
		m.RespondOverLink(&protocol.Response{Status: 200, DeclaredLength: -1, StreamToken: token[:],
			Headers: []protocol.Header{{Name: protocol.NameContentType, Value: []byte(c.mime)}}})
		m.DialAndSend(proxytest.Egress, "POST /s HTTP/1.1\r\nHost: compute\r\nContent-Type: "+c.mime+"\r\nContent-Length: 0\r\n\r\n")
		m.W.Run(time.Second)
		if len(consumer.Responses) != 1 {
			t.Fatalf("%s: %d streams", c.mime, len(consumer.Responses))
		}
		c.end(consumer.Responses[0].Source)
		m.W.Run(time.Millisecond)
		got := m.Consumer.OnlyAccessLine()
		if got.Outcome != c.want.Outcome || got.BytesOut != c.want.BytesOut || got.GRPC != c.want.GRPC || got.Stream != "answer" {
			t.Errorf("%s: %+v, want %+v", c.mime, got, c.want)
		}
	}
}

// TestAccessLogRetry: failed endpoints count as attempts and retries, and the line names
// the endpoint that responded.
func TestAccessLogRetry(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Limits: proxytest.LogAll, Service: "lb: {slow_start: 0s}"})
	m.Consumer.Update("compute", registry.Endpoint{Addr: m.Apps[0].Addr, Weight: 1}, registry.Endpoint{Addr: "10.0.1.1:9", Weight: 1})
	m.W.Run(time.Millisecond)
	calls := m.Burst(10, 10)
	m.OK(calls...)
	retried := 0
	for _, l := range m.Consumer.AccessLines() {
		if l.Endpoint != m.Apps[0].Addr || l.Attempts != l.Retries+1 || l.Status != 200 {
			t.Errorf("%+v", l)
		}
		retried += l.Retries
	}
	if n := m.Consumer.Stats("compute").Retries; retried == 0 || retried != int(n) {
		t.Errorf("%d retries in the lines, %d were made", retried, n)
	}
}

// TestAccessLogQueue: lines have the time in the queue for the application, also those of
// requests that were cancelled in the queue.
func TestAccessLogQueue(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: 1", Limits: proxytest.LogAll})
	m.Apps[0].Delay = func() time.Duration { return 10 * time.Millisecond }
	calls := m.Burst(3, 10)
	m.W.Run(2 * time.Millisecond)
	c := m.Do(m.Post(10))
	m.W.Run(3 * time.Millisecond)
	c.Leave()
	m.OK(calls...)
	m.Settled()
	var queued []float64
	for _, l := range m.Nodes[1].AccessLines() {
		if l.Outcome == "cancelled" {
			if l.QueuedMS <= 0 || l.QueuedMS > 5 || l.Endpoint != "" {
				t.Errorf("cancelled in the queue: %+v", l)
			}
			continue
		}
		queued = append(queued, math.Round(l.QueuedMS/10))
		if l.DurationMS < l.QueuedMS+10 || l.DurationMS > l.QueuedMS+12 {
			t.Errorf("queued %v ms of %v, and the application takes 10", l.QueuedMS, l.DurationMS)
		}
	}
	slices.Sort(queued)
	if !slices.Equal(queued, []float64{0, 1, 2}) {
		t.Errorf("queued for %v times the application's 10 ms", queued)
	}
}

// TestAccessLogCancelled: the line of a client that closed has no status.
func TestAccessLogCancelled(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.LogAll})
	m.Apps[0].Delay = func() time.Duration { return 20 * time.Millisecond }
	c := m.Do(m.Post(10))
	m.W.Run(10 * time.Millisecond)
	c.Leave()
	m.Settled()
	l := m.Consumer.OnlyAccessLine()
	if l.Outcome != "cancelled" || l.Status != 0 || l.Error != "" || l.Endpoint != m.Apps[0].Addr || l.BytesOut != 0 {
		t.Errorf("%+v", l)
	}
}

// TestAccessLogSampled: the sampled part of the requests is logged, the same ones on both
// sides.
func TestAccessLogSampled(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Limits: "access_log: {path: /log, sample: 0.25}"})
	const requests = 1000
	calls := m.Crowd(10, requests/10, 10)
	m.OK(calls...)
	m.Settled()
	ids := func(lines []proxytest.AccessLine) (ids []string) {
		for _, l := range lines {
			ids = append(ids, l.RequestID)
		}
		return ids
	}
	consumer, provider := ids(m.Consumer.AccessLines()), []string{}
	for _, n := range m.Nodes[1:] {
		provider = append(provider, ids(n.AccessLines())...)
	}
	slices.Sort(consumer)
	slices.Sort(provider)
	if n := len(consumer); n < 200 || n > 300 {
		t.Errorf("%d of %d requests are logged, at a sample of 0.25", n, requests)
	}
	if !slices.Equal(consumer, provider) {
		t.Errorf("the sides log different requests: %d and %d", len(consumer), len(provider))
	}
}

// TestAccessLogSlowAndFailed: without samples only slow and failed requests have lines.
func TestAccessLogSlowAndFailed(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "access_log: {path: /log, sample: 0, slow: 30ms, failed: true}"})
	app := m.Apps[0]
	m.WarmUp(20)
	one := func(status int, delay time.Duration) {
		app.Status, app.Delay = status, func() time.Duration { return delay }
		m.Complete(m.Post(10))
	}
	one(200, 25*time.Millisecond)
	one(404, time.Millisecond) // a response of the application, so no failure
	one(500, time.Millisecond)
	one(200, 31*time.Millisecond)
	var got []string
	for _, l := range m.Consumer.AccessLines() {
		got = append(got, fmt.Sprintf("%d %s slow=%t", l.Status, l.Outcome, l.DurationMS >= 30))
	}
	if want := []string{"500 5xx slow=false", "200 2xx slow=true"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAccessLogDubbo: the path of a call is its interface, on both sides. A call that
// can't be decoded is logged too.
func TestAccessLogDubbo(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Limits: proxytest.LogAll})
	c := m.DialDubbo(proxytest.EgressDubbo)
	c.Await(c.Call(dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "1.0", "g", "echo", "x")))
	c.Await(c.Call(dubbo.Hessian2, []byte{0xff}))
	m.Settled()
	consumer := m.Consumer.AccessLines()
	if len(consumer) != 2 {
		t.Fatalf("%+v", consumer)
	}
	for i, l := range []proxytest.AccessLine{consumer[0], m.Nodes[1].OnlyAccessLine()} {
		want := [][3]string{{"calls", "dubbo", "compute"}, {"ingress", "link", "local"}}[i]
		if got := [3]string{l.Listener, l.Protocol, l.Service}; got != want {
			t.Errorf("got %v, want %v", got, want)
		}
		if l.Method != "echo" || l.Path != proxytest.DemoService || l.Status != 200 || l.Attempts != 1 || l.RequestID != "" {
			t.Errorf("%+v", l)
		}
	}
	if l := consumer[1]; l.Outcome != "failed" || l.Error == "" || l.Method != "" || l.Listener != "calls" {
		t.Errorf("a call that can't be decoded: %+v", l)
	}
}

// TestAccessLogNotConverted: a request that can't become a call is logged with the status that its client gets.
func TestAccessLogNotConverted(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true, Limits: proxytest.LogAll})
	k := m.Get("/")
	m.Do(k)
	m.Finish(k)
	m.Settled()
	if l := m.Consumer.OnlyAccessLine(); k.Status != 404 || l.Status != 404 || l.Outcome != "4xx" || l.Attempts != 1 {
		t.Errorf("status %d %s, the line is %+v", k.Status, k.Code, l)
	}
}
