package cache_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

// origin is an application whose responses are numbered.
type origin struct {
	*proxytest.Mesh
	headers string // lines of the next responses
	etag    string // it responds with 304 to a request that has it
	got     []string
}

// newOrigin returns a mesh of one application behind a route.
func newOrigin(t *testing.T, o proxytest.MeshOptions, route string) *origin {
	t.Helper()
	o.Apps, o.OneHop, o.Match = 1, true, route
	m := &origin{Mesh: proxytest.NewMesh(t, o)}
	app := m.Apps[0]
	n := 0
	app.OnRequest = func(req *protocol.Request) {
		n++
		text := string(req.Method)
		for _, h := range req.Headers {
			if name := strings.ToLower(string(h.Name)); strings.HasPrefix(name, "if-") {
				text += fmt.Sprintf(" %s=%s", name, h.Value)
			}
		}
		m.got = append(m.got, text)
		app.ExtraHeaders = m.headers + fmt.Sprintf("Date: %s\r\n", proxytest.Epoch.Add(m.W.Now()).Format("Mon, 02 Jan 2006 15:04:05 GMT"))
		app.Status = 200
		if m.etag != "" {
			app.ExtraHeaders += fmt.Sprintf("ETag: %s\r\n", m.etag)
			if string(protocol.Find(req.Headers, "if-none-match")) == m.etag {
				app.Status = 304
			}
		}
		if status := protocol.Find(req.Headers, "x-status"); status != nil {
			if app.Status, _ = strconv.Atoi(string(status)); app.Status >= 500 {
				app.ExtraHeaders = ""
			}
		}
	}
	app.Body = func(*protocol.Request) []byte {
		if app.Status == 304 {
			return nil
		}
		return fmt.Appendf(nil, "body %d", n)
	}
	return m
}

// ask sends a request, waits for its response, and returns what that is like: the number of the
// response of the application, and what the cache says.
func (m *origin) ask(path string, headers ...string) (*proxytest.Call, string) {
	m.T.Helper()
	c := m.Get(path, headers...).Same()
	return c, m.send(c)
}

func (m *origin) send(c *proxytest.Call) string {
	m.T.Helper()
	m.Complete(c)
	if c.Err != nil {
		m.T.Fatal(c.Err)
	}
	said := strings.TrimPrefix(string(protocol.Find(c.Headers, "cache-status")), "remora; ")
	age := ""
	if v := protocol.Find(c.Headers, "age"); v != nil {
		age = " age " + string(v)
	}
	body := ""
	if len(c.Body) > 0 {
		body = " " + string(c.Body)
	}
	return strings.TrimSpace(fmt.Sprintf("%d%s%s: %s", c.Status, body, age, said))
}

func method(c *proxytest.Call, name string) *proxytest.Call {
	c.Raw = append([]byte(name), c.Raw[len("GET"):]...)
	c.IsHead = name == "HEAD"
	return c
}

// step is a request to the origin, and what the client gets.
type step struct {
	after   time.Duration
	headers string // lines of the application's responses, with a semicolon between them
	request string // "METHOD path", and lines
	want    string
}

func (m *origin) run(steps []step) {
	m.T.Helper()
	for i, s := range steps {
		m.W.Run(s.after)
		if s.headers != "" {
			m.headers = strings.ReplaceAll(s.headers, ";", "\r\n") + "\r\n"
		}
		name, lines, _ := strings.Cut(s.request, ";")
		how, path, _ := strings.Cut(name, " ")
		var list []string
		if lines != "" {
			list = strings.Split(lines, ";")
		}
		if got := m.send(method(m.Get(path, list...).Same(), how)); got != s.want {
			m.T.Errorf("step %d, %s: got %q, want %q", i, s.request, got, s.want)
		}
	}
}

