package route

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// parseRoutes returns the table of routes, a list of YAML flow mappings.
func parseRoutes(t testing.TB, routes string) (*Table, []Plan) {
	t.Helper()
	cfg, err := config.Parse("test", []byte(`
listeners: [{name: in, address: "127.0.0.1:1", protocol: http}]
routes: [`+routes+`]
services: {s: {discover: static, endpoints: ["127.0.0.1:2"]}, dubbo: {discover: static, protocol: dubbo, endpoints: ["127.0.0.1:3"]}}`), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	plans := Plans(cfg)
	return NewTable(plans), plans
}

// request returns a GET of "host/target", with headers as "name: value".
func request(target string, headers ...string) *protocol.Request {
	host, _, _ := strings.Cut(target, "/")
	req := &protocol.Request{Method: []byte("GET"), Authority: []byte(host), Path: []byte(target[len(host):])}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		req.Headers = append(req.Headers, protocol.Header{Name: []byte(name), Value: []byte(strings.TrimSpace(value))})
	}
	return req
}

// by returns the request with another method.
func by(method string, req *protocol.Request) *protocol.Request {
	req.Method = []byte(method)
	return req
}

// TestMatchConditions checks each kind of condition, and that Explain agrees with the table.
func TestMatchConditions(t *testing.T) {
	long := strings.Repeat("a", config.MaxRegexInput)
	for _, c := range []struct {
		match    string
		yes, not []*protocol.Request
	}{
		{`host: "*.svc"`,
			[]*protocol.Request{request("a.svc/"), request("A.b.SVC:80/"), request("a.svc.svc/")},
			[]*protocol.Request{request("svc/"), request(".svc/"), request("asvc/"), request("a.svc.x/"), request("/"), request(strings.Repeat("a", 300) + ".svc/")}},
		{`host: "a.svc"`,
			[]*protocol.Request{request("a.svc/"), request("A.SVC.:80/"), request("%61.svc%2E/")},
			[]*protocol.Request{request("a.svc../"), request("b.a.svc./"), request("./"), request("/")}},
		{`host: a`, []*protocol.Request{request("a/"), request("A.:80/")}, []*protocol.Request{request("b/"), request("a.a/"), request("/")}},
		{`host: "A.svc."`, []*protocol.Request{request("a.svc/"), request("a.svc./")}, []*protocol.Request{request("b.svc/")}},
		{`host: "*.Svc."`, []*protocol.Request{request("a.svc/"), request("a.svc.:1/")}, []*protocol.Request{request("svc./"), request(".svc./")}},
		{`host: "[::0:1]"`,
			[]*protocol.Request{request("[::1]:80/"), request("[0:0:0:0:0:0:0:1]/")}, []*protocol.Request{request("[::2]/"), request("1/")}},
		{`host: 10.0.0.1`, []*protocol.Request{request("[::ffff:a00:1]/"), request("10.0.0.1.:80/")}, []*protocol.Request{request("[::a00:1]/")}},
		{`host: "*.a.svc"`,
			[]*protocol.Request{request("b.a.svc/")}, []*protocol.Request{request("a.svc/"), request("ba.svc/")}},
		{`regex: "/v[12]/[a-z]+"`,
			[]*protocol.Request{request("h/v1/abc"), request("h/v2/z?/q")},
			[]*protocol.Request{request("h/v1/"), request("h/v1/abc/"), request("h/x/v1/abc"), request("h/v3/abc"), request("h/v1/abc\n")}},
		{`regex: "a|/b"`, []*protocol.Request{request("h/b")}, []*protocol.Request{request("h/ba"), request("h/a")}},
		{`path: /v1, regex: ".*[.]html"`,
			[]*protocol.Request{request("h/v1/a.html")}, []*protocol.Request{request("h/v2/a.html"), request("h/v1/a")}},
		{`regex: "/.*"`, []*protocol.Request{request("h/" + long[1:])}, []*protocol.Request{request("h/" + long)}},
		{`method: [GET, POST]`,
			[]*protocol.Request{request("h/"), by("POST", request("h/"))}, []*protocol.Request{by("PUT", request("h/")), by("get", request("h/")), by("CONNECT", request("h/"))}},
		{`method: [CONNECT, PUT]`, []*protocol.Request{by("CONNECT", request("h/"))}, []*protocol.Request{request("h/")}},
		{`path: /`, []*protocol.Request{request("h/"), by("X", request("h/a"))}, []*protocol.Request{by("CONNECT", request("h/")), request("h*")}},
		{`prefix_text: /a/`, []*protocol.Request{request("h/a/"), request("h/a/b")}, []*protocol.Request{request("h/a"), request("h/a?/")}},
		{`path: /a/`, []*protocol.Request{request("h/a"), request("h/a?x"), request("h/a/b")}, []*protocol.Request{request("h/ab"), request("h/")}},
		{`header: {X-A: b}`,
			[]*protocol.Request{request("h/", "x-a: b")}, []*protocol.Request{request("h/"), request("h/", "x-a: b", "x-a: c")}},
		{`header: {x-a: {exact: ""}}`, []*protocol.Request{request("h/", "x-a:")}, []*protocol.Request{request("h/"), request("h/", "x-a: b")}},
		{`header: {x-a: {present: true}}`, []*protocol.Request{request("h/", "X-A:")}, []*protocol.Request{request("h/", "x-b: a")}},
		{`header: {x-a: {present: false}}`, []*protocol.Request{request("h/", "x-b: a")}, []*protocol.Request{request("h/", "X-A:")}},
		{`header: {x-a: {prefix: "b, "}}`,
			[]*protocol.Request{request("h/", "x-a: b, c"), request("h/", "x-a: b", "x-a: c")},
			[]*protocol.Request{request("h/", "x-a: b"), request("h/"), request("h/", "x-a: c", "x-a: b, c")}},
		{`header: {x-a: {regex: "b+(, c)?"}}`,
			[]*protocol.Request{request("h/", "x-a: bbb"), request("h/", "x-a: b", "x-b: x", "X-A: c")},
			[]*protocol.Request{request("h/", "x-a: b", "x-a: d"), request("h/", "x-a: abb"), request("h/")}},
		{`header: {x-a: {not: b}}`,
			[]*protocol.Request{request("h/"), request("h/", "x-a: c"), request("h/", "x-a: b", "x-a: b")},
			[]*protocol.Request{request("h/", "x-a: b")}},
		{`header: {x-a: {not: {regex: "b*"}}}`,
			[]*protocol.Request{request("h/"), request("h/", "x-a: c"), request("h/", "x-a: "+long)},
			[]*protocol.Request{request("h/", "x-a: bb"), request("h/", "x-a: a"+long)}},
		{`header: {x-a: {not: {present: true}}}`, []*protocol.Request{request("h/")}, []*protocol.Request{request("h/", "x-a: c")}},
		{`query: {debug: "1"}`,
			[]*protocol.Request{request("h/?debug=1"), request("h/?a=&debug=1&debug=2"), request("h/?%64ebug=%31"), request("h/?&&debug=1")},
			[]*protocol.Request{request("h/"), request("h/?debug"), request("h/?debug=2&debug=1"), request("h/?xdebug=1"), request("h/debug=1"), request("h/?debug=1;a=b"), request("h/?a=?debug=1")}},
		{`query: {a: {present: true}}`,
			[]*protocol.Request{request("h/?a"), request("h/?b&a=1")}, []*protocol.Request{request("h/?b=a"), request("h/?ab"), request("h/?")}},
		{`query: {"a b": {prefix: "1 "}}`,
			[]*protocol.Request{request("h/?a+b=1+2"), request("h/?a%20b=1%202")}, []*protocol.Request{request("h/?a+b=1"), request("h/?a%2bb=1+2")}},
		{`query: {a: {regex: "[0-9%]+"}}`,
			[]*protocol.Request{request("h/?a=12"), request("h/?a=%31%"), request("h/?a=%2")}, []*protocol.Request{request("h/?a="), request("h/?a=%61")}},
		{`query: {a: {not: {prefix: b}}}, header: {x-a: {present: true}}`,
			[]*protocol.Request{request("h/", "x-a: 1"), request("h/?a=c", "x-a: 1")}, []*protocol.Request{request("h/?a=c"), request("h/?a=bc", "x-a: 1")}},
	} {
		table, _ := parseRoutes(t, "{service: s, match: {"+c.match+"}}")
		for i, req := range append(c.yes, c.not...) {
			want := i < len(c.yes)
			plan, _ := table.Find(req)
			trial := table.Explain(req)[0]
			met := !slices.ContainsFunc(trial.Conditions, func(c Condition) bool { return !c.Met })
			if got := plan == 0; got != want || trial.Takes != want || met != want {
				t.Errorf("%s: %.60s%.60s %.60q: %t, want %t; explained as %t by %.200v", c.match, req.Authority, req.Path, req.Headers, got, want, trial.Takes, trial.Conditions)
			}
		}
	}
}

