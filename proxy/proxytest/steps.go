package proxytest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
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

// Speak opens a connection to addr that says b.
func (m *Mesh) Speak(addr, b string) *Peer {
	p := &Peer{Says: []byte(b)}
	m.Clients.Do(func() { m.Clients.Dial(addr, time.Second, p) })
	return p
}

// Until runs the world until cond holds.
func (m *Mesh) Until(what string, cond func() bool) {
	m.T.Helper()
	if !m.W.RunUntil(cond, time.Minute) {
		m.T.Fatalf("a minute has passed without %s", what)
	}
}

// Wait runs the world until p's connection is closed.
func (m *Mesh) Wait(p *Peer) string {
	m.T.Helper()
	m.Until("the end of a connection", func() bool { return p.Ended })
	return string(p.Heard)
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

// Hears has the application say a case, and checks what its callers get.
func (m *Mesh) Hears(c *corpus.Case, gap time.Duration) error {
	m.Apps[0].Stop()
	h := &hostile{on: m.W.Loop(m.Apps[0].Host + "-hostile"), c: c, gap: gap}
	m.W.Listen(m.Apps[0].Addr, h.on, h.accept)
	p := &Peer{Says: fmt.Appendf(nil, "%s /case HTTP/1.1\r\nHost: h\r\n\r\n", c.Method)}
	m.Clients.Do(func() { m.Clients.Dial(Egress, time.Second, p) })
	m.W.Run(time.Minute) // past the deadline, and any of the case's bytes
	due := []corpus.Answer{c.Answer()}
	for i := range 3 {
		on := p
		if i == 2 {
			on = &Peer{}
			m.Clients.Do(func() { m.Clients.Dial(Egress, time.Second, on) })
			m.W.Run(10 * time.Millisecond)
			due = nil
		}
		target := fmt.Sprintf("/next%d", i)
		m.Clients.Do(func() { on.Conn.Write(fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", target)) })
		m.W.Run(time.Second)
		due = append(due, corpus.Answer{Method: "GET", Status: 200, Body: target})
		if err := corpus.CheckAnswers(on.Heard, due); err != nil {
			return err
		}
		if bytes.Contains(on.Heard, []byte("smuggled")) {
			return errors.New("the caller hears what was hidden")
		}
	}
	return nil
}

// Tell says a case to the consumer, and checks what comes of it.
func (m *Mesh) Tell(c *corpus.Case, gap time.Duration) error {
	r := &recorder{}
	m.Apps[0].Stop()
	m.W.Listen(m.Apps[0].Addr, m.W.Loop(m.Apps[0].Host+"-recorder"), r.accept)
	p := &Peer{}
	m.Clients.Do(func() { m.Clients.Dial(Egress, time.Second, p) })
	m.W.Run(10 * time.Millisecond)
	said := c.Bytes()
	m.Clients.Do(func() { Feed(m.Clients, p.Conn, said, gap, func() {}) })
	m.W.Run(time.Duration(len(said))*gap + time.Second)

	due := c.Answers()
	if err := corpus.CheckAnswers(p.Heard, due); err != nil {
		return err
	}
	if closes := !c.Open() && len(c.Of(corpus.Incomplete)) == 0; p.Ended != closes {
		return fmt.Errorf("connection closed: %v", p.Ended)
	}
	if !c.Open() {
		m.Clients.Do(func() { p.Conn.Close() })
		p = &Peer{}
		m.Clients.Do(func() { m.Clients.Dial(Egress, time.Second, p) })
		m.W.Run(10 * time.Millisecond)
		due = nil
	}
	m.Clients.Do(func() { p.Conn.Write([]byte(nextRequest)) })
	m.W.Run(time.Second)
	forwarded := append(c.Forwarded(), Next)
	due = append(due, corpus.Answer{Method: "GET", Status: 200, Body: corpus.Numbered(len(forwarded))})
	return errors.Join(corpus.CheckAnswers(p.Heard, due), r.Check(forwarded))
}

func (m *Mesh) Caller(addr string) *Caller {
	c := &Caller{m: m, next: 1, Out: map[int64][]byte{}, Answers: map[int64]*dubbo.Frame{}}
	m.Clients.Do(func() { m.Clients.Dial(addr, time.Second, c) })
	return c
}

// Form is the form call of an HTTP client.
func (m *Mesh) Form(method, arg string, headers ...string) *Call {
	body := "interface=" + Demo + "&method=" + method + "&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=" + arg
	c := &Call{m: m}
	c.Raw = fmt.Appendf(nil, "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: %d\r\n%s\r\n%s",
		len(body), strings.Join(append(headers, ""), "\r\n"), body)
	return c
}

// JSON is the JSON call of an HTTP client.
func (m *Mesh) JSON(method, body string, headers ...string) *Call {
	c := &Call{m: m}
	c.Raw = fmt.Appendf(nil, "POST /%s/%s HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%s\r\n%s",
		Demo, method, len(body), strings.Join(append(headers, ""), "\r\n"), body)
	return c
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

// Raw makes a call of literal bytes; the answer carries no nonce of its own.
func (m *Mesh) Raw(text string) *Call {
	c := m.Get("/")
	c.Raw = []byte(strings.ReplaceAll(text, "NONCE", c.Nonce))
	return c
}

// Refused checks for an answer of the sidecar's own, after which the connection
// closes.
func (m *Mesh) Refused(c *Call, cl *Client, status int, code string) {
	m.T.Helper()
	if c.Status != status || c.Code != code {
		m.T.Errorf("status %d %s (%v), want %d %s", c.Status, c.Code, c.Err, status, code)
	}
	if !m.W.RunUntil(func() bool { return cl.Ended }, 5*time.Second) {
		m.T.Error("the connection stays open")
	}
}

// Padded is a raw call of n bytes, which PAD in the text is filled up to.
func (m *Mesh) Padded(n int, text string) *Call {
	c := m.Raw(text)
	pad := bytes.Repeat([]byte{'p'}, n-len(c.Raw)+len("PAD"))
	c.Raw = bytes.Replace(c.Raw, []byte("PAD"), pad, 1)
	return c
}

// Chunked is a POST of n bytes in chunks of up to 64 KiB.
func (m *Mesh) Chunked(n int) *Call {
	c := m.Raw("POST / HTTP/1.1\r\nHost: a\r\nx-nonce: NONCE\r\nTransfer-Encoding: chunked\r\n\r\n")
	for n > 0 {
		k := min(n, 64<<10)
		c.Raw = fmt.Appendf(c.Raw, "%x\r\n%s\r\n", k, bytes.Repeat([]byte{'c'}, k))
		n -= k
	}
	c.Raw = append(c.Raw, "0\r\n\r\n"...)
	return c
}

// AnswerOverLink puts a sidecar in the place of the first provider's that answers the
// first request of each link, for a path with /s, with resp.
func (m *Mesh) AnswerOverLink(resp *protocol.Response) {
	m.Nodes[1].Stop[0]()
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{})
	w.Open(1, link.Settings{Features: link.FeatureStreams})
	preface := w.Append(nil, 1<<20)
	w.Response(1, resp, protocol.CodecHTTP, nil)
	says := w.Append(nil, 1<<20)
	m.W.Listen(Ingress, m.Nodes[1].Loop, func() loop.Stream {
		asked := false
		return &Peer{Says: preface, Reply: func(heard []byte) []byte {
			if asked || !bytes.Contains(heard, []byte("/s")) {
				return nil
			}
			asked = true
			return says
		}}
	})
}

// Dial opens a client connection to addr.
func (m *Mesh) Dial(addr string) *Client {
	c := &Client{M: m}
	m.Clients.Do(func() { m.Clients.Dial(addr, time.Second, c) })
	return c
}

// Post makes a call with a body of n bytes and a nonce of its own.
func (m *Mesh) Post(n int, headers ...string) *Call {
	m.nonces++
	c := &Call{m: m, Nonce: fmt.Sprintf("n%d", m.nonces)}
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /compute HTTP/1.1\r\nHost: compute\r\nx-nonce: %s\r\nContent-Length: %d\r\n", c.Nonce, n)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n")
	b.WriteString(strings.Repeat("x", n))
	c.Raw = b.Bytes()
	return c
}

func (m *Mesh) Get(path string, headers ...string) *Call {
	m.nonces++
	c := &Call{m: m, Nonce: fmt.Sprintf("n%d", m.nonces)}
	c.Raw = fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: compute\r\nx-nonce: %s\r\n", path, c.Nonce)
	for _, h := range headers {
		c.Raw = append(c.Raw, h+"\r\n"...)
	}
	c.Raw = append(c.Raw, "\r\n"...)
	return c
}

// Do sends calls one after another on a connection of their own.
func (m *Mesh) Do(calls ...*Call) *Client {
	c := m.Dial(Egress)
	c.Calls = calls
	return c
}

// Finish runs the world until all calls are done.
func (m *Mesh) Finish(calls ...*Call) {
	m.T.Helper()
	all := func() bool { // asked after each event, so it looks at each call once
		for len(calls) > 0 && calls[0].Done {
			calls = calls[1:]
		}
		return len(calls) == 0
	}
	if !m.W.RunUntil(all, 2*time.Minute) {
		m.T.Fatal("a call was not answered within two minutes")
	}
}

// OK checks that the calls were answered with 200.
func (m *Mesh) OK(calls ...*Call) {
	m.T.Helper()
	for _, c := range calls {
		if c.Err != nil || c.Status != 200 {
			m.T.Errorf("call %s: status %d %s, error %v", c.Nonce, c.Status, c.Code, c.Err)
		}
	}
}

// Burst sends n calls with bodies of size bytes at once, each on a connection of
// its own.
func (m *Mesh) Burst(n, size int) (calls []*Call) {
	for range n {
		c := m.Post(size)
		m.Do(c)
		calls = append(calls, c)
	}
	return calls
}

// Crowd has clients connections send n calls each, one after another.
func (m *Mesh) Crowd(clients, n, size int) (all []*Call) {
	for range clients {
		var calls []*Call
		for range n {
			calls = append(calls, m.Post(size))
		}
		m.Do(calls...)
		all = append(all, calls...)
	}
	return all
}

func (m *Mesh) Node(host, yaml string) *Node {
	m.T.Helper()
	cfg, err := config.Parse(host+".yaml", []byte(yaml), func(string) (string, bool) { return "", false })
	if err != nil {
		m.T.Fatal(err)
	}
	n := &Node{m: m, Host: host, Cfg: cfg}
	n.Start()
	m.Nodes = append(m.Nodes, n)
	return n
}

// Endpoint is application i as the consumer's registry has it.
func (m *Mesh) Endpoint(i int) registry.Endpoint {
	a := m.Apps[i]
	if m.Direct {
		return registry.Endpoint{Addr: a.Addr, Weight: 1}
	}
	return registry.Endpoint{Addr: a.Host + ":15006", Weight: 1}
}

// Settled checks that nothing is pending or held anywhere.
func (m *Mesh) Settled() {
	m.T.Helper()
	idle := func() bool {
		for _, n := range m.Nodes {
			if n.Proc.Pending() != 0 || n.Proc.Held() != 0 {
				return false
			}
		}
		return true
	}
	if !m.W.RunUntil(idle, time.Minute) {
		m.T.Error("requests or message bytes are left after a minute")
	}
	for _, n := range m.Nodes {
		if p := n.Proc.Pending(); p != 0 {
			m.T.Errorf("%s has %d requests pending", n.Host, p)
		}
		if b := n.Proc.Held(); b != 0 {
			m.T.Errorf("%s holds %d bytes of messages with nothing pending", n.Host, b)
		}
		for service := range n.Cfg.Services {
			if used, queued := n.Proc.Slots(service); used != 0 || queued != 0 {
				m.T.Errorf("%s: %d slots in use, %d queued, with nothing pending", n.Host, used, queued)
			}
		}
		for i, w := range n.Proc.Workers() {
			var report stats.WorkerReport
			n.All[i].Do(func() { report = w.Report() })
			for _, s := range report.Services {
				if s.HedgesInFlight != 0 {
					m.T.Errorf("%s: %d hedges in flight, with nothing pending", n.Host, s.HedgesInFlight)
				}
				for _, e := range s.Endpoints {
					if e.Pending != 0 {
						m.T.Errorf("%s: %d attempts counted at %s, with nothing pending", n.Host, e.Pending, e.Addr)
					}
				}
			}
		}
	}
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

// Half makes a call of which the last byte of size never comes.
func (m *Mesh) Half(size int) *Call {
	return m.Raw(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size-1)))
}

func (m *Mesh) Answerer() *answerer {
	m.Nodes[1].Stop[0]()
	a := &answerer{m: m, w: link.NewWriter()}
	a.w.Preface(link.Acceptor, link.Settings{})
	a.w.Open(1, link.Settings{})
	a.Says = a.w.Append(nil, 1<<20)
	m.W.Listen(Ingress, m.Nodes[1].Loop, func() loop.Stream { return a })
	return a
}

// Visit connects p to the first provider's link listener.
func (m *Mesh) Visit(p *Peer) {
	m.Clients.Do(func() { m.Clients.Dial("10.0.1.1:15006", time.Second, p) })
}

// Impostor puts p in the place of the first provider's sidecar.
func (m *Mesh) Impostor(p *Peer) {
	m.Nodes[1].Stop[0]()
	m.W.Listen("10.0.1.1:15006", m.W.Loop("10.0.1.1-raw"), func() loop.Stream { return p })
}

// ClosesAfter runs until p has lost its connection, and checks that this takes
// at least so long and at most so much longer.
func (m *Mesh) ClosesAfter(p *Peer, least, slack time.Duration) {
	m.T.Helper()
	m.W.RunUntil(func() bool { return p.Conn != nil }, time.Second)
	began := m.W.Now()
	m.W.RunUntil(func() bool { return p.Ended }, least+slack+time.Minute)
	if took := m.W.Now() - began; !p.Ended || took < least || took > least+slack {
		m.T.Errorf("closed %t, after %v; want it after %v to %v", p.Ended, took, least, least+slack)
	}
}

// Drip has p, once it is connected, say text a byte a second, as long as anybody
// listens.
func (m *Mesh) Drip(p *Peer, loop interface{ Post(func()) }, text string) {
	m.W.RunUntil(func() bool { return p.Conn != nil }, time.Second)
	for i := range len(text) {
		m.W.At(m.W.Now()+time.Duration(i)*time.Second, func() {
			loop.Post(func() {
				if !p.Ended {
					p.Conn.Write([]byte(text[i : i+1]))
				}
			})
		})
	}
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

// Script has application i say says to each request.
func (m *Mesh) Script(i int, says string) **Peer {
	return m.Scripted(i, func() string { return says })
}

// Scripted has application i say what says returns to each request, and returns
// its latest connection.
func (m *Mesh) Scripted(i int, says func() string) **Peer {
	a := m.Apps[i]
	a.Stop()
	latest := new(*Peer)
	a.Stop = m.W.Listen(a.Addr, a.Loop, func() loop.Stream {
		*latest = &Peer{Reply: func(heard []byte) []byte {
			if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
				return nil
			}
			return []byte(says())
		}}
		return *latest
	})
	return latest
}

// Leased is what a request for a Lease came to.
type Leased struct {
	L  *exchange.Lease
	At exchange.Target
	F  *fault.Failure
}