// TestExchanges checks what clients get from a cache with a ttl of 1s and stale of 10s, and which
// requests the application gets.
func TestExchanges(t *testing.T) {
	const long = "Cache-Control: max-age=100"
	for _, c := range []struct {
		name, route, etag string
		steps             []step
		got               string // by the application
	}{
		{"ttl", "", "", []step{
			{0, "", "GET /", "200 body 1: fwd=miss; stored"},
			{900 * time.Millisecond, "", "GET /", "200 body 1 age 0: hit"},
			{0, "", "GET /?", "200 body 2: fwd=miss; stored"},
		}, "GET GET"},
		{"age", "", "", []step{
			{0, long + ";Age: 20", "GET /", "200 body 1 age 20: fwd=miss; stored"},
			{9 * time.Second, "", "GET /", "200 body 1 age 29: hit"},
			{0, long + ";Age: 0", "GET /y", "200 body 2 age 0: fwd=miss; stored"},
			{9*time.Second + 990*time.Millisecond, "", "GET /y", "200 body 2 age 9: hit"},
			{10 * time.Millisecond, "", "GET /y", "200 body 2 age 10: hit"},
			{time.Second, "", "GET /y", "200 body 2 age 11: hit"},
		}, "GET GET"},
		{"head", "", "", []step{
			{0, long, "HEAD /", "200: fwd=miss"},
			{0, "", "GET /", "200 body 2: fwd=miss; stored"},
			{0, "", "HEAD /", "200 age 0: hit"},
		}, "HEAD GET"},
		{"another method in a header", "", "", []step{
			{0, long, "GET /;X-HTTP-Method-Override: DELETE;X-Status: 405", "405 body 1: fwd=bypass"},
			{0, long, "GET /", "200 body 2: fwd=miss; stored"},
			{0, "", "GET /;x-http-method-override: DELETE;X-Status: 405", "405 body 3: fwd=bypass"},
			{0, "", "GET /", "200 body 2 age 0: hit"},
		}, "GET GET GET"},
		{"no-store", "", "", []step{
			{0, "Cache-Control: no-store", "GET /", "200 body 1: fwd=miss"},
			{0, "", "GET /", "200 body 2: fwd=miss"},
		}, "GET GET"},
		{"request no-store", "", "", []step{
			{0, long, "GET /;Cache-Control: no-store", "200 body 1: fwd=miss"},
			{0, "", "GET /", "200 body 2: fwd=miss; stored"},
		}, "GET GET"},
		{"not storable any more", "", "", []step{
			{0, long, "GET /", "200 body 1: fwd=miss; stored"},
			{0, "Cache-Control: no-store", "GET /;Cache-Control: no-cache", "200 body 2: fwd=miss"},
			{0, long, "GET /", "200 body 3: fwd=miss; stored"},
		}, "GET GET GET"},
		{"credentials", "", "", []step{
			{0, long, "GET /", "200 body 1: fwd=miss; stored"},
			{0, "", "GET /;Cookie: a", "200 body 2: fwd=miss"},
			{0, "", "GET /", "200 body 1 age 0: hit"},
		}, "GET GET"},
		{"error of a client", "", "", []step{
			{0, long, "GET /", "200 body 1: fwd=miss; stored"},
			{0, "Cache-Control: no-store", "GET /;Cache-Control: no-cache;X-Status: 401", "401 body 2: fwd=miss"},
			{0, "", "GET /", "200 body 1 age 0: hit"},
			{0, "", "GET /;Cache-Control: no-cache;X-Status: 404", "404 body 3: fwd=miss"},
			{0, long, "GET /", "200 body 4: fwd=miss; stored"},
		}, "GET GET GET GET"},
		{"refresh with too many requests", "", "", []step{
			{0, "Cache-Control: max-age=1", "GET /", "200 body 1: fwd=miss; stored"},
			{2 * time.Second, "Cache-Control: x", "GET /;X-Status: 429", "200 body 1 age 2: hit; detail=stale"},
			{500 * time.Millisecond, "", "GET /", "200 body 1 age 2: hit; detail=stale"},
			{time.Second, "", "GET /", "200 body 1 age 3: hit; detail=stale"},
			{500 * time.Millisecond, "", "GET /", "200 body 3 age 0: hit"},
		}, "GET GET GET"},
		{"refresh with an error that may be stored", "", "", []step{
			{0, "Cache-Control: max-age=1", "GET /", "200 body 1: fwd=miss; stored"},
			{2 * time.Second, "Cache-Control: max-age=9", "GET /;X-Status: 410", "200 body 1 age 2: hit; detail=stale"},
			{500 * time.Millisecond, "", "GET /", "410 body 2 age 0: hit"},
		}, "GET GET"},
		{"refresh with credentials", "", "", []step{
			{0, "Cache-Control: public, max-age=1", "GET /", "200 body 1: fwd=miss; stored"},
			{2 * time.Second, "Cache-Control: max-age=1", "GET /;Cookie: a", "200 body 1 age 2: hit; detail=stale"},
			{1500 * time.Millisecond, "", "GET /", "200 body 1 age 3: hit; detail=stale"},
			{500 * time.Millisecond, "", "GET /", "200 body 3 age 0: hit"},
		}, "GET GET GET"},
		{"validation without storing", "", `"a"`, []step{
			{0, long, "GET /", "200 body 1: fwd=miss; stored"},
			{0, "", "GET /;Cache-Control: no-cache, no-store", "200 body 1: fwd=stale; fwd-status=304"},
			{0, "", "GET /", "200 body 1 age 0: hit"},
		}, `GET GET if-none-match="a"`},
		{"lifetime of 0", "", "", []step{
			{0, "Cache-Control: max-age=0", "GET /", "200 body 1: fwd=miss; stored"},
			{time.Second, "", "GET /", "200 body 2: fwd=miss; stored"},
			{time.Second, "", "GET /;X-Status: 503", "200 body 2 age 1: hit; detail=stale"},
		}, "GET GET GET"},
		{"validation", "cache: {stale: 0s}", `"a"`, []step{
			{0, "Cache-Control: max-age=2;x-a: 1", "GET /", "200 body 1: fwd=miss; stored"},
			{3 * time.Second, "", "GET /", "200 body 1: fwd=stale; fwd-status=304; stored"},
			{time.Second, "", "GET /", "200 body 1 age 1: hit"},
			{0, "", `GET /;If-None-Match: "a"`, "304 age 1: hit"},
			{3 * time.Second, "", `GET /;If-None-Match: "b"`, "200 body 1: fwd=stale; fwd-status=304; stored"},
			{3 * time.Second, "", `GET /;If-None-Match: W/"a"`, "304: fwd=stale; fwd-status=304; stored"},
		}, `GET GET if-none-match="a" GET if-none-match="a" GET if-none-match="a"`},
		{"no-cache is validated", "", `"a"`, []step{
			{0, "Cache-Control: no-cache", "GET /", "200 body 1: fwd=miss; stored"},
			{0, "", "GET /", "200 body 1: fwd=stale; fwd-status=304; stored"},
		}, `GET GET if-none-match="a"`},
		{"a client's condition alone", "", `"a"`, []step{
			{0, long, `GET /;If-None-Match: "a"`, "304: fwd=miss"},
			{0, "", "GET /", "200 body 2: fwd=miss; stored"},
		}, `GET if-none-match="a" GET`},
		{"last-modified", "", "", []step{
			{0, long + ";Last-Modified: Wed, 01 Jan 2025 00:00:00 GMT;Content-Type: a;X-B: 1", "GET /", "200 body 1: fwd=miss; stored"},
			{0, "", "GET /;If-Modified-Since: Wed, 01 Jan 2025 00:00:00 GMT", "304 age 0: hit"},
			{0, "", "GET /;If-Modified-Since: Tue, 31 Dec 2024 00:00:00 GMT", "200 body 1 age 0: hit"},
		}, "GET"},
		{"validation by date", "cache: {stale: 0s}", "", []step{
			{0, "Cache-Control: max-age=2;Last-Modified: Wed, 01 Jan 2025 00:00:00 GMT", "GET /", "200 body 1: fwd=miss; stored"},
			{3 * time.Second, "", "GET /;If-Modified-Since: Thu, 02 Jan 2025 00:00:00 GMT", "304: fwd=miss; stored"},
			{3 * time.Second, "", "GET /", "200 body 3: fwd=miss; stored"},
		}, "GET GET if-modified-since=Wed, 01 Jan 2025 00:00:00 GMT GET if-modified-since=Wed, 01 Jan 2025 00:00:00 GMT"},
		{"a client's condition on a stale response without a validator", "cache: {stale: 0s}", "", []step{
			{0, "Cache-Control: max-age=1", "GET /", "200 body 1: fwd=miss; stored"},
			{2 * time.Second, "", `GET /;If-None-Match: "a"`, "200 body 2: fwd=miss; stored"},
		}, `GET GET if-none-match="a"`},
		{"condition on an error", "", `"a"`, []step{
			{0, long, "GET /;X-Status: 404", "404 body 1: fwd=miss; stored"},
			{0, "", `GET /;If-None-Match: "a"`, "404 body 1 age 0: hit"},
		}, "GET"},
		{"refresh by the first header", "", "", []step{
			{0, `ETag: "e";Cache-Control: max-age=1`, "GET /", "200 body 1: fwd=miss; stored"},
			{2 * time.Second, "", "GET /", "200 body 1 age 2: hit; detail=stale"},
			{100 * time.Millisecond, "", "GET /", "200 body 2 age 0: hit"},
		}, `GET GET if-none-match="e"`},
		{"refresh says that it may not be stored any more", "", `"a"`, []step{
			{0, "Cache-Control: max-age=1", "GET /", "200 body 1: fwd=miss; stored"},
			{2 * time.Second, "Cache-Control: no-store", "GET /", "200 body 1 age 2: hit; detail=stale"},
			{100 * time.Millisecond, "", "GET /", "200 body 3: fwd=miss"},
		}, `GET GET if-none-match="a" GET`},
		{"vary", "", "", []step{
			{0, long + ";Vary: Accept", "GET /;Accept: a", "200 body 1: fwd=miss; stored"},
			{0, "", "GET /;Accept: b", "200 body 2: fwd=miss; stored"},
			{0, "", "GET /;Accept: a", "200 body 1 age 0: hit"},
			{0, "", "GET /;Accept: b;X-Other: 1", "200 body 2 age 0: hit"},
			{0, "", "GET /", "200 body 3: fwd=miss; stored"},
			{0, long + ";Vary: *", "GET /x", "200 body 4: fwd=miss"},
		}, "GET GET GET GET"},
		{"the key", "cache: {key: [X-Tier]}", "", []step{
			{0, long, "GET /;x-tier: a", "200 body 1: fwd=miss; stored"},
			{0, "", "GET /;x-tier: b", "200 body 2: fwd=miss; stored"},
			{0, "", "GET /;x-tier: a", "200 body 1 age 0: hit"},
		}, "GET GET"},
		{"credentials", "", "", []step{
			{0, long, "GET /;Authorization: a", "200 body 1: fwd=miss"},
			{0, "", "GET /;Cookie: a", "200 body 2: fwd=miss"},
			{0, "", "GET /", "200 body 3: fwd=miss; stored"},
			{0, "", "GET /;Authorization: a", "200 body 4: fwd=miss"},
			{0, long + ", public", "GET /x;Authorization: a", "200 body 5: fwd=miss; stored"},
			{0, "", "GET /x;Cookie: b", "200 body 5 age 0: hit"},
		}, "GET GET GET GET GET"},
		{"credentials in the key", "cache: {key: [cookie]}", "", []step{
			{0, long, "GET /;Cookie: a", "200 body 1: fwd=miss; stored"},
			{0, "", "GET /;Cookie: a", "200 body 1 age 0: hit"},
			{0, "", "GET /;Cookie: b", "200 body 2: fwd=miss; stored"},
			{0, "", "GET /", "200 body 3: fwd=miss; stored"},
		}, "GET GET GET"},
		{"ranges pass", "", "", []step{
			{0, long, "GET /", "200 body 1: fwd=miss; stored"},
			{0, "", "GET /;Range: bytes=0-1", "200 body 2: fwd=bypass"},
			{0, "", "GET /;Range: bytes=0-1;Cache-Control: only-if-cached", "504 the response is not in the cache, and the client wants no other\n:"},
		}, "GET GET"},
		{"only-if-cached", "", "", []step{
			{0, long, "GET /;Cache-Control: only-if-cached", "504 the response is not in the cache, and the client wants no other\n:"},
			{0, "", "GET /", "200 body 1: fwd=miss; stored"},
			{0, "", "GET /;Cache-Control: only-if-cached", "200 body 1 age 0: hit"},
		}, "GET"},
		{"invalidation", "", "", []step{
			{0, long, "GET /a", "200 body 1: fwd=miss; stored"},
			{time.Second, "", "GET /b", "200 body 2: fwd=miss; stored"},
			{0, "", "POST /a", "200 body 3:"},
			{0, "", "POST /b;x-status: 404", "404 body 4:"},
			{0, "", "GET /a", "200 body 5: fwd=miss; stored"},
			{0, "", "GET /b", "200 body 2 age 0: hit"},
			{0, "", "DELETE /b;x-status: 301", "301 body 6:"},
			{0, "", "GET /b", "200 body 7: fwd=miss; stored"},
		}, "GET GET POST POST GET DELETE GET"},
		{"stale while revalidate", "", "", []step{
			{0, "", "GET /", "200 body 1: fwd=miss; stored"},
			{2 * time.Second, "", "GET /", "200 body 1 age 2: hit; detail=stale"},
			{100 * time.Millisecond, "", "GET /", "200 body 2 age 0: hit"},
		}, "GET GET"},
		{"stale if error", "", "", []step{
			{0, "Cache-Control: max-age=1, stale-while-revalidate=0, stale-if-error=5", "GET /", "200 body 1: fwd=miss; stored"},
			{2 * time.Second, "", "GET /;x-status: 503", "200 body 1 age 2: hit; detail=stale"},
			{5 * time.Second, "", "GET /;x-status: 503", "503 body 3: fwd=miss"},
			{0, "", "GET /", "200 body 4: fwd=miss; stored"},
		}, "GET GET GET GET"},
		{"must-revalidate", "", "", []step{
			{0, "Cache-Control: max-age=1, must-revalidate", "GET /", "200 body 1: fwd=miss; stored"},
			{2 * time.Second, "", "GET /;x-status: 503", "503 body 2: fwd=miss"},
			{0, "", "GET /;Cache-Control: max-stale=100", "200 body 3: fwd=miss; stored"},
		}, "GET GET GET"},
		{"max-stale", "cache: {stale: 0s}", "", []step{
			{0, "Cache-Control: max-age=1", "GET /", "200 body 1: fwd=miss; stored"},
			{3 * time.Second, "", "GET /;Cache-Control: max-stale=100", "200 body 1 age 3: hit; detail=stale"},
		}, "GET"},
		{"other methods", "", "", []step{
			{0, long, "OPTIONS /", "200 body 1:"},
			{0, "", "OPTIONS /", "200 body 2:"},
		}, "OPTIONS OPTIONS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			route := c.route
			if route == "" {
				route = "cache: {}"
			}
			m := newOrigin(t, proxytest.MeshOptions{}, route)
			m.etag = c.etag
			m.W.Run(300 * time.Millisecond) // the second begins 100 ms after the epoch
			m.run(c.steps)
			m.Settled()
			if got := strings.Join(m.got, " "); got != c.got {
				t.Errorf("the application got %s, want %s", got, c.got)
			}
		})
	}
}

