package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestEveryNumberIsBounded: each number, size and time has an upper bound. A larger one
// could overflow where it is converted, multiplied or added to.
func TestEveryNumberIsBounded(t *testing.T) {
	seen := 0
	for _, b := range bounds() {
		seen++
		values := []string{"9223372036854775807"}
		switch {
		case b.isTime:
			values = []string{"2562047h"}
		case !b.isSize:
			values = append(values, "2147483648", "4294967295", "4294967296")
		}
		for _, value := range values {
			text := b.yaml(value)
			_, err := Parse("test", []byte(text), environment)
			got := fmt.Sprint(err)
			if !strings.Contains(got, b.last()+": expected at most ") {
				t.Errorf("%s\ngives %s", text, got)
			}
		}
	}
	if seen < 40 {
		t.Errorf("%d numbers, sizes and times were found", seen)
	}
}

// bounded is a key with a whole number, a size or a time.
type bounded struct {
	setting
	isSize, isTime bool
}

func bounds() (out []bounded) {
	for _, s := range settings(nil) {
		kind, _, _ := strings.Cut(s.values, " ")
		kind = strings.TrimSuffix(kind, ",")
		switch kind {
		case "number", "size", "time":
			out = append(out, bounded{s, kind == "size", kind == "time"})
		}
	}
	return out
}

func (b bounded) last() string { return b.key[strings.LastIndexByte(b.key, '.')+1:] }

// yaml returns a file that sets only the key, to value.
func (b bounded) yaml(value string) string {
	key := b.key
	if _, top := topLevel()[strings.Split(key, ".")[0]]; !top {
		key = "services.*." + key // of a block or a policy
	}
	steps := strings.Split(key, ".")
	text := value
	for i := len(steps) - 1; i >= 0; i-- {
		switch {
		case steps[i] != "*":
			text = "{" + steps[i] + ": " + text + "}"
		case steps[i-1] == "services":
			text = "{s: " + text + "}"
		default:
			text = "[" + text + "]"
		}
	}
	return text
}

func topLevel() map[string]bool {
	keys := map[string]bool{}
	for _, f := range fieldsOf(reflect.TypeFor[Config]()) {
		keys[f.name] = true
	}
	return keys
}
