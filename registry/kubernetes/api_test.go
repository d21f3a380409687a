package kubernetes

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// api is a stand-in for the API server, with lists in pages and watches of one namespace. scripts/sources.sh has a
// real one.
type api struct {
	*httptest.Server
	pages int // slices of a page

	mu      sync.Mutex
	version int
	slices  map[string]map[string]any // by name
	events  []apiEvent
	oldest  int           // versions below are gone
	changed chan struct{} // closed at the next change
	cut     bool
	tokens  []string // of the requests
	lists   int
	watched []int // the versions from which watches began
	noWatch bool  // the account may list, and not watch
	ending  bool  // the watch ends after the next event
	silent  bool  // requests get no response
}

// slicesPath is that of the slices of the namespace shop.
const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"

type apiEvent struct {
	version int
	text    string
}

func newAPI(t *testing.T) *api {
	a := &api{pages: 2, version: 100, slices: map[string]map[string]any{}, changed: make(chan struct{})}
	a.Server = httptest.NewServer(a)
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	return a
}

// set stores a slice, or deletes it if s is nil.
func (a *api) set(name string, s map[string]any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	kind := "MODIFIED"
	if s == nil {
		kind, s = "DELETED", a.slices[name]
		delete(a.slices, name)
	} else {
		if a.slices[name] == nil {
			kind = "ADDED"
		}
		a.slices[name] = s
	}
	s["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(a.version)
	a.happen(kind, s)
}

// happen tells the watches of an event.
func (a *api) happen(kind string, object any) {
	b, _ := json.Marshal(map[string]any{"type": kind, "object": object})
	a.events = append(a.events, apiEvent{a.version, string(b)})
	close(a.changed)
	a.changed = make(chan struct{})
}

// forget makes all versions so far gone.
func (a *api) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.oldest, a.events = a.version, nil
}

func (a *api) setCut(cut bool) {
	a.mu.Lock()
	a.cut = cut
	a.mu.Unlock()
	if cut {
		a.CloseClientConnections()
	}
}

// setSilent makes later requests get no response, as behind a balancer whose server has gone.
func (a *api) setSilent(silent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.silent = silent
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	cut, silent := a.cut, a.silent
	isForbidden := a.noWatch && r.URL.Query().Get("watch") != ""
	a.tokens = append(a.tokens, r.Header.Get("Authorization"))
	a.mu.Unlock()
	switch {
	case cut:
		panic(http.ErrAbortHandler)
	case silent:
		<-r.Context().Done()
	case isForbidden || r.URL.Path != slicesPath:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind": "Status", "message": "endpointslices is forbidden", "code": 403}`)
	case r.URL.Query().Get("watch") != "":
		a.watch(w, r)
	default:
		a.list(w, r)
	}
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists++
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range a.slices {
			if !yield(name) {
				return
			}
		}
	})
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	to, next := min(from+min(a.pages, limit), len(names)), ""
	if to < len(names) {
		next = strconv.Itoa(to)
	}
	items := []any{}
	for _, name := range names[min(from, to):to] {
		items = append(items, a.slices[name])
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version), "continue": next}, "items": items,
	})
}

func (a *api) watch(w http.ResponseWriter, r *http.Request) {
	version, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	a.mu.Lock()
	a.watched = append(a.watched, version)
	a.mu.Unlock()
	for {
		a.mu.Lock()
		gone, changed := version < a.oldest, a.changed
		var texts []string
		for _, e := range a.events {
			if e.version > version {
				texts = append(texts, e.text)
			}
		}
		version = max(version, a.version)
		ends := a.ending && len(texts) > 0
		a.ending = a.ending && !ends
		a.mu.Unlock()
		if gone {
			fmt.Fprint(w, `{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}`)
			return
		}
		fmt.Fprint(w, strings.Join(texts, "\n"))
		w.(http.Flusher).Flush()
		if ends {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// sliceOf returns a slice of the Service with an endpoint for each address.
func sliceOf(service string, port int, endpoints ...registry.Endpoint) map[string]any {
	list := []any{}
	for _, e := range endpoints {
		addr, _ := registry.ParseAddr(e.Addr)
		list = append(list, map[string]any{"addresses": []string{addr.Host}, "zone": e.Zone})
	}
	return map[string]any{
		"metadata":    map[string]any{"name": service + "-1", "labels": map[string]string{serviceLabel: service}},
		"addressType": "IPv4", "endpoints": list, "ports": []any{map[string]any{"name": "http", "protocol": "TCP", "port": port}},
	}
}

// open returns a Registry for the namespace shop, and closes it at the end of the test, unless the test has. It must keep nothing
// of a watch then.
func open(t *testing.T, a *api, change func(*Options)) *Registry {
	t.Helper()
	server, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Namespace: "shop"}
	if change != nil {
		change(&o)
	}
	r, err := newRegistry(o, &access{server: server, namespace: "default", token: material{data: []byte("secret\n")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.tasks.Context().Err() == nil {
			r.Close()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for namespace, f := range r.followers {
			f.mu.Lock()
			if len(f.users) > 0 {
				t.Errorf("%d watches of namespace %s are left", len(f.users), namespace)
			}
			f.mu.Unlock()
		}
	})
	return r
}

// counting is a server that counts its connections.
type counting struct {
	*httptest.Server
	opened atomic.Int32
	closed chan struct{}
}

// count starts a server, with TLS and HTTP/2 if isTLS is set, else with HTTP/1.1.
func count(t *testing.T, h http.Handler, isTLS bool) *counting {
	c := &counting{Server: httptest.NewUnstartedServer(h), closed: make(chan struct{}, 100)}
	c.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			c.opened.Add(1)
		case http.StateClosed:
			c.closed <- struct{}{}
		}
	}
	c.Config.ErrorLog = log.New(io.Discard, "", 0)
	if c.EnableHTTP2 = isTLS; isTLS {
		c.StartTLS()
	} else {
		c.Start()
	}
	t.Cleanup(func() { c.CloseClientConnections(); c.Close() })
	return c
}

// waitClosed waits until another connection was closed.
func (c *counting) waitClosed(t *testing.T) {
	t.Helper()
	select {
	case <-c.closed:
	case <-time.After(45 * time.Second): // a client closes a connection that has been idle for a minute
		t.Fatal("the connection stays")
	}
}
