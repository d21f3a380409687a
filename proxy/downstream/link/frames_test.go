package link_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// frames notes what an acceptor has sent, in order.
type frames struct {
	link.ResponseHandler
	all      []string
	settings link.Settings
	loads    []link.Load
	messages map[uint64]string // headers and body of each response
}

func (f *frames) note(format string, args ...any) {
	f.all = append(f.all, fmt.Sprintf(format, args...))
}

func (f *frames) OnPreface(_ uint8, s link.Settings)        { f.settings = s }
func (f *frames) NewResponse(uint64) *protocol.Response     { return &protocol.Response{} }
func (f *frames) OnRefused(id uint64, why link.Reason)      { f.note("refused %d %s", id, why) }
func (f *frames) OnCancelAck(id uint64, d link.Dropped)     { f.note("cancelled %d %d", id, d) }
func (f *frames) OnStart(id uint64)                         { f.note("start %d", id) }
func (f *frames) OnGoAway(last uint64, why link.Reason)     { f.note("goaway %d %s", last, why) }
func (f *frames) OnLoad(l link.Load)                        { f.loads = append(f.loads, l) }
func (f *frames) OnAnswer(l link.Load)                      { f.note("answer %d pending", l.Pending) }
func (f *frames) OnPing(uint64)                             { f.note("ping") }
func (f *frames) OnPong(n uint64)                           { f.note("pong %d", n) }
func (f *frames) OnCredit(uint32)                           {}
func (f *frames) OnInterim(id uint64, r *protocol.Response) { f.note("interim %d %d", id, r.Status) }
func (f *frames) OnResponse(id uint64, r *protocol.Response, _ protocol.Codec, _ *bytebufferpool.ByteBuffer) {
	f.note("response %d %d", id, r.Status)
	f.messages[id] = fmt.Sprintf("%s %s", r.Headers, r.Body)
}

// goAway1 is the GOAWAY of a link that takes no request behind the first one.
const goAway1 = "goaway 1 draining"

// framesOf decodes what p has received.
func framesOf(t *testing.T, p *proxytest.Peer) *frames {
	t.Helper()
	f := &frames{messages: map[uint64]string{}}
	if err := link.NewDialer(link.Settings{}, link.ReaderLimits{Buffers: &protocol.Buffers{}}, f).Feed(p.Heard); err != nil {
		t.Fatal(err)
	}
	return f
}

// checkFrames checks what p has received, but for loads and credit.
func checkFrames(t *testing.T, what string, p *proxytest.Peer, want ...string) {
	t.Helper()
	if got := framesOf(t, p).all; !slices.Equal(got, want) {
		t.Errorf("%s: the peer got %q, want %q", what, got, want)
	}
}

// checkDrains checks that the link to the provider closes at once when that drains: nothing of a request is left on it.
func checkDrains(m *proxytest.Mesh, what string, p *proxytest.Peer) {
	m.T.Helper()
	m.Nodes[1].Proc.Drain()
	m.W.Run(10 * time.Millisecond)
	if !p.Ended {
		m.T.Errorf("%s: the link stays open", what)
	}
}

// send sends what w has.
func send(m *proxytest.Mesh, p *proxytest.Peer, w *link.Writer) {
	m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 1<<20)) })
	m.W.Run(10 * time.Millisecond)
}

// TestProbe: a PROBE is answered with the load of the service. A peer that does not read gets no ANSWER later.
func TestProbe(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	delay := time.Second
	m.Apps[0].Delay = func() time.Duration { return delay }
	w, p := m.DialLink()
	w.Probe()
	send(m, p, w)
	checkFrames(t, "idle", p, "answer 0 pending")
	w.Request(1, proxytest.LinkRequest, time.Minute, nil)
	w.Request(3, proxytest.LinkRequest, time.Minute, nil)
	send(m, p, w)
	w.Probe()
	send(m, p, w)
	checkFrames(t, "busy", p, "answer 0 pending", "answer 2 pending")
	m.W.Run(2 * time.Second)
	checkFrames(t, "in the end", p, "answer 0 pending", "answer 2 pending", "response 3 200", "response 1 200")

	delay = time.Millisecond
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 1000) }
	m.W.Faults.PauseReading(p.Conn, true)
	for id := range uint64(1000) { // more than the kernels hold
		w.Request(id+5, proxytest.LinkRequest, time.Minute, nil)
	}
	send(m, p, w)
	w.Probe()
	send(m, p, w)
	if s := m.Nodes[1].Stats("local").Probes; s.Answered != 2 || s.Dropped != 1 {
		t.Errorf("%+v are counted", s)
	}
	m.W.Faults.PauseReading(p.Conn, false)
	m.W.Run(time.Second)
	m.Clients.Do(func() { p.Conn.Close() })
	m.Settled()
}

