package proxy

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// route is one entry of the routing table on one loop: what it matches, where
// it leads, and the policy in force there. The latency estimate of hedging is
// the route's.
type route struct {
	host    []byte // lower case, without port; empty: any
	prefix  []byte
	methods [][]byte
	headers []headerMatch
	call    callMatch
	rewrite []byte // takes the place of prefix; empty: the path stays

	// shares are the routes to the services of a split, this one to the first
	// of them included; total is the sum of their weights.
	shares []share
	total  uint64

	index         int // in Config.Routes; -1: of listeners with a fixed service
	svc           *service
	timeout       time.Duration
	idempotent    bool
	retryAttempts int
	retryOn       retryOn
	hedging       *hedge.Route
	silence       lb.Census // of the service's endpoints
}

// share is one service's part of a split route. Each has a route of its own, and
// with it its service's policy and an estimate of its own latency.
type share struct {
	route  *route
	weight uint64
}

// headerMatch is one condition of a route.
type headerMatch struct {
	name  string // lower case
	value []byte
}

// callMatch is the part of a match that is of Dubbo alone; empty: any.
type callMatch struct {
	service, version, group []byte

	never bool // the route has conditions on HTTP
	only  bool // the route has conditions on Dubbo
}

// retryOn is the parsed retry.on list.
type retryOn struct {
	connect, refused, reset, any5xx bool
	statuses                        []int
}

// draw picks the share of one request, by the random number x.
func (r *route) draw(x uint64) *route {
	x %= r.total
	for i := range r.shares {
		if x < r.shares[i].weight {
			return r.shares[i].route
		}
		x -= r.shares[i].weight
	}
	panic("proxy: a share is missing from its total")
}

func newRoute(plan *routePlan, svc *service) *route {
	m, p := plan.match, plan.policy
	r := &route{
		host: bytes.ToLower([]byte(m.Host)), prefix: []byte(m.Path), rewrite: []byte(plan.rewrite), svc: svc,
		timeout: p.Timeout, idempotent: p.Idempotent, retryAttempts: p.Retry.Attempts,
		call: callMatch{
			service: []byte(m.Service), version: []byte(m.Version), group: []byte(m.Group),
			never: m.OfHTTP(), only: m.OfDubbo(),
		},
		hedging: hedge.NewRoute(hedgePolicy(&p.Hedge), svc.w.proc.loops),
	}
	for _, method := range m.Method {
		r.methods = append(r.methods, []byte(method))
	}
	for name, value := range m.Header {
		r.headers = append(r.headers, headerMatch{strings.ToLower(name), []byte(value)})
	}
	for _, on := range p.Retry.On {
		switch on {
		case config.RetryConnect:
			r.retryOn.connect = true
		case config.RetryRefused:
			r.retryOn.refused = true
		case config.RetryReset:
			r.retryOn.reset = true
		case config.Retry5xx:
			r.retryOn.any5xx = true
		default:
			if code, err := strconv.Atoi(on); err == nil {
				r.retryOn.statuses = append(r.retryOn.statuses, code)
			}
		}
	}
	return r
}

func hedgePolicy(h *config.Hedge) hedge.Policy {
	p := hedge.Policy{
		Delay: h.Delay, Quantile: h.Quantile, MinDelay: h.MinDelay, MaxDelay: h.MaxDelay,
		Budget: h.Budget, Max: h.Max,
	}
	switch h.Mode {
	case config.HedgeOn:
		p.Mode = hedge.On
	case config.HedgeShadow:
		p.Mode = hedge.Shadow
	}
	return p
}

// match tells whether every condition of the route that is set holds.
func (r *route) match(req *protocol.Request) bool {
	if req.Codec != protocol.CodecHTTP {
		return r.call.match(req) && (len(r.methods) == 0 || r.matchMethod(req.Method))
	}
	if r.call.only {
		return false
	}
	if len(r.host) > 0 && !protocol.EqualFold(hostOnly(req.Authority), string(r.host)) {
		return false
	}
	if !bytes.HasPrefix(req.Path, r.prefix) {
		return false
	}
	for i := range r.headers {
		if !r.headers[i].match(req.Headers) {
			return false
		}
	}
	if len(r.methods) == 0 {
		return string(req.Method) != "CONNECT" // raw bytes to an endpoint: only where a route says so
	}
	return r.matchMethod(req.Method)
}

func (r *route) matchMethod(method []byte) bool {
	for _, m := range r.methods {
		if bytes.Equal(m, method) {
			return true
		}
	}
	return false
}

func (m *callMatch) match(req *protocol.Request) bool {
	return !m.never && anyOr(m.service, req.Path) && anyOr(m.version, req.Version) && anyOr(m.group, req.Group)
}

// anyOr tells whether got is what is wanted, be it anything.
func anyOr(want, got []byte) bool { return len(want) == 0 || bytes.Equal(want, got) }

// match tells whether one of the lines has the value.
func (m *headerMatch) match(hs []protocol.Header) bool {
	for i := range hs {
		if protocol.EqualFold(hs[i].Name, m.name) && bytes.Equal(hs[i].Value, m.value) {
			return true
		}
	}
	return false
}

// rewritePath puts the route's rewrite in the place of the prefix that it
// matched.
func (r *route) rewritePath(ex *exchange) {
	if len(r.rewrite) > 0 {
		ex.asked = ex.req.Path
		ex.path = append(append(ex.path[:0], r.rewrite...), ex.req.Path[len(r.prefix):]...)
		ex.req.Path = ex.path
	}
}

// retryStatus tells whether an answer with this status is to be retried.
func (r *route) retryStatus(status int) bool {
	return r.retryOn.any5xx && status >= 500 || slices.Contains(r.retryOn.statuses, status)
}

// hostOnly cuts the port off an authority, which may hold an IPv6 literal.
func hostOnly(authority []byte) []byte {
	colon := bytes.LastIndexByte(authority, ':')
	if colon < 0 || bytes.IndexByte(authority[colon:], ']') >= 0 {
		return authority
	}
	return authority[:colon]
}

// routeOf returns the first route that matches, or nil; of a split route, the
// one of the share that the request falls to.
func (w *Worker) routeOf(req *protocol.Request) *route {
	r := w.table.first(req)
	if r != nil && len(r.shares) > 0 {
		return r.draw(w.rnd.Uint64())
	}
	return r
}
