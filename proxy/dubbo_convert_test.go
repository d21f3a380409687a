package proxy_test

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/registry"
)

// inFastjson has the sidecar that speaks to the provider convert to fastjson.
func inFastjson(direct bool) dubboOptions {
	o := dubboOptions{direct: direct, provider: ", serialization: fastjson"}
	if direct {
		o.service = o.provider
	}
	return o
}

// TestFormCallsBecomeDubbo: the form of a call goes out as Dubbo, and its answer
// is the result and nothing else.
func TestFormCallsBecomeDubbo(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, inFastjson(direct))
		for _, a := range m.apps {
			a.seen = func(f *dubbo.Frame) {
				lines := strings.Split(string(f.Body), "\n")
				if !f.TwoWay || f.Serialization != dubbo.Fastjson || lines[1] != `"com.acme.Demo"` || lines[3] != `"hash"` || lines[4] != `"`+echoType+`"` {
					t.Errorf("the provider got %q", f.Body)
				}
			}
		}
		args := map[*call]string{}
		var all []*call
		for i := range 60 {
			arg := fmt.Sprintf("%d žluťoučký & kůň=1+1%%", i) + strings.Repeat("x", i*i*10)
			k := m.form("hash", url.QueryEscape(arg))
			m.do(k)
			args[k] = arg
			all = append(all, k)
		}
		m.finish(all...)
		for k, arg := range args {
			if k.status != 200 || string(k.body) != arg {
				t.Errorf("status %d, body %.100q, want %.100q", k.status, k.body, arg)
			}
			if date := protocol.Find(k.headers, "date"); date == nil || protocol.Find(k.headers, "x-remora-error") != nil {
				t.Errorf("headers %q", k.headers)
			}
		}
		m.settled()
		for _, a := range m.apps {
			if a.dialed != 1 {
				t.Errorf("%d connections to %s", a.dialed, a.addr)
			}
		}
	})
}

// TestJSONCallsBecomeDubbo: the same for people, in hessian2, with JSON as the
// answer.
func TestJSONCallsBecomeDubbo(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{direct: direct, apps: 1})
		m.apps[0].seen = func(f *dubbo.Frame) {
			if f.Serialization != dubbo.Hessian2 {
				t.Errorf("the provider got serialization %d", f.Serialization)
			}
		}
		k := m.json("echo", `{"types":["java.lang.String"],"args":["dear \"you\""]}`, "dubbo-attachments: who=me")
		m.do(k)
		m.finish(k)
		if k.status != 200 || string(k.body) != `"dear \"you\""` || string(protocol.Find(k.headers, "content-type")) != "application/json" {
			t.Errorf("status %d, headers %q, body %q", k.status, k.headers, k.body)
		}
		m.settled()
	})
}

// TestConvertedAnswers: what an application says instead of a result is told over
// HTTP with a status, a stable code and its own words.
func TestConvertedAnswers(t *testing.T) {
	answer := func(status dubbo.Status, body string) func(*dubbo.Frame) *dubbo.Frame {
		return func(*dubbo.Frame) *dubbo.Frame {
			return &dubbo.Frame{Serialization: dubbo.Fastjson, Status: status, Body: []byte(body)}
		}
	}
	for name, c := range map[string]struct {
		answer func(*dubbo.Frame) *dubbo.Frame
		status int
		code   string
		words  string
	}{
		"value":             {answer(dubbo.StatusOK, "1\n96354\n"), 200, "", "96354"},
		"with attachments":  {answer(dubbo.StatusOK, "4\n96354\n{\"dubbo\":\"2.0.2\"}\n"), 200, "", "96354"},
		"null":              {answer(dubbo.StatusOK, "2\n"), 200, "", ""},
		"exception":         {answer(dubbo.StatusOK, "0\n{\"@type\":\"java.lang.IllegalStateException\",\"message\":\"no such user\"}\n"), 500, "dubbo-exception", "no such user"},
		"unknown service":   {answer(dubbo.StatusServiceNotFound, "\"not here\"\n"), 404, "dubbo-service-not-found", "not here"},
		"unknown method":    {answer(dubbo.StatusServiceError, "\"no such method\"\n"), 500, "dubbo-service-error", "no such method"},
		"malformed":         {answer(dubbo.StatusOK, "9\n"), 502, "upstream-malformed", ""},
		"empty":             {answer(dubbo.StatusOK, ""), 502, "upstream-malformed", ""},
		"too long":          {answer(dubbo.StatusOK, "1\n\""+strings.Repeat("x", maxMessage+1)+"\"\n"), 502, "response-too-large", ""},
		"other serializing": {func(*dubbo.Frame) *dubbo.Frame { return &dubbo.Frame{Serialization: 21, Status: dubbo.StatusOK} }, 502, "upstream-malformed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, direct bool) {
				o := inFastjson(direct)
				o.apps = 1
				m := newDubboMesh(t, o)
				m.apps[0].answer = c.answer
				k := m.form("hash", "abc")
				m.do(k)
				m.finish(k)
				if k.status != c.status || k.code != c.code || !bytes.Contains(k.body, []byte(c.words)) {
					t.Errorf("status %d %q, body %q; want %d %q, %q", k.status, k.code, k.body, c.status, c.code, c.words)
				}
				// The connection is as good as ever.
				m.apps[0].answer = echoCall
				k = m.form("hash", "abc")
				m.do(k)
				m.finish(k)
				if k.status != 200 || m.apps[0].dialed != 1 {
					t.Errorf("afterwards: status %d, %d connections", k.status, m.apps[0].dialed)
				}
				m.settled()
			})
		})
	}
}

