package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/remora-proxy/remora/internal/hostname"
)

// What becomes of requests without a route.
const (
	UnroutedRefuse = "refuse" // they get 404
	UnroutedDirect = "direct" // they go to the host that they name
)

// Direct says what `unrouted: direct` may reach.
type Direct struct {
	// Hosts: a name, `*.suffix`, `*`, an address or a CIDR, each with or without a port. Empty means all but special addresses; off loopback a list is required.
	Allow []string `yaml:"allow" filled:"true"`
}

// Destination is an entry of Direct.Allow.
type Destination struct {
	Name   string       // in the canonical form of package hostname; "*" means any, and "*.x" any below x; empty if Prefix is valid
	Prefix netip.Prefix // of the address
	Port   uint16       // 0 means any
}

// MatchName reports whether the entry is a name that host, in its canonical form, has.
func (d *Destination) MatchName(host string) bool {
	if suffix, ok := strings.CutPrefix(d.Name, "*"); ok {
		return len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return d.Name != "" && d.Name == host
}

// Destinations returns the entries of Allow.
func (d *Direct) Destinations() []Destination {
	all := make([]Destination, 0, len(d.Allow))
	for _, text := range d.Allow {
		if one, err := parseDestination(text); err == nil {
			all = append(all, one)
		}
	}
	return all
}

func parseDestination(text string) (d Destination, err error) {
	host, port := text, ""
	switch end := strings.LastIndexByte(text, ']'); {
	case strings.HasPrefix(text, "[") && end > 0:
		host, port = text[1:end], text[end+1:]
	case strings.Count(text, ":") == 1:
		at := strings.IndexByte(text, ':')
		host, port = text[:at], text[at:]
	}
	if port != "" {
		n, err := strconv.ParseUint(strings.TrimPrefix(port, ":"), 10, 16)
		if err != nil || n == 0 || port[0] != ':' {
			return d, fmt.Errorf("expected a port from 1 to 65535 behind the last colon, got %q", text)
		}
		d.Port = uint16(n)
	}
	if d.Prefix, err = parsePrefix(host); err == nil {
		return d, nil
	}
	d.Name = hostname.Name(host)
	name := strings.TrimPrefix(d.Name, "*.")
	isBad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}
	if d.Name != "*" && (name == "" || strings.ContainsFunc(name, isBad) || strings.Trim(name, "0123456789.") == "") {
		return d, fmt.Errorf("expected a name such as api.example.com, *.example.com or *, an address or a CIDR, "+
			"with or without a port; got %q", text)
	}
	return d, nil
}

// check reports entries that match nothing.
func (d *Direct) check(in scope, at path) {
	if in.listener.Unrouted != UnroutedDirect {
		in.refuseIf(len(d.Allow) > 0, at, "has no effect without unrouted: direct")
		return
	}
	for i, text := range d.Allow {
		entry := at.key("allow").item(i)
		to, err := parseDestination(text)
		switch {
		case err != nil:
			in.report(entry, "%s", err)
		case to.Name == "localhost" || strings.HasSuffix(to.Name, ".localhost"):
			in.report(entry, "never matches: addresses of loopback need an entry of their own, such as 127.0.0.1")
		case slices.Contains(d.Allow[:i], text):
			in.report(entry, "%q is listed twice", text)
		}
	}
}

// checkUnrouted reports a listener that can't pass requests on to the hosts that they name.
func (l *Listener) checkUnrouted(in scope, at path) {
	switch {
	case l.Unrouted != UnroutedDirect:
	case l.Protocol != ProtocolHTTP:
		in.report(at, "only an http listener has requests without a route; this one is %s", l.Protocol)
	case l.Service != "":
		in.report(at, "contradicts service: all requests go to it")
	case l.Transparent:
		in.report(at, "contradicts transparent: what no route matches passes through to where it was going")
	case l.ProxyProtocol.Enabled() && len(l.Direct.Allow) == 0:
		in.report(at, "the clients of a proxy may be anywhere, and could reach anything through this listener; list what they may in direct.allow")
	case !isLoopback(l.Address) && len(l.Direct.Allow) == 0:
		in.report(at, "this listener is not on loopback, so others could reach anything through it; list what they may in direct.allow")
	}
}
