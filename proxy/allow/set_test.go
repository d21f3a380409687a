package allow

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/identity"
)

var quiet = slog.New(slog.DiscardHandler)

// TestPaths checks which paths the pattern /v1/* and the path /v1 allow.
func TestPaths(t *testing.T) {
	below := NewSet("s", &config.Allow{Enforce: true, Rules: []config.AllowRule{{Path: []string{"/v1/*", "/one"}}}}, nil)
	for path, want := range map[string]bool{
		"/v1/": true, "/v1/a": true, "/v1/a/b/": true, "/v1/a?x=/../": true, "/v1/a.b/..c/.d": true, "/v1/a;b=c": true,
		"/v1/%41%20": true, "/one": true, "/one?a": true,
		"/v1": false, "/v10/a": false, "/V1/a": false, "/one/": false, "/one/a": false, "": false, "*": false, "v1/a": false,
		"/v1/..": false, "/v1/../a": false, "/v1/a/../../b": false, "/v1/./a": false, "/v1/.": false, "/v1//a": false, "/v1/a//": false,
		"/v1/..;/a": false, "/v1/.;x/a": false, "/v1/;/a": false, "/v1/;": false, `/v1/..\a`: false, `/v1/a\b`: false,
		"/v1/%2e%2e/a": false, "/v1/%2E./a": false, "/v1/a%2fb": false, "/v1/a%5Cb": false, "/v1/%252e": false, "/v1/a%3bb": false,
		"/v1/%00": false, "/v1/%": false, "/v1/%4": false, "/v1/%g1": false, "/v1/%1": false, "/v1/%7f": false,
	} {
		c := Call{Req: &protocol.Request{Method: []byte("GET"), Path: []byte(path)}, Path: []byte(path)}
		if got := !below.Refuses(&c, "", quiet); got != want {
			t.Errorf("%q is allowed: %v", path, got)
		}
	}
}

// TestConditions checks that all conditions of a rule must hold.
func TestConditions(t *testing.T) {
	a := &identity.Names{URIs: []string{"spiffe://d/a"}, DNS: []string{"a.d"}}
	get := &protocol.Request{Method: []byte("GET"), Path: []byte("/p")}
	call := &protocol.Request{Method: []byte("m"), Path: []byte("i"), Codec: dubbo.CodecHessian2}
	for i, c := range []struct {
		rule config.AllowRule
		call Call
		want bool
	}{
		{config.AllowRule{}, Call{}, true},
		{config.AllowRule{}, Call{Req: get}, true},
		{config.AllowRule{From: []string{"spiffe://d/*"}}, Call{Peer: a}, true},
		{config.AllowRule{From: []string{"spiffe://d/b", "*.d"}}, Call{Peer: a}, true},
		{config.AllowRule{From: []string{"spiffe://d/b"}}, Call{Peer: a}, false},
		{config.AllowRule{From: []string{"spiffe://d/*"}}, Call{}, false},
		{config.AllowRule{Method: []string{"POST", "GET"}}, Call{Req: get}, true},
		{config.AllowRule{Method: []string{"get"}}, Call{Req: get}, false},
		{config.AllowRule{Method: []string{"GET"}}, Call{}, false},
		{config.AllowRule{Path: []string{"/p"}}, Call{Req: get}, true},
		{config.AllowRule{Path: []string{"/p"}, From: []string{"a.d"}}, Call{Req: get}, false},
		{config.AllowRule{Path: []string{"/p"}, From: []string{"a.d"}}, Call{Req: get, Peer: a}, true},
		{config.AllowRule{Path: []string{"/p"}}, Call{}, false},
		{config.AllowRule{Service: []string{"i"}}, Call{}, false},
		{config.AllowRule{Path: []string{"/p"}, Method: []string{"GET"}}, Call{}, false},
		{config.AllowRule{Path: []string{"/p"}, Service: []string{"i"}}, Call{}, false},
		{config.AllowRule{Method: []string{"m"}, Service: []string{"i"}}, Call{}, false},
		{config.AllowRule{Path: []string{"/p"}}, Call{Req: &protocol.Request{Path: []byte("/p"), Codec: dubbo.CodecHessian2}}, false},
		{config.AllowRule{Service: []string{"i"}}, Call{Req: call}, true},
		{config.AllowRule{Service: []string{"i"}, Method: []string{"n"}}, Call{Req: call}, false},
		{config.AllowRule{Service: []string{"/p"}}, Call{Req: get}, false},
		{config.AllowRule{Method: []string{"m"}}, Call{Req: call}, true},
	} {
		if c.call.Req != nil {
			c.call.Path = c.call.Req.Path
		}
		s := NewSet("s", &config.Allow{Enforce: true, Rules: []config.AllowRule{c.rule}}, nil)
		if got := !s.Refuses(&c.call, "", quiet); got != c.want {
			t.Errorf("%d: %+v allows %+v: %v", i, c.rule, c.call, got)
		}
	}
}

