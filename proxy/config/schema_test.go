package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const schemaFile = "../../docs/remora.schema.json"

//go:generate go test -run ^TestSchemaFile$ . -update

// TestSchemaFile holds docs/remora.schema.json to the types of this package, their tags,
// defaults and comments. With -update it writes the file.
func TestSchemaFile(t *testing.T) {
	w := schemaWalk{texts: fieldTexts(t), items: itemDefaults(), defs: map[string]any{
		"text":     map[string]any{"type": []string{"string", "number", "boolean"}},
		"variable": map[string]any{"type": "string", "pattern": `\$\{`, "description": "A value from the environment."},
		"duration": map[string]any{"anyOf": []any{
			map[string]any{"type": "string", "pattern": `^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`},
			map[string]any{"enum": []any{0, "0"}}, refTo("variable"),
		}},
	}}
	root := w.object(reflect.ValueOf(*Default()))
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Configuration of Remora"
	root["type"] = "object"
	root["$defs"] = w.defs
	var got bytes.Buffer
	out := json.NewEncoder(&got)
	out.SetEscapeHTML(false)
	out.SetIndent("", " ")
	if err := out.Encode(root); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(old, got.Bytes()) {
		t.Errorf("%s differs from the code; run go generate", schemaFile)
	}
}

// schemaWalk makes a schema of types. Each struct becomes a definition.
type schemaWalk struct {
	texts map[string]string              // comments, by "Type" and "Type.Field"
	items map[reflect.Type]reflect.Value // as in settingsWalk
	defs  map[string]any                 // by name
}

func refTo(name string) map[string]any { return map[string]any{"$ref": "#/$defs/" + name} }

// define returns a reference to the schema of the struct v, which has its defaults.
func (w *schemaWalk) define(v reflect.Value) map[string]any {
	name := v.Type().Name()
	if w.defs[name] == nil {
		w.defs[name] = true // against endless recursion
		w.defs[name] = w.object(v)
	}
	return refTo(name)
}

// object returns the schema of the struct v. A section without content is valid.
func (w *schemaWalk) object(v reflect.Value) map[string]any {
	keys := map[string]any{}
	var required []string
	for _, f := range fieldsOf(v.Type()) {
		isInherited := len(f.index) > 1
		value := f.value(v)
		s := w.value(value, f)
		if v.Type() == reflect.TypeFor[Route]() && f.name == "service" {
			share := w.define(w.items[reflect.TypeFor[Share]()])
			s = map[string]any{"anyOf": []any{s, map[string]any{"type": "array", "items": share}}}
		}
		text := w.texts[f.goName(v.Type())]
		if section := w.texts[typeName(f.of)]; section != "" && !strings.HasSuffix(text, ".") {
			text, _, _ = strings.Cut(section+" ", ". ")
			text += "."
		}
		s["description"] = strings.TrimSpace(pageLink.ReplaceAllString(text, "$1") + boundsText(value, f))
		// What a route does not set, it takes from its service.
		if d := schemaDefault(value, f); d != nil && !(isInherited && v.Type() != reflect.TypeFor[Service]()) {
			s["default"] = d
		}
		if strings.HasPrefix(text, "Required") {
			required = append(required, f.name)
		}
		keys[f.name] = s
	}
	out := map[string]any{"type": []string{"object", "null"}, "properties": keys, "additionalProperties": false}
	if required != nil {
		out["required"] = required
	}
	return out
}

// goName returns the name of the field of a struct type that has a key, as "Type.Field". A block has none.
func (f field) goName(of reflect.Type) string {
	if f.block {
		return ""
	}
	name := of.FieldByIndex(f.index).Name
	if len(f.index) > 1 {
		of = reflect.TypeFor[Policy]()
	}
	return of.Name() + "." + name
}

