package service

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
)

// connectionOf is a Claimant whose connection has so many requests in flight. It counts how often it was asked.
type connectionOf struct{ requests, asked int }

func (c *connectionOf) Concurrency(most int) int {
	c.asked++
	return min(c.requests, most)
}

// boundsOf returns the bounds of a service with changed settings.
func boundsOf(change func(c *config.Service)) *Bounds {
	c := config.DefaultService("s")
	change(c)
	return newBounds(c, newSharedService(c, 1))
}

// TestLastPlaces: the last places of max_pending are for connections with one request, or with all. Batch requests get
// half of the places.
func TestLastPlaces(t *testing.T) {
	for _, c := range []struct {
		max, pending int32 // the request included
		batch        bool
		own          int
		ok, alone    bool
		asked        int
	}{
		{16, 7, false, 7, true, false, 0},
		{16, 8, false, 1, true, true, 1},
		{16, 8, false, 2, true, false, 1},
		{16, 14, false, 0, true, false, 1},
		{16, 14, false, 14, true, false, 1},
		{16, 15, false, 1, true, true, 1},
		{16, 15, false, 2, false, false, 1},
		{16, 15, false, 14, false, false, 1},
		{16, 15, false, 15, true, false, 1},
		{16, 16, false, 1, true, true, 1},
		{16, 16, false, 16, true, false, 1},
		{16, 17, false, 1, false, true, 1},
		{16, 17, false, 17, false, false, 1},
		{16, 8, true, 1, true, false, 0},
		{16, 9, true, 1, false, false, 0},
		{1, 1, false, 1, true, true, 1},
		{1, 1, false, 2, true, false, 1},
		{1, 2, false, 2, false, false, 1},
		{1, 1, true, 1, true, false, 0},
	} {
		b, own := boundsOf(func(s *config.Service) { s.MaxPending = int(c.max) }), &connectionOf{requests: c.own}
		b.shared.pending.Store(c.pending - 1)
		refusal := b.Refuses(time.Hour, c.batch, own)
		var p Passage
		f := b.Pass(&p, time.Hour, c.batch, own)
		if (f == nil) != c.ok || f != nil && f != fault.Overloaded || c.ok && p.Alone != c.alone || refusal != f {
			t.Errorf("%+v: %v, alone %t; Refuses said %v", c, f, p.Alone, refusal)
		}
		if own.asked != 2*c.asked {
			t.Errorf("%+v: the connection was asked %d times by two", c, own.asked)
		}
		if n := b.shared.pending.Load(); (n == c.pending) != c.ok {
			t.Errorf("%+v: %d are pending", c, n)
		}
		if p.End(); b.shared.pending.Load() != c.pending-1 {
			t.Errorf("%+v: %d are pending after the end", c, b.shared.pending.Load())
		}
		if p.End(); b.shared.pending.Load() != c.pending-1 {
			t.Errorf("%+v: a second end counts", c)
		}
	}
}

// TestRefusesWhatDoesNotPass: for any load, rate and verdicts, Refuses says what Pass would, and takes nothing.
func TestRefusesWhatDoesNotPass(t *testing.T) {
	counts := map[*fault.Failure]int{}
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		b := boundsOf(func(s *config.Service) {
			s.MaxPending = 1 + rnd.IntN(20)
			s.RateLimit = config.RateLimit{Rate: rnd.IntN(2) * 100, Burst: 5}
			s.Breaker = config.Breaker{Consecutive: rnd.IntN(3), Open: 20 * time.Millisecond, HalfOpen: 2}
		})
		var inFlight []*Passage
		now := time.Hour
		for range 1000 {
			now += time.Duration(rnd.IntN(int(10 * time.Millisecond)))
			if i := rnd.IntN(10); i < len(inFlight) {
				inFlight[i].Judge(now, fault.Verdict(rnd.IntN(3)))
				inFlight[i].End()
				inFlight = append(inFlight[:i], inFlight[i+1:]...)
				continue
			}
			batch, own := rnd.IntN(4) == 0, &connectionOf{requests: rnd.IntN(3)}
			want, p := b.Refuses(now, batch, own), new(Passage)
			if f := b.Pass(p, now, batch, own); f != want {
				t.Fatalf("seed %d: Refuses says %v, and Pass %v", seed, want, f)
			}
			if counts[want]++; want == nil {
				inFlight = append(inFlight, p)
			}
			if n := b.shared.pending.Load(); int(n) != len(inFlight) {
				t.Fatalf("seed %d: %d are pending, want %d", seed, n, len(inFlight))
			}
		}
	}
	for _, f := range []*fault.Failure{nil, fault.RateLimited, fault.Overloaded, fault.BreakerOpen} {
		if counts[f] < 100 {
			t.Errorf("%v: %d times: too few for a test", f, counts[f])
		}
	}
}

