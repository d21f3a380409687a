package fleet

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Target names the sidecars that a roll-out reaches: a part of them, or those with certain labels. The zero Target
// names none.
type Target struct {
	Percent int               `json:"percent,omitempty"` // 1 to 100, or
	Labels  map[string]string `json:"labels,omitempty"`  // these, all of them, as in node.labels

	// Cut is where the part ends: the sidecars below it by the place of their node.id have the candidate. Cut makes the
	// part of the sidecars that are known as large as Percent says, which the places alone do only on average.
	Cut uint64 `json:"cut,omitempty"`
}

// places is the number of places, and the cut of all sidecars.
const places = 1 << 32

// place returns a number below places. It is the same in all processes and at all times, so that a sidecar keeps its
// revision through restarts, and a part contains each smaller part.
func place(node string) uint64 {
	sum := sha256.Sum256([]byte(node))
	return uint64(binary.BigEndian.Uint32(sum[:]))
}

// errTarget is the error of a text that names no sidecars.
var errTarget = errors.New("expected a percentage from 1% to 100%, or labels such as tier=canary,zone=a")

// ParseTarget parses a percentage or labels.
func ParseTarget(text string) (t Target, err error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		t.Percent, err = strconv.Atoi(number)
		if err != nil || t.Percent < 1 || t.Percent > 100 {
			return Target{}, fmt.Errorf("%q: %w", text, errTarget)
		}
		t.Cut = places * uint64(t.Percent) / 100
		return t, nil
	}
	t.Labels = map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" || value == "" {
			return Target{}, fmt.Errorf("%q: %w", text, errTarget)
		}
		t.Labels[name] = value
	}
	return t, nil
}

// Everywhere returns the target of all sidecars.
func Everywhere() Target { return Target{Percent: 100, Cut: places} }

// Among returns t with the cut for a fleet of these nodes: Percent of them are below it, rounded up. Without nodes, or
// with labels, t stays as it is.
func (t Target) Among(nodes []string) Target {
	if len(nodes) == 0 || t.Percent == 0 || t.All() {
		return t
	}
	sorted := make([]uint64, 0, len(nodes))
	for _, n := range nodes {
		sorted = append(sorted, place(n))
	}
	slices.Sort(sorted)
	sorted = slices.Compact(sorted) // several sidecars may have one node.id
	t.Cut = sorted[(len(sorted)*t.Percent+99)/100-1] + 1
	return t
}

// All reports whether t has all sidecars.
func (t *Target) All() bool { return t.Percent == 100 }

// Selects reports whether t has the sidecar with a node.id and labels.
func (t *Target) Selects(node string, labels map[string]string) bool {
	if len(t.Labels) == 0 {
		return t.All() || t.Percent > 0 && place(node) < t.Cut
	}
	for name, value := range t.Labels {
		if labels[name] != value {
			return false
		}
	}
	return true
}

// String returns t as ParseTarget reads it.
func (t Target) String() string {
	if len(t.Labels) == 0 {
		return strconv.Itoa(t.Percent) + "%"
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		pairs = append(pairs, name+"="+t.Labels[name])
	}
	return strings.Join(pairs, ",")
}
