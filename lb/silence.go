package lb

import "time"

// Silence returns how many endpoints have had something of this loop to answer
// within the last after, and how many of those have it still and have answered
// nothing for as long. What an idle endpoint would do now is not known, but one
// that has just answered is evidence too. It looks at every endpoint.
func (s *Set) Silence(now, after time.Duration) (heard, silent int) {
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
	return heard, silent
}
