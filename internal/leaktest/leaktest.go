// Package leaktest fails the tests of a package if goroutines are left after them.
// It is goleak with a timeout for slow machines: goleak itself waits less than half
// a second for goroutines to end. It is test support; no command may import it.
package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// timeout is how long goroutines may take to end.
const timeout = time.Minute

// Main is the body of a TestMain. It runs the tests and exits with their code, or
// with 1 if goroutines are left that no option ignores.
func Main(m *testing.M, ignore ...goleak.Option) {
	goleak.VerifyTestMain(testRun{m, ignore}, ignore...)
}

// Netpoll ignores the goroutine on which netpoll waits, which lives as long as the process. Packages
// whose tests run servers of the lab need it. It ignores no handler.
var Netpoll = goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait")

// testRun runs the tests and then waits for their goroutines.
type testRun struct {
	m      *testing.M
	ignore []goleak.Option
}

// Run implements goleak.TestingM.
func (r testRun) Run() int {
	code := r.m.Run()
	if code == 0 {
		_ = Wait(r.ignore...) // VerifyTestMain reports what is left
	}
	return code
}

// Wait returns nil once only the caller's and the ignored goroutines are left. It
// returns an error that lists the others if they don't end in time.
func Wait(ignore ...goleak.Option) error {
	for end := time.Now().Add(timeout); ; {
		err := goleak.Find(ignore...) // retries with pauses
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
