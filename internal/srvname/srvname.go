// Package srvname tells names of SRV records from "host:port": _SERVICE._PROTOCOL.DOMAIN, without a port (RFC 2782).
package srvname

import (
	"errors"
	"strings"
)

// Is reports whether addr is meant as the name of SRV records.
func Is(addr string) bool { return strings.HasPrefix(addr, "_") && !strings.Contains(addr, ":") }

// Check returns what is wrong with a name of SRV records, or nil.
func Check(addr string) error {
	labels := strings.Split(strings.TrimSuffix(addr, "."), ".")
	if len(labels) < 3 || !strings.HasPrefix(labels[0], "_") || !strings.HasPrefix(labels[1], "_") {
		return errors.New("expected _SERVICE._PROTOCOL.DOMAIN, the name of SRV records, or host:port")
	}
	isBad := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
	}
	for i, label := range labels {
		if len(label) > 63 {
			return errors.New("expected at most 63 bytes between the dots of the name of SRV records")
		}
		if i < 2 {
			label = label[1:]
		}
		if label == "" || strings.ContainsFunc(label, isBad) {
			return errors.New("expected letters, digits and hyphens between the dots of the name of SRV records")
		}
	}
	if len(addr) > 253 {
		return errors.New("expected at most 253 bytes in the name of SRV records")
	}
	return nil
}
