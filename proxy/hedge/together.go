package hedge

import "time"

// Together is the latest time for which the endpoints of a service were silent together, as SilentTogether says. No
// hedge would have helped a request that waited for its end. The zero value is no such time.
type Together struct{ from, to time.Duration }

// Note records that the endpoints were silent together, from a time until now. A shorter silence does not replace one
// whose requests are still responding.
func (t *Together) Note(from, now time.Duration) {
	if last := t.to - t.from; now-from >= last || now-t.to > last {
		t.from, t.to = from, now
	}
}

// Covers reports whether the endpoints were silent together for more than half of the time from sent until now.
func (t *Together) Covers(sent, now time.Duration) bool {
	return 2*(min(t.to, now)-max(t.from, sent)) > now-sent
}
