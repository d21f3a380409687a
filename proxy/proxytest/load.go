package proxytest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Away starts n requests, and has the consumer's loop come to nothing for d while
// their answers arrive, as when others have the CPU.
func (m *Mesh) Away(n int, d time.Duration) {
	m.T.Helper()
	m.W.Options.Cut = 0
	seen := 0
	for _, a := range m.Apps {
		a.Seen = func(*protocol.Request) { seen++ }
	}
	calls := m.Burst(n, 10)
	if !m.W.RunUntil(func() bool { return seen == n }, time.Second) {
		m.T.Fatalf("%d of %d requests have reached an application", seen, n)
	}
	m.W.Pause(m.Consumer.Loop, d)
	m.Finish(calls...)
	m.OK(calls...)
}

// Spread runs calls of clients, n each, and returns how many requests each
// application got.
func (m *Mesh) Spread(clients, n int) []int {
	m.T.Helper()
	before := make([]int, len(m.Apps))
	for i, a := range m.Apps {
		before[i] = a.Served
	}
	m.Finish(m.Crowd(clients, n, 10)...)
	for i, a := range m.Apps {
		before[i] = a.Served - before[i]
	}
	return before
}

// Fault makes one thing go wrong with provider i, for less than 80 ms.
func (m *Mesh) Fault(kind, i int) {
	app := m.Apps[i]
	var provider *Node
	if !m.Direct {
		provider = m.Nodes[i+1]
	}
	later := m.W.Now() + 50*time.Millisecond
	switch kind {
	case 0:
		provider.Crash()
		proc := provider.Proc
		m.W.At(later, func() {
			if provider.Proc == proc {
				provider.Restart(app)
			}
		})
	case 1:
		m.W.Crash(app.Loop)
		loop := app.Loop
		m.W.At(later, func() {
			if app.Loop == loop {
				app.restart()
			}
		})
	case 2:
		m.W.Pause(app.Loop, 50*time.Millisecond)
	case 3:
		for _, l := range provider.All {
			m.W.Pause(l, 50*time.Millisecond)
		}
	case 4:
		m.W.ResetAll(m.Consumer.Host, provider.Host)
	case 5:
		m.W.ResetAll(provider.Host, app.Host+"-app")
	}
}

// Stream sends calls at random moments, so many a second on average, from now on
// for d, whatever becomes of them.
func (m *Mesh) Stream(seed uint64, rate float64, d time.Duration) (calls []*Call) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	for at, end := m.W.Now(), m.W.Now()+d; at < end; {
		c := m.Post(10)
		calls = append(calls, c)
		m.W.At(at, func() { m.Do(c) })
		at += time.Duration(rnd.ExpFloat64() / rate * float64(time.Second))
	}
	return calls
}

// FinishStream runs the world past the end of a stream of d, and until all of its
// calls are done.
func (m *Mesh) FinishStream(d time.Duration, calls []*Call) {
	m.T.Helper()
	m.W.Run(d) // looking at every call after each event would take long
	m.Finish(calls...)
}

// Lognormal gives the applications service times of 1 ms in the median.
func (m *Mesh) Lognormal(seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	for _, a := range m.Apps {
		a.Delay = func() time.Duration {
			return time.Duration(math.Exp(rnd.NormFloat64()/2) * float64(time.Millisecond))
		}
	}
}

// Warm sends enough calls for latency estimates to mean something.
func (m *Mesh) Warm(n int) {
	m.T.Helper()
	var calls []*Call
	for range n {
		calls = append(calls, m.Post(10))
	}
	m.Do(calls...)
	m.Finish(calls...)
	m.OK(calls...)
}

// Executions counts per nonce how often applications got a request.
func (m *Mesh) Executions() map[string]int {
	n := make(map[string]int)
	for _, a := range m.Apps {
		a.Seen = func(req *protocol.Request) { n[string(protocol.Find(req.Headers, "x-nonce"))]++ }
	}
	return n
}

// Once checks that no request of calls was executed twice.
func (m *Mesh) Once(executed map[string]int, calls ...*Call) {
	m.T.Helper()
	for _, c := range calls {
		if n := executed[c.Nonce]; n > 1 {
			m.T.Errorf("call %s, which is not idempotent, was executed %d times", c.Nonce, n)
		}
	}
}

