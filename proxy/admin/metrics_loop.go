package admin

import "github.com/remora-proxy/remora/proxy/telemetry/stats"

// The families of a loop.
var (
	loopConnections = gauge("loop_connections", "Connections of the loop: accepted, dialled and being dialled.", "loop")
	loopEvents      = counter("loop_events_total", "Events of connections and timers.", "loop")
	loopMoved       = counter("loop_moved_total", "Connections that moved to another loop between two requests.", "loop")
	loopTurns       = timeHistogram("loop_turn_duration_seconds",
		"Duration of turns, from the first event to the last write. New events wait meanwhile.", turnBounds, "loop")
	loopTurnEvents = sizeHistogram("loop_turn_events", "Events per turn. They share their writes.", "loop")
)

func (c *scraper) loop(to *page, name string, r *stats.WorkerReport) {
	to.put(loopConnections, float64(r.Loop.Connections), name)
	to.put(loopEvents, float64(r.Loop.Events), name)
	to.put(loopMoved, float64(r.Loop.Moved), name)
	to.times(loopTurns, &r.Loop.Turns, name)
	to.sizes(loopTurnEvents, &r.Loop.TurnEvents, name)
}

// The families of links, of all services together.
var (
	flushes   = counter("link_flushes_total", "Writes to links.")
	batches   = sizeHistogram("link_batch_messages", "Messages written to a link together: requests, responses, refusals and withdrawals.")
	linkBytes = counter("link_bytes_total", "Bytes received and sent on links.", "direction")
	cancels   = counter("link_cancels_total", "Attempts withdrawn over a link.")
	saved     = counter("link_cancels_saved_total", "Withdrawn attempts that the application never saw.")
)

func (c *scraper) links(to *page, reports []stats.WorkerReport) {
	var sum stats.WorkerStats
	for i := range reports {
		st := &reports[i].Stats
		sum.LinkFlushes += st.LinkFlushes
		sum.LinkBatches.Add(&st.LinkBatches)
		sum.LinkBytesIn += st.LinkBytesIn
		sum.LinkBytesOut += st.LinkBytesOut
		sum.Cancels += st.Cancels
		sum.CancelsSaved += st.CancelsSaved
	}
	to.put(flushes, float64(sum.LinkFlushes))
	to.sizes(batches, &sum.LinkBatches)
	to.put(linkBytes, float64(sum.LinkBytesIn), "received")
	to.put(linkBytes, float64(sum.LinkBytesOut), "sent")
	to.put(cancels, float64(sum.Cancels))
	to.put(saved, float64(sum.CancelsSaved))
}
