package http_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestStreamResponses checks which responses leave the loop as a stream, and when.
func TestStreamResponses(t *testing.T) {
	for seed, a := range proxytest.StreamResponses {
		t.Run(a.Name, func(t *testing.T) {
			m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Seed: uint64(seed), Limits: proxytest.SmallMessages})
			app := m.Apps[0].RespondWith(a.Says)
			m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
			m.RunUntil("a stream", func() bool { return len(c.Responses) == 1 })
			if at := m.W.Now(); strings.HasPrefix(a.Name, "pauses") != (at > 100*time.Millisecond) {
				t.Errorf("handed off after %v", at)
			}
			got := c.Responses[0]
			resp, _, rest := proxytest.DecodeHead(t, got.Head)
			if !bytes.Contains(got.Head, []byte(a.Framing)) || !bytes.Contains(got.Head, []byte("Connection: close\r\n")) || len(rest) > 0 {
				t.Errorf("the head is %q", got.Head)
			}
			for _, name := range []string{"date", "x-request-id"} {
				if resp.Status != 200 || protocol.Find(resp.Headers, name) == nil {
					t.Errorf("status %d, no %s in %q", resp.Status, name, got.Head)
				}
			}
			if got.Chunks != strings.HasPrefix(a.Framing, "Transfer") {
				t.Errorf("the body is sent in chunks: %t", got.Chunks)
			}
			src := got.Source
			m.W.Run(time.Second)
			body, done, err := src.Body.Decode(proxytest.ReadArrived(t, src.Socket), src.Buffer)
			if err != nil || done != (a.Name == "long and whole") || string(src.Buffer.B) != a.Here || src.Service != "compute" {
				t.Errorf("%d bytes decoded, done %t, %v, body %d bytes of %q", body, done, err, len(src.Buffer.B), src.Service)
			}
			if (*app).Ended || m.Consumer.Proc.Held() != 0 || m.Consumer.Proc.Pending() != 1 || m.Consumer.Stats("compute").StreamsOpen != 1 {
				t.Errorf("application closed %t, %d bytes held, %d pending, stats %+v", (*app).Ended,
					m.Consumer.Proc.Held(), m.Consumer.Proc.Pending(), m.Consumer.Stats("compute"))
			}
			proxytest.CheckStreamsSettled(m, c)
			m.RunUntil("the end of the application's connection", func() bool { return (*app).Ended })
		})
	}
}

// TestStreamAfterProtocolChange: a response becomes a stream although its endpoint takes no streams any more, since the
// registry has given it another protocol meanwhile.
func TestStreamAfterProtocolChange(t *testing.T) {
	m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages})
	m.Apps[0].RespondWith("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
	p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
	m.W.Run(50 * time.Millisecond) // the head has arrived, and the body pauses
	changed := m.Endpoint(0)
	changed.Protocol = config.ProtocolDubbo
	m.Consumer.Update("compute", changed)
	m.RunUntil("a stream", func() bool { return len(c.Responses) == 1 || p.Ended })
	if len(c.Responses) != 1 {
		t.Fatalf("no stream, but %q", p.Heard)
	}
	if n := m.Consumer.Stats("compute").StreamsOpen; n != 1 {
		t.Errorf("%d streams are open, want 1", n)
	}
	proxytest.CheckStreamsSettled(m, c)
	m.Settled()
}

// TestLongResponseInOneRead checks that a response above limits.message is a stream, however
// much of it one read brings.
func TestLongResponseInOneRead(t *testing.T) {
	for _, framing := range []string{"Content-Length: %d\r\n\r\n%s", "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"} {
		for _, size := range []int{1025, 2049, 16 << 10} {
			m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "limits: {message: 1KiB}"})
			body := strings.Repeat("y", size)
			m.Apps[0].RespondWith(fmt.Sprintf("HTTP/1.1 200 OK\r\n"+framing, size, body))
			p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
			m.RunUntil("a response", func() bool { return len(c.Responses) == 1 || len(p.Heard) > 0 })
			if len(c.Responses) == 0 {
				t.Errorf("%d bytes: no stream, but %.100q", size, p.Heard)
				continue
			}
			src := c.Responses[0].Source
			m.W.Run(time.Second)
			_, done, err := src.Body.Decode(proxytest.ReadArrived(t, src.Socket), src.Buffer)
			if err != nil || !done || string(src.Buffer.B[:size]) != body {
				t.Errorf("%d bytes: %d decoded, done %t, %v", size, len(src.Buffer.B), done, err)
			}
			proxytest.CheckStreamsSettled(m, c)
		}
	}
}