// TestCounts checks counts, lines of the log, and that an unchanged set survives a reload.
func TestCounts(t *testing.T) {
	var log strings.Builder
	text := slog.New(slog.NewTextHandler(&log, nil))
	c := &config.Allow{Rules: []config.AllowRule{{Name: "get", Method: []string{"GET"}}, {Method: []string{"PUT"}}}}
	s := NewSet("services.a", c, nil)
	peer := &identity.Names{URIs: []string{"spiffe://d/a"}, DNS: []string{"a.d"}}
	for _, method := range []string{"GET", "PUT", "PUT", "POST"} {
		r := &protocol.Request{Method: []byte(method), Path: []byte("/p?secret")}
		if s.Refuses(&Call{Peer: peer, Req: r, Path: r.Path}, "10.0.0.1:1", text) {
			t.Errorf("%s is refused by rules that are not enforced", method)
		}
	}
	for range 1000 {
		s.Refuses(&Call{}, "", text)
	}
	want := []Count{{"services.a", "get", false, 1}, {"services.a", "1", false, 2}, {"services.a", NoRule, false, 1001}}
	if got := s.Counts(nil); !slices.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
	if n := strings.Count(log.String(), "\n"); n != 10 || strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), `names="[spiffe://d/a a.d]" method=POST path=/p rules=services.a client=10.0.0.1:1 so_far=1`+"\n") {
		t.Errorf("%d lines:\n%s", n, &log)
	}
	same := *c
	other := config.Allow{Enforce: true, Rules: c.Rules}
	if NewSet("services.a", &same, s) != s || NewSet("services.a", &other, s) == s || NewSet("services.a", &config.Allow{}, s) != nil {
		t.Error("a set is kept if and only if its rules are the same")
	}
	for _, c := range []struct {
		enforce bool
		says    string
	}{{false, "which passes"}, {true, "refused"}} {
		log.Reset()
		NewSet("s", &config.Allow{Enforce: c.enforce, Rules: []config.AllowRule{{Method: []string{"GET"}}}}, nil).Refuses(&Call{}, "", text)
		if !strings.Contains(log.String(), c.says) {
			t.Errorf("enforced %v: the log says %s", c.enforce, &log)
		}
	}
	var none *Set
	if none.Refuses(&Call{}, "", text) {
		t.Error("no rules refuse a request")
	}
}

// TestAllowAllocs checks that a request which a rule allows costs no allocation.
func TestAllowAllocs(t *testing.T) {
	rule := config.AllowRule{From: []string{"spiffe://d/*"}, Method: []string{"GET"}, Path: []string{"/a", "/v1/*"}}
	s := NewSet("s", &config.Allow{Enforce: true, Rules: []config.AllowRule{rule}}, nil)
	r := &protocol.Request{Method: []byte("GET"), Path: []byte("/v1/a%20/b?x")}
	c := Call{Peer: &identity.Names{URIs: []string{"spiffe://d/a"}}, Req: r, Path: r.Path}
	if n := testing.AllocsPerRun(100, func() {
		if s.Refuses(&c, "", quiet) {
			panic(fmt.Sprint("refused: ", c))
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestPathsStayBelow checks with random paths that whatever an application makes of a path which
// /v1/* allows is below /v1: it may decode twice, drop parameters, take \ for /, and shorten.
func TestPathsStayBelow(t *testing.T) {
	rnd, allowed := rand.New(rand.NewPCG(1, 2)), 0
	below := NewSet("s", &config.Allow{Enforce: true, Rules: []config.AllowRule{{Path: []string{"/v1/*"}}}}, nil)
	pieces := []string{"/", "/", ".", "..", "a", "%2e", "%2E", "%2f", "%5c", "%25", "2e", "%3b", ";", "\\", "%", "v1", "%61", "?", "%c0%ae"}
	for range 200_000 {
		text := "/v1/"
		for range 1 + rnd.IntN(7) {
			text += pieces[rnd.IntN(len(pieces))]
		}
		if below.Refuses(&Call{Req: &protocol.Request{}, Path: []byte(text)}, "", quiet) {
			continue
		}
		allowed++
		seen, _, _ := strings.Cut(text, "?")
		for range 2 {
			if got, err := url.PathUnescape(seen); err == nil {
				seen = got
			}
			seen = strings.ReplaceAll(seen, `\`, "/")
			segments := strings.Split(seen, "/")
			for i := range segments {
				segments[i], _, _ = strings.Cut(segments[i], ";")
			}
			seen = path.Clean(strings.Join(segments, "/"))
			if seen != "/v1" && !strings.HasPrefix(seen, "/v1/") {
				t.Fatalf("%q is allowed, and may become %q", text, seen)
			}
		}
	}
	if allowed < 1000 {
		t.Errorf("only %d paths were allowed", allowed)
	}
}
