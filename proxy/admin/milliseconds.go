package admin

import (
	"net/http"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Milliseconds is the answer of /milliseconds: what all loops saw in each single
// millisecond, from the first on. A reader that asks again with since=End gets
// what followed, without a gap unless it waits for longer than is remembered.
type Milliseconds struct {
	From     int64    `json:"from"`     // the first, counted from the start of the sidecar
	End      int64    `json:"end"`      // the one after the last; it is not over yet
	Arrivals []uint32 `json:"arrivals"` // requests that were complete
	Answers  []uint32 `json:"answers"`
	Bytes    []uint64 `json:"bytes"`    // of both
	Worst    []int64  `json:"worst_us"` // the longest latency among the answers, in microseconds
}

func (s *Server) milliseconds(w http.ResponseWriter, r *http.Request) {
	since := int64(0)
	if text := r.URL.Query().Get("since"); text != "" {
		var err error
		if since, err = strconv.ParseInt(text, 10, 64); err != nil || since < 0 {
			plain(w, http.StatusBadRequest, "since: expected a number of milliseconds, such as end of the answer before")
			return
		}
	}
	loops, err := gather(r.Context(), s, func(w *proxy.Worker) stats.Milliseconds { return w.Milliseconds(since) })
	if err != nil {
		unavailable(w, []string{err.Error()})
		return
	}
	writeCompact(w, mergeMilliseconds(loops))
}

// mergeMilliseconds adds up the milliseconds that all loops have.
func mergeMilliseconds(loops []stats.Milliseconds) *Milliseconds {
	from, end := loops[0].From, loops[0].End()
	for i := range loops {
		from, end = max(from, loops[i].From), min(end, loops[i].End())
	}
	n := max(end-from, 0)
	out := &Milliseconds{
		From: from, End: from + n,
		Arrivals: make([]uint32, n), Answers: make([]uint32, n), Bytes: make([]uint64, n), Worst: make([]int64, n),
	}
	for i := range n {
		var sum stats.Millisecond
		for j := range loops {
			sum.Add(&loops[j].List[from+i-loops[j].From])
		}
		out.Arrivals[i], out.Answers[i] = sum.Arrivals, sum.Answers
		out.Bytes[i] = uint64(sum.BytesIn) + uint64(sum.BytesOut)
		out.Worst[i] = int64(sum.Worst / time.Microsecond)
	}
	return out
}
