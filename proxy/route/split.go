package route

// split divides the requests of a route among services by weight.
type split struct {
	first   int // index of the plan of the first target; the others follow
	weights []uint64
	total   uint64
}

func newSplit(first int, targets []Plan) *split {
	s := &split{first: first}
	for i := range targets {
		w := uint64(targets[i].weight)
		s.weights = append(s.weights, w)
		s.total += w
	}
	return s
}

// Pick returns the index of the plan that the random number x picks by weight.
func (s *split) Pick(x uint64) int {
	x %= s.total
	for i, w := range s.weights {
		if x < w {
			return s.first + i
		}
		x -= w
	}
	panic("route: the weights of a split don't add up to its total")
}
