package config

import (
	"maps"
	"reflect"
	"slices"
)

// Config is one file. Load and Parse return it complete and valid. It does not change
// afterwards, so any goroutine may read it.
//
// The comment of a field with a value is its row in docs/settings.md, where go
// generate writes it. The tag reload says when a changed value takes effect, by
// default for the next request or connection.
//
// Every number and size has a max, so that it fits wherever it is used: 1000000000 is
// no limit to any machine and counted in 32 bits, lengths of Dubbo are of 31 bits, and
// sizes are added up and multiplied. Durations without one are at most maxDuration.
type Config struct {
	Node Node `yaml:"node"`

	// Event loops. 0 means one per whole processor of the CPU quota, at least 1.
	Loops int `yaml:"loops" max:"256" reload:"restart"`

	// Engine that waits for the sockets of the loops. `auto` takes `epoll` where it works, otherwise `gnet`. `REMORA_ENGINE` and `remora run --engine` override it.
	Engine string `yaml:"engine" list:"engines" reload:"restart"`

	// `Via` in requests and responses that are passed on. Off, requests have [`CDN-Loop`](headers.md#loops) instead, which ends loops likewise.
	Via string `yaml:"via" oneof:"off on"`

	Log       Log        `yaml:"log"`
	Admin     Admin      `yaml:"admin"`
	Registry  Registry   `yaml:"registry"`
	Listeners []Listener `yaml:"listeners"`

	// Services by name. A map entry's Name equals its key. The field is before
	// Routes because the decoder follows the order of fields, and a route inherits
	// its service's policy.
	Services map[string]*Service `yaml:"services"`

	Routes    []Route    `yaml:"routes"` // first match wins
	Register  []Register `yaml:"register"`
	Limits    Limits     `yaml:"limits"`
	Timeouts  Timeouts   `yaml:"timeouts"`
	AccessLog AccessLog  `yaml:"access_log"`
	Tracing   Tracing    `yaml:"tracing"`
	Overlays  Overlays   `yaml:"config"`

	// Warnings are about keys that have no effect.
	Warnings Errors `yaml:"-"`
}

// ViaOn is the value of Config.Via with which messages get the header.
const ViaOn = "on"

// Default returns the configuration of an empty file: no listener, no service.
func Default() *Config {
	c := withDefaults[Config]()
	c.Node.ID = ownName()
	return &c
}

func (c *Config) setDefaults() {
	c.Engine, c.Via, c.Services = EngineAuto, "off", map[string]*Service{}
}

// Equal reports whether c and other have the same settings. Warnings don't count: they have
// lines, which a comment moves.
func (c *Config) Equal(other *Config) bool {
	a, b := *c, *other
	a.Warnings, b.Warnings = nil, nil
	return reflect.DeepEqual(&a, &b)
}

// check checks all sections of a file.
func (c *Config) check(in scope) {
	in.sections(reflect.ValueOf(c).Elem(), "")
	checkListeners(in)
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		c.Services[name].check(in, path("services").entry(name))
	}
	for i := range c.Routes {
		c.Routes[i].check(in, path("routes").item(i))
	}
	checkRegister(in)
	checkReached(in)
	checkLoops(in)
}
