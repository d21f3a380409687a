package lb

import "testing"

func TestSilence(t *testing.T) {
	for _, c := range []struct {
		name          string
		do            func(e *Endpoint)
		heard, silent int
	}{
		{"never used", func(e *Endpoint) {}, 0, 0},
		{"pending for long", func(e *Endpoint) { e.Started(5 * ms) }, 1, 1},
		{"pending for a moment", func(e *Endpoint) { e.Started(6 * ms) }, 1, 0},
		{"pending for long, but another was answered", func(e *Endpoint) {
			e.Started(0)
			e.Started(0)
			e.Answered(7*ms, 7*ms)
		}, 1, 0},
		{"idle, answered a moment ago", func(e *Endpoint) {
			e.Started(0)
			e.Answered(7*ms, 7*ms)
		}, 1, 0},
		{"idle, answered long ago", func(e *Endpoint) {
			e.Started(0)
			e.Answered(5*ms, 5*ms)
		}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, e := one(t)
			c.do(e)
			if heard, silent := s.Silence(10*ms, 5*ms); heard != c.heard || silent != c.silent {
				t.Errorf("%d heard of, %d silent; want %d and %d", heard, silent, c.heard, c.silent)
			}
		})
	}
}
