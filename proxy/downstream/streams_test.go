package downstream

import (
	"log/slog"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/affinity"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestSetHost: a stream keeps the host of its request, in its canonical form, only for a service that needs it for TLS.
func TestSetHost(t *testing.T) {
	for _, c := range []struct{ sni, authority, want string }{
		{config.SNIHost, "A.Test:443", "a.test"}, {config.SNIHost, "a.test.", "a.test"}, {config.SNIHost, "[::1]:443", "::1"}, {config.SNIHost, "", ""},
		{"b.test", "a.test", ""}, {"", "a.test", ""},
	} {
		var r StreamRequest
		r.SetHost(&config.Service{TLS: config.ServiceTLS{SNI: c.sni}}, []byte(c.authority))
		if r.Host != c.want {
			t.Errorf("sni %q, host %q: %q, want %q", c.sni, c.authority, r.Host, c.want)
		}
	}
}

// TestFailureOfStream: the failure of a stream is the last response of its connection, and has the id of the request.
func TestFailureOfStream(t *testing.T) {
	for toHead, body := range map[bool]string{false: "no answer in time\n", true: ""} {
		r := StreamRequest{Minor: 1, ToHead: toHead, RequestID: []byte("7")}
		want := "before HTTP/1.1 504 Gateway Timeout\r\nContent-Type: text/plain; charset=utf-8\r\nX-Remora-Error: deadline\r\nDate: now\r\n" +
			"X-Request-Id: 7\r\nContent-Length: 18\r\nConnection: close\r\n\r\n" + body
		if got := string(r.AppendFailure([]byte("before "), fault.Deadline, []byte("now"))); got != want {
			t.Errorf("to HEAD %t: %q, want %q", toHead, got, want)
		}
	}
}

// openerOf is an Opener that knows who the stream came from.
type openerOf struct {
	race.Opener
	client shard.Client
}

func (openerOf) From(c shard.Client) race.Opener { return openerOf{client: c} }

// checkClient checks that the stream of o came from testCaller.
func checkClient(t *testing.T, o race.Opener, grpc bool, pin string) {
	t.Helper()
	c := o.(openerOf).client
	if c.Listener != "in" || c.Addr != "192.0.2.1:1" || c.GRPC != grpc || c.Session.Pin != pin {
		t.Errorf("the stream comes from %+v, want gRPC %t, pin %q", c, grpc, pin)
	}
}

// newStreamHost returns a host on a loop, whose streams know who they came from.
func newStreamHost(on loop.Loop) *Host {
	return &Host{Shard: shard.New(&shard.Process{Loops: 1}, 0, on, slog.New(slog.DiscardHandler), 1), Opener: openerOf{}}
}

// TestStreamAnswer: a response that is a stream has chunks if its length is unknown, and its client knows chunks. One whose
// length is 0 has none.
func TestStreamAnswer(t *testing.T) {
	for _, c := range []struct {
		length int64
		minor  uint8
		chunks bool
	}{{-1, 1, true}, {-1, 0, false}, {0, 1, false}, {1, 1, false}} {
		w := sim.New(1).Loop("a")
		w.Do(func() {
			h := newStreamHost(w)
			h.Scratch = []byte("head")
			source := &race.StreamSource{}
			responses := &race.Responses{Shard: h.Shard}
			res := responses.New()
			res.Source, res.DeclaredLength = source, c.length
			a := h.StreamAnswer(testCaller{}, res, c.minor)
			copy(h.Scratch, "next")
			if a.Chunks != c.chunks || string(a.Head) != "head" || a.Source != source || res.Source != nil {
				t.Errorf("%d bytes for HTTP/1.%d: chunks %t, head %s", c.length, c.minor, a.Chunks, a.Head)
			}
			if responses.New() != res {
				t.Error("the loop does not get its response back")
			}
			checkClient(t, a.Opener, false, "")
		})
	}
}

// TestStreamRequestUnrouted: a stream without a route has the time of an idle connection, and says who it came from, and
// whether it is a gRPC call.
func TestStreamRequestUnrouted(t *testing.T) {
	for kind, want := range map[string]struct{ grpc, interactive bool }{
		"application/grpc": {true, true}, "application/grpc-web": {false, true}, "text/plain": {},
	} {
		w := sim.New(1).Loop("a")
		w.Do(func() {
			h := newStreamHost(w)
			h.Configure(&config.Config{Timeouts: config.Timeouts{Idle: time.Minute}})
			ex := exchange.NewPool(h.Shard).Exchange(testCaller{})
			ex.RequestID, ex.Request.Authority = []byte("7"), []byte("other:80")
			ex.Request.Headers = []protocol.Header{{Name: []byte("content-type"), Value: []byte(kind)}}
			r := h.StreamRequest(stats.StreamBody, testCaller{}, ex, &Origin{Listener: testCaller{}.Listener()})
			if r.Timeout != time.Minute || string(r.RequestID) != "7" || r.Service != "" || *r.Unrouted != (Unrouted{Listener: "in", Authority: "other:80"}) {
				t.Errorf("%s: %+v", kind, r)
			}
			checkClient(t, r.Opener, want.grpc, "")
			if r.GRPC != want.grpc || r.Interactive != want.interactive {
				t.Errorf("%s: gRPC %t, interactive %t", kind, r.GRPC, r.Interactive)
			}
		})
	}
}

// TestStreamRequestRouted: a stream to a service has the session that its cookie names, which the service does not see. The
// service is told how much time is left if the client, or a setting, gives a time.
func TestStreamRequestRouted(t *testing.T) {
	for _, c := range []struct {
		fromClient, setting bool   // that there is a time
		told                string // the milliseconds before the minute of the route is over, see protocol.Milliseconds
	}{{false, false, ""}, {true, false, "59999"}, {false, true, "59999"}} {
		w := sim.New(1).Loop("a")
		w.Do(func() {
			h := newStreamHost(w)
			h.Configure(&config.Config{})
			ex := exchange.NewPool(h.Shard).Exchange(testCaller{})
			ex.Request.Headers = []protocol.Header{{Name: []byte("cookie"), Value: []byte("a=b; s=pinned")}}
			sticky := affinity.NewSticky(&config.Sticky{Cookie: "s", Secret: "secret"})
			to := &config.Service{Name: "compute", TimeoutHeader: c.setting, TLS: config.ServiceTLS{SNI: config.SNIHost}}
			ex.Route = &exchange.Route{Service: &service.Service{Shard: h.Shard, Config: to, Sessions: &service.Sessions{Sticky: sticky}}}
			ex.Route.Timeout = time.Minute
			ex.Request.Timed, ex.Request.Authority = c.fromClient, []byte("Compute:80")
			r := h.StreamRequest(stats.StreamBody, testCaller{}, ex, &Origin{Listener: testCaller{}.Listener()})
			if r.Service != "compute" || r.Host != "compute" || r.Unrouted != nil || r.Timeout != time.Minute {
				t.Errorf("%+v: left as %+v", c, r)
			}
			cookie, told := string(protocol.Find(ex.Request.Headers, "cookie")), string(protocol.Find(ex.Request.Headers, "x-remora-timeout-ms"))
			checkClient(t, r.Opener, false, "pinned")
			if cookie != "a=b" || told != c.told {
				t.Errorf("%+v: cookie: %s, the service is told %s ms", c, cookie, told)
			}
		})
	}
}
