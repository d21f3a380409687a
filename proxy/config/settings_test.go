package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const settingsPage = "../../docs/settings.md"

// setting is a key of the file as docs/settings.md lists it.
type setting struct{ key, values, fallback string }

// row is how the line of a setting begins.
func (s setting) row() string {
	return fmt.Sprintf("| `%s` | %s | %s |", s.key, s.values, s.fallback)
}

// TestSettingsPage: docs/settings.md has every key of the file, with its values
// and default, and no other. With -update values and defaults are written there.
func TestSettingsPage(t *testing.T) {
	page, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]setting{}
	for _, s := range settings() {
		known[s.key] = s
	}
	seen := map[string]bool{}
	lines := strings.Split(string(page), "\n")
	for i, line := range lines {
		cells := strings.SplitN(line, " | ", 4)
		key, isRow := strings.CutPrefix(cells[0], "| `")
		if !isRow || len(cells) < 4 {
			continue
		}
		key = strings.TrimSuffix(key, "`")
		s, ok := known[key]
		switch {
		case !ok:
			t.Errorf("docs/settings.md has %s, which is no key", key)
		case seen[key]:
			t.Errorf("docs/settings.md has %s twice", key)
		case *update:
			lines[i] = s.row() + " " + cells[3]
		case !strings.HasPrefix(line, s.row()+" "):
			t.Errorf("docs/settings.md should have\n%s\nand has\n%s", s.row(), line)
		}
		seen[key] = true
	}
	for key := range known {
		if !seen[key] {
			t.Errorf("docs/settings.md lacks %s", key)
		}
	}
	if *update {
		if err := os.WriteFile(settingsPage, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// blocks are what stands in several places and is listed once, under its own name.
var blocks = map[reflect.Type]string{
	reflect.TypeFor[Check]():     "check",
	reflect.TypeFor[TLS]():       "tls",
	reflect.TypeFor[RateLimit](): "rate_limit",
}

// settings are all keys, with the defaults that the decoder starts from. Those of
// a Policy, of services and routes alike, have no prefix.
func settings() []setting {
	c := Default()
	c.Node.ID = "host name"
	register := Register{}
	register.setDefaults()
	endpoint, share := Endpoint{}, Share{}
	endpoint.setDefaults()
	share.setDefaults()
	w := settingsWalk{items: map[reflect.Type]reflect.Value{
		reflect.TypeFor[*Service]():  reflect.ValueOf(DefaultService("")).Elem(),
		reflect.TypeFor[Listener]():  reflect.ValueOf(Listener{}),
		reflect.TypeFor[Route]():     reflect.ValueOf(Route{}),
		reflect.TypeFor[Register]():  reflect.ValueOf(register),
		reflect.TypeFor[Endpoint]():  reflect.ValueOf(endpoint),
		reflect.TypeFor[TLS]():       reflect.ValueOf(TLS{}),
		reflect.TypeFor[RateLimit](): reflect.ValueOf(RateLimit{}),
		reflect.TypeFor[Check]():     reflect.ValueOf(defaultCheck()),
		reflect.TypeFor[Policy]():    reflect.ValueOf(DefaultPolicy()),
	}}
	w.object("", reflect.ValueOf(*c))
	w.object("routes.*.service.*.", reflect.ValueOf(share))
	w.object("", reflect.ValueOf(DefaultPolicy()))
	for block, name := range blocks {
		w.object(name+".", w.items[block])
	}
	return w.found
}

// settingsWalk goes through the types of a configuration.
type settingsWalk struct {
	items map[reflect.Type]reflect.Value // what an item of a list or map is before it is decoded
	found []setting
}

func (w *settingsWalk) object(prefix string, v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		isPolicy := v.Type() != reflect.TypeFor[Policy]() && len(f.index) > 1
		if !isPolicy {
			w.value(prefix+f.name, v.FieldByIndex(f.index), f)
		}
	}
}

func (w *settingsWalk) value(key string, v reflect.Value, f field) {
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		if item, ok := w.items[v.Type().Elem()]; ok {
			w.object(key+".*.", item)
			return
		}
	}
	_, isBlock := blocks[v.Type()]
	switch {
	case isBlock:
	case v.Kind() == reflect.Struct:
		w.object(key+".", v)
	default:
		w.found = append(w.found, setting{key, valuesOf(v, f), defaultOf(v, f)})
	}
}

// valuesOf is what may stand under a key.
func valuesOf(v reflect.Value, f field) string {
	isDuration := v.Type() == reflect.TypeFor[time.Duration]()
	switch v.Kind() {
	case reflect.Bool:
		return "true, false"
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "text by name"
	case reflect.Float64:
		return f.in
	case reflect.String:
		if len(f.oneof) > 0 {
			return "`" + strings.Join(f.oneof, "`, `") + "`"
		}
		return "text"
	}
	values := "from " + f.min
	if f.min == "" {
		values = "from 0"
	}
	if f.max != "" {
		values += " to " + f.max
	}
	if f.auto != "" {
		values = "`auto`, " + values
	}
	switch {
	case isDuration:
		return "time, " + values
	case f.size:
		return "size, " + values
	}
	return "number, " + values
}

// defaultOf is what holds where a key is not given.
func defaultOf(v reflect.Value, f field) string {
	switch {
	case v.Kind() == reflect.Slice && v.Len() > 0:
		return "`" + strings.Join(v.Interface().([]string), "`, `") + "`"
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Map || v.Kind() == reflect.String && v.Len() == 0:
		return "–"
	case f.auto != "" && fmt.Sprint(v.Int()) == f.auto:
		return "`auto`"
	case f.size:
		return formatSize(v.Int())
	case v.Type() == reflect.TypeFor[time.Duration]() && v.Int() == 0:
		return "0"
	case v.Type() == reflect.TypeFor[time.Duration]():
		return strings.Replace(v.Interface().(time.Duration).String(), "m0s", "m", 1)
	}
	return fmt.Sprint(v.Interface())
}

// TestSettingsAreSeen: the walk finds keys of every kind.
func TestSettingsAreSeen(t *testing.T) {
	for _, want := range []setting{
		{"node.id", "text", "host name"},
		{"hedge.delay", "time, `auto`, from 0", "`auto`"},
		{"retry.on", "list", "`connect`, `refused`"},
		{"timeouts.idle", "time, from 1ms", "5m"},
		{"limits.message", "size, from 1KiB to 1GiB", "4MiB"},
		{"services.*.endpoints.*.weight", "number, from 1 to 65535", "1"},
		{"routes.*.service.*.weight", "number, from 0 to 65535", "1"},
		{"services.*.max_concurrency", "number, `auto`, from 0 to 1000000000", "0"},
		{"services.*.lb.panic", "[0,1]", "0.9"},
		{"listeners.*.protocol", "`http`, `dubbo`, `link`, `tcp`", "–"},
		{"check.timeout", "time, from 1ms", "1s"},
	} {
		if !slices.Contains(settings(), want) {
			t.Errorf("no setting %+v", want)
		}
	}
}
