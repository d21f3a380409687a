package config

import (
	"strings"
)

// Node identifies this sidecar.
type Node struct {
	// Unique name: part of its key in etcd, and the seed of its subset. No space, `/` or `@`.
	ID string `yaml:"id" reload:"restart"`
	// Zone of this sidecar. Requests stay in it while its endpoints can carry them.
	Zone string `yaml:"zone" reload:"restart"`
	// Names and values by which [roll-outs](fleet.md) select sidecars.
	Labels map[string]string `yaml:"labels" reload:"restart"`
}

// check checks the ID, which becomes part of a registry key.
func (n *Node) check(in scope, at path) {
	id := n.ID
	in.refuseIf(id == "" || strings.ContainsAny(id, "/@ \t\n"),
		at.key("id"), "expected a name without spaces, / and @, got %q", id)
}
