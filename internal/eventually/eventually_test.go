package eventually

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// fatalRecorder records the message of Fatalf.
type fatalRecorder struct {
	testing.TB
	message string
}

func (f *fatalRecorder) Helper() {}

func (f *fatalRecorder) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestSuccess(t *testing.T) {
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

func TestTimeout(t *testing.T) {
	f := &fatalRecorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Within(f, 0, "the event", func() error { return errors.New("last error") })
	}()
	<-done
	if !strings.Contains(f.message, "the event") || !strings.Contains(f.message, "last error") {
		t.Errorf("message %q", f.message)
	}
}
