package route

// split divides the requests of a route among services by weight.
type split struct {
	first   int // index of the plan of the first share; the others follow
	weights []uint64
	total   uint64
}

func newSplit(first int, shares []Plan) *split {
	s := &split{first: first}
	for i := range shares {
		w := uint64(shares[i].weight)
		s.weights = append(s.weights, w)
		s.total += w
	}
	return s
}

// Pick returns the index of the plan of one request's share, by the random number x.
func (s *split) Pick(x uint64) int {
	x %= s.total
	for i, w := range s.weights {
		if x < w {
			return s.first + i
		}
		x -= w
	}
	panic("proxy: a share is missing from its total")
}
