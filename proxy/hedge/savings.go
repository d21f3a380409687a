package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
	"github.com/remora-proxy/remora/proxy/hedge/worth"
)

// Savings measures what the hedges of a route have saved, on one loop. The zero value has no hedges.
type Savings struct {
	worth     worth.Gate
	overtaken *overtaken // nil until a hedge has won
}

// overtaken are the primaries that a hedge overtook: when the hedge's response came, and when
// their own would have come.
type overtaken struct{ won, lost histogram.Window }

// Overtaken records that a hedge's response came before that of the primary, which was sent so
// long ago. Judge follows if the application finishes the primary, else Unknown.
func (s *Savings) Overtaken(now, after time.Duration) {
	if s.overtaken == nil {
		s.overtaken = new(overtaken)
	}
	s.overtaken.won.At(now, longHalf).Add(after)
}

// Judge records a hedged request whose primary took so long. saved is how much earlier the
// response of its hedge came, 0 if the primary's came first.
func (s *Savings) Judge(now, took, saved time.Duration) {
	s.worth.Judge(took, saved)
	if saved > 0 && s.overtaken != nil {
		s.overtaken.lost.At(now, longHalf).Add(took)
	}
}

// Unknown records that a primary which Overtaken has recorded was withdrawn: nobody learns how long it would have taken.
// It comes in place of Judge.
func (s *Savings) Unknown() { s.worth.Unknown() }

// spread gives the censored ones among first attempts the latencies of those that finished after a hedge had won.
func (s *Savings) spread(now time.Duration, first *histogram.Distribution) {
	if s.overtaken != nil {
		lost := s.overtaken.lost.Distribution(now, longHalf)
		first.Spread(&lost)
	}
}
