package route

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/remora-proxy/remora/internal/hostname"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// Trial is one route that was tried for a request, for people.
type Trial struct {
	Plan       int // its index
	Takes      bool
	Conditions []Condition // none matches all requests
}

// Condition is one condition of a route.
type Condition struct {
	Text string // as in `header x-tier: "gold"`
	Got  string // what the request has
	Met  bool
}

// Explain tries the routes for an HTTP request one by one, up to the first that takes it.
func (t *Table) Explain(req *protocol.Request) (trials []Trial) {
	var buf hostname.Buffer
	host := hostname.Of(&buf, req.Authority)
	for _, c := range t.all {
		trial := Trial{Plan: c.index, Takes: c.match(req, host), Conditions: c.explain(req, host)}
		trials = append(trials, trial)
		if trial.Takes {
			break
		}
	}
	return trials
}

func (c *conditions) explain(req *protocol.Request, host []byte) (all []Condition) {
	add := func(met bool, got, format string, args ...any) {
		all = append(all, Condition{Text: fmt.Sprintf(format, args...), Got: got, Met: met})
	}
	path := string(pathOnly(req.Path))
	if c.call.callOnly {
		add(false, "HTTP", "a Dubbo call")
	}
	if len(c.host) > 0 {
		shown, _ := hostname.Split(req.Authority)
		star := ""
		if c.wild {
			star = "*"
		}
		add(c.matchHost(host), string(shown), "host %s%s", star, c.host)
	}
	if len(c.prefix) > 0 {
		kind := "text of the path"
		if c.whole || len(c.prefix) == 1 {
			kind = "path"
		}
		add(c.matchPrefix(req.Path), path, "%s %s", kind, c.prefix)
	}
	for i := range c.headers {
		m := &c.headers[i]
		got := "none"
		if at := m.lineOf(req.Headers); at >= 0 {
			got = strconv.Quote(string(m.appendLines(nil, req.Headers[at:])))
		}
		add(m.matchHeader(req.Headers), got, "header %s", m)
	}
	switch {
	case len(c.methods) > 0:
		add(c.matchMethod(req.Method), string(req.Method), "method %s", bytes.Join(c.methods, []byte(" or ")))
	case string(req.Method) == "CONNECT":
		add(false, "CONNECT", "any method but CONNECT")
	}
	for i := range c.queries {
		m := &c.queries[i]
		got := "none"
		if raw, found := Parameter(req.Path, m.name); found {
			got = strconv.Quote(string(appendDecoded(nil, raw)))
		}
		add(m.matchQuery(req.Path), got, "query %s", m)
	}
	if c.regex != nil {
		add(c.matchRegex(req.Path), path, "regex of the path %q", c.source)
	}
	return all
}

// String returns the condition with the name of its header or parameter.
func (m *valueMatch) String() string {
	no := ""
	if m.not {
		no = "not "
	}
	switch m.is {
	case config.IsExact:
		return fmt.Sprintf("%s: %s%q", m.name, no, m.text)
	case config.IsPresent:
		return fmt.Sprintf("%s: %spresent", m.name, no)
	}
	return fmt.Sprintf("%s: %s%s %q", m.name, no, m.is, m.text)
}
