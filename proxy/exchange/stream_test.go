package exchange_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

// TestStreamLimits: a service's rate limit holds for streams as for requests, and max_pending
// does not count them.
func TestStreamLimits(t *testing.T) {
	for _, c := range []struct {
		service string
		want    *fault.Failure
	}{
		{"rate_limit: {rate: 1, burst: 1}", fault.RateLimited},
		{"max_pending: 1", nil},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: c.service})
		first := m.Consumer.Open()
		if first.Failure != nil || !first.Target.Link || first.Target.Addr != proxytest.Ingress {
			t.Fatalf("%s: got %+v", c.service, first)
		}
		second := m.Consumer.Open()
		if second.Failure != c.want {
			t.Errorf("%s: the second one got %v", c.service, second.Failure)
		}
		if second.Stream != nil {
			second.Stream.Close(false, 0, 0)
		}
		first.Stream.Close(false, 0, 0)
		m.Settled()
	}
}

// TestStreamBreaker: the breaker counts results of streams like those of requests: failed
// connects and responses.
func TestStreamBreaker(t *testing.T) {
	for name, fail := range map[string]func(m *proxytest.Mesh, st *race.Stream){
		"connect": func(m *proxytest.Mesh, st *race.Stream) {
			if f := m.Consumer.RetryStream(st, fault.Connect); f != fault.Connect {
				m.T.Fatalf("another endpoint, or %v", f)
			}
		},
		"response": func(_ *proxytest.Mesh, st *race.Stream) { st.Failed(fault.Reset); st.Close(false, 0, 0) },
		"status": func(m *proxytest.Mesh, st *race.Stream) {
			st.Connected(500)
			m.W.Run(time.Millisecond)
			st.Close(true, 0, 0)
		},
		"gRPC": func(m *proxytest.Mesh, st *race.Stream) {
			st.Close(false, 0, 0)
			st = m.Consumer.OpenFor(shard.Client{GRPC: true}).Stream
			st.Connected(200)
			m.W.Run(time.Millisecond)
			st.NoteCode(protocol.GRPCInternal, true)
			st.Close(true, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: "breaker: {consecutive: 2, open: 5s, half_open: 1}"})
			good := func(status int) {
				probe := m.Consumer.Open()
				if probe.Failure != nil {
					t.Fatalf("refused: %v", probe.Failure)
				}
				probe.Stream.Connected(status)
				m.W.Run(time.Millisecond)
				probe.Stream.Close(true, 0, 0)
				m.W.Run(time.Millisecond)
			}
			bad := func() {
				fail(m, m.Consumer.Open().Stream)
				m.W.Run(time.Millisecond)
			}
			bad()
			good(200) // ends the row of failures
			bad()
			bad()
			if got := m.Consumer.Open(); got.Failure != fault.BreakerOpen {
				t.Fatalf("the breaker is not open: %v", got.Failure)
			}
			m.W.Run(6 * time.Second)
			silent := m.Consumer.Open() // a probe that closes without a result is followed by another
			if silent.Failure != nil || m.Consumer.Open().Failure != fault.BreakerOpen {
				t.Fatal("half-open, but not exactly one probe was admitted")
			}
			silent.Stream.Close(false, 0, 0)
			m.W.Run(time.Millisecond)
			long := m.Consumer.OpenFor(shard.Client{GRPC: name == "gRPC"})
			long.Stream.Connected(200) // and it stays open
			m.W.Run(time.Millisecond)
			good(404)
			long.Stream.Close(true, 0, 0)
			m.Settled()
		})
	}
}

