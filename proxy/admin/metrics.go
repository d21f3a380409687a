package admin

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

const (
	// maxEndpointSeries limits the endpoints of a service that have series of their own:
	// the first ones by address. remora_endpoints has the number of all.
	maxEndpointSeries = 200

	// maxScrapes limits the scrapes in progress.
	maxScrapes = 4
)

// runtimeMetrics matches the metrics of Go's runtime that are exported besides those that
// its collector always has. The others are many, and cost more than all of Remora's own.
var runtimeMetrics = regexp.MustCompile(`^/(gc/pauses:seconds|gc/heap/live:bytes|sched/latencies:seconds)$`)

// scraper serves /metrics.
type scraper struct {
	s       *Server
	runtime prometheus.Gatherer // of Go and the process
	slots   chan struct{}       // has a token for each scrape in progress
	pages   sync.Pool           // of *page
}

func newScraper(s *Server) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: runtimeMetrics})),
		processCollector{s.began},
	)
	return &scraper{
		s: s, runtime: registry, slots: make(chan struct{}, maxScrapes),
		pages: sync.Pool{New: func() any { return newPage() }},
	}
}

// ServeHTTP responds in the text format, which every Prometheus accepts. It does not
// compress, which would be most of the work. It fails if a part is missing, since counters
// would seem to fall.
func (c *scraper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	default:
		unavailable(w, fmt.Sprintf("%d scrapes are in progress", maxScrapes))
		return
	}
	p := c.pages.Get().(*page)
	defer c.pages.Put(p)
	if err := c.fill(r.Context(), p); err != nil {
		unavailable(w, err.Error())
		return
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	_, _ = w.Write(p.text.Bytes())
}

// fill makes p the response to a scrape.
func (c *scraper) fill(ctx context.Context, p *page) error {
	reports, err := report(ctx, c.s, stats.Counters)
	if err != nil {
		return err
	}
	others, err := c.runtime.Gather()
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	p.reset()
	c.collect(p, reports)
	p.finish()
	for _, f := range others {
		if _, err := expfmt.MetricFamilyToText(&p.text, f); err != nil {
			return fmt.Errorf("admin: %w", err)
		}
	}
	return nil
}

// collect turns the reports of all loops into metrics. The loops count in plain integers,
// without Prometheus.
func (c *scraper) collect(to *page, reports []stats.WorkerReport) {
	c.process(to, reports)
	c.reactor(to)
	c.overload(to)
	c.links(to, reports)
	for i := range reports {
		c.loop(to, strconv.Itoa(i), &reports[i])
	}
	c.tls(to)
	c.sources(to)
	c.registrations(to)
	c.allow(to)
	c.reloads(to)
	c.overlay(to)
	c.tracing(to)
	c.accessLog(to)
	for _, svc := range merge(reports) {
		c.service(to, &svc)
		c.hedging(to, &svc)
		c.filters(to, &svc)
		c.caches(to, &svc)
		c.endpoints(to, &svc)
	}
}

// The families of the process.
var (
	buildInfo   = gauge("build_info", "1, with the version of the program.", "version")
	engineInfo  = gauge("engine_info", "1, with the engine that waits for the sockets of the loops.", "engine")
	phase       = gauge("phase", "1 for the current phase of the sidecar.", "phase")
	loops       = gauge("loops", "Event loops.")
	connections = gauge("downstream_connections", "Open accepted connections.")
	buffered    = gauge("buffered_bytes", "Bytes of messages and of links' interning tables in memory.")
	bufferedMax = gauge("buffered_limit_bytes", "Limit of buffered_bytes, above which new work is refused.")
	restarts    = gauge("hot_restarts", "Hot restarts before this process.")
	errorsTotal = counter("errors_total", "Responses made by the sidecar itself, by x-remora-error.", "code", "listener")
	unrouted    = counter("requests_unrouted_total", "Of these, those to requests that were refused before they had a service: requests_total lacks them.", "listener")
	http2Errors = counter("http2_errors_total",
		"Connections and streams of HTTP/2 that ended for what the client did, by the reason in the log; `h2_flood_` and a limit of `limits.http2` for floods.",
		"reason")
	answered    = counter("route_responses_total", "Responses of routes without a service: redirect or respond.", "kind")
	replays     = counter("replays_total", "Requests sent again because a pooled connection was stale.")
	writeStalls = counter("write_timeouts_total", "Connections closed because the peer read nothing.")
	shed        = counter("shed_connections_total",
		"Connections closed as largest holders of memory: with buffered_bytes a quarter above its limit, "+
			"or idle links with interning tables at half of it.")
	shedIdle = counter("shed_idle_connections_total", "Idle connections closed while a resource of the process runs out.")
	left     = counter("stream_departures_total",
		"What left the loops to become a stream: a client with its request (body, websocket, connect) or response, "+
			"a response parked for another sidecar, an accepted stream of another sidecar, "+
			"and redirected connections that pass through (pass).", "kind")
	denied = counter("admin_denied_total", "Requests to the admin API without its token.")
)

