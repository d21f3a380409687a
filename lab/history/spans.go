package history

import (
	"slices"
	"time"
)

// span is a time from one moment to before another one.
type span struct{ from, until time.Time }

func (s span) length() time.Duration { return s.until.Sub(s.from) }

// spans are spans in the order of time, which do not touch.
type spans []span

// join returns the time that is in any of these spans. Empty spans are left out.
func join(all []span) (joined spans) {
	all = slices.DeleteFunc(slices.Clone(all), func(s span) bool { return !s.from.Before(s.until) })
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	for _, s := range all {
		if n := len(joined); n > 0 && !joined[n-1].until.Before(s.from) {
			joined[n-1].until = later(joined[n-1].until, s.until)
		} else {
			joined = append(joined, s)
		}
	}
	return joined
}

// within returns the parts of all that are within a span.
func (all spans) within(s span) (parts spans) {
	for _, p := range all {
		p = span{later(p.from, s.from), earlier(p.until, s.until)}
		if p.from.Before(p.until) {
			parts = append(parts, p)
		}
	}
	return parts
}

// gaps returns the parts of a span that are in none of all.
func (all spans) gaps(s span) (gaps spans) {
	for _, p := range all.within(s) {
		if s.from.Before(p.from) {
			gaps = append(gaps, span{s.from, p.from})
		}
		s.from = p.until
	}
	if s.from.Before(s.until) {
		gaps = append(gaps, s)
	}
	return gaps
}

// around returns the span that has all of a time.
func (all spans) around(t span) (s span, ok bool) {
	for _, s := range all {
		if !t.from.Before(s.from) && !t.until.After(s.until) {
			return s, true
		}
	}
	return span{}, false
}

// longest returns the length of the longest span.
func (all spans) longest() (d time.Duration) {
	for _, s := range all {
		d = max(d, s.length())
	}
	return d
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
