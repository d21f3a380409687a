// Package modeltest shows what the constants of a model are good for: at half and at twice a constant something that
// depends on it changes. A constant without such a test could have any value.
package modeltest

import "testing"

// Model is a model under test. Its constants are a variable of its package.
type Model[C any] struct {
	t         *testing.T
	constants *C
	least     float64
}

// New returns a Model for t. A measure that changes by a share below least stays the same.
func New[C any](t *testing.T, constants *C, least float64) *Model[C] {
	return &Model[C]{t, constants, least}
}

// Check fails the test unless the measure changes as it must at half and at twice what scale scales: +1 means that the
// measure grows, -1 that it shrinks, and 0 that it stays the same. what says it in words.
func (m *Model[C]) Check(what string, scale func(by float64), measure func() float64, half, twice int) {
	m.t.Helper()
	usual := measure()
	for _, at := range []struct {
		by   float64
		want int
	}{{.5, half}, {2, twice}} {
		was := *m.constants
		scale(at.by)
		got := measure()
		*m.constants = was
		m.t.Logf("%s: at %v times it is %.3f, and %.3f at the constant", what, at.by, got, usual)
		if m.sign(got/usual-1) != at.want {
			m.t.Errorf("%s: at %v times it is %.3f, and %.3f at the constant", what, at.by, got, usual)
		}
	}
}

func (m *Model[C]) sign(change float64) int {
	switch {
	case change >= m.least:
		return 1
	case change <= -m.least:
		return -1
	}
	return 0
}

// Number is the type of a constant.
type Number interface {
	~int | ~int8 | ~int64 | ~uint32 | ~uint64 | ~float64
}

// Check is Model.Check of a constant that is a variable by itself. The measure changes by at least a tenth.
func Check[N Number](t *testing.T, what string, constant *N, measure func() float64, half, twice int) {
	t.Helper()
	New(t, constant, .1).Check(what, Of(constant), measure, half, twice)
}

// CheckFactor is Check of a factor above 1: half of 1.4 is 1.2.
func CheckFactor(t *testing.T, what string, factor *float64, measure func() float64, half, twice int) {
	t.Helper()
	scale := func(by float64) { *factor = 1 + (*factor-1)*by }
	New(t, factor, .1).Check(what, scale, measure, half, twice)
}

// Of returns the scale function of a constant.
func Of[N Number](constant *N) (scale func(by float64)) {
	return func(by float64) { *constant = N(float64(*constant) * by) }
}
