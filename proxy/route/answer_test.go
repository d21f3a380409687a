package route

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/config"
)

// TestRedirect checks where clients are sent.
func TestRedirect(t *testing.T) {
	for _, c := range []struct{ route, target, want string }{
		{`redirect: {host: b}`, "a/x?y", "302 //b/x?y"},
		{`redirect: {host: "b:81", status: 301}`, "a:80/", "301 //b:81/"},
		{`redirect: {scheme: https}`, "a:8080/x", "302 https://a/x"},
		{`redirect: {scheme: https}`, "[::1]:8080/x", "302 https://[::1]/x"},
		{`redirect: {scheme: http, host: "b:81", path: /y, status: 307}`, "a/x?a=/&b", "307 http://b:81/y?a=/&b"},
		{`redirect: {path: /y, status: 308}`, "a/x", "308 /y"},
		{`redirect: {path: /y}`, "a/x?", "302 /y?"},
		{`redirect: {path: /}`, "a/x?y", "302 /?y"},
		{`match: {path: /x}, rewrite: {path: /y/z}, redirect: {status: 303}`, "a/x/w?v", "303 /y/z/w?v"},
		{`match: {path: /x}, rewrite: {path: /}, redirect: {host: b}`, "a/x//w", "302 //b/w"},
		{`redirect: {host: b}`, "a//evil/x", "302 //b/evil/x"},
		{`match: {prefix_text: /x/}, rewrite: {path: /}, redirect: {status: 301}`, "a/x/\\evil", "301 /evil"},
		{`redirect: {host: b}`, "a*", "302 //b/*"},
	} {
		_, plans := parseRoutes(t, "{"+c.route+"}")
		req := request(strings.Replace(c.target, "*", "/", 1))
		if strings.HasSuffix(c.target, "*") {
			req.Path = []byte("*")
		}
		if w := NewRewrite(&plans[0]); w != nil {
			req.Path = w.Append(nil, req.Path)
		}
		var res protocol.Response
		NewAnswer(&plans[0]).Fill(&res, req, nil)
		if got := fmt.Sprintf("%d %s", res.Status, protocol.Find(res.Headers, "location")); got != c.want || len(res.Body) > 0 {
			t.Errorf("%s: %s is sent to %s, want %s", c.route, c.target, got, c.want)
		}
	}
}

// TestRespond checks responses of the configuration.
func TestRespond(t *testing.T) {
	for _, c := range []struct{ route, want string }{
		{`respond: {status: 204}`, `204 "" ""`},
		{`respond: {body: x}`, `200 "text/plain; charset=utf-8" "x"`},
		{`respond: {body: "a b\n"}`, `200 "text/plain; charset=utf-8" "a b\n"`},
		{`respond: {status: 503, body: "{}", headers: {content-type: application/json}}`, `503 "application/json" "{}"`},
	} {
		_, plans := parseRoutes(t, "{"+c.route+"}")
		var res protocol.Response
		buf := NewAnswer(&plans[0]).Fill(&res, request("a/"), []byte("kept"))
		if e := NewEdits(&plans[0]); e != nil {
			res.Headers, _ = e.Response.Apply(res.Headers, &Values{}, nil)
		}
		var alone protocol.Response // made without a plan
		made, edits := NewResponse(&plans[0].Route.Respond)
		made.Fill(&alone, nil, nil)
		alone.Headers, _ = edits.Apply(alone.Headers, &Values{}, nil)
		if alone.Status != res.Status || string(alone.Body) != string(res.Body) || fmt.Sprintf("%q", alone.Headers) != fmt.Sprintf("%q", res.Headers) {
			t.Errorf("%s: without a plan %+v", c.route, alone)
		}
		got := fmt.Sprintf("%d %q %q", res.Status, protocol.Find(res.Headers, "content-type"), res.Body)
		if got != c.want || string(buf[:4]) != "kept" || len(res.Headers) > 1 {
			t.Errorf("%s: %s, want %s; %q", c.route, got, c.want, res.Headers)
		}
	}
}

