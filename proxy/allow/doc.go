// Package allow decides who may call what: by the names that the caller's sidecar has proved,
// by method and by path.
//
//	rules.go  Rules, the sets that a request meets
//	set.go    Set, the rules of a listener, service or route, and their counts
//	rule.go   one rule
//	path.go   paths that mean the same to every application
//
// It is pure, apart from counters that all loops share.
package allow