// TestLoadReports: the load of the service goes with responses, refusals among them, once for those of one turn.
func TestLoadReports(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_pending: 2"})
	m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
	w, p := m.DialLink()
	for id := range uint64(3) {
		w.Request(id+1, proxytest.LinkRequest, time.Minute, nil)
	}
	send(m, p, w)
	f := framesOf(t, p)
	if len(f.loads) != 1 || f.loads[0].Pending != 2 {
		t.Errorf("%q, loads %+v with a refusal", f.all, f.loads)
	}
	m.W.Run(time.Second)
	f = framesOf(t, p)
	if n := len(f.loads); n < 2 || n > 3 || f.loads[n-1].Pending != 0 || f.loads[n-1].Latency < 100*time.Millisecond {
		t.Errorf("%q, loads %+v in the end", f.all, f.loads)
	}
	m.Clients.Do(func() { p.Conn.Close() })
	m.Settled()
}

// TestStart: a peer that asks is told once when a request begins, where requests may wait, and at once about a request that has
// begun or that nobody knows.
func TestStart(t *testing.T) {
	for provider, waits := range map[string]bool{"max_concurrency: 1, max_queue: 4": true, "": false} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: provider})
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		w, p := m.DialLink()
		w.Request(1, proxytest.LinkRequest, time.Minute, nil)
		w.Request(3, proxytest.LinkRequest, time.Minute, nil)
		send(m, p, w)
		for _, id := range []uint64{3, 1, 9} {
			w.Start(id)
		}
		send(m, p, w)
		early, late := []string{"start 3", "start 1", "start 9"}, []string{"response 1 200", "response 3 200"}
		if waits {
			early, late = early[1:], []string{"start 3", "response 1 200", "response 3 200"}
		}
		checkFrames(t, provider, p, early...)
		if says := framesOf(t, p).settings.Features&link.FeatureStarts != 0; says != waits {
			t.Errorf("%q: it says that requests wait: %t", provider, says)
		}
		m.W.Run(3 * time.Second)
		got := framesOf(t, p).all[len(early):]
		slices.Sort(got)
		slices.Sort(late)
		if !slices.Equal(got, late) {
			t.Errorf("%q: then %q, want %q", provider, got, late)
		}
		m.Clients.Do(func() { p.Conn.Close() })
		m.Settled()
	}
}

// TestStartAlone: a peer that asks about a request which waits is told when it begins, although its link carries nothing else then.
func TestStartAlone(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: 1, max_queue: 4"})
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	first, other := m.DialLink()
	first.Request(1, proxytest.LinkRequest, time.Minute, nil)
	send(m, other, first)
	w, p := m.DialLink()
	w.Request(1, proxytest.LinkRequest, time.Minute, nil)
	send(m, p, w)
	w.Start(1)
	send(m, p, w)
	checkFrames(t, "while the other request has the slot", p)
	m.W.Run(1500 * time.Millisecond)
	checkFrames(t, "afterwards", p, "start 1")
	m.W.Run(time.Second)
	checkFrames(t, "in the end", p, "start 1", "response 1 200")
	m.Clients.Do(func() { p.Conn.Close(); other.Conn.Close() })
	m.Settled()
}