func (c *scraper) process(to *page, reports []stats.WorkerReport) {
	var sum stats.WorkerStats
	misuse := map[string]uint64{}
	for i := range reports {
		st := &reports[i].Stats
		sum.Connections += st.Connections
		sum.Redirects += st.Redirects
		sum.Responses += st.Responses
		sum.Replays += st.Replays
		sum.WriteTimeouts += st.WriteTimeouts
		sum.Shed += st.Shed
		sum.ShedIdle += st.ShedIdle
		for d, n := range st.Handoffs {
			sum.Handoffs[d] += n
		}
		for reason, n := range st.HTTP2 {
			misuse[reason] += n
		}
	}
	to.put(buildInfo, 1, c.s.opt.Version)
	to.put(engineInfo, 1, c.s.opt.Engine)
	to.put(restarts, float64(c.s.opt.Restarts))
	for p := range phaseNames {
		to.put(phase, truth(Phase(p) == c.s.Phase()), Phase(p).String())
	}
	to.put(denied, float64(c.s.denied.Load()))
	to.put(loops, float64(len(reports)))
	to.put(connections, float64(sum.Connections))
	to.put(buffered, float64(c.s.buffered(reports)))
	to.put(bufferedMax, float64(c.s.config().Limits.Buffered))
	for name, l := range listenerErrors(reports) {
		for code, n := range l.Errors {
			to.put(errorsTotal, float64(n), code, name)
		}
		to.put(unrouted, float64(l.Unrouted), name)
	}
	for reason, n := range misuse {
		to.put(http2Errors, float64(n), reason)
	}
	to.put(answered, float64(sum.Redirects), "redirect")
	to.put(answered, float64(sum.Responses), "respond")
	to.put(replays, float64(sum.Replays))
	to.put(writeStalls, float64(sum.WriteTimeouts))
	to.put(shed, float64(sum.Shed))
	to.put(shedIdle, float64(sum.ShedIdle))
	for d, n := range sum.Handoffs {
		to.put(left, float64(n), stats.Handoff(d).String())
	}
}

// The families of the driver.
var (
	accepted     = counter("reactor_accepted_total", "Connections accepted and given to a loop.")
	refused      = counter("reactor_refused_total", "Connections closed at once, above limits.connections or the listener's own, or in overload state refusing.")
	refusedFrom  = counter("reactor_refused_source_total", "Connections closed at once, above limits.per_source.")
	acceptErrors = counter("reactor_accept_errors_total", "Failed accepts, and accepted sockets that no loop took.")
	dialled      = counter("reactor_dialed_total", "Connections established to endpoints.")
	dialErrors   = counter("reactor_dial_errors_total", "Dials that failed or took too long.")
	recovered    = counter("reactor_panics_total", "Panics after which the sidecar went on: of a loop, or of a goroutine that serves a connection or a stream.")
	detached     = counter("reactor_detached_total", "Connections that left their loop to become a stream.")
	open         = gauge("reactor_connections", "Open sockets: accepted (in) and dialled (out).", "direction")
)

func (c *scraper) reactor(to *page) {
	st := c.s.opt.Reactor()
	to.put(accepted, float64(st.Accepted))
	to.put(refused, float64(st.Refused))
	to.put(refusedFrom, float64(st.RefusedSource))
	to.put(acceptErrors, float64(st.AcceptErrors))
	to.put(dialled, float64(st.Dialled))
	to.put(dialErrors, float64(st.DialErrors))
	to.put(recovered, float64(st.Panics))
	to.put(detached, float64(st.Detached))
	to.put(open, float64(st.Inbound), "in")
	to.put(open, float64(max(st.Open-st.Inbound, 0)), "out")
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