// TestAnswersThatGrowTooLong: limits.message is also for what is made of an answer.
func TestAnswersThatGrowTooLong(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{direct: true, apps: 1, limits: "limits: {message: 1KiB}"})
	const third = "D\x3f\xd5\x55\x55\x55\x55\x55\x55" // takes twice as much in JSON
	for n, want := range map[int]int{40: 200, 100: 502} {
		m.apps[0].answer = func(*dubbo.Frame) *dubbo.Frame {
			list := append([]byte{0x91, 'X', 0xc8, byte(n)}, strings.Repeat(third, n)...)
			return &dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, Body: list}
		}
		k := m.json("m", `{"args":[]}`)
		m.do(k)
		m.finish(k)
		if k.status != want || (k.code == "response-too-large") != (want != 200) {
			t.Errorf("%d numbers: status %d, %q", n, k.status, k.code)
		}
	}
	m.settled()
}

// TestWhatIsNoCall: what can't be converted is refused with the reason, by the
// sidecar that would have to, and costs the provider nothing.
func TestWhatIsNoCall(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{direct: direct, apps: 1})
		m.apps[0].seen = func(f *dubbo.Frame) { t.Errorf("the provider got %+v", f) }
		for _, c := range []struct {
			k      *call
			status int
			code   string
		}{
			{m.get("/"), 404, "dubbo-not-a-call"},
			{m.post(10), 404, "dubbo-not-a-call"},
			{m.form("hash", "%zz"), 400, "dubbo-bad-form"},
			{m.json("hash", `{"args":`), 400, "dubbo-bad-json"},
			{m.json("hash", `{"types":["java.lang.String"],"args":[]}`), 400, "dubbo-argument-count"},
		} {
			m.do(c.k)
			m.finish(c.k)
			if c.k.status != c.status || c.k.code != c.code || len(c.k.body) == 0 {
				t.Errorf("status %d %q, body %q; want %d %q", c.k.status, c.k.code, c.k.body, c.status, c.code)
			}
		}
		m.settled()
		if e := m.consumer.report().Services[0].Endpoints[0]; direct && e.Latency != 0 {
			t.Errorf("refusals were taken for the endpoint's answers: %+v", e)
		}
	})
}

// TestDubboToHTTP: calls of Dubbo are not converted to HTTP; their callers learn
// that the service is not there.
func TestDubboToHTTP(t *testing.T) {
	eachWay(t, func(t *testing.T, direct bool) {
		m := newDubboMesh(t, dubboOptions{apps: 1, speaks: "http", direct: direct})
		if direct {
			m.consumer.update("compute", registry.Endpoint{Addr: m.apps[0].addr, Weight: 1, Protocol: "http"})
		}
		c := m.caller(egressDubbo)
		c.wants(c.call(dubbo.Fastjson, fastjsonCall(demo, "", "", "m", "x")), dubbo.StatusServiceNotFound, "")
		if n := m.consumer.stats("compute").Retries; n != 0 || m.apps[0].dialed != 0 {
			t.Errorf("%d retries, %d connections", n, m.apps[0].dialed)
		}
		m.settled()
	})
}

// TestStreamsAreNoCalls: what would have to leave the loop can't go to a Dubbo
// provider.
func TestStreamsAreNoCalls(t *testing.T) {
	m := newDubboMesh(t, dubboOptions{direct: true, apps: 1, limits: "limits: {message: 1KiB}"})
	k := m.form("hash", strings.Repeat("x", 2000))
	m.do(k)
	m.finish(k)
	if k.status != 413 || m.apps[0].dialed != 0 {
		t.Errorf("status %d, %d connections", k.status, m.apps[0].dialed)
	}
	m.w.Run(time.Second)
	m.settled()
}
