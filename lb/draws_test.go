package lb

import (
	"math/rand/v2"
	"testing"
	"time"
)

// scripted is a Rand by which a set of n endpoints of the same weight draws those in at, one after another, and then the
// first one of the set.
type scripted struct {
	n     int
	at    []int
	drawn int
}

// Uint64 implements Rand.
func (s *scripted) Uint64() uint64 {
	at := 0
	if s.drawn < len(s.at) {
		at = s.at[s.drawn]
	}
	s.drawn++
	return uint64((float64(at) + .5) / float64(s.n) * (1 << 64))
}

// TestDraws: of many endpoints two are drawn, and more while the best has requests of this process, and more load than usual.
// The first of equals is picked.
func TestDraws(t *testing.T) {
	start := func(s *Set, requests ...int) { // of the first endpoints
		for i, n := range requests {
			for range n {
				s.At(i).Start(0)
			}
		}
	}
	took := func(first, second time.Duration) func(*Set) {
		return func(s *Set) {
			s.At(0).latency.Add(10*ms, first)
			s.At(1).latency.Add(10*ms, second)
		}
	}
	for _, c := range []struct {
		name  string
		do    func(s *Set)
		tried int // the last endpoints
		at    []int
		want  int // the endpoint
		draws int
	}{
		{"idle", func(*Set) {}, 0, []int{3, 7}, 3, 2},
		{"the same one twice", func(*Set) {}, 0, []int{3, 3, 7}, 3, 3},
		{"the second is idle", func(s *Set) { start(s, 1) }, 0, []int{0, 7}, 7, 2},
		{"the second is quicker", took(2*ms, ms), 0, []int{0, 1}, 1, 2},
		{"the second is just not quick enough", took(5*ms/4, ms), 0, []int{0, 1}, 0, 2},
		{"the second is a little slower", took(ms, 6*ms/5), 0, []int{0, 1}, 0, 2},
		{"the second is quicker and busy", func(s *Set) { start(s, 0, 1); took(2*ms, ms)(s) }, 0, []int{0, 1}, 0, 2},
		{"the third is idle", func(s *Set) { start(s, 1, 1) }, 0, []int{0, 1, 7}, 7, 3},
		{"the fourth is idle", func(s *Set) { start(s, 2, 2, 1) }, 0, []int{0, 1, 2, 7}, 7, 4},
		{"the third is busier", func(s *Set) { start(s, 1, 1, 2) }, 0, []int{0, 1, 2, 7}, 7, 4},
		{"all are busy", func(s *Set) { start(s, 1, 1, 1, 1, 1, 1, 1, 1) }, 0, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, 0, drawUpTo},
		{"busy as usual", func(s *Set) {
			start(s, 1, 1)
			s.At(0).usualLoad.Add(2) // a mean of 1
		}, 0, []int{0, 1, 7}, 0, 2},
		{"busy with requests of others", func(s *Set) {
			s.At(0).Report(10*ms, Load{Pending: 3}, 0)
			s.At(1).Report(10*ms, Load{Pending: 3}, 0)
		}, 0, []int{0, 1, 7}, 0, 2},
		{"only two can be picked", func(s *Set) { start(s, 1, 1) }, 18, []int{0, 1, 2, 2, 2, 2, 2, 2, 2, 2}, 0, 2 + scanUpTo},
	} {
		s := &Set{}
		s.Update(numbered(20, even))
		c.do(s)
		rnd := &scripted{n: s.Len(), at: c.at}
		e := s.Pick(Query{Now: 10 * ms, Rand: rnd, Tried: s.peers.all.endpoints[s.Len()-c.tried:]})
		if e != s.At(c.want) || rnd.drawn != c.draws {
			t.Errorf("%s: picked %s after %d draws, want %d after %d", c.name, e.Addr, rnd.drawn, c.want, c.draws)
		}
	}
}

// TestScan: of few endpoints the one with the least load is found, wherever it is.
func TestScan(t *testing.T) {
	for idle := range scanUpTo {
		s := &Set{}
		s.Update(numbered(scanUpTo, even))
		for i := range s.Len() {
			if i != idle {
				s.At(i).Start(0)
			}
		}
		for range 20 {
			if e := s.Pick(Query{Rand: rand.NewPCG(1, 2)}); e.index != idle {
				t.Fatalf("picked %s, want %d", e.Addr, idle)
			}
		}
	}
}