// TestExplain: each condition is said, with what the request has.
func TestExplain(t *testing.T) {
	table, _ := parseRoutes(t, `
{match: {service: a}, service: dubbo}, {match: {method: [PUT]}, service: s},
{match: {host: "*.a", path: /v/, method: [GET, PUT], regex: "/v/.*", query: {q: "1", r: {regex: "x"}},
  header: {a: {not: {prefix: b}}, b: {present: false}, c: {present: true}}}, service: s},
{match: {host: b.a, prefix_text: /v}, service: s}, {service: s}`)
	for _, c := range []struct {
		req  *protocol.Request
		want string
	}{
		{request("B.a:80/v/1?q=%31", "a: c", "c: 1", "c: 2"), `
0 false [{a Dubbo call HTTP false}]
1 false [{method PUT GET false}]
2 false [{host *.a B.a true} {path /v /v/1 true} {header a: not prefix "b" "c" true} {header b: not present none true} {header c: present "1, 2" true} {method GET or PUT GET true} {query q: "1" "1" true} {query r: regex "x" none false} {regex of the path "/v/.*" /v/1 true}]
3 true [{host b.a B.a true} {text of the path /v /v/1 true}]`},
		{by("CONNECT", request("c:1/")), `
0 false [{a Dubbo call HTTP false} {any method but CONNECT CONNECT false}]
1 false [{method PUT CONNECT false}]
2 false [{host *.a c false} {path /v / false} {header a: not prefix "b" none true} {header b: not present none true} {header c: present none false} {method GET or PUT CONNECT false} {query q: "1" none false} {query r: regex "x" none false} {regex of the path "/v/.*" / false}]
3 false [{host b.a c false} {text of the path /v / false} {any method but CONNECT CONNECT false}]
4 false [{any method but CONNECT CONNECT false}]`},
	} {
		got := ""
		for _, trial := range table.Explain(c.req) {
			got += fmt.Sprintf("\n%d %t %v", trial.Plan, trial.Takes, trial.Conditions)
		}
		if got != c.want {
			t.Errorf("%s\nwant%s", got, c.want)
		}
	}
}

