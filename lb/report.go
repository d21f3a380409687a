package lb

import "time"

const (
	// reportFade is how long a report keeps telling endpoints apart. Others act
	// on the same report: believed for longer, it herds them all onto the
	// endpoint that looked idle a while ago.
	reportFade = 100 * time.Millisecond

	// reportLife is when it no longer counts towards the mean either.
	reportLife = time.Second
)

// Report takes in what the endpoint's sidecar said: the load of everybody, of
// which own is this process's part, over all its loops. What remains is the load
// of others. It fades towards the mean of all endpoints within 100 ms. After 1 s
// it is dropped from the mean too, by the next look at all of them within 100 ms.
// An endpoint that reports nothing is taken for a mean one. An answer of the app
// to anybody ends a stall.
func (e *Endpoint) Report(now time.Duration, l Load, own int) {
	if l.SinceAnswer >= 0 {
		e.quietSince = max(e.quietSince, now-l.SinceAnswer)
	}
	if l.Latency > 0 && e.latency.At(now) == 0 {
		e.latency.Add(now, l.Latency)
	}
	e.observeQueue(&l)
	if e.set == nil {
		return
	}
	e.forget()
	e.reported, e.reportedAt = true, now
	e.others = float64(max(0, l.Pending-max(0, own))) / e.Weight
	e.set.reports++
	e.set.othersSum += e.others
}

// forget takes the endpoint's report out of the set's mean.
func (e *Endpoint) forget() {
	if !e.reported {
		return
	}
	e.reported = false
	e.set.reports--
	e.set.othersSum -= e.others
	if e.set.reports == 0 {
		e.set.othersSum = 0 // of rounding errors
	}
}

// othersLoad is the load of others per weight, as far as the report still tells.
func (e *Endpoint) othersLoad(now time.Duration) float64 {
	if e.set == nil || e.set.reports == 0 {
		return 0
	}
	mean := e.set.othersSum / float64(e.set.reports)
	age := now - e.reportedAt
	if !e.reported || age >= reportFade {
		return mean
	}
	return mean + (e.others-mean)*(1-float64(age)/float64(reportFade))
}

// expire drops the reports that are too old, looking at most every reportFade.
func (s *Set) expire(now time.Duration) {
	if s.reports == 0 || now < s.expireAt {
		return
	}
	s.expireAt = now + reportFade
	for _, e := range s.all.endpoints {
		if e.reported && now-e.reportedAt >= reportLife {
			e.forget()
		}
	}
}
