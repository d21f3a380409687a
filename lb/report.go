package lb

import "time"

const (
	// reportFade is how long a report distinguishes endpoints. Other consumers act on it, too:
	// if it counted longer, all would move to the endpoint that was idle when it reported.
	reportFade = 100 * time.Millisecond

	reportLife = time.Second // how long a report counts in the mean
)

// Report processes the load that the endpoint's sidecar reports for all consumers. own is this
// process's part of it, over all its loops. The rest is the load of others. It fades to the
// mean of all endpoints within 100 ms. After 1 s, or up to 100 ms later, the report is dropped
// from the mean, too. An endpoint without a report counts as average. A response of the
// application to any consumer ends a stall.
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

func (e *Endpoint) forget() {
	if !e.reported {
		return
	}
	e.reported = false
	e.set.reports--
	e.set.othersSum -= e.others
	if e.set.reports == 0 {
		e.set.othersSum = 0 // removes rounding errors
	}
}

// othersLoad returns the load of others per weight, faded by the age of the report.
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

// expire drops the reports that are too old, at most every reportFade.
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

// Reported returns the load that the endpoint's sidecar last reported, without this process's
// part; false if there was no report within the last second.
func (e *Endpoint) Reported(now time.Duration) (others float64, ok bool) {
	if !e.reported || now-e.reportedAt >= reportLife {
		return 0, false
	}
	return e.others * e.Weight, true
}
