package engine

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// TestFind: a name finds its kind, and auto the first kind that the system supports.
func TestFind(t *testing.T) {
	defer func(all []Kind) { list = all }(list)
	works, failed := list[1].Open, func(err error) func() (kernel.Poller, error) {
		return func() (kernel.Poller, error) { return nil, err }
	}
	lacking := fmt.Errorf("%w: it needs Linux 9", errors.ErrUnsupported)
	for _, c := range []struct {
		first func() (kernel.Poller, error)
		name  string
		want  string
		is    error
	}{
		{works, "", "first", nil},
		{works, Auto, "first", nil},
		{works, "second", "second", nil},
		{failed(lacking), Auto, "second", nil},
		{failed(lacking), "first", "first: unsupported operation: it needs Linux 9", errors.ErrUnsupported},
		{failed(syscall.EMFILE), Auto, "first: too many open files", syscall.EMFILE},
		{failed(syscall.EMFILE), "second", "second", nil},
		{works, "First", `no such engine: "First"; expected one of: auto, first, second`, ErrUnknown},
	} {
		list = []Kind{{"first", c.first}, {"second", works}}
		kind, err := Find(c.name)
		got := kind.Name
		if err != nil {
			got = err.Error()
		}
		if got != c.want || !errors.Is(err, c.is) {
			t.Errorf("%q finds %s, want %s", c.name, got, c.want)
		}
	}
}

// TestNames: the names of the setting.
func TestNames(t *testing.T) {
	if got := strings.Join(Names(), " "); got != "auto epoll gnet" {
		t.Errorf("the names are %s", got)
	}
}