// TestWithdraw: a tied request that waits is refused when its peer says so. A tied request that has begun goes on.
func TestWithdraw(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: 1, max_queue: 4"})
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	w, p := m.DialLink()
	tied := *proxytest.LinkRequest
	tied.Tied, tied.Hedge = true, true
	for _, id := range []uint64{1, 3, 5} {
		w.Request(id, &tied, time.Minute, nil)
	}
	send(m, p, w)
	for _, id := range []uint64{1, 5, 9} {
		w.Withdraw(id)
	}
	send(m, p, w)
	checkFrames(t, "at once", p, "refused 5 "+link.NoSlot.String())
	m.W.Run(3 * time.Second)
	checkFrames(t, "in the end", p, "refused 5 "+link.NoSlot.String(), "response 1 200", "response 3 200")
	m.Clients.Do(func() { p.Conn.Close() })
	m.Settled()
}

// TestInterimResponses: interim responses come before the response, whether or not it is the only request.
func TestInterimResponses(t *testing.T) {
	for _, requests := range []int{1, 2} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		m.Apps[0].RespondWith("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n")
		w, p := m.DialLink()
		want := []string{}
		for i := range uint64(requests) {
			w.Request(2*i+1, proxytest.LinkRequest, 2*time.Second, nil)
			want = append(want, fmt.Sprintf("interim %d 103", 2*i+1))
		}
		send(m, p, w)
		got := framesOf(t, p).all
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("the peer got %q, want %q", got, want)
		}
		m.Clients.Do(func() { p.Conn.Close() })
		m.Settled()
	}
}

// TestOtherVersion: a peer of a version that is not known gets the refusal that all versions know. Other input gets nothing.
func TestOtherVersion(t *testing.T) {
	other := proxytest.LinkPreface(link.Dialer)
	other[5], other[6] = 9, 9
	for says, want := range map[string]string{string(other): string(link.AppendRefusal(nil)), "GET / HTTP/1.1\r\n\r\n": ""} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		if heard := m.RunUntilClosed(m.DialAndSend(proxytest.Ingress, says)); heard != want {
			t.Errorf("%q: received %q, want %q", says, heard, want)
		}
		m.Settled()
	}
}

// TestUntrustedPeer: the requests of a peer whose certificate is no longer accepted get their responses, for timeouts.drain. A link
// without a request closes at once.
func TestUntrustedPeer(t *testing.T) {
	for name, c := range map[string]struct {
		delay time.Duration // of the request; 0 means none
		says  string        // in place of a link
		want  []string
		took  time.Duration
	}{
		"no preface": {says: string(proxytest.LinkPreface(link.Dialer)[:3]), took: 0},
		"idle":       {want: []string{"goaway 0 draining"}},
		"a request":  {delay: 3 * time.Second, want: []string{goAway1, "response 1 200"}, took: 3 * time.Second},
		"too slow":   {delay: 10 * time.Second, want: []string{goAway1}, took: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "timeouts: {drain: 5s}"})
			m.Apps[0].Delay = func() time.Duration { return c.delay }
			p := &proxytest.Peer{Says: []byte(c.says)}
			if c.says == "" {
				p.Says = proxytest.LinkFrames(func(w *link.Writer) {
					if c.delay > 0 {
						w.Request(1, proxytest.LinkRequest, time.Minute, nil)
					}
				})
			}
			m.DialIngress(p)
			m.W.Run(100 * time.Millisecond)
			began := m.W.Now()
			for range 2 {
				if !p.Ended {
					m.W.Faults.Distrust(p.Conn)
				}
			}
			m.RunUntil("the end of the link", func() bool { return p.Ended })
			if took := (m.W.Now() - began).Round(time.Second); took != c.took {
				t.Errorf("the link ended after %v, want %v", took, c.took)
			}
			if c.says == "" {
				checkFrames(t, name, p, c.want...)
			}
			m.Settled()
		})
	}
}

