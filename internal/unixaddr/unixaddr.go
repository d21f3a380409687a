// Package unixaddr tells addresses of Unix sockets from "host:port": unix:/path, and unix:@name
// for the abstract names of Linux, which belong to a network namespace and have no file.
package unixaddr

import (
	"errors"
	"fmt"
	"strings"
)

// MaxLength limits what follows the prefix, in bytes: sun_path of unix(7) has 108, one of which
// ends a path.
const MaxLength = 107

const prefix = "unix:"

// Is reports whether addr is the address of a Unix socket.
func Is(addr string) bool { return strings.HasPrefix(addr, prefix) }

// Split returns addr as package net expects it: "unix" and a path or @name, otherwise "tcp" and
// "host:port".
func Split(addr string) (network, address string) {
	if name, ok := strings.CutPrefix(addr, prefix); ok {
		return "unix", name
	}
	return "tcp", addr
}

// Check returns what is wrong with the address of a Unix socket, or nil.
func Check(addr string) error {
	name := strings.TrimPrefix(addr, prefix)
	isBad := func(c rune) bool { return c <= ' ' || c == 0x7f || c == ':' }
	switch {
	case !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "@"):
		return errors.New("expected unix:/path or unix:@name")
	case len(name) == 1 || strings.HasSuffix(name, "/"):
		return errors.New("expected the name of a socket behind unix:" + name)
	case strings.ContainsFunc(name, isBad):
		return errors.New("expected no space, control character or colon in the name of a Unix socket")
	case len(name) > MaxLength:
		return fmt.Errorf("expected at most %d bytes behind unix:, got %d", MaxLength, len(name))
	}
	return nil
}