// pageLink is a link to another page of the documentation.
var pageLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// typeName returns the name of a type, or of its items.
func typeName(t reflect.Type) string {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Map || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

// value returns the schema of one key.
func (w *schemaWalk) value(v reflect.Value, f field) map[string]any {
	switch v.Kind() {
	case reflect.Struct:
		s := w.define(v)
		if f.without != "" {
			s["properties"] = map[string]any{f.without: false}
		}
		return s
	case reflect.Slice:
		list := map[string]any{"type": []string{"array", "null"}, "items": w.item(v.Type().Elem(), f)}
		if f.filled {
			list["type"], list["minItems"] = "array", 1
		}
		if f.single {
			return map[string]any{"anyOf": []any{list, w.item(v.Type().Elem(), f)}}
		}
		return list
	case reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": w.item(v.Type().Elem(), f)}
	}
	return scalarSchema(v.Type(), f)
}

// item returns the schema of an item of a list or map.
func (w *schemaWalk) item(t reflect.Type, f field) map[string]any {
	switch {
	case t == reflect.TypeFor[Endpoint]():
		return map[string]any{"anyOf": []any{map[string]any{"type": "string"}, w.define(w.items[t])}}
	case t == reflect.TypeFor[Condition]():
		return w.condition()
	case w.items[t].IsValid():
		return w.define(w.items[t])
	}
	return scalarSchema(t, f)
}

// condition returns a reference to the schema of a Condition: the exact value, or a mapping with
// one key.
func (w *schemaWalk) condition() map[string]any {
	const name = "Condition"
	w.defs[name] = map[string]any{"anyOf": []any{refTo("text"), map[string]any{
		"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": false,
		"properties": map[string]any{
			IsExact: refTo("text"), IsPrefix: refTo("text"), IsRegex: refTo("text"),
			IsPresent: map[string]any{"type": "boolean"}, not: refTo(name),
		},
	}}}
	return refTo(name)
}

// scalarSchema returns the schema of a value that is neither a section nor a list. All but text
// may also come from the environment.
func scalarSchema(t reflect.Type, f field) map[string]any {
	var options []any
	add := func(s map[string]any) { options = append(options, s) }
	if f.auto != "" {
		add(map[string]any{"const": "auto"})
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		if options == nil {
			return refTo("duration")
		}
		return map[string]any{"anyOf": append(options, refTo("duration"))}
	case t.Kind() == reflect.Bool:
		add(map[string]any{"type": "boolean"})
	case t.Kind() == reflect.String && len(f.names()) > 0:
		add(map[string]any{"enum": f.names()})
		if _, err := strconv.ParseFloat(f.names()[0], 64); err == nil { // without quotes
			add(map[string]any{"type": "number"})
		}
		if f.boolean() {
			add(map[string]any{"type": "boolean"})
		}
	case t.Kind() == reflect.String: // a number without quotes is text, too
		return refTo("text")
	case t.Kind() == reflect.Float64:
		low := "minimum"
		if strings.HasPrefix(f.in, "(") {
			low = "exclusiveMinimum"
		}
		add(map[string]any{"type": "number", low: 0, "maximum": intervalEnd(f.in)})
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		number := map[string]any{"type": "integer"}
		number["minimum"] = f.mustParse(cmp.Or(f.min, "0"), t)
		if f.max != "" {
			number["maximum"] = f.mustParse(f.max, t)
		}
		add(number)
		if f.size {
			add(map[string]any{"type": "string", "pattern": `^[0-9]+(KiB|MiB|GiB)?$`})
		}
	default:
		panic("no schema for a " + t.String())
	}
	return map[string]any{"anyOf": append(options, refTo("variable"))}
}

// boundsText returns the bounds that the schema of a duration or size can't say.
func boundsText(v reflect.Value, f field) string {
	if v.Type() != reflect.TypeFor[time.Duration]() && !f.size || f.min == "" && f.max == "" {
		return ""
	}
	text := " (at least " + cmp.Or(f.min, "0")
	if f.max != "" {
		text += ", at most " + f.max
	}
	return text + ")"
}

// schemaDefault returns the default of a key; nil means none.
func schemaDefault(v reflect.Value, f field) any {
	switch v.Kind() {
	case reflect.Struct, reflect.Map:
		return nil
	case reflect.Bool, reflect.Float64:
		return v.Interface()
	case reflect.Slice:
		if list, ok := v.Interface().([]string); ok && len(list) > 0 {
			return list
		}
		return nil
	case reflect.String:
		if v.Len() == 0 || f.name == "id" { // which is the name of this host
			return nil
		}
		return v.String()
	}
	text := strings.Trim(defaultOf(v, f), "`")
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return text
}
