package engine

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// TestFind: names find their engines, auto finds the first that the system has.
func TestFind(t *testing.T) {
	for _, c := range []struct{ name, linux, other string }{
		{"", "epoll", "gnet"},
		{"auto", "epoll", "gnet"},
		{"epoll", "epoll", "no such engine on this system: epoll needs Linux; auto takes one that works"},
		{"gnet", "gnet", "gnet"},
		{"Gnet", `no such engine: "Gnet"; expected one of: auto, epoll, gnet`, `no such engine: "Gnet"; expected one of: auto, epoll, gnet`},
		{"libuv", `no such engine: "libuv"; expected one of: auto, epoll, gnet`, `no such engine: "libuv"; expected one of: auto, epoll, gnet`},
	} {
		want := c.other
		if runtime.GOOS == "linux" {
			want = c.linux
		}
		e, err := Find(c.name)
		got := e.Name
		if err != nil {
			got = err.Error()
		}
		if got != want || err != nil && !errors.Is(err, ErrUnknown) {
			t.Errorf("%q finds %s, want %s", c.name, got, want)
		}
	}
}

// TestLacking: an engine that the system lacks is not the one of auto, and its error says why.
func TestLacking(t *testing.T) {
	defer func(all []Engine) { list = all }(list)
	list = []Engine{{"epoll", func() (kernel.Poller, error) { return nil, kernel.ErrLinuxOnly }}, list[1]}
	if e, err := Find(Auto); err != nil || e.Name != "gnet" {
		t.Errorf("auto is %q and %v", e.Name, err)
	}
	if _, err := Find("epoll"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "epoll needs Linux") {
		t.Errorf("the error is %v", err)
	}
}
