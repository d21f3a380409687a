// Package feature is what the processes of the emulated feature service share: what its users ask
// for, and the store behind its compute tier.
//
// A minute may be shorter than 60 s. Everything that lasts goes with it.
package feature

import (
	"encoding/json"
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
	Grids = 250 // cells of the map
	skew  = 0.7 // Zipf's exponent of their popularity

	MinKeys = 10 // in the batch of a request
	MaxKeys = 10_000
)

// Request is one call to the compute tier: for a feature of each item in one cell of the map.
type Request struct {
	Feature string `json:"feature"`
	Grid    int    `json:"grid"`
	Minute  int64  `json:"minute"`
	Keys    int    `json:"keys"` // the batch
}

// bodySize is the length of nearly every request's body, in bytes.
const bodySize = 300

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
	return Request{"speed", grid, minute, batches[grid]}
}

// batches has the number of items in each cell: a tenth of the cells has ten times as many as half
// of them (Pareto). It does not go with the cell's popularity.
var batches = func() (all [Grids]int) {
	const fixed = 2 // the largest cells are no popular ones
	for i, rank := range rand.New(rand.NewPCG(fixed, 0)).Perm(Grids) {
		all[i] = int(min(MinKeys*Grids/(float64(rank)+0.25), MaxKeys))
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

// AppendHTTP appends the field lines and the body of an HTTP/1.1 request. x-key is for balancing by
// key, x-remora-class for hedging, since the cost goes with the batch and not with the body's size.
func (r *Request) AppendHTTP(dst []byte) []byte {
	body, _ := json.Marshal(r) // plain numbers and strings can't fail
	if pad := bodySize - len(body) - len(`,"pad":""`); pad > 0 {
		body = fmt.Appendf(body[:len(body)-1], `,"pad":"%s"}`, strings.Repeat("x", pad))
	}
	return fmt.Appendf(dst, "x-key: %s\r\nx-remora-class: keys-%d\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s",
		r.Key(), len(strconv.Itoa(r.Keys)), len(body), body)
}

// ParseRequest parses the body that AppendHTTP writes.
func ParseRequest(body []byte) (r Request, err error) {
	if err = json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("feature: request: %w", err)
	}
	if r.Keys < 1 || r.Keys > MaxKeys {
		return r, fmt.Errorf("feature: a request for %d keys: want 1 to %d", r.Keys, MaxKeys)
	}
	return r, nil
}
