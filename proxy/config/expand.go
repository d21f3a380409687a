package config

import (
	"errors"
	"fmt"
	"strings"
)

// expand replaces ${VAR} and ${VAR:-default} (if VAR is unset or empty) in the text
// of one scalar, and $$ by $. It does not expand the value of a variable, which can
// neither refer to others nor change the structure of the file.
func expand(text string, env func(string) (string, bool)) (string, error) {
	if !strings.Contains(text, "$") {
		return text, nil
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			b.WriteString(text)
			return b.String(), nil
		}
		b.WriteString(text[:i])
		text = text[i:]
		switch text[1] {
		case '$':
			b.WriteByte('$')
			text = text[2:]
			continue
		case '{':
		default:
			b.WriteByte('$')
			text = text[1:]
			continue
		}
		inner, rest, ok := strings.Cut(text[2:], "}")
		if !ok {
			return "", errors.New(`"${" without "}"; write $$ for a plain $`)
		}
		value, err := variable(inner, env)
		if err != nil {
			return "", err
		}
		b.WriteString(value)
		text = rest
	}
}

// variable returns the value of ${inner}. Its errors do not show a default, which may
// be a secret.
func variable(inner string, env func(string) (string, bool)) (string, error) {
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	if !isName(name) {
		return "", fmt.Errorf("${%s...}: expected ${NAME} or ${NAME:-default}", name[:nameLength(name)])
	}
	if strings.Contains(fallback, "${") {
		return "", fmt.Errorf("${%s:-...}: a default can't contain another variable", name)
	}
	value, ok := env(name)
	switch {
	case ok && value != "" || ok && !hasFallback:
		return value, nil
	case hasFallback:
		return fallback, nil
	}
	return "", fmt.Errorf("environment variable %s is not set; ${%s:-value} gives a default", name, name)
}

func isName(s string) bool { return s != "" && nameLength(s) == len(s) }

// nameLength returns the length of the name at the beginning of s.
func nameLength(s string) int {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return i
		}
	}
	return len(s)
}
