package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Errors are logged, and shown by the admin API. They must not contain a secret of the
// file, even if a mistake has put it in the wrong place.

// show quotes text for an error message, unless it is a secret.
func (f field) show(text string) string {
	if f.secret {
		return "a plain value"
	}
	return strconv.Quote(shorten(public(text)))
}

// describe describes n for an error message.
func (f field) describe(n *node) string {
	switch n.kind {
	case kindScalar:
		return f.show(n.text)
	case kindSequence:
		return "a list"
	case kindMapping:
		return "a mapping"
	}
	return "nothing"
}

// entry returns the path of a key of the map at p, whose field is f.
func (f field) entry(p path, key string) path {
	if f.secret {
		key = keyAlone(key)
	}
	return p.entry(key)
}

// holdsSecret reports whether a value of type t may contain a secret.
func holdsSecret(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return holdsSecret(t.Elem())
	case reflect.Struct:
		return slices.ContainsFunc(fieldsOf(t), func(f field) bool {
			return f.secret || holdsSecret(f.of)
		})
	}
	return false
}

// keyAlone returns a key without a value that a missing space has made part of it:
// token:VALUE is one word in YAML.
func keyAlone(key string) string {
	if i := strings.IndexAny(key, ":="); i >= 0 {
		return key[:i]
	}
	return key
}

// public returns the part of an address or URL that may be shown: no user, password
// or query.
func public(text string) string {
	at, query := strings.LastIndexByte(text, '@'), strings.IndexAny(text, "?#")
	switch {
	case at >= 0 && query >= 0 && query < at: // the @ may be in the query, or the ? in the password
		return "..."
	case query >= 0:
		text = text[:query+1] + "..."
	}
	if at >= 0 {
		text = "..." + text[at:]
	}
	return text
}
