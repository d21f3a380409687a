package forecast

import (
	"testing"
	"time"
)

func TestTimeline(t *testing.T) {
	const mine, other, third = 1, 2, 3
	at := func(n int) time.Duration { return 10*time.Second + time.Duration(n)*ms }
	for _, c := range []struct {
		name string
		do   func(l *timeline)
		want time.Duration // 0 means that there is none, -1 that it was unavailable
	}{
		{"nothing was sent", func(l *timeline) {}, 0},
		{"only to the same endpoint", func(l *timeline) { l.note(at(500), mine, 3*ms) }, 0},
		{"to another", func(l *timeline) { l.note(at(500), other, 3*ms) }, 3 * ms},
		{"no response yet", func(l *timeline) { l.note(at(500), other, 0) }, time.Hour},
		{"the nearest", func(l *timeline) {
			l.note(at(490), other, 3*ms)
			l.note(at(496), mine, 3*ms)
			l.note(at(505), other, 4*ms)
			l.note(at(530), other, 5*ms)
		}, 4 * ms},
		{"the nearest before", func(l *timeline) {
			l.note(at(480), other, 3*ms)
			l.note(at(495), other, 4*ms)
			l.note(at(501), mine, 3*ms)
			l.note(at(530), other, 5*ms)
		}, 4 * ms},
		{"out of reach", func(l *timeline) { l.note(at(500-101), other, 3*ms) }, 0},
		{"out of reach, later", func(l *timeline) { l.note(at(500+101), other, 3*ms) }, 0},
		{"at the end of reach", func(l *timeline) { l.note(at(500-100), other, 3*ms) }, 3 * ms},
		{"at the end of reach, later", func(l *timeline) { l.note(at(500+100), other, 3*ms) }, 3 * ms},
		{"the first of two at the same time", func(l *timeline) {
			l.note(at(500), other, 3*ms)
			l.note(at(500), third, 5*ms)
		}, 3 * ms},
		{"just within reach", func(l *timeline) { l.note(at(500-99), other, 3*ms) }, 3 * ms},
		{"later, of two that are as near", func(l *timeline) {
			l.note(at(500)-timelineUnit, other, 3*ms)
			l.note(at(500)+timelineUnit, third, 5*ms)
		}, 5 * ms},
		{"unavailable", func(l *timeline) { l.add(at(500), other, true) }, -1},
		{"available ones first", func(l *timeline) {
			l.add(at(500), other, true)
			l.note(at(500), third, 3*ms)
		}, 3 * ms},
		{"as near on the other side, and available", func(l *timeline) {
			l.note(at(499), third, 3*ms)
			l.add(at(501), other, true)
		}, 3 * ms},
		{"available, but much later", func(l *timeline) {
			l.add(at(500), other, true)
			l.note(at(503), third, 3*ms)
		}, -1},
		{"after two seconds at a high rate", func(l *timeline) {
			for i := range 2200 {
				l.note(at(500-2100+i), other, time.Duration(i)*ms)
			}
		}, 2100 * ms},
		{"forgotten", func(l *timeline) {
			l.note(at(500), other, 3*ms)
			for i := range maxNoted {
				l.note(at(1000+i), other, 3*ms)
			}
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l timeline
			c.do(&l)
			got := time.Duration(0)
			switch n := l.near(at(500), mine); {
			case n == nil:
			case n.took == tookUnavailable:
				got = -1
			case n.took == tookPending:
				got = time.Hour
			default:
				got = n.latency()
			}
			if (got - c.want).Abs() > c.want.Abs()/50 {
				t.Errorf("found %d, want %d", got, c.want)
			}
		})
	}
}

// note adds a primary. took is 0 if it is still in flight.
func (t *timeline) note(at time.Duration, endpoint uint32, took time.Duration) {
	if i := t.add(at, endpoint, false); took > 0 {
		t.setLatency(i, took)
	}
}

// TestTimelineOldest: the oldest primary that is remembered may get its response.
func TestTimelineOldest(t *testing.T) {
	var l timeline
	for range minNoted {
		l.add(time.Second, 1, false)
	}
	l.setLatency(l.oldest(), 3*ms)
	if n := l.at(l.oldest()); n.took == tookPending {
		t.Error("its latency is not noted")
	}
}

// A primary that was forgotten before its response changes nothing.
func TestTimelineForgotten(t *testing.T) {
	var l timeline
	i := l.add(5*ms, 1, false)
	for at := 10 * time.Second; l.oldest() <= i; at += 5 * time.Second {
		l.add(at, 2, false)
	}
	l.setLatency(i, time.Second)
	for n := l.oldest(); n != l.added; n++ {
		if l.at(n).took != tookPending {
			t.Errorf("found %+v, want one that is pending", l.at(n))
		}
	}
}

// The ring is no longer than the rate of requests needs.
func TestTimelineGrows(t *testing.T) {
	for _, c := range []struct {
		every time.Duration
		want  int
	}{{time.Second, minNoted}, {model.kept / minNoted, minNoted}, {model.kept/minNoted - timelineUnit, 2 * minNoted}, {10 * ms, 256}, {ms, 2048}, {100 * time.Microsecond, maxNoted}} {
		for _, start := range []time.Duration{0, time.Hour} {
			var l timeline
			for i := range 10_000 {
				l.add(start+time.Duration(i)*c.every, 1, false)
			}
			if len(l.ring) != c.want {
				t.Errorf("one each %v from %v on: %d in the ring, want %d", c.every, start, len(l.ring), c.want)
			}
		}
	}
}

// TestTimelineKeeps: a ring that grows keeps what was noted.
func TestTimelineKeeps(t *testing.T) {
	var l timeline
	for i := range minNoted + 1 {
		l.note(time.Hour+time.Duration(i)*ms, uint32(i), time.Duration(1+i)*ms)
	}
	for i := range minNoted + 1 {
		n := l.near(time.Hour+time.Duration(i)*ms, 1000)
		if want := time.Duration(1+i) * ms; n == nil || (n.latency()-want).Abs() > want/30 {
			t.Errorf("primary %d has the latency %v, want %v", i, n, want)
		}
	}
}
