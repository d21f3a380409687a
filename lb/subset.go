package lb

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Subset returns the n targets that the sidecar node uses; all when there are no
// more, or n is 0. The healthy come first. The answer depends on nothing but the
// arguments, whatever their order.
//
// It is rendezvous hashing (Thaler and Ravishankar, 1996), weighted: each node
// ranks the targets by a hash of both names and takes the first n. One target
// that comes or goes changes one place in the subsets that have it, and no other;
// no node needs to know its number among the others, as Google's deterministic
// subsetting has it ("Site Reliability Engineering", chapter 20), whose subsets
// are evener, but all change when the set's size does. With many nodes a target
// is in a share n/len of the subsets, give or take the square root of that
// number; what unevenness is left, reported load evens out.
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

// ranked is a target with its place in the order of a node.
type ranked struct {
	Target
	rank float64
}

// rank is smaller for a heavier target: an exponential variable of its weight, so
// that the chance to come first is in proportion to it.
func rank(node string, t *Target) float64 {
	uniform := (float64(hash(node, t.Addr)>>11) + 0.5) / (1 << 53)
	return -math.Log(uniform) / usableWeight(t.Weight)
}

// hash is FNV-1a over both names, finished as in SplitMix64: FNV alone leaves the
// upper bits of names that differ at the end alike.
func hash(node, addr string) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for i := range len(node) {
		h = (h ^ uint64(node[i])) * prime
	}
	h *= prime // of a separator, 0
	for i := range len(addr) {
		h = (h ^ uint64(addr[i])) * prime
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
