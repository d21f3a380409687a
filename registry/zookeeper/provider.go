package zookeeper

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/remora-proxy/remora/registry"
)

// dubboURL is a URL of Dubbo, as the names of nodes have it.
type dubboURL struct {
	scheme     string
	host       string // without brackets
	port       int    // 0 means none
	path       string // without a "/" at its start
	parameters string // as they are; see get
}

var errURL = errors.New("not a URL of Dubbo")

// maxURL bounds the name of a node, in bytes. Longer ones are not read.
const maxURL = 64 << 10

// parseURL reads the name of a node: a percent-encoded URL. Values of parameters are not encoded in it once more, and the host
// of an IPv6 address may have no brackets.
func parseURL(name string) (dubboURL, error) {
	if len(name) > maxURL {
		return dubboURL{}, errURL
	}
	text, err := url.QueryUnescape(name)
	if err != nil {
		return dubboURL{}, errURL
	}
	var u dubboURL
	var ok bool
	if u.scheme, text, ok = strings.Cut(text, "://"); !ok || u.scheme == "" {
		return dubboURL{}, errURL
	}
	text, u.parameters, _ = strings.Cut(text, "?")
	authority, path, _ := strings.Cut(text, "/")
	u.path = path
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	u.host = authority
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		u.host = authority[:i]
		if u.port, err = strconv.Atoi(authority[i+1:]); err != nil || u.port < 0 || u.port > 65535 {
			return dubboURL{}, errURL
		}
	}
	if inner, ok := strings.CutPrefix(u.host, "["); ok {
		if u.host, ok = strings.CutSuffix(inner, "]"); !ok {
			return dubboURL{}, errURL
		}
	}
	if u.host == "" {
		return dubboURL{}, errURL
	}
	return u, nil
}

// shown returns what a log may have of the name of a node: scheme, host and path of the URL. Parameters and credentials may be
// secret, and so may all of a text that is none.
func shown(name string) string {
	u, err := parseURL(name)
	switch {
	case err == nil && !strings.Contains(u.path, "@"):
		return u.scheme + "://" + net.JoinHostPort(u.host, strconv.Itoa(u.port)) + "/" + u.path
	case err != nil && isName(name) && !strings.ContainsAny(name, "%:?&=@"):
		return name
	}
	return "a text of " + strconv.Itoa(len(name)) + " bytes"
}

// get returns the value of a parameter, or "". Of several with one name the last counts, as in Dubbo.
func (u *dubboURL) get(key string) (value string) {
	u.each(func(k, v string) {
		if k == key {
			value = v
		}
	})
	return value
}

// each calls visit with all parameters, in their order.
func (u *dubboURL) each(visit func(key, value string)) {
	for rest := u.parameters; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "&")
		key, value, _ := strings.Cut(part, "=")
		visit(key, value)
	}
}

// addr returns the address of the URL.
func (u *dubboURL) addr() (registry.Address, error) {
	return registry.ParseAddr(net.JoinHostPort(u.host, strconv.Itoa(u.port)))
}

// Parameters of Dubbo that have a meaning here.
const (
	keyInterface   = "interface"
	keyGroup       = "group"
	keyVersion     = "version"
	keyCategory    = "category"
	keyEnabled     = "enabled"
	keyDisabled    = "disabled"
	keyWeight      = "weight"
	keyApplication = "application"
	keyZone        = "zone"        // of Remora; Dubbo passes on what it does not know
	keyNode        = "remora.node" // of Remora
)

// Names and values of Dubbo.
const (
	categoryProviders = "providers"
	categoryOverrides = "configurators"
	anyValue          = "*"
	noVersion         = "0.0.0" // the same as none
	defaultWeight     = 100
	maxDubboWeight    = 1 << 24 // beyond that only ratios are lost
)

// provider is a record of the interface level: a child of /dubbo/INTERFACE/providers.
type provider struct {
	err            error  // why the record can't be used; nothing else is set then
	scheme         string // of its URL
	addr           string
	group, version string
	isDisabled     bool
	weight         int
	zone, node     string
}

