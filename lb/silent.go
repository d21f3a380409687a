package lb

import "time"

// fewSilent is the largest number of endpoints that are visited for each late request. A
// thousand take 8 µs, and in a freeze every pending request asks again each hedge delay. TestConstants shows what happens
// at twice and at half.
var fewSilent = 64

// SilentCount counts the silent endpoints of a set, for one caller that always passes a similar after, and keeps the last
// result.
type SilentCount struct {
	until          time.Duration // how long the result is valid
	active, silent int

	// Since is when the first of the silent endpoints went silent, and All since when all of them are.
	Since, All time.Duration
}

// Count counts the endpoints of s that say something about the present. An endpoint is active if it has a
// pending attempt of this loop, or has responded within the time after. An active endpoint is silent if it has
// not responded within the time after. For many endpoints, Count returns the last result if that is younger than an
// eighth of after.
func (c *SilentCount) Count(s *Set, now, after time.Duration) (active, silent int) {
	all := s.peers.all.endpoints
	if now < c.until && len(all) > fewSilent {
		return c.active, c.silent
	}
	since, allSince := now, time.Duration(0)
	for _, e := range all {
		quiet := now-e.quietSince >= after
		switch {
		case e.pending > 0 && quiet:
			active++
			silent, since, allSince = silent+1, min(since, e.quietSince), max(allSince, e.quietSince)
		case !quiet && e.usualLoad.Known(): // it has had an attempt
			active++
		}
	}
	*c = SilentCount{now + after/8, active, silent, since, allSince}
	return active, silent
}
