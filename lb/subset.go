package lb

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"strings"
)

// Subset returns the n targets that the sidecar node uses, healthy ones first, or all if there
// are no more than n, or if n is 0. The result does not depend on the order of targets.
//
// It is weighted rendezvous hashing (Thaler and Ravishankar, 1996): each node ranks the
// targets by a hash of both names and takes the first n. Adding or removing one target changes
// one place in the subsets that contain it, and no other subset. In Google's deterministic
// subsetting ("Site Reliability Engineering", chapter 20), each node must know its number
// among the others. Its subsets are more even, but all change with the size of the set. With
// many nodes, a target is in a share n/len of the subsets, give or take the square root of
// that number. Reported load evens out the rest.
func Subset(targets []Target, n int, node string) []Target {
	if n <= 0 || len(targets) <= n {
		return targets
	}
	list := make([]ranked, len(targets))
	for i, t := range targets {
		list[i] = ranked{t, rank(node, &t)}
	}
	slices.SortFunc(list, func(a, b ranked) int {
		if a.Unhealthy != b.Unhealthy {
			if a.Unhealthy {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.Addr, b.Addr))
	})
	subset := make([]Target, n)
	for i := range subset {
		subset[i] = list[i].Target
	}
	return subset
}

type ranked struct {
	Target
	rank float64
}

// rank returns an exponential variable of the target's weight, so that the probability of the
// smallest rank is in proportion to weight.
func rank(node string, t *Target) float64 {
	uniform := (float64(hash(node, t.Addr)>>11) + 0.5) / (1 << 53)
	return -math.Log(uniform) / usableWeight(t.Weight)
}

// hash is FNV-1a over both names, with the finalizer of SplitMix64: FNV alone leaves the upper
// bits equal if names differ only at the end.
func hash(node, addr string) uint64 {
	f := fnv.New64a()
	_, _ = f.Write([]byte(node + "\x00" + addr))
	return mix(f.Sum64())
}

// mix is the finalizer of SplitMix64.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
