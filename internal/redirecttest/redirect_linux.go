package redirecttest

import (
	"errors"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Redirect gives the test's goroutine a network of its own, in which connections to one port of this host go to another port.
// tables is iptables or ip6tables. Without root, or without tables, the test is skipped.
func Redirect(t *testing.T, tables string, from, to uint16) {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread ends with its network
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip(err)
	}
	rule := " -w -t nat -A OUTPUT -p tcp --dport " + strconv.Itoa(int(from)) + " -j REDIRECT --to-ports " + strconv.Itoa(int(to))
	for _, command := range []string{"ip link set lo up", tables + rule} {
		args := strings.Fields(command)
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%s: %v, %s", command, err, out)
		}
	}
}

// SkipWithoutIPv6 skips the test if err says that the host has no IPv6.
func SkipWithoutIPv6(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Skip(err)
	}
}
