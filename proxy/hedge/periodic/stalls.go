package periodic

import (
	"fmt"
	"math"
	"time"
)

// stall is a time for which most endpoints were silent.
type stall struct{ onset, length time.Duration }

// Stalls finds a period in the stalls of a service: times for which its endpoints are silent
// together, as the caller decides. The zero value has none.
type Stalls struct {
	ended   []stall       // a ring; nil until the first stall has ended
	count   int           // stalls that ended
	open    bool          // there is a stall now
	resumed bool          // it is the last one of ended
	onset   time.Duration // of the stall now
	quiet   time.Duration // until then there was certainly no stall
	found   Period
}

// Period is a period in which endpoints stall together. The zero value means that none is known.
type Period struct {
	Every  time.Duration // 0 means none; at most an hour
	Length time.Duration // of a stall, on average
	Last   time.Duration // when the latest stall should have begun, on the loop's clock
	Jitter time.Duration // how far from its time a stall has begun at most
	Seen   int           // stalls in the period, at most 32
}

// Change is what a look at the endpoints has changed.
type Change uint8

// The changes.
const (
	NoChange Change = iota
	Found           // a period is known, and none was
	Over            // the period that was known is over
)

// Look records whether the endpoints stall now. If they do, they have been silent since the time
// since, which is at least after ago. The caller looks several times a second while requests are in
// flight.
func (s *Stalls) Look(now time.Duration, stalled bool, since, after time.Duration) (c Change) {
	switch {
	case stalled && !s.open:
		s.begin(max(since, s.quiet))
	case !stalled && s.open:
		s.open = false
		if s.end(now) {
			c = s.find()
		}
	}
	if !stalled {
		s.quiet = now - after
	}
	if s.found.Every > 0 && s.found.over(now) {
		s.found, c = Period{}, Over
	}
	return c
}

// Open reports whether there was a stall at the last look.
func (s *Stalls) Open() bool { return s.open }

// Period returns the period that is known at a time.
func (s *Stalls) Period(now time.Duration) Period {
	if s.found.over(now) {
		return Period{}
	}
	return s.found
}

func (s *Stalls) begin(onset time.Duration) {
	s.open, s.onset, s.resumed = true, onset, false
	if s.count > 0 {
		last := s.back(0)
		s.resumed = onset-last.onset-last.length < model.stallGap
	}
}

// end records the stall that ends now, and reports whether it is a new one.
func (s *Stalls) end(now time.Duration) bool {
	if s.resumed {
		last := s.back(0)
		last.length = now - last.onset
		return false
	}
	if now-s.onset < model.minStall {
		return false
	}
	if s.ended == nil {
		s.ended = make([]stall, model.stalls)
	}
	s.ended[s.count%len(s.ended)] = stall{s.onset, now - s.onset}
	s.count++
	return true
}

// back returns the n-th stall before the last one that ended.
func (s *Stalls) back(n int) *stall { return &s.ended[(s.count-1-n)%len(s.ended)] }

// find looks for a period that ends with the latest stall. It tries the period that is known, and the
// distances to the candidates before the latest stall, each whole and halved.
func (s *Stalls) find() Change {
	before := s.found.Every
	found, least := s.fit(before)
	for n := 1; n <= min(model.candidates, s.count-1); n++ {
		for _, part := range [...]time.Duration{1, 2} {
			if p, chance := s.fit((s.back(0).onset - s.back(n).onset) / part); chance < least {
				found, least = p, chance
			}
		}
	}
	if least > model.leastChance {
		return NoChange
	}
	s.found = found
	if before > 0 {
		return NoChange
	}
	return Found
}

// beat is a stall in a period.
type beat struct{ number, back float64 } // how many beats, and nanoseconds, before the latest

