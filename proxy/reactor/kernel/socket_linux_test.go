package kernel

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSendParts: a call sends at most maxParts parts, and at most so many bytes.
func TestSendParts(t *testing.T) {
	all := make([][]byte, maxParts+1)
	for i := range all {
		all[i] = bytes.Repeat([]byte{byte('a' + i)}, i+1)
	}
	for _, c := range []struct {
		parts, most, want int
	}{
		{1, 1 << 10, 1}, {3, 1 << 10, 6}, {3, 6, 6}, {3, 5, 5}, {3, 3, 3}, {3, 1, 1},
		{maxParts, 1 << 10, maxParts * (maxParts + 1) / 2}, {maxParts + 1, 1 << 10, maxParts * (maxParts + 1) / 2},
	} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		n, errno := SendParts(pair[0], all[:c.parts], c.most)
		got := make([]byte, 1<<10)
		k, err := unix.Read(pair[1], got)
		if want := bytes.Join(all[:c.parts], nil)[:c.want]; errno != 0 || err != nil || n != c.want || !bytes.Equal(got[:k], want) {
			t.Errorf("%d parts, at most %d bytes: %d and %v, received %q and %v, want %q", c.parts, c.most, n, errno, got[:k], err, want)
		}
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
	}
}
