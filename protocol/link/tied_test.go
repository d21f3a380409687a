package link

import (
	"bytes"
	"testing"
)

// TestTiedErrors: which frames of tied hedges end a link.
func TestTiedErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		role Role
		typ  frameType
		id   uint64
		want *Error
	}{
		{"withdrawn by the acceptor", Dialer, frameWithdraw, 1, ErrRole},
		{"withdraws no request", Acceptor, frameWithdraw, 0, ErrStreamID},
		{"asks for no request", Acceptor, frameStart, 0, ErrStreamID},
		{"starts no request", Dialer, frameStart, 0, ErrStreamID},
	} {
		other := map[Role]Role{Dialer: Acceptor, Acceptor: Dialer}[c.role]
		r := readerOf(c.role, Settings{}, ReaderLimits{}, newRecorder())
		preface := appendPreface(nil, other, versions{1, 1}, Settings{}.withDefaults())
		frame := appendHeader(nil, uint8(c.typ), c.id, 0)
		if err := r.Feed(bytes.Join([][]byte{preface, frame}, nil)); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}
