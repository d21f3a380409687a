package proxytest

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
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/sim"
	"github.com/remora-proxy/remora/registry"
)

// dubboMesh is a consumer's sidecar with an HTTP and a Dubbo listener, and Dubbo
// applications, each beside a provider's sidecar or not.
type dubboMesh struct {
	*Mesh
	Apps []*dubboApp
}

// DubboOptions are the options of a dubboMesh. The zero value means three applications,
// each beside a sidecar.
type DubboOptions struct {
	Seed     uint64
	Apps     int
	OneHop   bool   // no provider's sidecars
	Service  string // YAML fields of the consumer's service, besides discover and protocol
	Provider string // YAML fields of the provider's service
	Speaks   string // protocol of the provider's service; default dubbo
	Limits   string // YAML at top level of both
	Routes   string // YAML of the consumer's routes; default: all to the service
}

const (
	EgressDubbo = "10.0.0.1:20881"
	DemoService = "com.acme.Demo"
)

// NewDubboMesh returns a mesh that is ready for calls.
func NewDubboMesh(t *testing.T, o DubboOptions) *dubboMesh {
	t.Helper()
	m := &dubboMesh{Mesh: &Mesh{Callers: newCallers(t, o.Seed), OneHop: o.OneHop, Loops: 1}}
	service := `discover: static, endpoints: ["10.0.9.9:1"], protocol: link`
	if o.OneHop {
		service = `discover: static, endpoints: ["10.0.9.9:1"], protocol: dubbo`
	}
	m.Consumer = m.Node("10.0.0.1", fmt.Sprintf(`
listeners:
- {name: egress, address: "127.0.0.1:15001", protocol: http}
- {name: calls, address: "127.0.0.1:20881", protocol: dubbo}
routes: %s
services:
  compute: {%s}
  other: {%s}
%s`, cmp.Or(o.Routes, "[{service: compute}]"), Fields(service, o.Service), service, o.Limits))
	m.Consumer.Listen(15001)
	m.Consumer.accept(1, 20881)
	var endpoints []registry.Endpoint
	for i := range cmp.Or(o.Apps, 3) {
		host := fmt.Sprintf("10.0.1.%d", i+1)
		a := newDubboApp(m.Mesh, host)
		m.Apps = append(m.Apps, a)
		if o.OneHop {
			endpoints = append(endpoints, registry.Endpoint{Addr: a.Addr, Weight: 1})
			continue
		}
		endpoints = append(endpoints, registry.Endpoint{Addr: host + ":15006", Weight: 1})
		p := m.Node(host, fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:15006", protocol: link, service: local}]
services:
  local: {%s}
%s`, Fields(fmt.Sprintf("discover: static, endpoints: [%q], protocol: %s", a.Addr, cmp.Or(o.Speaks, "dubbo")), o.Provider), o.Limits))
		p.Listen(15006)
		p.Update("local", registry.Endpoint{Addr: a.Addr, Weight: 1})
	}
	m.Consumer.Update("compute", endpoints...)
	m.W.Run(time.Millisecond)
	return m
}

// dubboApp is a simulated Dubbo provider: a fixed pool without a queue.
type dubboApp struct {
	m    *Mesh
	Addr string
	host string
	Loop *sim.Loop
	Stop func()

	Pool              int // calls at a time; 0 means no limit
	Delay             func() time.Duration
	Respond           func(f *dubbo.Frame) *dubbo.Frame // returns nil for no response
	IgnoresHeartbeats bool                              // sends no response to heartbeats
	ClosesNew         bool                              // closes new connections
	OnCall            func(f *dubbo.Frame)              // called for each call

	Busy, MostBusy int // calls in progress now, and at most
	Accepted       int // connections accepted
	Served         int
	Refused        int
	Heartbeats     int // heartbeats received
	Conns          []*dubboAppConn
}

func newDubboApp(m *Mesh, host string) *dubboApp {
	a := &dubboApp{m: m, host: host, Addr: host + ":20880", Loop: m.W.Loop(host + "-app"), Respond: EchoCall,
		Delay: func() time.Duration { return time.Millisecond }}
	a.listen()
	return a
}

func (a *dubboApp) listen() {
	a.Stop = a.m.W.Net.Listen(a.Addr, a.Loop, func() loop.Receiver {
		c := &dubboAppConn{a: a}
		a.Conns = append(a.Conns, c)
		return c
	})
}

// Restart starts a crashed provider again.
func (a *dubboApp) Restart() {
	a.Loop, a.Busy = a.m.W.Loop(a.host+"-app"), 0
	a.listen()
}

// dubboAppConn is one connection to a dubboApp.
type dubboAppConn struct {
	a        *dubboApp
	Conn     loop.Conn
	in       []byte
	Open     bool
	Answered int // responses to heartbeats of its own
}

func (c *dubboAppConn) OnOpen(conn loop.Conn) {
	c.Conn, c.Open = conn, true
	c.a.Accepted++
	if c.a.ClosesNew {
		conn.Close()
	}
}
func (c *dubboAppConn) OnClose(error) { c.Open = false }

func (c *dubboAppConn) OnData(b []byte) {
	c.in = append(c.in, b...)
	for {
		f, n, err := dubbo.Decode(c.in, math.MaxInt32)
		if err != nil {
			c.a.m.T.Errorf("the provider got malformed input: %v\n%x", err, c.in)
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
		a.Heartbeats++
		if !a.IgnoresHeartbeats {
			c.Conn.Write(dubbo.AppendHeartbeatAnswer(nil, f))
		}
		return
	case f.Event:
		c.Answered++
		return
	case !f.Request:
		a.m.T.Errorf("the provider got a response: %+v", f)
		return
	}
	if a.OnCall != nil {
		a.OnCall(f)
	}
	if a.Pool > 0 && a.Busy == a.Pool {
		a.Refused++
		c.Conn.Write(dubbo.AppendFailure(nil, f.Serialization, f.ID, dubbo.StatusPoolExhausted, "", "Thread pool is EXHAUSTED!"))
		return
	}
	a.Busy++
	a.MostBusy = max(a.MostBusy, a.Busy)
	lp := a.Loop
	t := &loop.Timer{}
	t.Fire = func() {
		if a.Loop != lp {
			return // the provider was restarted meanwhile
		}
		a.Busy--
		a.Served++
		if ans := a.Respond(f); ans != nil && f.TwoWay && c.Open {
			ans.ID = f.ID
			c.Conn.Write(dubbo.AppendFrame(nil, ans))
		}
	}
	a.Loop.After(a.Delay(), t)
}

// EchoCall returns a response with the only argument of a call.
func EchoCall(f *dubbo.Frame) *dubbo.Frame {
	ans := &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK}
	if f.Serialization == dubbo.Fastjson {
		ans.Body = fmt.Appendf(nil, "1\n%s\n", bytes.Split(f.Body, []byte("\n"))[5])
		return ans
	}
	from := bytes.Index(f.Body, []byte(EchoType)) + len(EchoType)
	to := bytes.LastIndexByte(f.Body, 'H')
	ans.Body = append([]byte{0x91}, f.Body[from:to]...)
	return ans
}

// EchoType is the type of the only parameter of the calls of these tests.
const EchoType = "Ljava/lang/String;"

// FastjsonCall returns the body of a call with one argument.
func FastjsonCall(service, version, group, method, arg string) []byte {
	attachments := map[string]string{"path": service}
	if group != "" {
		attachments["group"] = group
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, v := range []any{"2.0.2", service, version, method, EchoType, arg, attachments} {
		if v == "" && v != arg {
			v = nil
		}
		_ = enc.Encode(v)
	}
	return b.Bytes()
}

// HessianCall returns the body of the same call in hessian2.
func HessianCall(service, version, group, method, arg string) []byte {
	b := HessianString(HessianString(nil, "2.0.2"), service)
	if version == "" {
		version = "0.0.0"
	}
	b = HessianString(HessianString(b, version), method)
	b = HessianString(HessianString(b, EchoType), arg)
	b = append(b, 'H')
	if group != "" {
		b = HessianString(HessianString(b, "group"), group)
	}
	return append(b, 'Z')
}

// HessianCallOf returns a HessianCall of n bytes. A few lengths do not exist: where a longer argument needs a longer header.
func HessianCallOf(t testing.TB, n int) []byte {
	arg := strings.Repeat("x", n)
	for range 4 {
		b := HessianCall(DemoService, "", "", "m", arg)
		if len(b) == n {
			return b
		}
		arg = strings.Repeat("x", max(0, len(arg)+n-len(b)))
	}
	t.Fatalf("no call has %d bytes", n)
	return nil
}

// HessianString appends an ASCII string.
func HessianString(b []byte, s string) []byte {
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

// DubboFaults are the faults of InjectFault.
var DubboFaults = []Fault{CrashApp, FreezeApp, ResetApp}

// Slow makes each application take d for a call.
func (m *dubboMesh) Slow(d time.Duration) {
	for _, a := range m.Apps {
		a.Delay = func() time.Duration { return d }
	}
}

// InjectFault makes a fault at a, for less than 80 ms.
func (m *dubboMesh) InjectFault(kind Fault, a *dubboApp) {
	switch loop := a.Loop; kind {
	case CrashApp:
		m.W.Faults.Crash(loop)
		m.W.At(m.W.Now()+50*time.Millisecond, func() {
			if a.Loop == loop {
				a.Restart()
			}
		})
	case FreezeApp:
		m.W.Faults.Pause(loop, 50*time.Millisecond)
	case ResetApp:
		for _, c := range a.Conns {
			if c.Open {
				m.W.Faults.Reset(c.Conn)
			}
		}
	}
}

// Serializations are the serializations of the tests, with functions that encode a call.
var Serializations = map[string]struct {
	ID   byte
	Call func(service, version, group, method, arg string) []byte
}{
	"fastjson": {dubbo.Fastjson, FastjsonCall},
	"hessian2": {dubbo.Hessian2, HessianCall},
}

// EachDubboPath runs a test with a provider's sidecar and without.
func EachDubboPath(t *testing.T, f func(t *testing.T, direct bool)) {
	t.Run("two sidecars", func(t *testing.T) { f(t, false) })
	t.Run("one sidecar", func(t *testing.T) { f(t, true) })
}

// CallFrame returns the frame of a two-way call.
func CallFrame(id int64, serialization byte, body []byte) []byte {
	return dubbo.AppendFrame(nil, &dubbo.Frame{Request: true, TwoWay: true, Serialization: serialization, ID: id, Body: body})
}

// NoResponse leaves a call without a response.
func NoResponse(*dubbo.Frame) *dubbo.Frame { return nil }