// TestDrainedByRefusal: a draining link closes behind the refusal of a request that was arriving.
func TestDrainedByRefusal(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	w, p := m.DialLink()
	long := *proxytest.LinkRequest
	long.Body = make([]byte, 10_000)
	w.Request(1, &long, time.Minute, nil)
	text := w.Append(nil, 1<<20)
	m.Clients.Do(func() { p.Conn.Write(text[:len(text)/2]) })
	m.W.Run(100 * time.Millisecond)
	m.W.Faults.Distrust(p.Conn)
	m.W.Run(100 * time.Millisecond)
	if p.Ended {
		t.Fatal("the link has not waited for the request")
	}
	m.Clients.Do(func() { p.Conn.Write(text[len(text)/2:]) })
	m.W.Run(100 * time.Millisecond)
	if !p.Ended {
		t.Error("the link stays open")
	}
	checkFrames(t, "the peer", p, "goaway 0 draining", "refused 1 draining")
	if n := m.Nodes[1].Report().Stats.Errors.Of("draining"); n != 1 {
		t.Errorf("%d refusals are counted", n)
	}
	m.Settled()
}

// TestDrainedByFrame: a draining link closes behind a frame of which a part had arrived.
func TestDrainedByFrame(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	w, p := m.DialLink()
	w.Credit(1 << 20) // no frame follows from it
	frame := w.Append(nil, 1<<20)
	m.Clients.Do(func() { p.Conn.Write(frame[:1]) })
	m.W.Run(100 * time.Millisecond)
	m.Nodes[1].Proc.Drain()
	m.W.Run(100 * time.Millisecond)
	if p.Ended {
		t.Fatal("the link has not waited for the frame")
	}
	m.Clients.Do(func() { p.Conn.Write(frame[1:]) })
	m.W.Run(10 * time.Millisecond)
	if !p.Ended {
		t.Error("the link stays open")
	}
	m.Settled()
}

// TestShedLargest: when memory is short, a link gives up what holds the most of it: a request that has arrived in part, a request
// in flight, or a response that the peer does not read. The link carries other requests on.
func TestShedLargest(t *testing.T) {
	for name, c := range map[string]struct {
		request, response, arrived int // bytes
		want                       string
	}{
		"in part":    {request: 200 << 10, arrived: 100 << 10, want: "refused 1 " + link.Overload.String()},
		"in flight":  {request: 120 << 10, arrived: 1 << 20, want: "refused 1 " + link.UpstreamReset.String()},
		"a response": {response: 900 << 10, arrived: 1 << 20, want: "refused 1 " + link.UpstreamReset.String()},
		"too little": {request: 10, arrived: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget, Service: "timeout: 1m", Provider: "timeout: 1m"})
			provider := m.Nodes[1]
			if c.response == 0 {
				m.Apps[0].Delay = func() time.Duration { return 10 * time.Second }
			}
			m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, c.response) }
			w, p := m.DialLink()
			long := *proxytest.LinkRequest
			long.Body = make([]byte, c.request)
			w.Request(1, &long, time.Minute, nil)
			m.Clients.Do(func() { p.Conn.Write(w.Append(nil, c.arrived)) })
			m.W.Run(100 * time.Millisecond)
			provider.Proc.Charge(proxytest.HardMark)
			other, next := m.DialLink() // whose request has the loop look for the largest
			long.Body = make([]byte, 70<<10)
			other.Request(1, &long, time.Minute, nil)
			send(m, next, other)
			if got := strings.Join(framesOf(t, p).all, ", "); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("the peer got %s, want %s", got, c.want)
			}
			if n := provider.Report().Stats.Errors.Of("shed"); c.want != "" && n != 2 { // with the request of the other link
				t.Errorf("%d are counted", n)
			}
			provider.Proc.Charge(-proxytest.HardMark)
			m.Clients.Do(func() { p.Conn.Close(); next.Conn.Close() })
			m.Settled()
		})
	}
}

