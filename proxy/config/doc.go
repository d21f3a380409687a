// Package config defines the sidecar's YAML file: its types, defaults and rules.
// The command loads the file at the start and at each reload. The rest of the
// program reads the plain structs, and this package imports none of it.
//
// Each feature has a file with a section: its settings, their defaults and its rules, as in
// retry.go, tls.go and mirror.go. A registry or a filter brings its section as a block: its file
// declares the block, and no other file of this package names it. The others know it by the
// interfaces in registry.go and filters.go alone. The other files make a Config of a file, in this order:
//
//	tree.go     bytes to a tree; expand.go replaces ${VAR} inside scalars
//	lay.go      lays an overlay on the tree
//	decode.go   the tree to structs, by the tags in field.go; it records positions
//	blocks.go   the sections that registries and filters bring
//	default.go  what a section is if no key of it is set
//	scalar.go   the text of one value, within its bounds
//	rules.go    what the rules of all features have in common
//	reach.go    what no request can reach
//	errors.go   all errors of a file, each with its line and column
//	secrets.go  what errors may quote
//	yaml.go     structs back to YAML, without secrets
//	*.go        any other file is the section of its name
//
// load.go calls them in this order. It alone uses the system: the file, the environment
// and the host's name. After Load each key that the file doesn't set has its default,
// so readers need not ask whether it was set.
package config
