package link

import "testing"

// TestClosedIsFinal checks that nothing leads out of a closed state: become panics.
func TestClosedIsFinal(t *testing.T) {
	panics := func(what string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("a closed %s became open", what)
			}
		}()
		f()
	}
	r, w := readerOf(Acceptor, Settings{}, ReaderLimits{}, newRecorder()), NewWriter()
	r.Close()
	r.Close() // may be called again
	panics("reader", func() { r.become(readFrames) })
	w.Close()
	w.Close()
	panics("writer", func() { w.become(writerOpen) })
}
