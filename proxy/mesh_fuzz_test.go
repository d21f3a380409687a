package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// recorderApp is an application that responds to each request and keeps all input, by
// connection.
type recorderApp struct{ conns []*proxytest.Peer }

// recordAt puts a recorderApp in the place of the first application.
func recordAt(m *proxytest.Mesh) *recorderApp {
	a := &recorderApp{}
	m.Apps[0].Stop()
	m.W.Net.Listen(m.Apps[0].Addr, m.W.Loop("10.0.1.1-recorder"), func() loop.Receiver {
		p := &proxytest.Peer{}
		responded := 0
		p.Reply = func(heard []byte) (out []byte) {
			toHead, _, _ := requestsIn(heard)
			for _, head := range toHead[responded:] {
				out = append(out, "HTTP/1.1 200 OK\r\nx-from: app\r\ncontent-length: 2\r\n\r\n"...)
				if !head {
					out = append(out, "ok"...)
				}
			}
			responded = len(toHead)
			return out
		}
		a.conns = append(a.conns, p)
		return p
	})
	return a
}

// requests counts the requests by method, target and body, as net/http reads them. The
// input must have nothing else. all is false if net/http refuses a request because of a
// target that is no URL, or because of its Trailer field.
func (a *recorderApp) requests(t *testing.T) (got map[string]int, all bool) {
	t.Helper()
	got, all = map[string]int{}, true
	for _, p := range a.conns {
		for br := bufio.NewReader(bytes.NewReader(p.Heard)); ; {
			if _, err := br.Peek(1); err == io.EOF {
				break
			}
			r, err := http.ReadRequest(br)
			if err != nil && (strings.Contains(err.Error(), "parse \"") || strings.Contains(err.Error(), "bad trailer key")) {
				all = false
				break
			}
			if err != nil {
				t.Fatalf("the application got %q: %v", p.Heard, err)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatalf("the application got %q: %v", p.Heard, err)
			}
			got[fmt.Sprintf("%s %s %q", r.Method, r.RequestURI, body)]++
		}
	}
	return got, all
}

// requestsSent counts the complete requests in b, as requestsIn finds them.
func requestsSent(b []byte) map[string]int {
	said := map[string]int{}
	for {
		var req protocol.Request
		var head http1.Head
		var body http1.Body
		var buf bytebufferpool.ByteBuffer
		n, err := http1.DecodeRequest(b, &req, &head, &fuzzLimits)
		if err != nil || head.Connect {
			return said
		}
		body.Reset(&head, &fuzzLimits)
		used, done, err := body.Decode(b[n:], &buf)
		if err != nil || !done {
			return said
		}
		said[fmt.Sprintf("%s %s %q", req.Method, req.Path, buf.B[:body.Length()])]++
		if !head.KeepAlive {
			return said
		}
		b = b[n+used:]
	}
}

// FuzzMeshHTTP sends anything to a consumer's sidecar. The provider's application gets only
// complete requests that were sent, each once at most. The client gets as many responses
// of the application as that has sent.
func FuzzMeshHTTP(f *testing.F) {
	for _, s := range httpSeeds {
		f.Add([]byte(s), uint64(0))
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Apps: 1, OneHop: seed%2 == 1, Limits: "limits: {message: 1MiB}"})
		m.W.Options.Cut = 0.7
		app := recordAt(m)
		p := &proxytest.Peer{Says: in}
		m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, p) })
		m.W.RunUntil(func() bool { return p.Ended }, 45*time.Second)
		m.Settled()
		said, total := requestsSent(in), 0
		got, all := app.requests(t)
		for what, n := range got {
			if total += n; n > said[what] {
				t.Errorf("the application got %s %d times, it was sent %d times", what, n, said[what])
			}
		}
		if n := bytes.Count(p.Heard, []byte("\r\nx-from: app\r\n")); all && n > total {
			t.Errorf("%d responses of an application that got %d requests", n, total)
		}
	})
}

// FuzzConversion sends calls of any form or JSON over HTTP to a Dubbo provider, which
// responds with anything. Each call gets exactly one response.
func FuzzConversion(f *testing.F) {
	form := "interface=" + proxytest.DemoService + "&method=m&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=x"
	f.Add(true, "", form, "a=b", byte(20), []byte("1\n\"x\"\n"), uint64(0))
	f.Add(false, "com.acme.Demo/m?group=g", `{"types":["java.lang.String"],"args":["x"]}`, "", byte(20), []byte("\x91\x01x"), uint64(1))
	f.Add(false, "com.acme.Demo/m", `{"args":[1,{"a":null},[1.5]]}`, "k=%20", byte(100), []byte("\x01x"), uint64(2))
	f.Fuzz(func(t *testing.T, asForm bool, path, body, attachments string, status byte, result []byte, seed uint64) {
		if !plainText(path) || !plainText(attachments) {
			return
		}
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Seed: seed, Apps: 1, OneHop: seed%2 == 1, Limits: "limits: {message: 64KiB}",
			Service: "timeout: 1s", Provider: "timeout: 1s"})
		m.W.Options.Cut = 0.7
		m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
			return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.Status(status), Body: result}
		}
		kind := "application/json"
		if asForm {
			kind = "application/x-www-form-urlencoded"
		}
		p := &proxytest.Peer{Says: fmt.Appendf(nil, "POST /%s HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\ndubbo-attachments: %s\r\nContent-Length: %d\r\n\r\n%s",
			path, kind, attachments, len(body), body)}
		m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, p) })
		m.W.Run(3 * time.Second)
		if n := responsesIn(t, p.Heard, nil); n != 1 {
			t.Errorf("%d responses: %q", n, p.Heard)
		}
		if !p.Ended {
			m.Clients.Do(func() { p.Conn.Close() })
		}
		m.Settled()
	})
}

// plainText reports whether s is valid in a request line and in a field value.
func plainText(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