// TestStreamsPass: max_pending does not count for streams, and the rate and the breaker do.
func TestStreamsPass(t *testing.T) {
	b := boundsOf(func(s *config.Service) {
		s.MaxPending, s.RateLimit = 1, config.RateLimit{Rate: 1, Burst: 3}
		s.Breaker = config.Breaker{Consecutive: 1, Open: time.Minute, HalfOpen: 1}
	})
	var passages [4]Passage
	for i, want := range []*fault.Failure{nil, nil, fault.BreakerOpen, fault.RateLimited} {
		if f := b.PassStream(&passages[i], time.Hour); f != want {
			t.Errorf("stream %d: %v, want %v", i, f, want)
		}
		if i == 1 {
			passages[0].Judge(time.Hour, fault.VerdictBad)
		}
	}
	if n := b.shared.streams.Load(); n != 2 {
		t.Errorf("%d streams, want 2", n)
	}
	passages[0].End()
	passages[1].End()
	if n := b.shared.InFlight(); n != 0 {
		t.Errorf("%d in flight after the end", n)
	}
}

// TestJudgedOnce: a second verdict on a request does not count.
func TestJudgedOnce(t *testing.T) {
	b := boundsOf(func(s *config.Service) { s.Breaker = config.Breaker{Consecutive: 2, Open: time.Minute, HalfOpen: 1} })
	for _, want := range []*fault.Failure{nil, fault.BreakerOpen} {
		var p Passage
		if f := b.PassStream(&p, time.Hour); f != nil {
			t.Fatal(f)
		}
		p.Judge(time.Hour, fault.VerdictBad)
		p.Judge(time.Hour, fault.VerdictBad)
		if f := b.Refuses(time.Hour, false, &connectionOf{}); f != want {
			t.Errorf("the next request is refused with %v, want %v", f, want)
		}
	}
}

// TestTransfer: a stream gives the verdict in place of the request that it is the response to, unless the breaker waits for it.
func TestTransfer(t *testing.T) {
	b := boundsOf(func(s *config.Service) { s.Breaker = config.Breaker{Consecutive: 1, Open: time.Minute, HalfOpen: 1} })
	now := time.Hour
	pass := func() (request, stream Passage) {
		t.Helper()
		if f := b.Pass(&request, now, false, &connectionOf{}); f != nil {
			t.Fatal(f)
		}
		b.CountStream(&stream)
		request.Transfer(&stream)
		return request, stream
	}
	request, stream := pass()
	if request.Probes() {
		t.Error("a closed breaker waits for a verdict")
	}
	request.Judge(now, fault.VerdictBad)
	if f := b.Refuses(now, false, &connectionOf{}); f != nil {
		t.Errorf("%v after the verdict of the request", f)
	}
	stream.Judge(now, fault.VerdictBad)
	stream.Judge(now, fault.VerdictGood) // only the first counts
	if f := b.Refuses(now, false, &connectionOf{}); f != fault.BreakerOpen {
		t.Errorf("%v after the verdict of the stream", f)
	}
	now += time.Minute
	request, stream = pass()
	if !request.Probes() || stream.Probes() {
		t.Error("the request is no probe")
	}
	stream.Judge(now, fault.VerdictBad)
	request.Judge(now, fault.VerdictGood)
	if f := b.Refuses(now, false, &connectionOf{}); f != nil {
		t.Errorf("%v after a good probe", f)
	}
}
