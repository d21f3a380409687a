// Package engine lists the kinds of engines, by their names in the setting engine. An engine waits for the sockets of a loop,
// by a kernel.Poller. docs/engines.md compares the kinds. A new kind is a package with a kernel.Poller, and a line in the
// list here.
package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/remora-proxy/remora/proxy/reactor/gnet"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// Auto stands for the first kind of the list that the system supports.
const Auto = "auto"

// Kind is a kind of engine. The zero value has no name, and can't be opened.
type Kind struct {
	Name string
	Open func() (kernel.Poller, error) // returns a Poller that watches nothing, which its owner must Close
}

var list = []Kind{
	{"epoll", openEpoll},
	{"gnet", func() (kernel.Poller, error) { return gnet.Open() }},
}

// ErrUnknown reports a name that is not in the list.
var ErrUnknown = errors.New("no such engine")

// Names returns Auto and the names of all kinds.
func Names() []string {
	names := []string{Auto}
	for _, k := range list {
		names = append(names, k.Name)
	}
	return names
}

// Find returns the kind that a name stands for on this system; "" is Auto. The error is an ErrUnknown, an
// errors.ErrUnsupported if this system lacks what the kind needs, or another one of the system.
func Find(name string) (Kind, error) {
	auto := name == Auto || name == ""
	for _, k := range list {
		if !auto && k.Name != name {
			continue
		}
		p, err := k.Open()
		if err == nil {
			return k, p.Close()
		}
		if !auto || !errors.Is(err, errors.ErrUnsupported) {
			return Kind{}, fmt.Errorf("%s: %w", k.Name, err)
		}
	}
	return Kind{}, fmt.Errorf("%w: %q; expected one of: %s", ErrUnknown, name, strings.Join(Names(), ", "))
}