// TestTakesHost: which routes may take requests to a host, and whether any takes others than CONNECT.
func TestTakesHost(t *testing.T) {
	named, _ := parseRoutes(t, `
{match: {host: a, path: /x}, service: s}, {match: {host: "*.b", method: [CONNECT]}, service: s},
{match: {host: c.b, method: [CONNECT, GET]}, service: s}, {match: {service: d}, service: dubbo}`)
	all, _ := parseRoutes(t, `{match: {host: a, path: /x}, service: s}, {match: {path: /x}, service: s}, {match: {host: a}, service: s}`)
	for _, c := range []struct {
		table *Table
		host  string
		takes bool
		each  string // the first two
	}{
		{named, "A.:80", true, "0 true,"}, {named, "x.b", false, "1 true,"}, {named, "c.b", true, "1 true,2 true,"}, {named, "d", false, ""},
		{all, "a", true, "0 true,1 false,"}, {all, "b", true, "1 false,"},
	} {
		each := ""
		c.table.EachOfHost([]byte(c.host), func(plan int, named bool) bool {
			each += fmt.Sprint(plan, " ", named, ",")
			return strings.Count(each, ",") < 2
		})
		if takes := c.table.TakesHost([]byte(c.host)); takes != c.takes || each != c.each {
			t.Errorf("%s: taken %t, by %s; want %t, by %s", c.host, takes, each, c.takes, c.each)
		}
	}
}

