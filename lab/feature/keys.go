// Package feature is what the processes of the emulated feature service share: what its users ask
// for, and the store behind its compute tier.
//
// A minute may be shorter than 60 s. Everything that lasts goes with it.
package feature

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What users ask for.
const (
	Grids = 200 // cells of the map
	skew  = 0.7 // Zipf's exponent of their popularity

	MinKeys = 10 // in the batch of a request
	MaxKeys = 10_000
)

// Request is one call to the compute tier: for a feature of each item in one cell of the map.
type Request struct {
	Feature string
	Grid    int
	Minute  int64
}

// Window is the part of a minute, at its start, in which caches are filled anew: 10 of 60 s.
func Window(minute time.Duration) time.Duration { return minute / 6 }

// InWindow reports whether an offset from the start of some minute is in a Window.
func InWindow(at, minute time.Duration) bool {
	at %= minute
	return at >= 0 && at < Window(minute)
}

// Keys draws requests. It is not safe for concurrent use.
type Keys struct {
	rng *rand.Rand
	sum []float64 // of the popularity of the cells up to each
}

// NewKeys returns Keys whose draws depend on the seed only.
func NewKeys(seed uint64) *Keys {
	k := &Keys{rng: rand.New(rand.NewPCG(seed, 0))}
	sum := 0.0
	for i := range Grids { // rand.Zipf wants an exponent above 1
		sum += math.Pow(float64(i+1), -skew)
		k.sum = append(k.sum, sum)
	}
	return k
}

// Next draws a request of a minute.
func (k *Keys) Next(minute int64) Request {
	grid, _ := slices.BinarySearch(k.sum, k.rng.Float64()*k.sum[Grids-1])
	return Request{"speed", grid, minute}
}

// batches has the number of items in each cell: a tenth of the cells has ten times as many as half
// of them (Pareto). It does not go with the cell's popularity.
var batches = func() (all [Grids]int) {
	const fixed = 2 // the largest cells are no popular ones
	for i, rank := range rand.New(rand.NewPCG(fixed, 0)).Perm(Grids) {
		all[i] = int(min(MinKeys*Grids/(float64(rank)+0.2), MaxKeys))
	}
	return all
}()

// Key names what r asks for: the feature, the cell and the minute.
func (r *Request) Key() string { return fmt.Sprintf("%s/g%d/m%d", r.Feature, r.Grid, r.Minute) }

// AppendKey appends the key of the i-th item.
func (r *Request) AppendKey(dst []byte, i int) []byte {
	dst = append(dst, r.Feature...)
	dst = strconv.AppendInt(append(dst, '-'), int64(i), 10)
	dst = strconv.AppendInt(append(dst, "/g"...), int64(r.Grid), 10)
	return strconv.AppendInt(append(dst, "/m"...), r.Minute, 10)
}

// Keys is the number of items, and so of keys: the size of the batch.
func (r *Request) Keys() int { return batches[r.Grid] }

// AppendHTTP appends the field lines of a GET, and the end of its head. By x-key requests are
// balanced, collapsed and cached. x-remora-class is for hedging, since a large batch takes longer.
func (r *Request) AppendHTTP(dst []byte) []byte {
	return fmt.Appendf(dst, "x-key: %s\r\nx-remora-class: keys-%d\r\n\r\n", r.Key(), len(strconv.Itoa(r.Keys())))
}

// ParseKey parses a Key.
func ParseKey(key string) (r Request, err error) {
	parts := strings.Split(key, "/")
	if len(parts) == 3 && strings.HasPrefix(parts[1], "g") && strings.HasPrefix(parts[2], "m") {
		var badGrid, badMinute error
		r.Feature = parts[0]
		r.Grid, badGrid = strconv.Atoi(parts[1][1:])
		r.Minute, badMinute = strconv.ParseInt(parts[2][1:], 10, 64)
		if badGrid == nil && badMinute == nil && r.Grid >= 0 && r.Grid < Grids {
			return r, nil
		}
	}
	return r, fmt.Errorf("feature: key %q: want FEATURE/gGRID/mMINUTE, with a grid below %d", key, Grids)
}
