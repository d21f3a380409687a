package lb

import "time"

// fewSilent is the largest number of endpoints that are visited for each late request. A
// thousand take 8 µs, and in a freeze every pending request asks again each hedge delay.
const fewSilent = 64

// SilentCount is the last result of CountSilent, for one caller that always passes a similar after.
type SilentCount struct {
	until          time.Duration // how long the result is valid
	active, silent int

	// Since is when the first of the silent endpoints went silent, and All since when all of them are.
	Since, All time.Duration
}

// CountSilent counts the endpoints that say something about the present. An endpoint is active if it has a
// pending attempt of this loop, or has responded within the time after. An active endpoint is silent if it has
// not responded within the time after. For many endpoints, CountSilent returns the result in last if that result
// is younger than an eighth of after.
func (s *Set) CountSilent(now, after time.Duration, last *SilentCount) (active, silent int) {
	if now < last.until && len(s.all.endpoints) > fewSilent {
		return last.active, last.silent
	}
	since, all := now, time.Duration(0)
	for _, e := range s.all.endpoints {
		quiet := now-e.quietSince >= after
		switch {
		case e.pending > 0 && quiet:
			active++
			silent, since, all = silent+1, min(since, e.quietSince), max(all, e.quietSince)
		case e.pending > 0 || !quiet && e.usualLoad.Known():
			active++
		}
	}
	*last = SilentCount{now + after/8, active, silent, since, all}
	return active, silent
}
