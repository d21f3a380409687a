package health

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		from     judge
		outcomes string // + passed, - failed
		want     string // h now healthy, u now unhealthy, . unchanged
	}{
		{judge{healthy: true}, "+--+---", "......u"},
		{judge{healthy: true}, "---+-+-++", "..u.....h"},
		{judge{healthy: true}, "---++---", "..u.h..u"},
		{judge{unproven: true}, "---+", "...h"},
		{judge{unproven: true}, "+---+-++", "h..u...h"},
	} {
		var got strings.Builder
		for _, o := range c.outcomes {
			switch changed := c.from.note(&Check{Healthy: 2, Unhealthy: 3}, o == '+'); {
			case !changed:
				got.WriteByte('.')
			case c.from.healthy:
				got.WriteByte('h')
			default:
				got.WriteByte('u')
			}
		}
		if got.String() != c.want {
			t.Errorf("%s: %s, want %s", c.outcomes, got.String(), c.want)
		}
	}
}

func TestAsk(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/sick", http.StatusFound)
		case "/hangs":
			<-r.Context().Done()
		case "/sick":
			w.WriteHeader(http.StatusInternalServerError)
		case "/399":
			w.WriteHeader(399)
		case "/400":
			w.WriteHeader(400)
		case "/wordy":
			w.Header().Set("X-Long", strings.Repeat("x", maxHeader))
		}
	})
	srv := httptest.NewServer(handler)
	defer srv.Close()
	socket := must.ListenOn(t, "unix", filepath.Join(t.TempDir(), "s"))
	local := httptest.NewUnstartedServer(handler)
	_ = local.Listener.Close()
	local.Listener = socket
	local.Start()
	defer local.Close()
	upUnix := "unix:" + socket.Addr().String()
	const twoFaced = "192.0.2.1:80"
	other := func(addr string) string {
		if addr == twoFaced {
			return srv.Listener.Addr().String()
		}
		return ""
	}
	up, down := srv.Listener.Addr().String(), closedPort(t)
	for _, c := range []struct {
		path    string // "" means TCP
		addrs   []string
		timeout time.Duration
		want    string // in the error; "" means no error
	}{
		{"", []string{up}, timeout, ""},
		{"", []string{down}, timeout, "refused"},
		{"", []string{down, up}, timeout, ""},
		{"/", []string{up}, timeout, ""},
		{"/", []string{down, up}, timeout, ""},
		{"/", []string{down}, timeout, "refused"},
		{"", []string{twoFaced}, timeout, ""},
		{"/", []string{twoFaced}, timeout, ""},
		{"", []string{upUnix}, timeout, ""},
		{"/", []string{upUnix}, timeout, ""},
		{"/sick", []string{upUnix}, timeout, "500"},
		{"", []string{upUnix + "x"}, timeout, "no such file"},
		{"/", []string{upUnix + "x"}, timeout, "no such file"},
		{"/moved", []string{up}, timeout, ""},
		{"/399", []string{up}, timeout, ""},
		{"/400", []string{up}, timeout, "400"},
		{"/sick", []string{up}, timeout, "500"},
		{"/wordy", []string{up}, timeout, "header"},
		{"/hangs", []string{up}, 100 * time.Millisecond, "deadline"},
	} {
		a := newAsker(&Check{Path: c.path, Timeout: c.timeout}, other)
		err := a.askAny(context.Background(), c.addrs)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(strings.ToLower(err.Error()), c.want) {
			t.Errorf("%q at %v: %v, want %q", c.path, c.addrs, err, c.want)
		}
	}
}

// TestZones: an endpoint whose IPv6 address has a zone is checked in each way, and is not told the zone.
func TestZones(t *testing.T) {
	web, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6: ", err)
	}
	hosts := make(chan string, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host }))
	_ = srv.Listener.Close()
	srv.Listener = web
	srv.Start()
	defer srv.Close()
	calls := listen(t, "tcp", "[::1]:0")
	serveHealth(t, calls)
	zoned := func(l net.Listener) string { return strings.Replace(l.Addr().String(), "::1", "::1%"+loopback(t), 1) }
	for _, c := range []struct {
		check Check
		addr  string
	}{
		{Check{}, zoned(web)}, {Check{Path: "/"}, zoned(web)}, {Check{GRPC: "/"}, zoned(calls)},
	} {
		c.check.Timeout = timeout
		if err := newAsker(&c.check, nil).ask(t.Context(), c.addr, ""); err != nil {
			t.Errorf("path %q, gRPC %q: %v", c.check.Path, c.check.GRPC, err)
		} else if c.check.Path != "" {
			if got := receive(t, "the host", hosts); got != web.Addr().String() {
				t.Errorf("the host is %s", got)
			}
		}
	}
}

// loopback returns the name of the loopback interface.
func loopback(t *testing.T) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			return i.Name
		}
	}
	t.Skip("no loopback interface")
	return ""
}

