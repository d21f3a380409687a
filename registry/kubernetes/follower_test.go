package kubernetes

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/registrytest"
)

func at(addrs ...string) (all []registry.Endpoint) {
	for _, a := range addrs {
		all = append(all, registry.Endpoint{Addr: a})
	}
	return all
}

// TestPages: a list of several pages is delivered as a whole, each service by its own slices.
func TestPages(t *testing.T) {
	a := newAPI(t)
	for _, service := range []string{"a", "b", "c", "d", "e"} {
		a.set(service, sliceOf(service, 80, at("10.0.0."+string('1'+service[0]-'a')+":80")...))
	}
	r := open(t, a, func(o *Options) { o.Services = map[string]Service{"other": {Name: "e", Port: "http"}} })
	for service, want := range map[string]string{"a": "10.0.0.1:80", "c": "10.0.0.3:80", "other": "10.0.0.5:80"} {
		registrytest.Watch(t, r, service).WaitAddrs(want)
	}
	registrytest.Watch(t, r, "unknown").WaitAddrs()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lists > 3 {
		t.Errorf("%d pages for four services of one namespace, want 3", a.lists)
	}
	if a.tokens[0] != "Bearer secret" {
		t.Errorf("the token %q", a.tokens[0])
	}
}

// TestLargePages: a list whose pages are too large goes on with smaller pages, from where it was.
func TestLargePages(t *testing.T) {
	const bound = 100 << 10
	for name, c := range map[string]struct {
		page   int   // slices of a page, at most
		sizes  []int // of slices
		lists  int   // requests for pages
		isOver bool  // one slice alone is too large
	}{
		"all fit":             {10, []int{10 << 10, 10 << 10, 10 << 10}, 1, false},
		"not all fit":         {10, []int{40 << 10, 40 << 10, 40 << 10}, 8 + 3, false}, // 500, 250, 125, 62, 31, 15, 7 and 3 are too many
		"the last do not fit": {2, []int{1 << 10, 1 << 10, 60 << 10, 60 << 10}, 1 + 8 + 2, false},
		"one is too large":    {10, []int{1 << 10, bound}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			a.pages = c.page
			var want []string
			for i, size := range c.sizes {
				name := fmt.Sprint("s", i)
				want = append(want, fmt.Sprintf("10.0.0.%d:80", i+1))
				s := rename(sliceOf("compute", 80, at(want[i])...), name)
				s["metadata"].(map[string]any)["annotations"] = map[string]string{"text": strings.Repeat("x", size)}
				a.set(name, s)
			}
			r := open(t, a, func(o *Options) { o.maxMessage = bound })
			s := registrytest.Watch(t, r, "compute")
			if c.isOver {
				eventually.True(t, "an error", func() bool { return r.Condition().Code == registry.CodeInvalid })
				return
			}
			s.WaitAddrs(want...)
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.lists != c.lists {
				t.Errorf("%d requests for pages, want %d", a.lists, c.lists)
			}
		})
	}
}

// TestGone: a watch whose version is forgotten leads to another list. A slice that has gone meanwhile has no endpoints then.
func TestGone(t *testing.T) {
	a := newAPI(t)
	a.set("one", sliceOf("compute", 80, at("10.0.0.1:80")...))
	a.set("two", rename(sliceOf("compute", 80, at("10.0.0.2:80")...), "two"))
	r := open(t, a, nil)
	s := registrytest.Watch(t, r, "compute")
	s.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")
	a.setCut(true)
	a.set("one", nil)
	a.forget()
	a.setCut(false)
	s.WaitAddrs("10.0.0.2:80")
	s.Always("10.0.0.2:80")
}

func rename(s map[string]any, name string) map[string]any {
	s["metadata"].(map[string]any)["name"] = name
	return s
}

