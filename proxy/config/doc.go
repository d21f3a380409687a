// Package config is the sidecar's YAML file: its types, defaults and rules. It
// is a leaf: the rest of the program reads its plain structs, and it knows
// nothing of the rest.
//
// The way of a file, one Go file per station:
//
//	load.go      bytes to syntax tree, ${VAR} expanded inside scalars
//	decode.go    tree to structs, driven by their tags; remembers positions
//	validate.go  what a well-typed file can still get wrong
//	errors.go    all the errors of a file, each with its line and column
//	secrets.go   what errors may quote
//	yaml.go      structs back to YAML, secrets redacted
//
// Every field that the file leaves out has its default after Load, so readers
// never ask whether something was set.
package config
