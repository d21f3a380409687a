package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var (
	reference    = regexp.MustCompile(`\$\$|\$\{[^}]*\}?`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)
)

// expand replaces ${VAR} and ${VAR:-default} (if VAR is unset or empty) in the text
// of one scalar, and $$ by $. It does not expand the value of a variable, which can
// neither refer to others nor change the structure of the file.
func expand(text string, env func(string) (string, bool)) (expanded string, err error) {
	expanded = reference.ReplaceAllStringFunc(text, func(match string) (value string) {
		inner, isClosed := strings.CutSuffix(match[len("$$"):], "}")
		switch {
		case err != nil:
		case match == "$$":
			value = "$"
		case !isClosed:
			err = errors.New(`"${" without "}"; write $$ for a plain $`)
		default:
			value, err = variable(inner, env)
		}
		return value
	})
	return expanded, err
}

// variable returns the value of ${inner}. Its errors show no default, which may be a secret.
func variable(inner string, env func(string) (string, bool)) (string, error) {
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	if valid := variableName.FindString(name); valid == "" || valid != name {
		return "", fmt.Errorf("${%s...}: expected ${NAME} or ${NAME:-default}", shorten(valid))
	}
	if strings.Contains(fallback, "${") {
		return "", fmt.Errorf("${%s:-...}: a default can't contain another variable", shorten(name))
	}
	if env == nil {
		return "", fmt.Errorf("${%s}: an overlay can't use variables; write $$ for a plain $", shorten(name))
	}
	value, ok := env(name)
	switch {
	case ok && value != "" || ok && !hasFallback:
		return value, nil
	case hasFallback:
		return fallback, nil
	}
	return "", fmt.Errorf("environment variable %s is not set; ${%s:-value} gives a default", shorten(name), shorten(name))
}