// TestShedSuffices: once the largest request is given up and memory suffices, the others stay.
func TestShedSuffices(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget, Provider: "timeout: 1m"})
	m.Apps[0].Delay = func() time.Duration { return 10 * time.Second }
	provider := m.Nodes[1]
	begin := func(size, arrived int) *proxytest.Peer {
		w, p := m.DialLink()
		long := *proxytest.LinkRequest
		long.Body = make([]byte, size)
		w.Request(1, &long, time.Minute, nil)
		var out []byte
		for len(out) < arrived {
			w.Granted(64 << 10)
			next := w.Append(nil, min(64<<10, arrived-len(out)))
			if len(next) == 0 { // all has been sent
				break
			}
			out = append(out, next...)
		}
		m.Clients.Do(func() { p.Conn.Write(out) })
		m.W.Run(100 * time.Millisecond)
		return p
	}
	larger, other := begin(1000<<10, 990<<10), begin(200<<10, 190<<10)
	free := proxytest.HardMark - int(provider.Proc.Buffered())
	provider.Proc.Charge(free - 60<<10)
	next := begin(70<<10, 1<<20) // whose request has the loop look for the largest
	checkFrames(t, "larger", larger, "refused 1 "+link.Overload.String())
	checkFrames(t, "the other", other)
	checkFrames(t, "the next", next)
	provider.Proc.Charge(60<<10 - free)
	m.Clients.Do(func() { larger.Conn.Close(); other.Conn.Close(); next.Conn.Close() })
	m.Settled()
}

// TestAcceptedWhileDraining: a link that was accepted just before its listener has closed says so, and takes no request.
func TestAcceptedWhileDraining(t *testing.T) {
	for name, end := range map[string]func(m *proxytest.Mesh){
		"drained": func(m *proxytest.Mesh) { m.Nodes[1].Proc.Drain() },
		"retired": func(m *proxytest.Mesh) { m.Nodes[1].Proc.Retire() },
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		end(m)
		m.W.Run(10 * time.Millisecond)
		p := &proxytest.Peer{Says: proxytest.LinkFrames(func(w *link.Writer) { w.Request(1, proxytest.LinkRequest, time.Minute, nil) })}
		m.DialIngress(p)
		m.RunUntil("the end of the link", func() bool { return p.Ended })
		checkFrames(t, name, p, "goaway 0 draining") // so the peer sends its request elsewhere
		m.Settled()
	}
}

// TestRetire: a link whose listener has closed takes no more requests, and closes behind the responses that are due. An idle one closes
// at once.
func TestRetire(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.Apps[0].Delay = func() time.Duration { return 3 * time.Second }
	_, idle := m.DialLink()
	w, p := m.DialLink()
	w.Request(1, proxytest.LinkRequest, time.Minute, nil)
	send(m, p, w)
	m.Nodes[1].Proc.Retire()
	m.W.Run(10 * time.Millisecond)
	if !idle.Ended || p.Ended {
		t.Errorf("the idle link ended: %t, the other one: %t", idle.Ended, p.Ended)
	}
	m.Nodes[1].Proc.Drain()
	w.Request(3, proxytest.LinkRequest, time.Minute, nil)
	send(m, p, w)
	m.RunUntil("the end of the link", func() bool { return p.Ended })
	checkFrames(t, "idle", idle, "goaway 0 draining")
	checkFrames(t, "a request", p, goAway1, "refused 3 draining", "response 1 200")
	m.Settled()
}

// TestShedLink: a link closes at once if it holds the most of memory that is short, and no request or response of it is large. Its
// requests end.
func TestShedLink(t *testing.T) {
	for name, c := range map[string]struct {
		request, response, count int // bytes of each
		deaf                     bool
	}{
		"requests": {request: 30 << 10, count: 20}, "responses that wait": {response: 30 << 10, count: 60},
		"responses that are not read": {response: 4 << 10, count: 250, deaf: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget, Provider: "timeout: 2h"})
			provider, app := m.Nodes[1], m.Apps[0]
			app.Body = func(*protocol.Request) []byte { return make([]byte, c.response) }
			if c.response == 0 {
				app.Delay = func() time.Duration { return time.Hour }
			}
			w, p := m.DialLink()
			m.W.Faults.PauseReading(p.Conn, c.deaf)
			medium := *proxytest.LinkRequest
			medium.Body = make([]byte, c.request)
			for id := range uint64(c.count) {
				w.Request(id+1, &medium, 2*time.Hour, nil)
				send(m, p, w)
			}
			app.Delay = func() time.Duration { return time.Hour }
			provider.Proc.Charge(proxytest.HardMark)
			other, next := m.DialLink() // whose request has the loop look for the largest
			medium.Body = make([]byte, 60<<10)
			other.Request(1, &medium, 2*time.Hour, nil)
			send(m, next, other)
			m.W.Faults.PauseReading(p.Conn, false)
			m.RunUntil("the end of the link", func() bool { return p.Ended })
			if n := provider.ShedConnections(); n == 0 {
				t.Error("no link is counted")
			}
			provider.Proc.Charge(-proxytest.HardMark)
			m.Clients.Do(func() { next.Conn.Close() })
			m.W.Run(10 * time.Millisecond)
			if n := provider.Proc.Pending(); n > 1 { // that of the other link
				t.Errorf("%d requests are in flight", n)
			}
		})
	}
}

