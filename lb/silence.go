package lb

import "time"

// fewSilent is how many endpoints are looked at for each late request. A thousand
// take 8 µs, and in a freeze every pending request asks again each hedge delay.
const fewSilent = 64

// Census is what Silence saw of many endpoints when it last looked, for one user that
// asks with much the same after. The zero value has seen nothing.
type Census struct {
	until         time.Duration // it counts
	heard, silent int
}

// Silence returns how many endpoints have had something of this loop to answer
// within the last after, and how many of those have it still and have answered
// nothing for as long. What an idle endpoint would do now is not known, but one
// that has just answered is evidence too. Of many it is what they were up to an
// eighth of after ago, by last.
func (s *Set) Silence(now, after time.Duration, last *Census) (heard, silent int) {
	if now < last.until && len(s.all.endpoints) > fewSilent {
		return last.heard, last.silent
	}
	for _, e := range s.all.endpoints {
		quiet := now-e.quietSince >= after
		switch {
		case e.pending > 0 && quiet:
			heard++
			silent++
		case e.pending > 0 || !quiet && e.attempts > 0:
			heard++
		}
	}
	*last = Census{now + after/8, heard, silent}
	return heard, silent
}
