package admin

// TracingStats count spans, as otlp.Stats has them.
type TracingStats struct {
	Exported uint64 // taken by the receiver
	Full     uint64 // dropped: too many were waiting
	Lost     uint64 // dropped: the receiver did not take them
}

// The families of tracing.
var (
	spansExported = counter("tracing_spans_exported_total", "Spans accepted by the receiver.")
	spansDropped  = counter("tracing_spans_dropped_total",
		"Lost spans: too many waited (queue), or the receiver did not accept them (export).", "reason")
)

func (c *collector) tracing(to *page) {
	if c.s.opt.Tracing == nil {
		return
	}
	st := c.s.opt.Tracing()
	to.put(spansExported, float64(st.Exported))
	to.put(spansDropped, float64(st.Full), "queue")
	to.put(spansDropped, float64(st.Lost), "export")
}