// TestStreamsCounted: how the ends of streams count for their service, and as failures of the sidecar. A dial that failed is
// logged.
func TestStreamsCounted(t *testing.T) {
	refused := errors.New("refused")
	retry := func(why *fault.Failure, err error) func(m *proxytest.Mesh, st *race.Stream) {
		return func(m *proxytest.Mesh, st *race.Stream) {
			st.Retry(why, err, func(*race.Stream, race.Target, *fault.Failure) {})
			m.W.Run(time.Millisecond)
			st.Close(false, 1, 2)
		}
	}
	for _, c := range []struct {
		name   string
		client shard.Client
		end    func(m *proxytest.Mesh, st *race.Stream)

		connected, failed uint64
		code              protocol.GRPCCode // of a call
		dials             int               // that are logged
	}{
		{"whole", shard.Client{}, func(_ *proxytest.Mesh, st *race.Stream) { st.Connected(200); st.Close(true, 1, 2) }, 1, 0, 0, 0},
		{"given up", shard.Client{}, func(_ *proxytest.Mesh, st *race.Stream) { st.Close(false, 1, 2) }, 0, 0, 0, 0},
		{"failed", shard.Client{}, func(_ *proxytest.Mesh, st *race.Stream) { st.Failed(fault.Reset); st.Close(false, 1, 2) }, 0, 1, 0, 0},
		{"failed later", shard.Client{}, func(_ *proxytest.Mesh, st *race.Stream) {
			st.Connected(200)
			st.Failed(fault.Reset)
			st.Close(true, 1, 2)
		}, 1, 1, 0, 0},
		{"call", shard.Client{GRPC: true}, func(_ *proxytest.Mesh, st *race.Stream) {
			st.Connected(200)
			st.NoteCode(protocol.GRPCNotFound, true)
			st.Close(true, 1, 2)
		}, 1, 0, protocol.GRPCNotFound, 0},
		{"call that is cut", shard.Client{GRPC: true}, func(_ *proxytest.Mesh, st *race.Stream) { st.Connected(200); st.Close(true, 1, 2) }, 1, 0, protocol.GRPCCancelled, 0},
		{"dial that fails", shard.Client{}, retry(fault.Connect, refused), 0, 0, 0, 1},
		{"dial that the end of the process ends", shard.Client{}, retry(fault.Connect, nil), 0, 0, 0, 0},
		{"refused", shard.Client{}, retry(fault.Overloaded, refused), 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2})
			c.end(m, m.Consumer.OpenFor(c.client).Stream)
			m.Settled()
			s := m.Consumer.Stats("compute")
			if s.Streams != c.connected || s.StreamsFailed != c.failed || s.StreamsOpen != 0 || s.StreamBytesIn != 1 || s.StreamBytesOut != 2 {
				t.Errorf("%d streams, %d failed, %d open, %d bytes in, %d out", s.Streams, s.StreamsFailed, s.StreamsOpen, s.StreamBytesIn, s.StreamBytesOut)
			}
			want := s.GRPC
			clear(want[:])
			if c.client.GRPC {
				want[c.code] = 1
			}
			if s.GRPC != want {
				t.Errorf("calls by code: %v, want %v", s.GRPC, want)
			}
			errs := uint64(0)
			for _, n := range m.Consumer.Report().Stats.Errors {
				errs += n
			}
			if errs != c.failed {
				t.Errorf("%d failures are counted, want %d", errs, c.failed)
			}
			if n := strings.Count(m.Consumer.LogText.String(), "endpoint not connected"); n != c.dials {
				t.Errorf("%d dials are logged, want %d", n, c.dials)
			}
		})
	}
}

// TestStreamsEarnRetries: streams earn the budget of their retries, as requests do.
func TestStreamsEarnRetries(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Service: "hedge: {budget: 0.05}, outlier: {consecutive: 0}"})
	for i := range 1000 {
		opened := m.Consumer.Open()
		if opened.Failure != nil {
			t.Fatal(opened.Failure)
		}
		if i%25 == 0 {
			if f := m.Consumer.RetryStream(opened.Stream, fault.Reset); f != nil {
				t.Fatalf("stream %d is not retried: %v", i, f)
			}
		}
		opened.Stream.Close(false, 0, 0)
		m.W.Run(10 * time.Millisecond)
	}
	m.Settled()
}

