package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// switchable is the health check of an application that can be switched off.
type switchable struct {
	app   string
	down  atomic.Bool
	asked atomic.Int64
}

func (s *switchable) start(t *testing.T) (addr string) {
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

func (s *switchable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	if r.URL.Path != "/healthz" || s.down.Load() {
		http.Error(w, "down", http.StatusServiceUnavailable)
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		outcomes string // + passed, - failed
		want     string // h healthy, s sick, . unchanged
	}{
		{"+", "h"},
		{"---+", "...h"},
		{"+-", "h."},
		{"+--", "h.s"},
		{"+-+-+-", "h....."},
		{"+--+", "h.s."},
		{"+--++", "h.s.h"},
		{"+--+-++", "h.s...h"},
	} {
		check := newCheckOf(&config.Check{TCP: true, Interval: time.Second}, nil)
		var got strings.Builder
		for _, o := range c.outcomes {
			got.WriteByte(".hs"[check.note(o == '+')])
		}
		if got.String() != c.want {
			t.Errorf("%s: verdicts %s, want %s", c.outcomes, got.String(), c.want)
		}
	}
}

func TestAsk(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/sick", http.StatusFound)
		case "/hangs":
			<-r.Context().Done()
		case "/sick":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer srv.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	up, down := srv.Listener.Addr().String(), ln.Addr().String()
	for _, c := range []struct {
		path  string // "": TCP
		addrs []string
		want  string // in the error; "": none
	}{
		{"", []string{up}, ""},
		{"", []string{down}, "refused"},
		{"", []string{down, up}, ""},
		{"/", []string{up}, ""},
		{"/", []string{down, up}, ""},
		{"/", []string{down}, "refused"},
		{"/moved", []string{up}, ""},
		{"/sick", []string{up}, "500"},
		{"/hangs", []string{up}, "deadline"},
	} {
		check := newCheckOf(&config.Check{HTTP: c.path, Interval: 200 * time.Millisecond}, nil)
		check.addrs = c.addrs
		if c.path != "/hangs" {
			check.client.Timeout = patience
		}
		err := check.ask(context.Background())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(strings.ToLower(err.Error()), c.want) {
			t.Errorf("%q at %v: %v, want %q", c.path, c.addrs, err, c.want)
		}
	}
	if limit := newCheckOf(&config.Check{Interval: time.Minute}, nil).client.Timeout; limit != checkTimeout {
		t.Errorf("timeout %v", limit)
	}
}

// TestCheckRun: outcomes arrive one by one until the context ends.
func TestCheckRun(t *testing.T) {
	s := &switchable{}
	check := newCheckOf(&config.Check{HTTP: "/healthz", Interval: 10 * time.Millisecond}, []config.Endpoint{{Address: s.start(t)}})
	check.client.Timeout = patience // slowness is not the subject
	ctx, cancel := context.WithCancel(context.Background())
	verdicts := make(chan verdict)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		check.run(ctx, func(err error, v verdict) {
			if v == sick && !strings.Contains(err.Error(), "503") {
				err = errors.Join(errors.New("sick without a reason"), err)
				t.Error(err)
			}
			if v != unchanged {
				verdicts <- v
			}
		})
	}()
	for _, want := range []verdict{healthy, sick, healthy} {
		s.down.Store(want == sick)
		if got := receive(t, "a verdict", verdicts); got != want {
			t.Errorf("verdict %v, want %v", got, want)
		}
	}
	cancel()
	receive(t, "the end", ended)
}
