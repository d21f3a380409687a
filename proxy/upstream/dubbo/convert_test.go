package dubbo_test

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// inFastjson has the sidecar that speaks to the provider convert to fastjson.
func inFastjson(direct bool) proxytest.DubboOptions {
	o := proxytest.DubboOptions{OneHop: direct, Provider: "serialization: fastjson"}
	if direct {
		o.Service = o.Provider
	}
	return o
}

// TestFormCalls checks that a form is converted to a Dubbo call, and that its response is
// the plain result.
func TestFormCalls(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, inFastjson(direct))
		for _, a := range m.Apps {
			a.OnCall = func(f *dubbo.Frame) {
				lines := strings.Split(string(f.Body), "\n")
				if !f.TwoWay || f.Serialization != dubbo.Fastjson || lines[1] != `"com.acme.Demo"` || lines[3] != `"hash"` || lines[4] != `"`+proxytest.EchoType+`"` {
					t.Errorf("the provider got %q", f.Body)
				}
			}
		}
		args := map[*proxytest.Call]string{}
		var all []*proxytest.Call
		for i := range 60 {
			arg := fmt.Sprintf("%d žluťoučký & kůň=1+1%%", i) + strings.Repeat("x", i*i*10)
			k := m.FormCall("hash", url.QueryEscape(arg))
			m.Do(k)
			args[k] = arg
			all = append(all, k)
		}
		m.Finish(all...)
		for k, arg := range args {
			if k.Status != 200 || string(k.Body) != arg {
				t.Errorf("status %d, body %.100q, want %.100q", k.Status, k.Body, arg)
			}
			if date := protocol.Find(k.Headers, "date"); date == nil || protocol.Find(k.Headers, "x-remora-error") != nil {
				t.Errorf("headers %q", k.Headers)
			}
		}
		m.Settled()
		for _, a := range m.Apps {
			if a.Accepted != 1 {
				t.Errorf("%d connections to %s", a.Accepted, a.Addr)
			}
		}
	})
}

// TestJSONCalls checks that JSON is converted to a Dubbo call in hessian2, and the result
// to JSON.
func TestJSONCalls(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 1})
		m.Apps[0].OnCall = func(f *dubbo.Frame) {
			if f.Serialization != dubbo.Hessian2 {
				t.Errorf("the provider got serialization %d", f.Serialization)
			}
		}
		k := m.JSONCall("echo", `{"types":["java.lang.String"],"args":["dear \"you\""]}`, "dubbo-attachments: who=me")
		m.Do(k)
		m.Finish(k)
		if k.Status != 200 || string(k.Body) != `"dear \"you\""` || string(protocol.Find(k.Headers, "content-type")) != "application/json" {
			t.Errorf("status %d, headers %q, body %q", k.Status, k.Headers, k.Body)
		}
		m.Settled()
	})
}

// TestConvertedResponses checks that an HTTP caller gets a failure of the provider as a
// status, a stable code and the provider's message.
func TestConvertedResponses(t *testing.T) {
	response := func(status dubbo.Status, body string) func(*dubbo.Frame) *dubbo.Frame {
		return func(*dubbo.Frame) *dubbo.Frame {
			return &dubbo.Frame{Serialization: dubbo.Fastjson, Status: status, Body: []byte(body)}
		}
	}
	for name, c := range map[string]struct {
		response func(*dubbo.Frame) *dubbo.Frame
		status   int
		code     string
		words    string
	}{
		"value":               {response(dubbo.StatusOK, "1\n96354\n"), 200, "", "96354"},
		"with attachments":    {response(dubbo.StatusOK, "4\n96354\n{\"dubbo\":\"2.0.2\"}\n"), 200, "", "96354"},
		"null":                {response(dubbo.StatusOK, "2\n"), 200, "", ""},
		"exception":           {response(dubbo.StatusOK, "0\n{\"@type\":\"java.lang.IllegalStateException\",\"message\":\"no such user\"}\n"), 500, "dubbo-exception", "no such user"},
		"unknown service":     {response(dubbo.StatusServiceNotFound, "\"not here\"\n"), 404, "dubbo-service-not-found", "not here"},
		"unknown method":      {response(dubbo.StatusServiceError, "\"no such method\"\n"), 500, "dubbo-service-error", "no such method"},
		"malformed":           {response(dubbo.StatusOK, "9\n"), 502, "upstream-malformed", ""},
		"empty":               {response(dubbo.StatusOK, ""), 502, "upstream-malformed", ""},
		"too long":            {response(dubbo.StatusOK, "1\n\""+strings.Repeat("x", proxytest.MaxMessage+1)+"\"\n"), 502, "response-too-large", ""},
		"other serialization": {func(*dubbo.Frame) *dubbo.Frame { return &dubbo.Frame{Serialization: 21, Status: dubbo.StatusOK} }, 502, "upstream-malformed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
				o := inFastjson(direct)
				o.Apps = 1
				m := proxytest.NewDubboMesh(t, o)
				m.Apps[0].Respond = c.response
				k := m.FormCall("hash", "abc")
				m.Do(k)
				m.Finish(k)
				if k.Status != c.status || k.Code != c.code || !bytes.Contains(k.Body, []byte(c.words)) {
					t.Errorf("status %d %q, body %q; want %d %q, %q", k.Status, k.Code, k.Body, c.status, c.code, c.words)
				}
				// The connection stays usable.
				m.Apps[0].Respond = proxytest.EchoCall
				k = m.FormCall("hash", "abc")
				m.Do(k)
				m.Finish(k)
				if k.Status != 200 || m.Apps[0].Accepted != 1 {
					t.Errorf("next call: status %d, %d connections", k.Status, m.Apps[0].Accepted)
				}
				m.Settled()
			})
		})
	}
}

