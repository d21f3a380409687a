package admin

// AccessLogStats are the counts of the access log since the start, over all
// configurations.
type AccessLogStats struct {
	Lines    uint64 // written
	Overflow uint64 // dropped, since as many waited as may
	Lost     uint64 // dropped, since they could not be written
	Errors   uint64 // writes and reopenings that failed
}

// The families of the access log.
var (
	accessLines   = counter("access_log_lines_total", "Written lines of the access log.")
	accessDropped = counter("access_log_dropped_total",
		"Dropped lines: access_log.buffer was full (overflow), or a write failed (write).", "reason")
	accessErrors = counter("access_log_errors_total", "Failed writes and reopenings of the access log.")
)

func (c *collector) accessLog(to *page) {
	if c.s.opt.AccessLog == nil {
		return
	}
	st := c.s.opt.AccessLog()
	to.put(accessLines, float64(st.Lines))
	to.put(accessDropped, float64(st.Overflow), "overflow")
	to.put(accessDropped, float64(st.Lost), "write")
	to.put(accessErrors, float64(st.Errors))
}