// TestShortResponsesAreMessages checks that a response which is complete soon is a message,
// whatever its type.
func TestShortResponsesAreMessages(t *testing.T) {
	events := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	for _, says := range []string{
		events + "Content-Length: 5\r\n\r\nfirst",
		events + "Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n" + strings.Repeat("x", 64<<10) + "\r\n0\r\n\r\n",
	} {
		m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages})
		m.W.Options.Cut = 0
		m.Apps[0].RespondWith(says)
		p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
		m.RunUntil("a response", func() bool { return bytes.Contains(p.Heard, []byte("\r\n\r\n")) })
		if resp, h, _ := proxytest.DecodeHead(t, p.Heard); resp.Status != 200 || !h.KeepAlive || len(c.Responses) != 0 {
			t.Errorf("status %d, keep-alive %t, %d left", resp.Status, h.KeepAlive, len(c.Responses))
		}
		m.W.Faults.Reset(p.Conn)
		proxytest.CheckStreamsSettled(m, c)
	}
	// The length of a slow body is known.
	m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages})
	app := m.Apps[0].RespondWith(events + "Content-Length: 5\r\n\r\nfir")
	p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
	m.W.Run(time.Second)
	m.Apps[0].Loop.Do(func() { (*app).Conn.Write([]byte("st")) })
	m.RunUntil("a response", func() bool { return bytes.HasSuffix(p.Heard, []byte("first")) })
	m.W.Faults.Reset(p.Conn)
	proxytest.CheckStreamsSettled(m, c)
}

// TestStreamToHTTP10 checks that an HTTP/1.0 client gets a body without chunks.
func TestStreamToHTTP10(t *testing.T) {
	m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	m.Apps[0].RespondWith(proxytest.StreamResponses[1].Says)
	m.DialAndSend(proxytest.Egress, "GET /s HTTP/1.0\r\n\r\n")
	m.RunUntil("a stream", func() bool { return len(c.Responses) == 1 })
	if a := c.Responses[0]; a.Chunks || bytes.Contains(a.Head, []byte("hunked")) {
		t.Errorf("chunks %t, head %q", a.Chunks, a.Head)
	}
	proxytest.CheckStreamsSettled(m, c)
}

// TestStreamWaitsForSlowReader checks that a stream waits until the client has read the response
// before, and ends when the client disconnects or never reads.
func TestStreamWaitsForSlowReader(t *testing.T) {
	for name, end := range map[string]func(m *proxytest.Mesh, p *proxytest.Peer){
		"reads":         nil,
		"write timeout": func(m *proxytest.Mesh, _ *proxytest.Peer) { m.W.Run(5 * time.Second) },
		"reset":         func(m *proxytest.Mesh, p *proxytest.Peer) { m.W.Faults.Reset(p.Conn) },
	} {
		t.Run(name, func(t *testing.T) {
			m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "timeouts: {write: 4s}"})
			// Within maxUnread, so that the next request begins.
			big := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: 720000\r\n\r\n%0720000d", 0)
			says := big
			app := m.Apps[0].RespondWithFunc(func() string { return says })
			p := m.DialAndSend(proxytest.Egress, "")
			m.RunUntil("a connection", func() bool { return p.Conn != nil })
			m.W.Faults.PauseReading(p.Conn, true)
			m.Clients.Do(func() { p.Conn.Write([]byte(proxytest.StreamRequest)) })
			m.W.Run(500 * time.Millisecond)
			says = proxytest.StreamResponses[1].Says
			m.Clients.Do(func() { p.Conn.Write([]byte(proxytest.StreamRequest + proxytest.StreamRequest)) })
			m.W.Run(500 * time.Millisecond)
			if len(c.Responses) != 0 || m.Consumer.Stats("compute").StreamsOpen != 1 {
				t.Fatalf("%d responses left, %d streams, want one that waits", len(c.Responses), m.Consumer.Stats("compute").StreamsOpen)
			}
			if end != nil {
				end(m, p)
				m.W.Run(100 * time.Millisecond)
				m.W.Faults.PauseReading(p.Conn, false)
				if len(c.Responses) != 0 {
					t.Error("a stream left with a connection that has ended")
				}
				proxytest.CheckStreamsSettled(m, c)
				m.RunUntil("the end of the application's connection", func() bool { return (*app).Ended })
				return
			}
			m.W.Faults.PauseReading(p.Conn, false)
			m.RunUntil("a stream", func() bool { return len(c.Responses) == 1 })
			m.RunUntil("the response before it", func() bool { return len(p.Heard) > 720_000 })
			proxytest.CheckStreamsSettled(m, c)
		})
	}
}

