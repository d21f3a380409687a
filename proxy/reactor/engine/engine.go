// Package engine lists the engines, by their names in the setting engine. An engine waits for the sockets of a loop, by a
// kernel.Poller. docs/engines.md compares the engines. A new engine is a package with a kernel.Poller, and a line in the
// list here.
package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/remora-proxy/remora/proxy/reactor/gnet"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// Auto stands for the first engine of the list that works on this system.
const Auto = "auto"

// Engine is one of the list.
type Engine struct {
	Name string
	Open func() (kernel.Poller, error) // returns a Poller that watches nothing, which its owner must Close
}

var list = []Engine{
	{"epoll", openEpoll},
	{"gnet", func() (kernel.Poller, error) { return gnet.Open() }},
}

// ErrUnknown reports a name that is not in the list, or an engine that does not work on this system.
var ErrUnknown = errors.New("no such engine")

// Names returns Auto and the names of all engines.
func Names() []string {
	names := []string{Auto}
	for _, e := range list {
		names = append(names, e.Name)
	}
	return names
}

// Find returns the engine that a name stands for on this system; "" is Auto. The error is an ErrUnknown.
func Find(name string) (Engine, error) {
	auto := name == Auto || name == ""
	for _, e := range list {
		if !auto && e.Name != name {
			continue
		}
		p, err := e.Open()
		if err == nil {
			return e, p.Close()
		}
		if !auto {
			return Engine{}, fmt.Errorf("%w on this system: %s %w; %s takes one that works", ErrUnknown, name, err, Auto)
		}
	}
	return Engine{}, fmt.Errorf("%w: %q; expected one of: %s", ErrUnknown, name, strings.Join(Names(), ", "))
}
