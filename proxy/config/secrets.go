package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Errors are logged, and shown by the admin API: what they quote of a file must not
// give a secret away, whatever has slipped beside it.

// show quotes text for an error message, unless it is a secret.
func (f field) show(text string) string {
	if f.secret {
		return "something else"
	}
	return strconv.Quote(public(text))
}

// describe is n in an error message.
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

// entry is the path of a key of the map at p, for which f stands.
func (f field) entry(p path, key string) path {
	if f.secret {
		key = keyAlone(key)
	}
	return p.entry(key)
}

// holdsSecret tells whether a value of type t may have a secret in it.
func holdsSecret(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return holdsSecret(t.Elem())
	case reflect.Struct:
		return slices.ContainsFunc(fieldsOf(t), func(f field) bool {
			return f.secret || holdsSecret(t.FieldByIndex(f.index).Type)
		})
	}
	return false
}

// keyAlone is a key without the value that a missing space has made part of it:
// token:VALUE is one word to YAML.
func keyAlone(key string) string {
	if i := strings.IndexAny(key, ":="); i >= 0 {
		return key[:i]
	}
	return key
}

// public is what may be shown of an address or a URL: neither user and password nor
// a query.
func public(text string) string {
	at, query := strings.LastIndexByte(text, '@'), strings.IndexAny(text, "?#")
	switch {
	case at >= 0 && query >= 0 && query < at: // which of the two it is can't be told
		return "..."
	case query >= 0:
		text = text[:query+1] + "..."
	}
	if at >= 0 {
		text = "..." + text[at:]
	}
	return text
}