// fit returns the period that is about estimate, and how likely random stalls would fit as well.
func (s *Stalls) fit(estimate time.Duration) (Period, float64) {
	if estimate < model.minPeriod || estimate > model.maxPeriod {
		return Period{}, 1
	}
	beats := make([]beat, 1, len(s.ended)) // the latest stall is the first beat
	stalls, period := 1, float64(estimate)
	newest := s.back(0).onset
	length := s.back(0).length
	for n := 1; n < min(s.count, len(s.ended)); n++ {
		back := float64(newest - s.back(n).onset)
		number, last := math.Round(back/period), beats[len(beats)-1].number
		if number > last+1+float64(model.missedBeats) {
			break
		}
		if number == last || math.Abs(back-number*period) > 2*model.jitters[len(model.jitters)-1]*period {
			continue
		}
		beats = append(beats, beat{number, back})
		stalls, period = n+1, back/number
		length += s.back(n).length
	}
	p, chance := judge(beats, stalls)
	p.Last += newest
	p.Length = length / time.Duration(len(beats))
	if 2*p.Length > p.Every {
		return Period{}, 1
	}
	return p, chance
}

// judge fits a line to beats. It returns the period, with Last counted from the first of beats, and
// how likely so many of the stalls would be that near to the line at random.
func judge(beats []beat, stalls int) (p Period, chance float64) {
	var n, sumX, sumY, sumXX, sumXY float64 = float64(len(beats)), 0, 0, 0, 0
	for _, b := range beats {
		sumX, sumY = sumX+b.number, sumY+b.back
		sumXX, sumXY = sumXX+b.number*b.number, sumXY+b.number*b.back
	}
	period := (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
	first := (sumY - period*sumX) / n
	chance = 1
	if len(beats) < 3 || n < model.leastBeats*(beats[len(beats)-1].number+1) {
		return p, chance
	}
	for _, jitter := range model.jitters {
		fit, most := 0, float64(model.leastJitter)
		for _, b := range beats {
			if off := math.Abs(b.back - first - b.number*period); off <= jitter*period {
				fit, most = fit+1, max(most, off)
			}
		}
		// Two of them made the line.
		if c := atLeast(fit-2, stalls-2, 2*jitter); c < chance {
			chance = c
			p = Period{Every: time.Duration(period), Last: -time.Duration(first), Jitter: time.Duration(most), Seen: fit}
		}
	}
	return p, chance
}

// atLeast is the probability of at least k of n events that have the probability p each.
func atLeast(k, n int, p float64) (sum float64) {
	if k <= 0 {
		return 1
	}
	term := math.Pow(1-p, float64(n)) // of exactly i
	for i := 0; i <= n; i++ {
		if i >= k {
			sum += term
		}
		term *= float64(n-i) / float64(i+1) * p / (1 - p)
	}
	return sum
}

// over reports whether so many beats had no stall that the period has ended.
func (p *Period) over(now time.Duration) bool {
	return now-p.Last > time.Duration(model.missedBeats)*p.Every+p.Jitter+p.Length
}

// Expects reports whether a stall is expected now.
func (s *Stalls) Expects(now time.Duration) bool { return s.found.expects(now) }

// expects reports whether the period has a stall now.
func (p *Period) expects(now time.Duration) bool {
	return p.Every > 0 && (now-p.Last+p.Jitter)%p.Every < p.Length+2*p.Jitter && !p.over(now)
}

// Second returns the second at which stalls begin, counted from full minutes, or from full hours if
// the period is longer. The remainder by the period counts: 3 means 3, 13 and so on. last is the time
// of day of Last. ok is false if the period doesn't divide an hour, or if last is zero.
func (p *Period) Second(last time.Time) (second int, ok bool) {
	period := p.Every.Round(time.Second)
	if period == 0 || time.Hour%period != 0 || (p.Every-period).Abs() > period/500 || last.IsZero() {
		return 0, false
	}
	last = last.Round(time.Second)
	return int(last.Sub(last.Truncate(period)) / time.Second), true
}

// Describe says in one line what is known of the replicas of a service. last is the time of day of
// Last, or zero.
func (p *Period) Describe(service string, last time.Time) string {
	at := ""
	if second, ok := p.Second(last); ok {
		at = fmt.Sprintf(" at second %d", second)
	}
	every, length := p.Every.Round(100*time.Millisecond), p.Length.Round(10*time.Millisecond)
	if length > 200*time.Millisecond {
		length = p.Length.Round(100 * time.Millisecond)
	}
	return fmt.Sprintf("the replicas of %s stall together every %v s%s for %v s", service, every.Seconds(), at, length.Seconds())
}