// TestShedLargerTables: of two links with the same request the one with the larger tables loses it when memory is full.
func TestShedLargerTables(t *testing.T) {
	const hardMark = 1536 << 10
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "limits: {buffered: 1MiB, message: 128KiB}", Provider: "timeout: 1m"})
	m.Apps[0].Delay = func() time.Duration { return 10 * time.Second }
	provider := m.Nodes[1]
	long := *proxytest.LinkRequest
	long.Body = make([]byte, 120<<10)
	request := proxytest.LinkFrames(func(w *link.Writer) { w.Request(1, &long, time.Minute, nil) })
	larger, other := &proxytest.Peer{Says: fullTable(slices.Clone(request))}, &proxytest.Peer{Says: request}
	m.DialIngress(larger)
	m.DialIngress(other)
	m.W.Run(100 * time.Millisecond)
	free := hardMark - int(provider.Proc.Buffered())
	provider.Proc.Charge(free - 60<<10)
	w, next := m.DialLink() // whose request has the loop look for the largest
	long.Body = long.Body[:70<<10]
	w.Request(1, &long, time.Minute, nil)
	send(m, next, w)
	checkFrames(t, "larger", larger, "refused 1 "+link.UpstreamReset.String())
	checkFrames(t, "the other", other)
	provider.Proc.Charge(60<<10 - free)
	m.Clients.Do(func() { larger.Conn.Close(); other.Conn.Close(); next.Conn.Close() })
	m.Settled()
}

// TestTimeOfRequest: a request over a link has the time that its peer says, or as long as the service allows if the peer says nothing.
func TestTimeOfRequest(t *testing.T) {
	for left, want := range map[time.Duration]string{0: "response 1 200", time.Minute: "response 1 200", time.Second: "refused 1 " + link.UpstreamTimeout.String()} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		m.Apps[0].Delay = func() time.Duration { return 2 * time.Second }
		w, p := m.DialLink()
		w.Request(1, proxytest.LinkRequest, left, nil)
		send(m, p, w)
		m.W.Run(3 * time.Second)
		checkFrames(t, left.String(), p, want)
		checkDrains(m, left.String(), p)
		m.Settled()
	}
}

// TestBurstOverShare: while memory is short, a link over its share gets no more long requests served: those that came before count,
// those of the same read, and responses that the peer does not let through. Short requests are served beside long ones, but not beside
// responses that wait.
func TestBurstOverShare(t *testing.T) {
	const size = 20 << 10 // four fill a share of 128 KiB, and ten are less than a link takes in one read
	for name, c := range map[string]struct {
		before, unread int // requests in flight, and long responses that wait
		length         int // of the next requests' bodies
		served         int // of ten
	}{
		"at once":            {length: size, served: 3},
		"behind others":      {before: 2, length: size, served: 1},
		"unread":             {unread: 20, length: 10, served: 0},
		"short":              {length: 10, served: 10},
		"short, behind long": {before: 6, length: 10, served: 10},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "limits: {buffered: 1MiB, message: 256KiB}", Provider: "timeout: 1m"})
			m.WarmUp(1)
			for range 6 { // so that there are eight links
				m.DialLink()
			}
			provider, app := m.Nodes[1], m.Apps[0]
			m.W.Options.ReadSize, m.W.Options.Cut = 256<<10, 0
			w, p := m.DialLink()
			id := uint64(0)
			requests := func(n, length int) {
				long := *proxytest.LinkRequest
				long.Body = make([]byte, length)
				var out []byte
				for range n { // one behind the other
					id++
					w.Granted(uint32(length))
					w.Request(id, &long, time.Minute, nil)
					out = w.Append(out, 4<<20)
				}
				m.Clients.Do(func() { p.Conn.Write(out) })
				m.W.Run(100 * time.Millisecond)
			}
			app.Body = func(*protocol.Request) []byte { return make([]byte, size) }
			requests(c.unread, 10)
			app.Body = nil
			app.Delay = func() time.Duration { return 10 * time.Second }
			requests(c.before, size)
			pending := provider.Proc.Pending()
			provider.Proc.Charge(1 << 20)
			requests(10, c.length)
			if n := provider.Proc.Pending() - pending; n != c.served {
				t.Errorf("%d of ten requests are served, want %d", n, c.served)
			}
			provider.Proc.Charge(-1 << 20)
			m.Clients.Do(func() { p.Conn.Close() })
			m.Settled()
		})
	}
}

