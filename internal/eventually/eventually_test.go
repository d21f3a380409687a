package eventually

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// failing is a test that notes how it fails.
type failing struct {
	testing.TB
	told string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.told = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestItIsTriedUntilItSucceeds(t *testing.T) {
	tries := 0
	Nil(t, "the third", func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	True(t, "the sixth", func() bool {
		tries++
		return tries == 6
	})
	if tries != 6 {
		t.Errorf("tried %d times", tries)
	}
}

func TestWhatNeverHappensFailsTheTest(t *testing.T) {
	f := &failing{}
	over := make(chan struct{})
	go func() {
		defer close(over)
		within(f, 0, "a fish", func() error { return errors.New("no water") })
	}()
	<-over
	if !strings.Contains(f.told, "a fish") || !strings.Contains(f.told, "no water") {
		t.Errorf("told %q", f.told)
	}
}