// TestFirstOfHosts: exact hosts, ends of hosts and none together, the first route of the
// configuration wins.
func TestFirstOfHosts(t *testing.T) {
	table, _ := parseRoutes(t, `
{match: {host: a.b.svc, path: /x}, service: s}, {match: {host: "*.b.svc", path: /y}, service: s}, {match: {host: "*.svc"}, service: s},
{match: {host: a.b.svc}, service: s}, {match: {host: svc}, service: s}, {match: {path: /}, service: s}`)
	for target, want := range map[string]int{
		"a.b.svc/x": 0, "a.b.svc/y": 1, "c.b.svc/y": 1, "b.svc/y": 2, "a.b.svc/z": 2, "svc/y": 4, "other/x": 5,
	} {
		if got, _ := table.Find(request(target)); got != want {
			t.Errorf("%s: routes[%d], want %d", target, got, want)
		}
	}
}

// TestMatchAllocs: a request allocates nothing, whatever conditions a table has.
func TestMatchAllocs(t *testing.T) {
	table, _ := parseRoutes(t, `
{match: {host: "*.svc", regex: "/(a|b)+/[0-9]*c"}, service: s}, {match: {query: {a: {regex: "x+"}, b: "1 2"}}, service: s},
{match: {header: {x-a: {regex: "(c|d)*e, f"}}}, service: s}, {match: {header: {x-a: {not: {prefix: y}}}, query: {a: {not: y}}}, service: s}`)
	for _, c := range []struct {
		req  *protocol.Request
		want int
	}{
		{request("a.b.svc/abab/123c"), 0}, {request("h/?b=1+2&a=x%78x"), 1}, {request("h/", "x-a: cde", "x-a: f"), 2},
		{request("h/?a=%7a", "x-a: z"), 3}, {request("h/?a=%79", "x-a: z"), -1},
	} {
		if got, _ := table.Find(c.req); got != c.want {
			t.Errorf("%s%s: routes[%d], want %d", c.req.Authority, c.req.Path, got, c.want)
		}
		if n := testing.AllocsPerRun(100, func() { table.Find(c.req) }); n > 0 {
			t.Errorf("%s%s: %v allocations", c.req.Authority, c.req.Path, n)
		}
	}
}

// FuzzQuery: a parameter is that which net/url finds, if it can read the query.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"a=1&b=2", "a+b=%31", "&&a", "a=%zz", "=x&a", "a=1&a=2", "%61=+", "a;b=c"} {
		f.Add(seed, "a")
	}
	f.Fuzz(func(t *testing.T, query, name string) {
		raw, found := Parameter([]byte("/?"+query), name)
		value := string(appendDecoded(nil, raw))
		want, err := url.ParseQuery(query)
		switch {
		case err != nil || name == "":
		case found != want.Has(name) || value != want.Get(name):
			t.Errorf("%q: %q is %q, %t; net/url has %q", query, name, value, found, fmt.Sprint(want))
		}
	})
}