// TestBeginsWhenFull: a link over its share begins no long request once limits.buffered is reached, and one while a byte is left.
func TestBeginsWhenFull(t *testing.T) {
	for _, left := range []int{0, 1} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "limits: {buffered: 1MiB, message: 256KiB}", Provider: "timeout: 1m"})
		m.Apps[0].Delay = func() time.Duration { return 10 * time.Second }
		provider := m.Nodes[1]
		for range 7 { // so that a share is 128 KiB
			m.DialLink()
		}
		w, p := m.DialLink()
		long := *proxytest.LinkRequest
		long.Body = make([]byte, 200<<10)
		w.Granted(1 << 20)
		w.Request(1, &long, time.Minute, nil)
		send(m, p, w)
		charged := 1<<20 - int(provider.Proc.Buffered()) - left
		provider.Proc.Charge(charged)
		long.Body = make([]byte, 20<<10)
		w.Request(2, &long, time.Minute, nil)
		m.Clients.Do(func() { p.Conn.Write(w.Append(nil, 17<<10)) })
		m.W.Run(10 * time.Millisecond)
		want := []string{"refused 2 " + link.Overload.String()}
		checkFrames(t, fmt.Sprint(left, " bytes left"), p, want[left:]...)
		provider.Proc.Charge(-charged)
		m.Clients.Do(func() { p.Conn.Close() })
		m.Settled()
	}
}

// TestUselessCancels: a peer that cancels one request again and again while the application works on it loses its link. What it has sent
// behind is not looked at.
func TestUselessCancels(t *testing.T) {
	const most = 256 + 3*3
	for _, useless := range []int{most, most + 1} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "cancel: finish"})
		m.W.Options.Cut = 0 // all in one read
		came := 0
		m.Apps[0].OnRequest = func(*protocol.Request) { came++ }
		w, p := m.DialLink()
		w.Request(1, proxytest.LinkRequest, time.Minute, nil)
		w.Request(2, proxytest.LinkRequest, time.Minute, nil)
		send(m, p, w) // so that there are two connections to the application
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		w.Request(3, proxytest.LinkRequest, time.Minute, nil)
		send(m, p, w)
		var out []byte
		for range 1 + useless {
			w.Cancel(3)
			out = w.Append(out, 1<<20)
		}
		w.Request(4, proxytest.LinkRequest, time.Minute, nil)
		m.Clients.Do(func() { p.Conn.Write(w.Append(out, 1<<20)) })
		m.W.Run(500 * time.Millisecond)
		if ends := useless > most; p.Ended != ends || came != map[bool]int{false: 4, true: 3}[ends] {
			t.Errorf("%d: the link ended: %t, %d requests came", useless, p.Ended, came)
		}
		m.Settled()
	}
}