// TestStreamsEject: an endpoint that fails streams is ejected like one that fails
// requests, and returns when a stream has probed it with success. Meanwhile no other
// stream is sent there. Results that are not its fault do not eject it.
func TestStreamsEject(t *testing.T) {
	for _, c := range []struct {
		name   string
		fail   func(m *proxytest.Mesh, st *race.Stream)
		ejects bool
		client shard.Client
	}{
		{"not connected", func(m *proxytest.Mesh, st *race.Stream) {
			m.Consumer.RetryStream(st, fault.Connect)
			st.Close(false, 0, 0)
		}, true, shard.Client{}},
		{"reset", func(_ *proxytest.Mesh, st *race.Stream) { st.Failed(fault.Reset); st.Close(false, 0, 0) }, true, shard.Client{}},
		{"response of 5xx", func(_ *proxytest.Mesh, st *race.Stream) { st.Connected(502); st.Close(true, 0, 0) }, true, shard.Client{}},
		{"response of 4xx", func(_ *proxytest.Mesh, st *race.Stream) { st.Connected(404); st.Close(true, 0, 0) }, false, shard.Client{}},
		{"refused for load", func(m *proxytest.Mesh, st *race.Stream) {
			m.Consumer.RetryStream(st, fault.Overloaded)
			st.Close(false, 0, 0)
		}, false, shard.Client{}},
		{"given up", func(_ *proxytest.Mesh, st *race.Stream) { st.Close(false, 0, 0) }, false, shard.Client{}},
		{"call that ends unavailable", func(m *proxytest.Mesh, st *race.Stream) {
			st.Connected(200)
			m.W.Run(time.Millisecond)
			st.NoteCode(protocol.GRPCUnavailable, true)
			st.Close(true, 0, 0)
		}, true, shard.Client{GRPC: true}},
		{"call that is cut", func(_ *proxytest.Mesh, st *race.Stream) {
			st.Connected(200)
			st.NoteCode(protocol.GRPCInternal, false)
			st.Close(true, 0, 0)
		}, false, shard.Client{GRPC: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Service: "lb: {policy: weighted_round_robin, slow_start: 0s}, outlier: {consecutive: 3, base: 10s, max_ejected: 0.5}"})
			const sick = proxytest.Ingress
			at := func() (places map[string]int) { // of 40 streams at once
				places = map[string]int{}
				var open []proxytest.Opened
				for range 40 {
					got := m.Consumer.Open()
					places[got.Target.Addr]++
					open = append(open, got)
				}
				for _, st := range open {
					st.Stream.Close(false, 0, 0)
				}
				m.W.Run(time.Millisecond)
				return places
			}
			for range 20 { // the failing endpoint reaches three failures in a row
				if got := m.Consumer.OpenFor(c.client); got.Target.Addr == sick {
					c.fail(m, got.Stream)
				} else {
					got.Stream.Connected(0)
					got.Stream.Close(true, 0, 0)
				}
				m.W.Run(time.Millisecond)
			}
			m.W.Run(time.Second) // the longest gap after refusals
			if n := at()[sick]; (n == 0) != c.ejects {
				t.Fatalf("%d of 40 streams at the endpoint that failed", n)
			}
			if !c.ejects {
				m.Settled()
				return
			}
			m.W.Run(11 * time.Second)
			if n := at()[sick]; n != 1 {
				t.Errorf("%d of 40 streams at the endpoint when a probe is due", n)
			}
			m.W.Run(11 * time.Second)
			var open []proxytest.Opened // calls that may last
			for len(open) == 0 || open[len(open)-1].Target.Addr != sick {
				got := m.Consumer.OpenFor(c.client)
				got.Stream.Connected(200)
				m.W.Run(time.Millisecond)
				open = append(open, got)
			}
			if n := at()[sick]; n < 15 {
				t.Errorf("%d of 40 streams at the endpoint that is healthy again", n)
			}
			for _, st := range open {
				st.Stream.Close(true, 0, 0)
			}
			m.Settled()
		})
	}
}

// TestStreamRepeated: another try after an endpoint was lost costs a token, and fails without one.
func TestStreamRepeated(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2})
	repeated := 0
	for range 1000 {
		st := m.Consumer.Open().Stream
		if f := m.Consumer.RetryStream(st, fault.Reset); f != nil {
			if f != fault.Reset {
				t.Errorf("it fails with %s", f.Code)
			}
			break
		}
		repeated++
		st.Close(false, 0, 0)
	}
	if repeated == 0 || repeated == 1000 {
		t.Errorf("%d of 1000 are tried again", repeated)
	}
	m.Settled()
}

// TestStreamsRejected: an endpoint that rejects all streams at once gets no more than its share of them, as
// with requests. The reason says nothing about its room.
func TestStreamsRejected(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 3, Service: "lb: {slow_start: 0s}"})
	m.Finish(m.Burst(60, 10)...) // the latency of each is known
	rejected, open := 0, []proxytest.Opened(nil)
	const streams = 300
	for range streams {
		got := m.Consumer.Open()
		if got.Target.Addr == proxytest.Ingress {
			rejected++
			m.Consumer.RetryStream(got.Stream, fault.NoRoute)
		}
		if open = append(open, got); len(open) == 10 {
			open[0].Stream.Close(false, 0, 0)
			open = open[1:]
		}
		m.W.Run(100 * time.Microsecond)
	}
	for _, st := range open {
		st.Stream.Close(false, 0, 0)
	}
	if rejected > streams/2 {
		t.Errorf("%d of %d streams went to the endpoint that rejects them", rejected, streams)
	}
	m.Settled()
}
