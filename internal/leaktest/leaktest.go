// Package leaktest fails the tests of a package that leave goroutines behind. It
// is goleak with the patience that a slow machine needs: goleak itself gives
// goroutines that are ending less than half a second.
package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end.
const patience = time.Minute

// Engine ignores the workers of gnet: one pool for the whole program, with no
// end.
var Engine = []goleak.Option{
	goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1"),
	goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
	goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
}

// Main is the body of a TestMain: it runs the tests, and exits with their code,
// or with 1 if goroutines are left that are not to be ignored.
func Main(m *testing.M, ignore ...goleak.Option) {
	goleak.VerifyTestMain(settled{m, ignore}, ignore...)
}

// settled is tests with the wait for their goroutines.
type settled struct {
	m      *testing.M
	ignore []goleak.Option
}

// Run implements goleak.TestingM.
func (s settled) Run() int {
	code := s.m.Run()
	if code == 0 {
		_ = Wait(s.ignore...) // VerifyTestMain finds what is left
	}
	return code
}

// Wait returns nil once no goroutine is left but those to be ignored and the
// caller's, or an error with those that don't end.
func Wait(ignore ...goleak.Option) error {
	for end := time.Now().Add(patience); ; {
		err := goleak.Find(ignore...) // it sleeps between its looks
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