// Poison has each application crash, or do what crash does, when it reads a request
// for /poison, and returns how many have.
func (m *Mesh) Poison(crash func(a *App)) (killed *int) {
	if crash == nil {
		crash = func(a *App) { m.W.At(m.W.Now(), func() { m.W.Crash(a.Loop) }) }
	}
	killed = new(int)
	for _, a := range m.Apps {
		a.Seen = func(req *protocol.Request) {
			if string(req.Path) == "/poison" {
				*killed++
				crash(a)
			}
		}
	}
	return killed
}

// WarmEach has every application answer n requests at once, so that as many
// connections to it are open and wait for the next one.
func (m *Mesh) WarmEach(n int) {
	m.T.Helper()
	calls := m.Burst(n*len(m.Apps), 10)
	m.Finish(calls...)
	m.OK(calls...)
	for i, a := range m.Apps {
		if a.Served != n {
			m.T.Fatalf("application %d has served %d, want %d", i, a.Served, n)
		}
	}
}

// Served sends a request and returns which application had it, and its path.
func (m *Mesh) Served(request *Call) string {
	m.T.Helper()
	var by string
	for i, a := range m.Apps {
		a.Seen = func(req *protocol.Request) { by = fmt.Sprintf("%c %s", 'a'+i, req.Path) }
	}
	m.Do(request)
	m.Finish(request)
	if request.Code != "" {
		return request.Code
	}
	return by
}

func (m *Mesh) Freeze(at, d time.Duration, apps ...*App) {
	m.W.At(at, func() {
		for _, a := range apps {
			a.Frozen = max(a.Frozen, at+d)
		}
	})
}

// FillLink has endpoint i take one request at a time, and never answer it.
func (m *Mesh) FillLink(i int) {
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{MaxStreams: 1})
	w.Open(1, link.Settings{})
	says := w.Append(nil, 1<<20)
	host := m.Apps[i].Host
	m.Nodes[1+i].Stop[0]()
	m.W.Listen(host+":15006", m.W.Loop(host+"-raw"), func() loop.Stream { return &Peer{Says: says} })
}

// Fill sends requests until each of the links filled takes no more.
func (m *Mesh) Fill(links int) {
	m.T.Helper()
	stuck := func() (n int) {
		for _, e := range m.Consumer.Report().Services[0].Endpoints {
			n += e.Pending
		}
		return n
	}
	for range 100 {
		if stuck() == links {
			return
		}
		m.Do(m.Post(10))
		m.W.Run(100 * time.Millisecond)
	}
	m.T.Fatalf("%d links carry a request, want %d", stuck(), links)
}

// SpyAll has every node's, by its host.
func (m *Mesh) SpyAll() map[string]*records {
	all := map[string]*records{}
	for _, n := range m.Nodes {
		all[n.Host] = n.Spy()
	}
	return all
}

// Seen collects the values that applications get of a header, one for each request.
func (m *Mesh) Seen(name string) *[]string {
	values := new([]string)
	for _, a := range m.Apps {
		a.Seen = func(req *protocol.Request) {
			var lines []string
			for _, h := range req.Headers {
				if protocol.EqualFold(h.Name, name) {
					lines = append(lines, string(h.Value))
				}
			}
			*values = append(*values, strings.Join(lines, " and "))
		}
	}
	return values
}

// Lease asks the consumer for a place at compute.
func (m *Mesh) Lease() Leased {
	m.T.Helper()
	var got *Leased
	m.Consumer.Proc.Workers()[0].Lease("compute", func(l *exchange.Lease, at exchange.Target, f *fault.Failure) {
		got = &Leased{l, at, f}
	})
	m.Until("an answer", func() bool { return got != nil })
	return *got
}

// Again tells that the place did not take the stream.
func (m *Mesh) Again(l *exchange.Lease, why *fault.Failure) (f *fault.Failure) {
	m.T.Helper()
	done := false
	l.Retry(why, nil, func(_ exchange.Target, fail *fault.Failure) { f, done = fail, true })
	m.Until("an answer", func() bool { return done })
	return f
}

// Leased is what a request for a Lease came to.
type Leased struct {
	L  *exchange.Lease
	At exchange.Target
	F  *fault.Failure
}
