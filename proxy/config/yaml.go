package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// redacted replaces secrets.
const redacted = "<redacted>"

// YAML returns the effective configuration, with defaults and with the policies that
// routes inherit. Secrets are redacted. Except for these, Parse reads it back to the
// same Config.
func (c *Config) YAML() ([]byte, error) {
	tree := encodeStruct(reflect.ValueOf(c).Elem(), "")
	data, err := yaml.MarshalWithOptions(tree, yaml.IndentSequence(true))
	if err != nil {
		return nil, fmt.Errorf("writing the configuration as YAML: %w", err)
	}
	return data, nil
}

func encodeStruct(v reflect.Value, without string) yaml.MapSlice {
	out := yaml.MapSlice{}
	for _, f := range fieldsOf(v.Type()) {
		if f.name == without || f.filled && f.value(v).Len() == 0 {
			continue
		}
		if r, ok := v.Interface().(Route); ok && f.name == "service" && len(r.Split) > 0 {
			out = append(out, yaml.MapItem{Key: f.name, Value: encode(reflect.ValueOf(r.Split), f)})
			continue
		}
		out = append(out, yaml.MapItem{Key: f.name, Value: encode(f.value(v), f)})
	}
	return out
}

func encode(v reflect.Value, f field) any {
	switch v.Kind() {
	case reflect.Pointer:
		return encode(v.Elem(), f)
	case reflect.Struct:
		if c, ok := v.Interface().(Condition); ok {
			return c.encode()
		}
		return encodeStruct(v, f.without)
	case reflect.Slice:
		if f.single && v.Len() == 1 {
			return encode(v.Index(0), f)
		}
		items := make([]any, v.Len())
		for i := range items {
			items[i] = encode(v.Index(i), f)
		}
		return items
	case reflect.Map:
		entries := make(map[string]any, v.Len()) // the library sorts them
		for _, key := range v.MapKeys() {
			entries[key.String()] = encode(v.MapIndex(key), f)
		}
		return entries
	case reflect.String:
		if f.secret && v.String() != "" {
			return redacted
		}
		if f.boolean() && (v.String() == "true" || v.String() == "false") {
			return v.String() == "true"
		}
		return strings.ReplaceAll(v.String(), "$", "$$") // Parse expands it
	}
	return encodeNumber(v, f)
}

// encodeNumber writes durations and sizes with units, as a person would.
func encodeNumber(v reflect.Value, f field) any {
	isDuration := v.Type() == reflect.TypeFor[time.Duration]()
	switch {
	case !v.CanInt():
		return v.Interface()
	case f.auto != "" && strconv.FormatInt(v.Int(), 10) == f.auto:
		return "auto"
	case isDuration:
		return formatDuration(time.Duration(v.Int()))
	case f.size:
		return formatSize(v.Int())
	}
	return v.Int()
}

// formatDuration formats d without the final zeros of Duration.String: 5m, not 5m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
