package hedge

import "time"

// Together is when the endpoints of a service were silent together, as SilentTogether says: the latest such time, and a longer
// one before. No hedge would have helped a request that waited for the end of either. The zero value is no such time.
type Together struct{ earlier, latest silence }

// silence is a time without responses.
type silence struct{ from, to time.Duration }

// Note records that the endpoints were silent together, from a time until now.
func (t *Together) Note(from, now time.Duration) {
	if last := &t.latest; from < last.to { // the same silence goes on
		from = max(min(from, last.from), t.earlier.to)
	} else if last.length() >= t.earlier.length() || from-t.earlier.to > t.earlier.length() {
		t.earlier = *last
	} // else requests that waited for the end of the earlier one are still responding
	t.latest = silence{from, now}
}

// Covers reports whether the endpoints were silent together for more than half of the time from sent until now.
func (t *Together) Covers(sent, now time.Duration) bool {
	return 2*(t.earlier.within(sent, now)+t.latest.within(sent, now)) > now-sent
}

func (s *silence) length() time.Duration { return s.to - s.from }

// within returns how much of the silence is between two times.
func (s *silence) within(from, to time.Duration) time.Duration {
	return max(0, min(s.to, to)-max(s.from, from))
}
