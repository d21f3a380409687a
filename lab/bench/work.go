package bench

import (
	"fmt"
	"slices"
	"time"
)

// Job is a kind of work.
type Job string

const (
	Busy    Job = "busy"   // 64 connections; two hops also with more loops
	Low     Job = "low"    // one connection, and few requests a second
	Fresh   Job = "new"    // a new connection for each request
	Bodies  Job = "bodies" // of 64 KiB to 4 MiB, each way
	Resting Job = "rest"   // start, and memory and CPU without requests
)

// Jobs lists all kinds of work.
var Jobs = []Job{Busy, Low, Fresh, Bodies, Resting}

// bodySizes are the sizes of Bodies.
var bodySizes = []int{64 << 10, 256 << 10, 1 << 20, 4 << 20}

// moreLoops are the numbers of loops of a sidecar beside one, with what CPU may be then, of
// that with one loop, on two cores.
var moreLoops = []struct {
	loops int
	most  float64
}{{2, 1.1}, {4, 1.2}}

// WorkRows are plainRows and two hops with more loops.
func WorkRows() []Row {
	rows := plainRows()
	for _, more := range moreLoops {
		rows = append(rows, Row{
			Name: loopsRow(more.loops), jobs: []Job{Busy},
			chain: mesh(func(c, p *sidecar) { c.Loops, p.Loops = more.loops, more.loops }),
		})
	}
	engines, _ := Choose(Rows(), []string{"remora-1-gnet", "remora-2-gnet"}) // can't fail
	return append(rows, engines...)
}

func loopsRow(loops int) string { return fmt.Sprintf("remora-2-%dloops", loops) }

// WorkLoads are the loads of these jobs, each for d. That of 64 connections comes first: no
// later one has changed the memory of the proxies.
func WorkLoads(jobs []Job, d time.Duration) ([]Load, error) {
	for _, j := range jobs {
		if !slices.Contains(Jobs, j) {
			return nil, fmt.Errorf("bench: unknown job %q: want some of %v", j, Jobs)
		}
	}
	var all []Load
	add := func(job Job, loads ...Load) {
		for _, l := range loads {
			if l.job = job; slices.Contains(jobs, job) {
				all = append(all, l)
			}
		}
	}
	add(Busy, Closed(64, d))
	add(Low, Closed(1, d), Open(200, d), Open(2000, d))
	add(Fresh, NewConnections(64, d))
	for _, size := range bodySizes {
		add(Bodies, Responses(size, d), Requests(size, d))
	}
	return all, nil
}

// NewConnections is a closed loop of so many clients, each of which opens a connection for each
// request.
func NewConnections(clients int, d time.Duration) Load {
	name := fmt.Sprintf("closed loop, %d clients, a new connection for each request", clients)
	return calls{close: true}.closed(name, clients, d)
}

// bodyConnections are those of the loads of Bodies.
const bodyConnections = 8

// Responses is a closed loop of GETs with responses of size bytes.
func Responses(size int, d time.Duration) Load {
	return bodies("responses", size, d, calls{get: fmt.Sprintf("/bytes?size=%d", size)})
}

// Requests is a closed loop of POSTs of size bytes.
func Requests(size int, d time.Duration) Load {
	return bodies("requests", size, d, calls{size: size})
}

func bodies(what string, size int, d time.Duration, c calls) Load {
	l := c.closed(fmt.Sprintf("%s of %s, %d connections", what, sizeName(size), bodyConnections), bodyConnections, d)
	l.bytes = size
	return l
}

func sizeName(size int) string {
	if size >= 1<<20 {
		return fmt.Sprintf("%d MiB", size>>20)
	}
	return fmt.Sprintf("%d KiB", size>>10)
}

// workVerdicts judges the promises of the bench of work.
func (s Samples) workVerdicts() []Verdict {
	const (
		one   = "CPU per request of one hop"
		two   = "CPU per request of two hops"
		added = "median latency added by two hops"
	)
	atNew := NewConnections(64, 0).Name
	verdicts := []Verdict{
		s.compare(two, "remora-2", "relay-2", at64, CPU, 0.8),
		s.compare(one, "remora-1", "haproxy-1", at64, CPU, 0.85),
	}
	for _, more := range moreLoops {
		what := fmt.Sprintf("%s, %d loops each", two, more.loops)
		verdicts = append(verdicts, s.compare(what, loopsRow(more.loops), "remora-2", at64, CPU, more.most))
	}
	for _, low := range []struct {
		load string
		most float64
	}{{at1, 1.25}, {atSlow, 1.25}, {Open(200, 0).Name, 1.5}} {
		verdicts = append(verdicts,
			s.compare(two, "remora-2", "relay-2", low.load, CPU, low.most),
			s.compare(added, "remora-2", "nginx-2", low.load, AddedP50, 1))
	}
	verdicts = append(verdicts,
		s.compare(one, "remora-1", "haproxy-1", atNew, CPU, 1),
		s.compare(two, "remora-2", "haproxy-2", atNew, CPU, 1))
	for _, size := range bodySizes {
		for _, load := range []Load{Responses(size, 0), Requests(size, 0)} {
			for _, peer := range []string{"haproxy-2", "nginx-2"} {
				verdicts = append(verdicts, s.compare("CPU per GiB of two hops", "remora-2", peer, load.Name, PerGiB, 1))
			}
		}
	}
	return append(verdicts,
		s.value("resident memory of two sidecars, "+at64+", MiB (32 MB)", "remora-2", at64, RSS, 32/megabytes),
		s.value("memory of an idle connection beyond the kernel's, KiB", "remora-1", AtRest, Connection, 1),
		s.value("CPU at rest, ms per second (0.03% of a core)", "remora-1", AtRest, RestCPU, 0.3),
		s.value("start to first response, ms", "remora-1", AtRest, StartTime, 50))
}