// TestBesideOther: the second address of an endpoint is asked beside the service, too, where the check has no host
// of its own.
func TestBesideOther(t *testing.T) {
	checks, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6: ", err)
	}
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	_ = srv.Listener.Close()
	srv.Listener = checks
	srv.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	srv.Start()
	defer srv.Close()
	other := func(addr string) string {
		if addr == "127.0.0.1:1" {
			return "[::1]:1"
		}
		return ""
	}
	port := checks.Addr().(*net.TCPAddr).Port
	for _, c := range []struct {
		path, host string
		passes     bool
	}{
		{"", "", true}, {"/", "", true}, {"/", "::1", true}, {"/", "127.0.0.1", false},
	} {
		a := newAsker(&Check{Path: c.path, Host: c.host, Port: port, Timeout: timeout}, other)
		if err := a.ask(t.Context(), "127.0.0.1:1", ""); (err == nil) != c.passes {
			t.Errorf("%q, host %q: %v", c.path, c.host, err)
		}
	}
}

func TestPause(t *testing.T) {
	c := Check{Interval: time.Second}
	seen := map[time.Duration]bool{}
	for range 1000 {
		p := c.pause()
		if seen[p] = true; p < 900*time.Millisecond || p > 1100*time.Millisecond {
			t.Fatalf("%v", p)
		}
	}
	pauses := slices.Sorted(maps.Keys(seen))
	if first, last := pauses[0], pauses[len(pauses)-1]; first > 920*time.Millisecond || last < 1080*time.Millisecond {
		t.Errorf("the pauses are from %v to %v", first, last)
	}
	for d := range time.Duration(20) {
		if p := (&Check{Interval: d + 1}).pause(); p < 0 || p > 2*(d+1) {
			t.Errorf("a pause of %v for an interval of %v", p, d+1)
		}
	}
}

// TestApplicationBefore checks that checks begin with the verdict of earlier ones.
func TestApplicationBefore(t *testing.T) {
	for _, c := range []struct {
		before Verdict
		status int
		want   string
	}{
		{Unchanged, 200, "h.."},
		{Healthy, 503, "..u"},
		{Unhealthy, 200, ".h."},
	} {
		s := newScripted(t)
		ctx, cancel := context.WithCancel(t.Context())
		got, ended := make(chan Verdict, 100), make(chan struct{})
		go func() {
			defer close(ended)
			Application(ctx, fast, []string{s.addr}, c.before, func(_ error, v Verdict) { got <- v })
		}()
		receive(t, "the first check", s.asked)
		var verdicts strings.Builder
		for range len(c.want) {
			s.answers(c.status)
			verdicts.WriteByte(".hu"[receive(t, "the outcome", got)])
		}
		if verdicts.String() != c.want {
			t.Errorf("%d after %d: %s, want %s", c.status, c.before, verdicts.String(), c.want)
		}
		cancel()
		receive(t, "the end", ended)
	}
}

// TestApplication checks that all outcomes arrive until the context ends. The first
// pass makes the application healthy; later the thresholds apply.
func TestApplication(t *testing.T) {
	s := newScripted(t)
	ctx, cancel := context.WithCancel(t.Context())
	type told struct {
		failed  bool
		verdict Verdict
	}
	got, ended := make(chan told, 100), make(chan struct{})
	go func() {
		defer close(ended)
		Application(ctx, fast, []string{closedPort(t), s.addr}, Unchanged, func(err error, v Verdict) { got <- told{err != nil, v} })
	}()
	receive(t, "the first check", s.asked)
	for _, c := range []struct {
		status int
		want   told
	}{
		{503, told{true, Unchanged}}, {200, told{false, Healthy}},
		{503, told{true, Unchanged}}, {503, told{true, Unchanged}}, {503, told{true, Unhealthy}},
		{200, told{false, Unchanged}}, {200, told{false, Healthy}},
	} {
		s.answers(c.status)
		if v := receive(t, "the outcome", got); v != c.want {
			t.Errorf("status %d: %+v, want %+v", c.status, v, c.want)
		}
	}
	cancel()
	receive(t, "the end", ended)
}

// TestAddressFor: a check may ask another host or port than those of the endpoint. A Unix socket has neither.
func TestAddressFor(t *testing.T) {
	for _, c := range []struct {
		host       string
		port       int
		addr, want string // "" means an error
	}{
		{"", 0, "10.0.0.1:80", "10.0.0.1:80"},
		{"", 81, "10.0.0.1:80", "10.0.0.1:81"},
		{"10.0.0.2", 0, "[::1]:80", "10.0.0.2:80"},
		{"::2", 81, "10.0.0.1:80", "[::2]:81"},
		{"", 0, "unix:/a", "unix:/a"},
		{"10.0.0.2", 81, "unix:/a", "10.0.0.2:81"},
		{"", 81, "unix:/a", ""},
		{"10.0.0.2", 0, "unix:/a", ""},
		{"", 81, "10.0.0.1", ""},
	} {
		a := &asker{check: &Check{Host: c.host, Port: c.port}}
		if got, err := a.addressFor(c.addr); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
	for addr, want := range map[string]string{"unix:@a": "localhost", "10.0.0.1:80": "10.0.0.1:80", "[fe80::1%eth0]:80": "[fe80::1]:80", "name:80": "name:80"} {
		if got := authorityOf(addr); got != want {
			t.Errorf("%s in a URL is %s, want %s", addr, got, want)
		}
	}
}
