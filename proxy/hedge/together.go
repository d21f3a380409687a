package hedge

import "time"

// Together keeps two times when the endpoints of a service were silent together, as SilentTogether says: the latest silence and
// an earlier silence. A short silence soon after a long silence does not replace the long silence. No hedge would have helped a
// request that waited for the end of a silence. The zero value is no silence.
type Together struct{ earlier, latest silence }

// silence is a time without responses.
type silence struct{ from, to time.Duration }

// Note records that the endpoints were silent together, from a time until now.
func (t *Together) Note(from, now time.Duration) {
	if last := &t.latest; from < last.to { // the same silence goes on
		from = max(min(from, last.from), t.earlier.to)
	} else if last.length() >= t.earlier.length() || from-t.earlier.to > t.earlier.length() {
		t.earlier = *last
	} // else responses to requests that waited for the end of the earlier silence still come
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