// missing is a Rand by which the first draws of a pick find the first endpoint.
type missing struct {
	Rand
	drawn int
}

// Uint64 implements Rand.
func (m *missing) Uint64() uint64 {
	if m.drawn++; m.drawn <= scanUpTo {
		return 0
	}
	return m.Rand.Uint64()
}

// TestScanOfMany: if no draw finds an endpoint that can be picked, all that have the least load are equal.
func TestScanOfMany(t *testing.T) {
	s, rnd := &Set{}, rand.NewPCG(1, 2)
	s.Update(numbered(20, even))
	can := map[int]bool{2: true, 10: true, 12: true, 5: false, 11: false} // whether it is idle
	var tried []*Endpoint
	for i := range s.Len() {
		if idle, ok := can[i]; !ok {
			tried = append(tried, s.At(i))
		} else if !idle {
			s.At(i).Start(0)
		}
	}
	got := map[int]int{}
	for range 3000 {
		got[s.Pick(Query{Rand: &missing{Rand: rnd}, Tried: tried}).index]++
	}
	for i, n := range got {
		if !can[i] || n < 900 || n > 1100 {
			t.Errorf("endpoint %d has %d of 3000 requests", i, n)
		}
	}
}

// TestIdleByCapacity: an idle endpoint that is slow for long gets fewer requests than another one.
func TestIdleByCapacity(t *testing.T) {
	s, rnd := &Set{}, rand.NewPCG(1, 2)
	s.Update(numbered(2, even))
	s.At(0).slowness.factor = 3
	slow := 0
	for range 4000 {
		if s.Pick(Query{Rand: rnd}) == s.At(0) {
			slow++
		}
	}
	if slow < 900 || slow > 1100 {
		t.Errorf("an endpoint with a quarter of the capacity has %d of 4000 requests", slow)
	}
}

// TestHeavyEndpoint: an idle endpoint with the weight of half of the others has its share of a large set, too.
func TestHeavyEndpoint(t *testing.T) {
	for _, p := range policies {
		s, rnd := &Set{Policy: p}, rand.NewPCG(1, 2)
		s.Update(numbered(21, func(i int) float64 { return []float64{10, 1}[min(i, 1)] }))
		heavy := 0
		for range 6000 {
			if s.Pick(Query{Rand: rnd}) == s.At(0) {
				heavy++
			}
		}
		if heavy < 1850 || heavy > 2150 {
			t.Errorf("%T: an endpoint with a third of the weight has %d of 6000 requests", p, heavy)
		}
	}
}

// TestDrawnLightEndpoint: in a large set an idle endpoint that is drawn gets the request, however little its weight is.
func TestDrawnLightEndpoint(t *testing.T) {
	s, rnd := &Set{}, rand.NewPCG(1, 2)
	s.Update(numbered(20, func(i int) float64 { return []float64{10, 1}[min(i, 1)] }))
	for range 5 {
		s.At(0).Start(0)
	}
	for range 200 {
		if s.Pick(Query{Rand: rnd}) == s.At(0) {
			t.Fatal("picked the endpoint that is busy")
		}
	}
}

// TestLocate: each endpoint has the interval of its weight, without the upper end.
func TestLocate(t *testing.T) {
	for _, c := range []struct {
		weights []float64
		x       float64
		want    int
	}{
		{[]float64{1, 1, 1, 1}, 0, 0}, {[]float64{1, 1, 1, 1}, .25, 1}, {[]float64{1, 1, 1, 1}, .99, 3},
		{[]float64{1, 3}, 0, 0}, {[]float64{1, 3}, .24, 0}, {[]float64{1, 3}, .25, 1}, {[]float64{1, 3}, .99, 1},
	} {
		s := &Set{}
		s.Update(numbered(len(c.weights), func(i int) float64 { return c.weights[i] }))
		if e := s.peers.all.locate(c.x); e.index != c.want {
			t.Errorf("%v of %v is at %d, want %d", c.x, c.weights, e.index, c.want)
		}
	}
}