func (m *origin) counts() stats.FilterStats { return m.Consumer.Stats("compute").FilterStats }

// TestRefreshesAtOnce: 64 refreshes are in flight at most. A hit beyond them is served all the same,
// and refreshes once there is room.
func TestRefreshesAtOnce(t *testing.T) {
	const most = 64
	m := newOrigin(t, proxytest.MeshOptions{}, "cache: {ttl: 1s, stale: 1m}")
	for i := range most + 1 {
		m.ask(fmt.Sprint("/", i))
	}
	m.W.Run(2 * time.Second)
	m.Apps[0].Delay = func() time.Duration { return 5 * time.Second }
	for i := range most + 1 {
		if _, got := m.ask(fmt.Sprint("/", i)); !strings.HasSuffix(got, ": hit; detail=stale") {
			t.Errorf("hit %d: %q", i, got)
		}
		if want := uint64(min(i+1, most)); m.counts().CacheRefreshed != want {
			t.Errorf("after hit %d there were %d refreshes, want %d", i, m.counts().CacheRefreshed, want)
		}
	}
	m.W.Run(6 * time.Second)
	m.ask(fmt.Sprint("/", most))
	if n := m.counts().CacheRefreshed; n != most+1 {
		t.Errorf("%d refreshes after the others have ended", n)
	}
	m.W.Run(6 * time.Second)
	m.Settled()
}
