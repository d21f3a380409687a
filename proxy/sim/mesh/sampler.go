package mesh

import (
	"slices"
	"time"
)

// Times of sampling: the interval between two looks at the replicas, the length of a point
// of a series, and the window in which requests are counted.
const (
	lookEvery  = time.Millisecond
	pointSpan  = 100 * time.Millisecond
	windowSpan = time.Second // of Result.Busiest
)

// sampler looks at the replicas while the load lasts.
type sampler struct {
	m       *mesh
	pending []int // at the latest look, by provider
	most    []int // within the current point
	served  []int // at the end of the latest point

	crowded []time.Duration // for how long each has had twice the mean pending
	longest time.Duration
	points  []Point
}

func (s *sampler) start(m *mesh) {
	n := m.spec.Providers
	*s = sampler{m: m, pending: make([]int, n), most: make([]int, n), served: make([]int, n),
		crowded: make([]time.Duration, n)}
	m.w.At(m.w.Now()+lookEvery, s.look)
}

func (s *sampler) look() {
	now, sum := s.m.w.Now(), 0
	for i, p := range s.m.providers {
		s.pending[i] = p.app.pending()
		if !p.down {
			s.pending[i] = max(s.pending[i], p.proc.ServicePending("local"))
		}
		s.most[i] = max(s.most[i], s.pending[i])
		sum += s.pending[i]
	}
	for i, n := range s.pending {
		if n*len(s.pending) <= 2*sum || now < s.m.spec.WarmUp {
			s.crowded[i] = 0
			continue
		}
		s.crowded[i] += lookEvery
		s.longest = max(s.longest, s.crowded[i])
	}
	if now >= time.Duration(len(s.points)+1)*pointSpan {
		s.point()
	}
	if now < s.m.spec.Duration {
		s.m.w.At(now+lookEvery, s.look)
	}
}

func (s *sampler) point() {
	p := Point{From: time.Duration(len(s.points)) * pointSpan}
	for i, provider := range s.m.providers {
		p.Replicas = append(p.Replicas, ReplicaPoint{Served: provider.app.served - s.served[i], Pending: s.most[i]})
		s.served[i] = provider.app.served
	}
	clear(s.most)
	s.points = append(s.points, p)
}

// busiest returns the largest number of requests that a replica served in any second
// after the warm-up, divided by the mean over the replicas.
func (s *sampler) busiest() float64 {
	n := int(windowSpan / pointSpan)
	first := int((s.m.spec.WarmUp + pointSpan - 1) / pointSpan)
	worst := 0.0
	for from := first; from+n <= len(s.points); from++ {
		sums, total := make([]int, len(s.m.providers)), 0
		for _, p := range s.points[from : from+n] {
			for i, r := range p.Replicas {
				sums[i] += r.Served
				total += r.Served
			}
		}
		if total > 0 {
			worst = max(worst, float64(slices.Max(sums)*len(sums))/float64(total))
		}
	}
	return worst
}