// TestStreamBeforeRequestIsSent checks that a response which begins before the application has
// read the request leaves the loop once the request is sent.
func TestStreamBeforeRequestIsSent(t *testing.T) {
	m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	a := m.Apps[0]
	a.Stop()
	app := &proxytest.Peer{Says: []byte("")}
	m.W.Net.Listen(a.Addr, a.Loop, func() loop.Receiver { return app })
	body := strings.Repeat("x", 2<<20)
	m.DialAndSend(proxytest.Egress, "POST /s HTTP/1.1\r\nHost: compute\r\nContent-Length: 2097152\r\n\r\n"+body)
	m.RunUntil("a connection", func() bool { return app.Conn != nil })
	m.W.Faults.PauseReading(app.Conn, true)
	a.Loop.Do(func() { app.Conn.Write([]byte(proxytest.StreamResponses[1].Says)) })
	m.W.Run(time.Second)
	if len(c.Responses) != 0 {
		t.Fatal("left before the request was sent")
	}
	m.W.Faults.PauseReading(app.Conn, false)
	m.RunUntil("a stream", func() bool { return len(c.Responses) == 1 })
	m.RunUntil("all of the request", func() bool { return bytes.HasSuffix(app.Heard, []byte(body)) })
	proxytest.CheckStreamsSettled(m, c)
}

// TestStreamResponsesWithoutSockets checks responses on a driver whose connections can't leave
// the loop. A long one is refused; a slow one is a message while it is short.
func TestStreamResponsesWithoutSockets(t *testing.T) {
	for _, a := range proxytest.StreamResponses {
		m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages, NoSockets: true})
		app := m.Apps[0].RespondWith(a.Says)
		p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
		m.W.Run(time.Second)
		want, code := 200, ""
		if strings.HasPrefix(a.Name, "long") || a.Name == "grows" {
			want, code = 502, "response-too-large"
		} else {
			m.Apps[0].Loop.Do(func() { (*app).Conn.Write([]byte("0\r\n\r\n")); (*app).Conn.Drain() })
		}
		m.RunUntil("a response", func() bool { return bytes.Contains(p.Heard, []byte("\r\n\r\n")) })
		resp, _, _ := proxytest.DecodeHead(t, p.Heard)
		if got := string(protocol.Find(resp.Headers, "x-remora-error")); resp.Status != want || got != code || len(c.Responses) != 0 {
			t.Errorf("%s: status %d %s, %d left", a.Name, resp.Status, got, len(c.Responses))
		}
		m.W.Faults.Reset(p.Conn)
		proxytest.CheckStreamsSettled(m, c)
	}
}

// TestHedgedStream checks that the connection of the losing attempt closes, and that the client
// gets the stream of the winner.
func TestHedgedStream(t *testing.T) {
	m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: true,
		Service: "idempotent: true, hedge: {mode: on, delay: 20ms, budget: 1}"})
	var apps [2]**proxytest.Peer
	for i := range apps {
		apps[i] = m.Apps[i].RespondWith(proxytest.StreamResponses[5].Says) // both pause; the first attempt becomes a stream first
	}
	m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
	m.RunUntil("a stream", func() bool { return len(c.Responses) == 1 })
	m.W.Run(time.Second)
	open := 0
	for _, app := range apps {
		if *app == nil {
			t.Fatal("no hedge was sent")
		}
		if !(*app).Ended {
			open++
		}
	}
	if s := m.Consumer.Stats("compute"); open != 1 || s.StreamsOpen != 1 || s.Streams != 1 || len(c.Responses) != 1 {
		t.Errorf("%d connections to applications, %d streams of %d, %d left", open, s.StreamsOpen, s.Streams, len(c.Responses))
	}
	proxytest.CheckStreamsSettled(m, c)
}

// TestBadStreamIsRetried checks that a stream with status 500 ends when a retry has a better
// response.
func TestBadStreamIsRetried(t *testing.T) {
	m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: true,
		Service: `idempotent: true, retry: {attempts: 1, on: [5xx]}, hedge: {budget: 1}`})
	bad := strings.Replace(proxytest.StreamResponses[1].Says, "200 OK", "500 X", 1)
	first := true
	response := func() string {
		if first {
			first = false
			return bad
		}
		return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	}
	m.Apps[0].RespondWithFunc(response)
	m.Apps[1].RespondWithFunc(response)
	for range 20 { // earns tokens for the retry
		p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
		m.RunUntil("a response", func() bool { return bytes.HasSuffix(p.Heard, []byte("ok")) || len(c.Responses) > 0 })
		if len(c.Responses) > 0 {
			break
		}
		m.W.Faults.Reset(p.Conn)
	}
	if n := m.Consumer.Stats("compute").Retries; n != 1 || len(c.Responses) != 0 {
		t.Errorf("%d retries, %d streams left", n, len(c.Responses))
	}
	proxytest.CheckStreamsSettled(m, c)
}