// parseProvider reads the name of a provider's node.
func parseProvider(name string) provider {
	u, err := parseURL(name)
	if err != nil {
		return provider{err: err}
	}
	addr, err := u.addr()
	if err != nil {
		return provider{err: err}
	}
	p := provider{
		scheme: u.scheme, addr: addr.String(), weight: defaultWeight,
		isDisabled: u.get(keyDisabled) == "true" || u.get(keyDisabled) == "" && u.get(keyEnabled) == "false",
	}
	if c := u.get(keyCategory); c != "" && c != categoryProviders {
		return provider{err: errors.New("not a provider, but one of " + strconv.Quote(c))}
	}
	p.group, p.version = u.get(keyGroup), u.get(keyVersion)
	p.zone, p.node = u.get(keyZone), u.get(keyNode)
	if err := registry.CheckNames(p.zone, p.node); err != nil {
		return provider{err: err}
	}
	if w := u.get(keyWeight); w != "" {
		p.weight = parseWeight(w)
	}
	return p
}

// parseWeight returns a weight of Dubbo. What is no number counts as the default, as in Dubbo.
func parseWeight(text string) int {
	w, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return defaultWeight
	}
	return min(max(w, 0), maxDubboWeight)
}

// override is a record that changes the parameters of providers: a child of /dubbo/INTERFACE/configurators, as consoles of
// Dubbo 2 write it.
type override struct {
	err            error
	host           string // of a provider; "" means all
	port           int    // 0 means any
	group, version string
	isIfAbsent     bool // it sets only what a provider leaves out; that is not known here, so no weight is set
	isDisabled     *bool
	weight         *int
}

var errNotOurs = errors.New("an override that is not for all consumers")

// parseOverride reads the name of a configurator's node. Overrides of one consumer, by its address or its application, are not
// for the sidecar.
func parseOverride(name string) override {
	u, err := parseURL(name)
	if err != nil {
		return override{err: err}
	}
	o := override{port: u.port, group: u.get(keyGroup), version: u.get(keyVersion), isIfAbsent: u.scheme == "absent"}
	app := u.get(keyApplication)
	switch {
	case u.scheme != "override" && u.scheme != "absent":
		return override{err: errURL}
	case app != "" && app != anyValue, u.port == 0 && u.host != "0.0.0.0", u.get(keyEnabled) == "false":
		return override{err: errNotOurs}
	}
	if u.host != "0.0.0.0" {
		a, err := u.addr()
		if err != nil {
			return override{err: err}
		}
		o.host = a.Host
	}
	if v := u.get(keyDisabled); v != "" {
		isDisabled := v == "true"
		o.isDisabled = &isDisabled
	}
	if w := u.get(keyWeight); w != "" && !o.isIfAbsent {
		weight := parseWeight(w)
		o.weight = &weight
	}
	return o
}

// rank orders overrides: one for all providers comes first, and one for a single provider last.
func (o *override) rank() int {
	switch {
	case o.host != "":
		return 2
	case o.port != 0:
		return 1
	}
	return 0
}

// apply changes a provider that the override is for.
func (o *override) apply(p *provider) {
	host, port, err := net.SplitHostPort(p.addr)
	if err != nil || o.host != "" && o.host != host || o.port != 0 && strconv.Itoa(o.port) != port {
		return
	}
	if o.isDisabled != nil {
		p.isDisabled = *o.isDisabled
	}
	if o.weight != nil {
		p.weight = *o.weight
	}
}

// matches reports whether what a service asks for, a list with commas or "*", has the value of a record.
func matches(want, has string) bool {
	if want == anyValue {
		return true
	}
	if plain(want) == plain(has) {
		return true
	}
	for rest := want; rest != "" && has != ""; {
		var one string
		if one, rest, _ = strings.Cut(rest, ","); strings.TrimSpace(one) == has {
			return true
		}
	}
	return false
}

func plain(version string) string {
	if version == noVersion {
		return ""
	}
	return version
}
