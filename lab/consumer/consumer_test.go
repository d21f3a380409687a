package consumer

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab/dubbo"
)

// start starts a consumer whose sidecar is a handler.
func start(t *testing.T, sidecar http.HandlerFunc) (c *Consumer, agent *httptest.Server) {
	t.Helper()
	agent = httptest.NewServer(sidecar)
	t.Cleanup(agent.Close)
	c, err := Start(Options{Agent: agent.Listener.Addr().String(), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, agent
}

func get(t *testing.T, c *Consumer, path string) (status int, body string) {
	t.Helper()
	req := must.Request(t, http.MethodGet, "http://"+c.Addr()+path, nil)
	req.Header.Set("x-nonce", "n1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if nonce := resp.Header.Get("x-nonce"); nonce != "n1" {
		t.Errorf("%s: nonce %q", path, nonce)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestCall(t *testing.T) {
	var lengths sync.Map
	c, _ := start(t, func(w http.ResponseWriter, r *http.Request) {
		text := r.PostFormValue("parameter")
		lengths.Store(len(text), true)
		if r.Method != "POST" || r.URL.Path != "/" || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" ||
			len(r.PostForm) != 4 || r.PostFormValue("interface") != DefaultInterface || r.PostFormValue("method") != "hash" ||
			r.PostFormValue("parameterTypesString") != "Ljava/lang/String;" || len(text) > 1023 {
			t.Errorf("%s %s %v: %v", r.Method, r.URL, r.Header, r.PostForm)
		}
		fmt.Fprint(w, dubbo.HashCode(text))
	})
	const n = 100
	for range n {
		if status, body := get(t, c, "/invoke"); status != 200 || body != "OK" {
			t.Fatalf("%d %q", status, body)
		}
	}
	different := 0
	lengths.Range(func(any, any) bool { different++; return true })
	if s := c.Stats(); s != (Stats{Right: n}) || different < n/2 {
		t.Errorf("stats %+v, %d different lengths", s, different)
	}
}

func TestWrongResults(t *testing.T) {
	for name, tt := range map[string]struct {
		sidecar http.HandlerFunc
		body    string
		stats   Stats
	}{
		"another number": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "12x") }, `got "12x", want `, Stats{Wrong: 1}},
		"a line": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, dubbo.HashCode(r.PostFormValue("parameter")))
		}, `\n", want `, Stats{Wrong: 1}},
		"a failure": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no endpoint", http.StatusServiceUnavailable)
		}, "status 503: no endpoint", Stats{Failed: 1}},
		"no response": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "no response: ", Stats{Failed: 1}},
	} {
		c, _ := start(t, tt.sidecar)
		if status, body := get(t, c, "/invoke"); status != 500 || !strings.Contains(body, tt.body) {
			t.Errorf("%s: %d %q", name, status, body)
		}
		if s := c.Stats(); s != tt.stats {
			t.Errorf("%s: stats %+v, want %+v", name, s, tt.stats)
		}
	}
}

func TestReconnect(t *testing.T) {
	callers := make(chan string, 10)
	c, agent := start(t, func(w http.ResponseWriter, r *http.Request) {
		callers <- r.RemoteAddr
		fmt.Fprint(w, dubbo.HashCode(r.PostFormValue("parameter")))
	})
	get(t, c, "/invoke")
	get(t, c, "/invoke")
	first := <-callers
	if second := <-callers; second != first {
		t.Errorf("%s and %s for two calls", first, second)
	}
	agent.CloseClientConnections()
	get(t, c, "/invoke") // this call fails
	if status, body := get(t, c, "/invoke"); status != 200 {
		t.Errorf("%d %q", status, body)
	}
	if third := <-callers; third == first {
		t.Error("the connection was closed and is used on")
	}
}

func TestOtherPaths(t *testing.T) {
	c, _ := start(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "?") })
	get(t, c, "/invoke")
	if status, _ := get(t, c, "/healthz"); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
	if status, _ := get(t, c, "/nothing"); status != 404 {
		t.Errorf("/nothing: %d", status)
	}
	var s Stats
	if _, body := get(t, c, "/stats"); json.Unmarshal([]byte(body), &s) != nil || s != (Stats{Wrong: 1}) {
		t.Errorf("/stats: %s", body)
	}
}

func TestCloseEndsCalls(t *testing.T) {
	called, release := make(chan struct{}), make(chan struct{})
	c, _ := start(t, func(http.ResponseWriter, *http.Request) {
		close(called)
		<-release
	})
	t.Cleanup(func() { close(release) }) // before the sidecar is closed
	go http.Get("http://" + c.Addr() + "/invoke")
	<-called
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{{}, {Agent: "nowhere"}, {Agent: "a b:1"}, {Agent: "a:1", Timeout: -1}, {Agent: "a:1", Listen: "nowhere"}} {
		if c, err := Start(o); err == nil {
			t.Errorf("%+v was accepted", o)
			c.Close()
		}
	}
}