// TestStreamWithoutDescriptor: a response that must be a stream becomes one once the system has a descriptor for it.
func TestStreamWithoutDescriptor(t *testing.T) {
	for _, a := range proxytest.StreamResponses {
		m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages})
		m.Apps[0].RespondWith(a.Says)
		tries := 0
		m.W.Options.OnDetach = func() error {
			if tries++; tries <= 2 {
				return errDescriptors
			}
			return nil
		}
		m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
		if !m.W.RunUntil(func() bool { return len(c.Responses) == 1 }, time.Second) {
			t.Errorf("%s: no stream after %d tries", a.Name, tries)
		}
		proxytest.CheckStreamsSettled(m, c)
	}
}

// TestTooLongUntilReload: a response that was too long for a message until a reload ends with its connection, which no other request
// gets.
func TestTooLongUntilReload(t *testing.T) {
	m, _, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages})
	app := m.Apps[0].RespondWith("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000))
	tries := 0
	m.W.Options.OnDetach = func() error { tries++; return errDescriptors }
	first := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
	m.RunUntil("the sidecar tries to make a stream", func() bool { return tries > 0 })
	m.W.Run(20 * time.Millisecond) // the rest of the response
	m.Consumer.Reload(`
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http}]
routes: [{match: {method: [CONNECT, GET, HEAD, POST, PUT]}, service: compute}]
services: {compute: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http}}
limits: {message: 1MiB}`)
	m.Apps[0].Loop.Do(func() { (*app).Conn.Close() })
	for i, client := range []*proxytest.Peer{first, nil} {
		if client == nil {
			client = m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
		}
		m.W.RunUntil(func() bool { return len(client.Heard) > 100_000 }, time.Second)
		if !bytes.HasPrefix(client.Heard, []byte("HTTP/1.1 200 ")) || len(client.Heard) < 100_000 {
			t.Errorf("response %d has %d bytes: %.100q", i+1, len(client.Heard), client.Heard)
		}
	}
}

// errDescriptors is the error of a system without descriptors.
var errDescriptors = errors.New("too many open files")

// TestLongStreamWithoutDescriptor: a response that grows too long while the system has no descriptor is refused.
func TestLongStreamWithoutDescriptor(t *testing.T) {
	m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages})
	m.Apps[0].RespondWith("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 200_000))
	m.W.Options.OnDetach = func() error { return errDescriptors }
	call := m.Raw(proxytest.StreamRequest)
	m.Do(call)
	m.Finish(call)
	if call.Status != 502 || call.Code != "response-too-large" || call.Took > time.Second {
		t.Errorf("status %d %s after %v", call.Status, call.Code, call.Took)
	}
	proxytest.CheckStreamsSettled(m, c)
}

// TestTrickle: a response without a length becomes a stream a tenth of a second after its head, although its body goes on to come.
func TestTrickle(t *testing.T) {
	m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	app := m.Apps[0].RespondWith("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
	m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
	m.RunUntil("the request", func() bool { return *app != nil && len((*app).Heard) > 0 })
	for range 3 {
		m.W.Run(30 * time.Millisecond)
		m.Apps[0].Loop.Do(func() { (*app).Conn.Write([]byte("4\r\nmore\r\n")) })
	}
	if len(c.Responses) != 0 {
		t.Error("it is a stream before its time")
	}
	if m.W.Run(20 * time.Millisecond); len(c.Responses) != 1 {
		t.Error("it is no stream")
	}
	proxytest.CheckStreamsSettled(m, c)
}

// TestLostBeforeStream: nothing is left of a response that may have become a stream, but whose connection was lost before.
func TestLostBeforeStream(t *testing.T) {
	m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "retry: {on: []}"})
	app := m.Apps[0].RespondWith("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
	client := m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\n\r\n")
	m.W.Run(50 * time.Millisecond)
	m.W.Faults.Reset((*app).Conn)
	m.W.Run(time.Second)
	if len(c.Responses) > 0 || !bytes.Contains(client.Heard, []byte("upstream-reset")) {
		t.Errorf("%d streams, the client got %q", len(c.Responses), client.Heard)
	}
	m.Settled()
}