// TestMoved: a slice that goes to another Service leaves the one before.
func TestMoved(t *testing.T) {
	a := newAPI(t)
	a.set("one", rename(sliceOf("compute", 80, at("10.0.0.1:80")...), "one"))
	a.set("two", rename(sliceOf("compute", 80, at("10.0.0.2:80")...), "two"))
	r := open(t, a, nil)
	compute, other := registrytest.Watch(t, r, "compute"), registrytest.Watch(t, r, "other")
	compute.WaitAddrs("10.0.0.1:80", "10.0.0.2:80")
	a.set("one", rename(sliceOf("other", 80, at("10.0.0.1:80")...), "one"))
	compute.WaitAddrs("10.0.0.2:80")
	other.WaitAddrs("10.0.0.1:80")
}

// TestBookmark: after a bookmark and the end of the watch, the next watch goes on from there without a list.
func TestBookmark(t *testing.T) {
	a := newAPI(t)
	a.set("compute", sliceOf("compute", 80, at("10.0.0.1:80")...))
	r := open(t, a, nil)
	s := registrytest.Watch(t, r, "compute")
	s.WaitAddrs("10.0.0.1:80")
	a.mu.Lock()
	lists := a.lists
	a.version += 50
	a.happen("BOOKMARK", map[string]any{"kind": "EndpointSlice", "metadata": map[string]string{"resourceVersion": strconv.Itoa(a.version)}})
	a.ending = true // of the watch, after this event
	a.mu.Unlock()
	eventually.True(t, "a watch from the bookmark", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return slices.Contains(a.watched, a.version)
	})
	a.set("compute", sliceOf("compute", 80, at("10.0.0.2:80")...))
	s.WaitAddrs("10.0.0.2:80")
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lists != lists {
		t.Errorf("%d lists after the first", a.lists-lists)
	}
}

// TestRefusals: what can't be read is told in the log once, and by the condition. The last endpoints stay.
func TestRefusals(t *testing.T) {
	a := newAPI(t)
	var log syncbuffer.Buffer
	r := open(t, a, func(o *Options) {
		o.Services = map[string]Service{"secret": {Namespace: "vault"}}
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	defer r.Close()
	registrytest.Watch(t, r, "secret")
	eventually.True(t, "an error", func() bool { return r.Condition().Err != nil })
	if now := r.Condition(); now.Up || now.Code != registry.CodeDenied || !strings.Contains(now.Err.Error(), "status 403: endpointslices is forbidden") {
		t.Errorf("%+v", now)
	}
	a.mu.Lock()
	before := len(a.tokens)
	a.mu.Unlock()
	eventually.True(t, "more tries", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.tokens) > before+2
	})
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
}