// TestConvertedResponseTooLarge checks that limits.message also applies to the JSON of a
// result.
func TestConvertedResponseTooLarge(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: true, Apps: 1, Limits: "limits: {message: 1KiB}"})
	const third = "D\x3f\xd5\x55\x55\x55\x55\x55\x55" // takes twice as much in JSON
	for n, want := range map[int]int{40: 200, 100: 502} {
		m.Apps[0].Respond = func(*dubbo.Frame) *dubbo.Frame {
			list := append([]byte{0x91, 'X', 0xc8, byte(n)}, strings.Repeat(third, n)...)
			return &dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, Body: list}
		}
		k := m.JSONCall("m", `{"args":[]}`)
		m.Do(k)
		m.Finish(k)
		if k.Status != want || (k.Code == "response-too-large") != (want != 200) {
			t.Errorf("%d numbers: status %d, %q", n, k.Status, k.Code)
		}
	}
	m.Settled()
}

// TestRequestsNotConvertible checks that the sidecar that converts refuses malformed calls
// with the reason, and that no provider sees them.
func TestRequestsNotConvertible(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: direct, Apps: 1})
		m.Apps[0].OnCall = func(f *dubbo.Frame) { t.Errorf("the provider got %+v", f) }
		for _, c := range []struct {
			k      *proxytest.Call
			status int
			code   string
		}{
			{m.Get("/"), 404, "dubbo-not-a-call"},
			{m.Post(10), 404, "dubbo-not-a-call"},
			{m.FormCall("hash", "%zz"), 400, "dubbo-bad-form"},
			{m.JSONCall("hash", `{"args":`), 400, "dubbo-bad-json"},
			{m.JSONCall("hash", `{"types":["java.lang.String"],"args":[]}`), 400, "dubbo-argument-count"},
		} {
			m.Do(c.k)
			m.Finish(c.k)
			if c.k.Status != c.status || c.k.Code != c.code || len(c.k.Body) == 0 {
				t.Errorf("status %d %q, body %q; want %d %q", c.k.Status, c.k.Code, c.k.Body, c.status, c.code)
			}
		}
		m.Settled()
		if e := m.Consumer.Report().Services[0].Endpoints[0]; direct && e.Latency != 0 {
			t.Errorf("refusals were counted as responses of the endpoint: %+v", e)
		}
	})
}

// TestPipelinedRefusals: each of several calls that can't be converted gets its own refusal, also if it was sent behind the others,
// or before there was a connection.
func TestPipelinedRefusals(t *testing.T) {
	for name, before := range map[string]int{"open connection": 1, "new connection": 0} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, OneHop: true})
			good := string(m.JSONCall("m", `{"args":["x"]}`).Raw)
			bad := strings.Replace(good, `{"args":["x"]}`, `{"args":["x"]!`, 1)
			p := m.DialAndSend(proxytest.Egress, strings.Repeat(good, before))
			m.W.Run(100 * time.Millisecond)
			m.Clients.Do(func() { p.Conn.Write([]byte(bad + bad + bad + good)) })
			m.W.Run(100 * time.Millisecond)
			if ok, refused := bytes.Count(p.Heard, []byte("HTTP/1.1 200")), bytes.Count(p.Heard, []byte("HTTP/1.1 400")); ok != before+1 || refused != 3 {
				t.Errorf("%d results and %d refusals in %q", ok, refused, p.Heard)
			}
			m.Settled()
		})
	}
}

// TestDubboCallToHTTPService checks that calls are not converted to HTTP: their callers
// get "service not found".
func TestDubboCallToHTTPService(t *testing.T) {
	proxytest.EachDubboPath(t, func(t *testing.T, direct bool) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Apps: 1, Speaks: "http", OneHop: direct})
		if direct {
			m.Consumer.Update("compute", registry.Endpoint{Addr: m.Apps[0].Addr, Weight: 1, Protocol: "http"})
		}
		c := m.DialDubbo(proxytest.EgressDubbo)
		c.CheckResult(c.Call(dubbo.Fastjson, proxytest.FastjsonCall(proxytest.DemoService, "", "", "m", "x")), dubbo.StatusServiceNotFound, "")
		if n := m.Consumer.Stats("compute").Retries; n != 0 || m.Apps[0].Accepted != 0 {
			t.Errorf("%d retries, %d connections", n, m.Apps[0].Accepted)
		}
		m.Settled()
	})
}

// TestNoStreamToProvider checks that a body above limits.message is refused.
func TestNoStreamToProvider(t *testing.T) {
	m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{OneHop: true, Apps: 1, Limits: "limits: {message: 1KiB}"})
	k := m.FormCall("hash", strings.Repeat("x", 2000))
	m.Do(k)
	m.Finish(k)
	if k.Status != 413 || m.Apps[0].Accepted != 0 {
		t.Errorf("status %d, %d connections", k.Status, m.Apps[0].Accepted)
	}
	m.W.Run(time.Second)
	m.Settled()
}
