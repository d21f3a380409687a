package proxy_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/registry"
)

// dubboMesh is a consumer's sidecar with an HTTP and a Dubbo listener, and Dubbo
// applications, each beside a provider's sidecar or not.
type dubboMesh struct {
	*mesh
	apps []*dubboApp
}

// dubboOptions shape a dubboMesh; the zero value is three applications, each
// beside a sidecar.
type dubboOptions struct {
	seed     uint64
	apps     int
	direct   bool   // no provider's sidecars
	service  string // YAML of the consumer's service, beyond discover and protocol
	provider string // YAML of the provider's service
	speaks   string // protocol of the provider's service; default dubbo
	limits   string // YAML at top level of both
	routes   string // YAML of the consumer's routes; default: all to the service
}

const (
	egressDubbo = "10.0.0.1:20881"
	demo        = "com.acme.Demo"
)

func newDubboMesh(t *testing.T, o dubboOptions) *dubboMesh {
	t.Helper()
	m := &dubboMesh{mesh: &mesh{t: t, w: sim.New(o.seed), direct: o.direct, loops: 1}}
	m.w.OnFailure(t)
	m.clients = m.w.Loop("10.0.0.1-client")
	speaks := "link"
	if o.direct {
		speaks = "dubbo"
	}
	m.consumer = m.node("10.0.0.1", fmt.Sprintf(`
listeners:
- {name: egress, address: "127.0.0.1:15001", protocol: http}
- {name: calls, address: "127.0.0.1:20881", protocol: dubbo}
routes: %s
services:
  compute: {discover: static, endpoints: ["10.0.9.9:1"], protocol: %s%s}
  other: {discover: static, endpoints: ["10.0.9.9:1"], protocol: %[2]s}
%[4]s`, cmp.Or(o.routes, "[{service: compute}]"), speaks, o.service, o.limits))
	m.consumer.listen(15001)
	m.consumer.accept(1, 20881)
	var endpoints []registry.Endpoint
	for i := range cmp.Or(o.apps, 3) {
		host := fmt.Sprintf("10.0.1.%d", i+1)
		a := newDubboApp(m.mesh, host)
		m.apps = append(m.apps, a)
		if o.direct {
			endpoints = append(endpoints, registry.Endpoint{Addr: a.addr, Weight: 1})
			continue
		}
		endpoints = append(endpoints, registry.Endpoint{Addr: host + ":15006", Weight: 1})
		p := m.node(host, fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:15006", protocol: link, service: local}]
services:
  local: {discover: static, endpoints: ["%s"], protocol: %s%s}
%s`, a.addr, cmp.Or(o.speaks, "dubbo"), o.provider, o.limits))
		p.listen(15006)
		p.update("local", registry.Endpoint{Addr: a.addr, Weight: 1})
	}
	m.consumer.update("compute", endpoints...)
	m.w.Run(time.Millisecond)
	return m
}

// accept is listen for one listener of the first loop.
func (n *node) accept(listener, port int) {
	worker, entrance := n.proc.Workers()[0], n.proc.Generation().Entrance(n.cfg.Listeners[listener].Name)
	accept := func() proxy.Stream { return entrance.Accept(worker) }
	n.stop = append(n.stop, n.m.w.Listen(fmt.Sprintf("%s:%d", n.host, port), n.loop, accept))
}

// dubboApp is a simulated Dubbo provider: a fixed pool without a queue, which
// answers calls as they are done.
type dubboApp struct {
	m    *mesh
	addr string
	host string
	loop *sim.Loop
	stop func()

	pool   int // calls at a time; 0: any
	delay  func() time.Duration
	answer func(f *dubbo.Frame) *dubbo.Frame // nil: never
	deaf   bool                              // takes no notice of heartbeats
	leaves bool                              // goes down: closes what connects
	seen   func(f *dubbo.Frame)              // of each call

	busy, most int // calls in work; the most there were
	dialed     int // connections
	served     int
	refused    int
	beats      int // heartbeats that came
	conns      []*dubboAppConn
}

func newDubboApp(m *mesh, host string) *dubboApp {
	a := &dubboApp{m: m, host: host, addr: host + ":20880", loop: m.w.Loop(host + "-app"), answer: echoCall,
		delay: func() time.Duration { return time.Millisecond }}
	a.listen()
	return a
}

func (a *dubboApp) listen() {
	a.stop = a.m.w.Listen(a.addr, a.loop, func() proxy.Stream {
		c := &dubboAppConn{a: a}
		a.conns = append(a.conns, c)
		return c
	})
}

func (a *dubboApp) restart() {
	a.loop, a.busy = a.m.w.Loop(a.host+"-app"), 0
	a.listen()
}

// dubboAppConn is one connection to it.
type dubboAppConn struct {
	a        *dubboApp
	conn     proxy.Conn
	in       []byte
	open     bool
	answered int // heartbeats of its own that were answered
}

func (c *dubboAppConn) OnOpen(conn proxy.Conn) {
	c.conn, c.open = conn, true
	c.a.dialed++
	if c.a.leaves {
		conn.Close()
	}
}
func (c *dubboAppConn) OnClose(error) { c.open = false }

func (c *dubboAppConn) OnData(b []byte) {
	c.in = append(c.in, b...)
	for {
		f, n, err := dubbo.Decode(c.in, math.MaxInt32)
		if err != nil {
			c.a.m.t.Errorf("the provider got malformed input: %v\n%x", err, c.in)
		}
		if n == 0 {
			return
		}
		c.in = c.in[n:]
		c.onFrame(&f)
	}
}

func (c *dubboAppConn) onFrame(f *dubbo.Frame) {
	a := c.a
	switch {
	case f.Event && f.Request:
		a.beats++
		if !a.deaf {
			c.conn.Write(dubbo.AppendHeartbeatAnswer(nil, f))
		}
		return
	case f.Event:
		c.answered++
		return
	case !f.Request:
		a.m.t.Errorf("the provider got an answer: %+v", f)
		return
	}
	if a.seen != nil {
		a.seen(f)
	}
	if a.pool > 0 && a.busy == a.pool {
		a.refused++
		c.conn.Write(dubbo.AppendFailure(nil, f.Serialization, f.ID, dubbo.StatusPoolExhausted, "", "Thread pool is EXHAUSTED!"))
		return
	}
	a.busy++
	a.most = max(a.most, a.busy)
	loop := a.loop
	t := &proxy.Timer{}
	t.Fire = func() {
		if a.loop != loop {
			return // it was restarted meanwhile
		}
		a.busy--
		a.served++
		if ans := a.answer(f); ans != nil && f.TwoWay && c.open {
			ans.ID = f.ID
			c.conn.Write(dubbo.AppendFrame(nil, ans))
		}
	}
	a.loop.After(a.delay(), t)
}

// echoCall returns the only argument of a call.
func echoCall(f *dubbo.Frame) *dubbo.Frame {
	ans := &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK}
	if f.Serialization == dubbo.Fastjson {
		ans.Body = fmt.Appendf(nil, "1\n%s\n", bytes.Split(f.Body, []byte("\n"))[5])
		return ans
	}
	from := bytes.Index(f.Body, []byte(echoType)) + len(echoType)
	to := bytes.LastIndexByte(f.Body, 'H')
	ans.Body = append([]byte{0x91}, f.Body[from:to]...)
	return ans
}

// echoType is the type of the only parameter of the calls of these tests.
const echoType = "Ljava/lang/String;"

// fastjsonCall is the body of a call with one argument.
func fastjsonCall(service, version, group, method, arg string) []byte {
	attachments := map[string]string{"path": service}
	if group != "" {
		attachments["group"] = group
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, v := range []any{"2.0.2", service, version, method, echoType, arg, attachments} {
		if v == "" && v != arg {
			v = nil
		}
		_ = enc.Encode(v)
	}
	return b.Bytes()
}

// hessianCall is the same in hessian2.
func hessianCall(service, version, group, method, arg string) []byte {
	b := hessianString(hessianString(nil, "2.0.2"), service)
	if version == "" {
		version = "0.0.0"
	}
	b = hessianString(hessianString(b, version), method)
	b = hessianString(hessianString(b, echoType), arg)
	b = append(b, 'H')
	if group != "" {
		b = hessianString(hessianString(b, "group"), group)
	}
	return append(b, 'Z')
}

// hessianString appends an ASCII string.
func hessianString(b []byte, s string) []byte {
	const chunk = 0x8000
	for len(s) > chunk {
		b = append(append(b, 'R', chunk>>8, chunk&0xff), s[:chunk]...)
		s = s[chunk:]
	}
	switch n := len(s); {
	case n < 32:
		b = append(b, byte(n))
	case n < 1024:
		b = append(b, 0x30+byte(n>>8), byte(n))
	default:
		b = append(b, 'S', byte(n>>8), byte(n))
	}
	return append(b, s...)
}

// caller is a Dubbo consumer's connection to a sidecar.
type caller struct {
	m       *mesh
	conn    proxy.Conn
	early   []byte // said before the connection was open
	in      []byte
	next    int64
	out     map[int64][]byte // bodies of the calls that are not answered
	answers map[int64]*dubbo.Frame
	events  []*dubbo.Frame
	ended   bool
}

func (m *mesh) caller(addr string) *caller {
	c := &caller{m: m, next: 1, out: map[int64][]byte{}, answers: map[int64]*dubbo.Frame{}}
	m.clients.Do(func() { m.clients.Dial(addr, time.Second, c) })
	return c
}

func (c *caller) OnOpen(conn proxy.Conn) {
	c.conn = conn
	conn.Write(c.early)
}

func (c *caller) OnClose(error) { c.ended = true }

func (c *caller) OnData(b []byte) {
	c.in = append(c.in, b...)
	for {
		f, n, err := dubbo.Decode(c.in, math.MaxInt32)
		if err != nil {
			c.m.t.Errorf("the consumer got malformed input: %v\n%x", err, c.in)
		}
		if n == 0 {
			return
		}
		c.in = append(c.in[:0:0], c.in[n:]...)
		switch {
		case f.Event:
			c.events = append(c.events, &f)
		case f.Request || c.out[f.ID] == nil:
			c.m.t.Errorf("the consumer got what it did not ask for: %+v", f)
		default:
			delete(c.out, f.ID)
			c.answers[f.ID] = &f
		}
	}
}

// say writes b, now or when the connection is open.
func (c *caller) say(b []byte) {
	if c.conn == nil {
		c.early = append(c.early, b...)
		return
	}
	c.m.clients.Do(func() { c.conn.Write(b) })
}

// call sends a call and returns its id.
func (c *caller) call(serialization byte, body []byte) (id int64) {
	id = c.next * 1_000_003 // any will do
	c.next++
	c.out[id] = body
	c.say(dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, TwoWay: true, Serialization: serialization, ID: id, Body: body}))
	return id
}

// await runs the world until the call is answered.
func (c *caller) await(id int64) *dubbo.Frame {
	c.m.t.Helper()
	if !c.m.w.RunUntil(func() bool { return c.answers[id] != nil || c.ended }, 2*time.Minute) || c.answers[id] == nil {
		c.m.t.Fatalf("call %d was not answered, connection closed: %t", id, c.ended)
	}
	return c.answers[id]
}

// wants checks an answer's status and, unless it is empty, its body.
func (c *caller) wants(id int64, status dubbo.Status, body string) {
	c.m.t.Helper()
	if f := c.await(id); f.Status != status || body != "" && string(f.Body) != body {
		c.m.t.Errorf("status %d, body %q; want %d, %q", f.Status, f.Body, status, body)
	}
}

// form is the form call of an HTTP client.
func (m *mesh) form(method, arg string, headers ...string) *call {
	body := "interface=" + demo + "&method=" + method + "&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=" + arg
	c := &call{m: m}
	c.raw = fmt.Appendf(nil, "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: %d\r\n%s\r\n%s",
		len(body), strings.Join(append(headers, ""), "\r\n"), body)
	return c
}

// json is the JSON call of an HTTP client.
func (m *mesh) json(method, body string, headers ...string) *call {
	c := &call{m: m}
	c.raw = fmt.Appendf(nil, "POST /%s/%s HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%s\r\n%s",
		demo, method, len(body), strings.Join(append(headers, ""), "\r\n"), body)
	return c
}
