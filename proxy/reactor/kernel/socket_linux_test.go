package kernel

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSendParts: a call sends at most MaxParts parts.
func TestSendParts(t *testing.T) {
	all := make([][]byte, MaxParts+1)
	for i := range all {
		all[i] = bytes.Repeat([]byte{byte('a' + i)}, i+1)
	}
	const most = MaxParts * (MaxParts + 1) / 2
	for parts, want := range map[int]int{1: 1, 3: 6, MaxParts: most, MaxParts + 1: most} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		n, errno := SendParts(pair[0], all[:parts])
		got := make([]byte, 1<<10)
		k, err := unix.Read(pair[1], got)
		if want := bytes.Join(all[:parts], nil)[:want]; errno != 0 || err != nil || n != len(want) || !bytes.Equal(got[:k], want) {
			t.Errorf("%d parts: %d and %v, received %q and %v, want %q", parts, n, errno, got[:k], err, want)
		}
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
	}
}