// TestEdits checks that headers are removed, then set, and then added, with their placeholders
// filled in, and that this allocates nothing.
func TestEdits(t *testing.T) {
	_, plans := parseRoutes(t, `{service: s, rewrite: {host: b}, request_headers: {
  remove: [X-Gone, x-none], set: {X-A: "{{{host}}} {method}{{", x-new: ""},
  add: {x-b: "{path}|{query}", x-c: "{peer} {service} {listener} {request_id}"}}}`)
	e := NewEdits(&plans[0])
	v := Values{
		Peer: []byte("1.2.3.4"), Host: []byte("h:80"), Method: []byte("GET"), Target: []byte("/p/?q=?"), RequestID: []byte("id"),
		Service: "s", Listener: "in",
	}
	req := request("h/", "x-a: old", "x-keep: 1", "x-gone: 1", "X-A: older", "x-b: 1", "x-gone: 2")
	want := []string{"x-keep: 1", "x-b: 1", "X-A: {h:80} GET{", "x-new: ", "x-b: /p/|q=?", "x-c: 1.2.3.4 s in id"}
	hs, buf := e.Request.Apply(req.Headers, &v, nil)
	var got []string
	for _, h := range hs {
		got = append(got, string(h.Name)+": "+string(h.Value))
	}
	if !slices.Equal(got, want) || string(e.Host) != "b" || e.Response.Given() {
		t.Errorf("got  %q\nwant %q; host %q", got, want, e.Host)
	}
	spare := make([]protocol.Header, 0, 16)
	if n := testing.AllocsPerRun(100, func() { _, buf = e.Request.Apply(append(spare, req.Headers...), &v, buf[:0]) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	kept := v.Clone()
	copy(v.Host, "x")
	if string(kept.Host) != "h:80" || kept.Service != "s" {
		t.Errorf("a clone shares memory: %+v", kept)
	}
}

// TestEditsOfRoutes: each change of messages alone makes edits, and a route without one has none.
func TestEditsOfRoutes(t *testing.T) {
	for _, c := range []struct {
		route                   string
		given                   bool
		host, request, response string // of a message with the header a: 1
	}{
		{`service: s`, false, "", "", ""},
		{`service: s, match: {path: /}, rewrite: {path: /a}`, false, "", "", ""},
		{`service: s, rewrite: {host: b}`, true, "b", "a: 1", "a: 1"},
		{`service: s, request_headers: {remove: [A]}`, true, "", "", "a: 1"},
		{`service: s, request_headers: {set: {A: "2"}}`, true, "", "A: 2", "a: 1"},
		{`service: s, request_headers: {add: {A: "2"}}`, true, "", "a: 1, A: 2", "a: 1"},
		{`service: s, response_headers: {remove: [A]}`, true, "", "a: 1", ""},
		{`service: s, response_headers: {add: {b: "2"}}`, true, "", "a: 1", "a: 1, b: 2"},
		{`respond: {status: 204}`, false, "", "", ""},
		{`respond: {headers: {A: "2"}}`, true, "", "a: 1", "A: 2"},
	} {
		_, plans := parseRoutes(t, "{"+c.route+"}")
		e := NewEdits(&plans[0])
		if e == nil || !c.given {
			if (e != nil) != c.given {
				t.Errorf("%s: edits %+v", c.route, e)
			}
			continue
		}
		edited := func(h *HeaderEdits) string {
			hs, _ := h.Apply(request("h/", "a: 1").Headers, &Values{}, nil)
			if h.Given() != (len(hs) != 1 || string(hs[0].Value) != "1") {
				t.Errorf("%s: given %t", c.route, h.Given())
			}
			var all []string
			for _, h := range hs {
				all = append(all, string(h.Name)+": "+string(h.Value))
			}
			return strings.Join(all, ", ")
		}
		if req, res := edited(&e.Request), edited(&e.Response); string(e.Host) != c.host || req != c.request || res != c.response {
			t.Errorf("%s: host %q, request %q, response %q", c.route, e.Host, req, res)
		}
	}
}

// TestPlaceholders: each placeholder of the configuration has a value.
func TestPlaceholders(t *testing.T) {
	v := Values{
		Peer: []byte("v"), Host: []byte("v"), Method: []byte("v"), Target: []byte("v?v"), RequestID: []byte("v"), Service: "v", Listener: "v",
	}
	for _, name := range config.Placeholders {
		if got := v.appendPart(nil, config.Part{Placeholder: name}); string(got) != "v" {
			t.Errorf("{%s} is %q", name, got)
		}
	}
}

// TestPlansOfAnswers: a reload keeps a route only if it does the same to messages.
func TestPlansOfAnswers(t *testing.T) {
	kept := func(string) bool { return true }
	for _, c := range []struct {
		before, after string
		same          bool
	}{
		{`redirect: {host: a}`, `redirect: {host: a}`, true},
		{`redirect: {host: a}`, `redirect: {host: b}`, false},
		{`redirect: {host: a}`, `respond: {status: 204}`, false},
		{`respond: {headers: {a: b}}`, `respond: {headers: {a: c}}`, false},
		{`service: s`, `service: s, rewrite: {host: a}`, false},
		{`service: s, request_headers: {remove: [a]}`, `service: s, request_headers: {remove: [b]}`, false},
		{`service: s, response_headers: {add: {a: b}}`, `service: s, response_headers: {add: {a: b}}`, true},
		{`service: s, response_headers: {add: {a: b}}`, `service: s, response_headers: {add: {a: c}}`, false},
		{`service: s, match: {path: /}, rewrite: {path: /a}`, `service: s, match: {path: /}, rewrite: {path: /b}`, false},
		{`respond: {status: 204}`, `respond: {status: 205}`, false},
		{`service: s`, `service: s, fault: {abort: 503}`, false},
		{`service: s`, `service: s, cache: {}`, false},
		{`service: s`, `service: s, timeout: 1s`, false},
	} {
		_, before := parseRoutes(t, "{"+c.before+"}")
		_, after := parseRoutes(t, "{"+c.after+"}")
		if Compare(after, before, kept); after[0].Before != 0 || after[0].Same != c.same {
			t.Errorf("%s after %s: before %d, same %t", c.after, c.before, after[0].Before, after[0].Same)
		}
	}
}

// TestPlansContinue: a plan continues that with the same requests and service, if its service is kept. It is the same if all that
// the route does is, and if the services of its filters are kept.
func TestPlansContinue(t *testing.T) {
	plan := func(change func(p *Plan)) []Plan {
		p := Plan{
			Service: "s", Match: &config.Match{Path: "/"}, Route: &config.Route{}, Policy: &config.Policy{Timeout: 1},
			Others: map[string]*config.Policy{"t": {Timeout: 2}},
		}
		change(&p)
		return []Plan{p}
	}
	for name, c := range map[string]struct {
		change func(p *Plan)
		lost   string // the service that is not kept
		before int
		same   bool
	}{
		"nothing changes":       {func(*Plan) {}, "", 0, true},
		"another route":         {func(p *Plan) { p.Index = 3 }, "", 0, true},
		"of a listener":         {func(p *Plan) { p.Index = -1 }, "", -1, false},
		"another match":         {func(p *Plan) { p.Match = &config.Match{Path: "/a"} }, "", -1, false},
		"another service":       {func(p *Plan) { p.Service = "u" }, "", -1, false},
		"the service is lost":   {func(*Plan) {}, "s", -1, false},
		"another policy":        {func(p *Plan) { p.Policy = &config.Policy{Timeout: 3} }, "", 0, false},
		"another action":        {func(p *Plan) { p.Route = &config.Route{Rewrite: config.Rewrite{Path: "/"}} }, "", 0, false},
		"another filter policy": {func(p *Plan) { p.Others = map[string]*config.Policy{"t": {Timeout: 3}} }, "", 0, false},
		"a filter's is lost":    {func(*Plan) {}, "t", 0, false},
		"it invalidates":        {func(p *Plan) { p.Invalidates = true }, "", 0, false},
	} {
		after := plan(c.change)
		Compare(after, plan(func(*Plan) {}), func(service string) bool { return service != c.lost })
		if p := &after[0]; p.Before != c.before || p.Same != c.same {
			t.Errorf("%s: before %d, same %t", name, p.Before, p.Same)
		}
	}
	twice := append(plan(func(*Plan) {}), plan(func(*Plan) {})...)
	if Compare(twice, plan(func(*Plan) {}), func(string) bool { return true }); twice[0].Before != 0 || twice[1].Before != -1 || twice[1].Same {
		t.Errorf("two plans continue one: %d and %d", twice[0].Before, twice[1].Before)
	}
}

// TestAnswersTakeNoCalls: Dubbo calls pass routes that answer themselves.
func TestAnswersTakeNoCalls(t *testing.T) {
	table, _ := parseRoutes(t, `{match: {method: [GET]}, redirect: {host: b}}, {service: s}`)
	call := &protocol.Request{Codec: dubbo.CodecHessian2, Method: []byte("GET"), Path: []byte("i")}
	if got, _ := table.Find(call); got != 1 {
		t.Errorf("a call takes routes[%d]", got)
	}
}