// TestOneWrite: the interim responses of one turn of the loop go in one write. So do responses and the STARTs of the next requests.
func TestOneWrite(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Speaks: "http2", Provider: "max_concurrency: 2, max_queue: 4"})
	m.W.Options.Cut = 0
	app := m.Apps[0]
	app.Stop()
	var conn *proxytest.HTTP2Conn
	var calls []*http2.Stream
	app.Stop = m.W.Net.Listen(app.Addr, app.Loop, func() loop.Receiver {
		conn = proxytest.NewHTTP2Conn(0, func(_ *proxytest.HTTP2Conn, st *http2.Stream) { calls = append(calls, st) })
		return conn
	})
	w, p := m.DialLink()
	requests := func(ids ...uint64) {
		for _, id := range ids {
			w.Request(id, proxytest.LinkRequest, time.Minute, nil)
		}
		send(m, p, w)
	}
	together := func(what string, say func(st *http2.Stream)) {
		before := m.Nodes[1].Report().Stats.LinkFlushes
		app.Loop.Do(func() {
			say(calls[0])
			say(calls[1])
			conn.Flush()
		})
		m.W.Run(10 * time.Millisecond)
		if n := m.Nodes[1].Report().Stats.LinkFlushes - before; n != 1 {
			t.Errorf("%s: %d writes, %q", what, n, framesOf(t, p).all)
		}
	}
	requests(1, 2)
	together("interim responses", func(st *http2.Stream) { conn.H2.Interim(st, &protocol.Response{Status: 103}) })
	requests(3, 4)
	w.Start(3)
	w.Start(4)
	send(m, p, w)
	respond := func(st *http2.Stream) { conn.H2.Respond(st, &protocol.Response{Status: 200, DeclaredLength: -1}, nil) }
	together("responses", respond)
	calls = calls[2:]
	together("the last responses", respond)
	checkFrames(t, "in all", p, "interim 1 103", "interim 2 103", "start 3", "start 4",
		"response 1 200", "response 2 200", "response 3 200", "response 4 200")
	app.Stop()
	m.Clients.Do(func() { p.Conn.Close() })
}

// TestListenerLinks: a listener knows how many links it has.
func TestListenerLinks(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	l := m.Nodes[1].Proc.Generation().Listener("ingress")
	_, p := m.DialLink()
	_, other := m.DialLink()
	m.DialAndSend(proxytest.Ingress, "R") // no link
	m.W.Run(100 * time.Millisecond)
	proxytest.Equal(t, "two links", l.Links(), 2)
	m.Clients.Do(func() { p.Conn.Close() })
	m.W.Run(100 * time.Millisecond)
	proxytest.Equal(t, "one link", l.Links(), 1)
	m.Clients.Do(func() { other.Conn.Close() })
	m.W.Run(100 * time.Millisecond)
	proxytest.Equal(t, "no link", l.Links(), 0)
}

// TestResponses: a peer gets the headers and the body of each response as the application has sent them, also if several come
// together.
func TestResponses(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	app := m.Apps[0]
	app.ExtraHeaders = "x-a: b\r\n"
	app.Body = func(req *protocol.Request) []byte { return slices.Concat([]byte("body of "), req.Path) }
	app.FrozenUntil = m.W.Now() + 100*time.Millisecond // so that the responses come at once
	w, p := m.DialLink()
	for id := range uint64(4) {
		r := *proxytest.LinkRequest
		r.Path = fmt.Append(nil, "/", id)
		w.Request(id+1, &r, time.Minute, nil)
	}
	send(m, p, w)
	m.W.Run(time.Second)
	f := framesOf(t, p)
	for id := range uint64(4) {
		if got, want := f.messages[id+1], fmt.Sprint("body of /", id); !strings.HasSuffix(got, want) || !strings.Contains(got, "x-a: b") {
			t.Errorf("response %d: %s", id, got)
		}
	}
	checkDrains(m, "in the end", p)
	m.Settled()
}

// TestSilentPeer: a peer that sends no preface loses its connection.
func TestSilentPeer(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	p := m.DialAndSend(proxytest.Ingress, "")
	m.W.Run(3 * time.Minute)
	if !p.Ended || len(p.Heard) > 0 {
		t.Errorf("ended %t, received %q", p.Ended, p.Heard)
	}
	m.Settled()
}