// TestUnusable: the condition has how many endpoints can't be used, and the others are. The log says it once, for as long as it is the same.
func TestUnusable(t *testing.T) {
	a := newAPI(t)
	var log syncbuffer.Buffer
	r := open(t, a, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	s := registrytest.Watch(t, r, "compute")
	for i, step := range []struct{ unusable, lines int }{{2, 1}, {2, 1}, {0, 1}, {2, 2}} {
		good := fmt.Sprintf("10.0.0.%d:80", 1+i)
		a.set("compute", sliceOf("compute", 80, at(append([]string{good}, []string{"no address", "nor this one"}[:step.unusable]...)...)...))
		s.WaitAddrs(good)
		if n := r.Condition().Unusable; n != step.unusable {
			t.Errorf("step %d: %d endpoints can't be used, want %d", i, n, step.unusable)
		}
		if n := strings.Count(log.String(), "service can't be used as it is"); n != step.lines {
			t.Errorf("step %d: %d lines, want %d:\n%s", i, n, step.lines, log.String())
		}
	}
	s.Stop()
	eventually.True(t, "nobody to want the endpoints", func() bool { return r.Condition().Unusable == 0 })
}

// TestSeveralPorts: a Service whose port is not known keeps its last endpoints, and the log says so once. It has new ones once it has
// one port again.
func TestSeveralPorts(t *testing.T) {
	a := newAPI(t)
	var log syncbuffer.Buffer
	r := open(t, a, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	s := registrytest.Watch(t, r, "compute")
	a.set("compute", sliceOf("compute", 80, at("10.0.0.1:80")...))
	s.WaitAddrs("10.0.0.1:80")
	const line = "it has several ports; expected one of http, admin as its port"
	for _, addr := range []string{"10.0.0.2:80", "10.0.0.3:80"} {
		several := sliceOf("compute", 80, at(addr)...)
		several["ports"] = append(several["ports"].([]any), map[string]any{"name": "admin", "port": 81})
		a.set("compute", several)
	}
	other := registrytest.Watch(t, r, "other")
	a.set("other", sliceOf("other", 80, at("10.0.0.9:80")...))
	other.WaitAddrs("10.0.0.9:80") // and what was before it is known
	s.Always("10.0.0.1:80")
	if n := strings.Count(log.String(), line); n != 1 {
		t.Errorf("the log says it %d times:\n%s", n, log.String())
	}
	a.set("compute", sliceOf("compute", 80, at("10.0.0.4:80")...))
	s.WaitAddrs("10.0.0.4:80")
}

// TestWrongEvents: a watch ends with an event that can't be read, and the log says so. What the next list has is used.
func TestWrongEvents(t *testing.T) {
	for _, c := range []struct {
		kind   string
		object any
		want   string // in the log
	}{
		{"ADDED", 7, "cannot unmarshal number"},
		{"ADDED", map[string]any{"metadata": map[string]any{"name": "x"}, "endpoints": 7}, "cannot unmarshal number"},
		{"MOVED", map[string]any{}, "an unknown event"},
		{"ERROR", map[string]any{"code": 500, "message": "sick"}, "status 500: sick"},
	} {
		a := newAPI(t)
		var log syncbuffer.Buffer
		a.set("compute", sliceOf("compute", 80, at("10.0.0.1:80")...))
		r := open(t, a, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		s := registrytest.Watch(t, r, "compute")
		s.WaitAddrs("10.0.0.1:80")
		a.mu.Lock()
		a.version++
		a.happen(c.kind, c.object)
		a.mu.Unlock()
		a.set("compute", sliceOf("compute", 80, at("10.0.0.2:80")...))
		s.WaitAddrs("10.0.0.2:80")
		if r.Close(); !strings.Contains(log.String(), c.want) {
			t.Errorf("%s %v: the log has %s", c.kind, c.object, log.String())
		}
	}
}

// TestNoToken: without its token the sidecar asks for nothing, and the condition says why.
func TestNoToken(t *testing.T) {
	a := newAPI(t)
	r := open(t, a, nil)
	r.access.token = material{file: filepath.Join(t.TempDir(), "token")}
	registrytest.Watch(t, r, "compute")
	eventually.True(t, "an error", func() bool { return r.Condition().Err != nil })
	if now := r.Condition(); now.Up || !strings.Contains(now.Err.Error(), "no such file") {
		t.Errorf("%+v", now)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.tokens) > 0 {
		t.Errorf("%d requests", len(a.tokens))
	}
}

// TestLogOfNames: the log has names that don't resolve.
func TestLogOfNames(t *testing.T) {
	a := newAPI(t)
	a.set("compute", sliceOf("compute", 80, at("replica.test:80")...))
	var log syncbuffer.Buffer
	r := open(t, a, func(o *Options) {
		o.DNS.Lookup = func(context.Context, string) (dns.Answer, error) { return dns.Answer{}, errors.New("no such host") }
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	defer r.Close()
	registrytest.Watch(t, r, "compute").WaitAddrs()
	if !strings.Contains(log.String(), "host name does not resolve") {
		t.Errorf("the log has %s", log.String())
	}
}

// TestRotation: the token of a request is that which its file has then.
func TestRotation(t *testing.T) {
	a := newAPI(t)
	a.set("compute", sliceOf("compute", 80, at("10.0.0.1:80")...))
	token := filepath.Join(t.TempDir(), "token")
	must.WriteFile(t, token, "first")
	r := open(t, a, nil)
	r.access.token = material{file: token}
	s := registrytest.Watch(t, r, "compute")
	s.WaitAddrs("10.0.0.1:80")
	eventually.True(t, "the watch", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.watched) > 0
	})
	must.WriteFile(t, token, "second")
	a.setCut(true)
	a.setCut(false)
	eventually.True(t, "the second token", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return slices.Contains(a.tokens, "Bearer second")
	})
}

// TestKubeconfig: what a kubeconfig file may say.
func TestKubeconfig(t *testing.T) {
	const context = "current-context: c\ncontexts: [{name: b, context: {cluster: y}}, {name: c, context: {cluster: x, user: u, namespace: shop}}]\n"
	const cluster = `clusters: [{name: x, cluster: {server: "https://10.0.0.1:6443", certificate-authority: ca.pem}}]` + "\n"
	dir := t.TempDir()
	must.WriteFile(t, filepath.Join(dir, "token"), "abc")
	for _, c := range []struct{ name, text, want string }{
		{"a token", context + cluster + "users: [{name: u, user: {token: abc}}]", ""},
		{"a token in a file", context + cluster + "users: [{name: u, user: {tokenFile: token}}]", ""},
		{"JSON", `{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "x", "namespace": "shop"}}], "clusters": [{"name": "x", "cluster": {"server": "http://a"}}]}`, ""},
		{"a program", context + cluster + "users: [{name: u, user: {exec: {command: aws}}}]", "gets its token from a program"},
		{"no context", cluster, `the current context "" has no cluster`},
		{"no cluster", context, `the current context "c" has no cluster`},
		{"no URL", context + `clusters: [{name: x, cluster: {server: "10.0.0.1:6443"}}]`, "is no URL"},
		{"another scheme", context + `clusters: [{name: x, cluster: {server: "ftp://10.0.0.1:6443"}}]`, "is no URL"},
		{"a malformed URL", context + `clusters: [{name: x, cluster: {server: "https://10.0.0.1:a"}}]`, "is no URL"},
		{"a URL without a host", context + `clusters: [{name: x, cluster: {server: "https:///api"}}]`, "is no URL"},
		{"no base64", context + `clusters: [{name: x, cluster: {server: "https://a", certificate-authority-data: "?"}}]`, "illegal base64"},
		{"no YAML", "{", "remora-kubeconfig"},
	} {
		path := filepath.Join(dir, "remora-kubeconfig")
		must.WriteFile(t, path, c.text)
		a, err := fromKubeconfig(path)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
			continue
		}
		if err != nil || !strings.Contains(c.text, "token") {
			continue
		}
		if token, err := a.token.read(); string(token) != "abc" || err != nil || a.namespace != "shop" || a.ca.file != filepath.Join(dir, "ca.pem") {
			t.Errorf("%s: token %q, %v, namespace %s, authority %s", c.name, token, err, a.namespace, a.ca.file)
		}
	}
}

// TestInCluster: a pod finds the API server by its environment and its account.
func TestInCluster(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := inCluster(dir); err != errNoCluster {
		t.Errorf("outside of a pod: %v", err)
	}
	if _, err := New(Options{}); err != errNoCluster {
		t.Errorf("outside of a pod, and without a kubeconfig file: %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	if _, err := inCluster(dir); !os.IsNotExist(err) {
		t.Errorf("without an account: %v", err)
	}
	must.WriteFile(t, filepath.Join(dir, "namespace"), "shop\n")
	a, err := inCluster(dir)
	if err != nil || a.server.String() != "https://[fd00::1]:443" || a.namespace != "shop" {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestStateByNamespace: a namespace that works hides no error of another one, and each is told once.
func TestStateByNamespace(t *testing.T) {
	var text syncbuffer.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	vault, shop := &follower{namespace: "vault"}, &follower{namespace: "shop"}
	r := &Registry{log: log, followers: map[string]*follower{}}
	for _, f := range []*follower{vault, shop} {
		f.r, f.contact = r, registry.NewContact()
		r.followers[f.namespace] = f
	}
	for i := range 3 {
		vault.fail(fmt.Errorf("from port %d: %w", i, io.EOF)) // another text each time
		shop.succeed()
	}
	if now := r.Condition(); now.Up || now.Code != registry.CodeUnreachable || !strings.Contains(now.Err.Error(), "namespace vault: ") || strings.Count(text.String(), "\n") != 1 {
		t.Errorf("%+v; the log:\n%s", now, text.String())
	}
	if vault.succeed(); !r.Condition().Up {
		t.Error("the error stays")
	}
}

// TestRefusedWatch: an account that may list and not watch is an error, although each list works. It is told once.
func TestRefusedWatch(t *testing.T) {
	a := newAPI(t)
	a.noWatch = true
	a.set("compute", sliceOf("compute", 80, at("10.0.0.1:80")...))
	var log syncbuffer.Buffer
	r := open(t, a, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	registrytest.Watch(t, r, "compute").WaitAddrs("10.0.0.1:80")
	eventually.True(t, "more lists", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.lists > 3
	})
	if now := r.Condition(); now.Up || now.Code != registry.CodeDenied || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%+v; the log:\n%s", now, log.String())
	}
}

// TestSilentServer: an API server that keeps its connections and says nothing is noticed, in a watch and before a response.
// The last endpoints stay, and later ones come when it speaks again.
func TestSilentServer(t *testing.T) {
	a := newAPI(t)
	a.set("compute", sliceOf("compute", 80, at("10.0.0.1:80")...))
	r := open(t, a, func(o *Options) { o.requestTimeout, o.silence = time.Second, 100*time.Millisecond })
	s := registrytest.Watch(t, r, "compute")
	s.WaitAddrs("10.0.0.1:80")
	for i := range 2 {
		eventually.True(t, "the source to be up", func() bool { return r.Condition().Up })
		a.setSilent(true)
		eventually.True(t, "the source to be down", func() bool { return r.Condition().Code == registry.CodeUnreachable })
		s.Always("10.0.0.1:80")
		a.setSilent(false)
		a.set("compute", sliceOf("compute", 80, at("10.0.0.1:80", fmt.Sprintf("10.0.0.%d:80", 2+i))...))
		s.WaitAddrs("10.0.0.1:80", fmt.Sprintf("10.0.0.%d:80", 2+i))
	}
}

// TestNamespace: a Service without a namespace has the namespace of the options, or else the namespace of the account.
func TestNamespace(t *testing.T) {
	a := newAPI(t)
	a.set("compute", sliceOf("compute", 80, at("10.0.0.1:80")...))
	server, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ option, account string }{{"shop", "default"}, {"", "shop"}} {
		r, err := newRegistry(Options{Namespace: c.option}, &access{server: server, namespace: c.account})
		if err != nil {
			t.Fatal(err)
		}
		registrytest.Watch(t, r, "compute").WaitAddrs("10.0.0.1:80")
		r.Close()
	}
}

// TestZone: endpoints with hints are used by sidecars of their zone.
func TestZone(t *testing.T) {
	a := newAPI(t)
	hinted := sliceOf("compute", 80, at("10.0.0.1:80", "10.0.0.2:80")...)
	for i, zone := range []string{"a", "b"} {
		hinted["endpoints"].([]any)[i].(map[string]any)["hints"] = map[string]any{"forZones": []any{map[string]string{"name": zone}}}
	}
	a.set("compute", hinted)
	for zone, want := range map[string][]string{"a": {"10.0.0.1:80"}, "b": {"10.0.0.2:80"}, "": {"10.0.0.1:80", "10.0.0.2:80"}} {
		r := open(t, a, func(o *Options) { o.Zone = zone })
		registrytest.Watch(t, r, "compute").WaitAddrs(want...)
		r.Close()
	}
}

// TestCloseConnection: the end of a Registry ends its connections, also one that is still in use: a stream of HTTP/2 may outlive its
// request for a moment.
func TestCloseConnection(t *testing.T) {
	for name, isTLS := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			server := count(t, newAPI(t), isTLS)
			at, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			of := &access{server: at, namespace: "shop"}
			if isTLS {
				of.ca.data = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			}
			r, err := newRegistry(Options{}, of)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			registrytest.Watch(t, r, "compute").WaitAddrs()
			resp, err := r.http.Get(at.JoinPath(slicesPath).String() + "?watch=1")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			r.Close()
			for range server.opened.Load() {
				server.waitClosed(t)
			}
		})
	}
}
