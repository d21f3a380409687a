package link

import "testing"

// TestClosedIsFinal checks that only Reset leads out of a closed state: become panics.
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
	r, w := NewReader(Acceptor, Settings{}, ReaderLimits{}), NewWriter()
	r.Close()
	r.Close() // may be called again
	panics("reader", func() { r.become(readFrames) })
	w.Close()
	w.Close()
	panics("writer", func() { w.become(writerOpen) })
	w.Reset()
	w.Open(1, Settings{})
	panics("writer", func() { w.become(writerWaiting) })
}
