package config

import (
	"cmp"
	"fmt"
	"go/ast"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/docgen"
)

const settingsPage = "../../docs/settings.md"

//go:generate go test -run ^TestSettingsPage$ . -update

// setting is a key of the file as docs/settings.md lists it.
type setting struct{ key, values, fallback, text, reload string }

// links are added to the text of a setting.
var links = map[string]string{
	"node.id":                          "[subsets](balancing.md#subsets)",
	"node.zone":                        "[zones](balancing.md#zones)",
	"loops":                            "[sizing](operations.md#sizing)",
	"admin.address":                    "[admin API](operations.md#who-may-call-the-admin-api)",
	"admin.profiles":                   "[flame graphs](performance.md#where-the-cpu-goes)",
	"listeners.*.address":              "[Unix sockets](sockets.md#unix-sockets)",
	"listeners.*.transparent":          "[interception](interception.md)",
	"listeners.*.expect":               "[expectations](strictness.md#expectations)",
	"listeners.*.unrouted":             "[http_proxy](http-proxy.md)",
	"listeners.*.direct.allow":         "[hosts without a route](http-proxy.md#hosts-without-a-route)",
	"listeners.*.forwarded.trust":      "[who is trusted](headers.md#who-is-trusted)",
	"listeners.*.proxy_protocol.trust": "[PROXY protocol](sockets.md#proxy-protocol)",
	"services.*.proxy_protocol":        "[PROXY protocol](sockets.md#proxy-protocol)",
	"routes.*.match.sni":               "[server names](sockets.md#tls-by-server-name)",
	"services.*.endpoints.*.address":   "[host names](operations.md#host-names)",
	"services.*.endpoints.*.weight":    "[policies](balancing.md#policies)",
	"services.*.serialization":         "[Dubbo](dubbo.md)",
	"services.*.lb.policy":             "[balancing](balancing.md)",
	"services.*.max_concurrency":       "[concurrency](operations.md#the-applications-concurrency)",
	"services.*.outlier.consecutive":   "[ejection](balancing.md#outlier-ejection)",
	"services.*.breaker.consecutive":   "[breakers](operations.md#circuit-breakers)",
	"priority":                         "[priorities](operations.md#priorities)",
	"hedge.mode":                       "[hedging](hedging.md)",
	"routes.*.collapse":                "[collapsing](caching.md#collapsing)",
	"routes.*.cache.ttl":               "[caching](caching.md)",
	"engine":                           "[engines](engines.md)",
	"limits.message":                   "[streams](operations.md#streams)",
	"limits.per_source":                "[sources](operations.md#connections-per-source)",
	"limits.buffered":                  "[buffered bytes](operations.md#buffered-bytes)",
}

// row returns the line of a setting.
func (s setting) row() docgen.Row {
	text := s.text
	if link := links[s.key]; link != "" {
		text += " (" + link + ")"
	}
	return docgen.Row{Key: s.key, Cells: []string{"`" + s.key + "`", s.values, s.fallback, text, s.reload}}
}

// TestSettingsPage holds the tables of docs/settings.md to the types of this package,
// their tags, defaults and comments. With -update it writes them there.
func TestSettingsPage(t *testing.T) {
	texts := fieldTexts(t)
	var rows []docgen.Row
	known := map[string]bool{}
	for _, s := range settings(texts) {
		if s.text == "" {
			t.Errorf("%s has no comment", s.key)
		}
		rows = append(rows, s.row())
		known[s.key] = true
	}
	for key := range links {
		if !known[key] {
			t.Errorf("%s has a link and is no key", key)
		}
	}
	docgen.Check(t, settingsPage, rows, *update)
}

// fieldTexts returns the comments of the types of this package, by "Type", and of their
// fields, by "Type.Field".
func fieldTexts(t *testing.T) map[string]string {
	texts := map[string]string{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		ast.Inspect(docgen.Parse(t, file), func(n ast.Node) bool {
			if d, ok := n.(*ast.GenDecl); ok && len(d.Specs) == 1 {
				if spec, ok := d.Specs[0].(*ast.TypeSpec); ok {
					texts[spec.Name.Name] = docgen.Text(d.Doc, nil)
				}
			}
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if of, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range of.Fields.List {
					for _, name := range f.Names {
						texts[spec.Name.Name+"."+name.Name] = docgen.Text(f.Doc, f.Comment)
					}
				}
			}
			return false
		})
	}
	return texts
}

// blocks are types that several keys have. They are listed once, under their own name.
var blocks = map[reflect.Type]string{
	reflect.TypeFor[Check]():     "check",
	reflect.TypeFor[TLS]():       "tls",
	reflect.TypeFor[RateLimit](): "rate_limit",
	reflect.TypeFor[Allow]():     "allow",
}

// settings returns all keys, with the defaults that the decoder starts from. Those of
// a Policy, which services and routes share, have no prefix.
func settings(texts map[string]string) []setting {
	c := Default()
	c.Node.ID = "host name"
	items := itemDefaults()
	w := settingsWalk{texts: texts, items: items}
	w.object("", reflect.ValueOf(*c))
	w.object("routes.*.service.*.", items[reflect.TypeFor[Share]()])
	w.object("", reflect.ValueOf(DefaultPolicy()))
	for block, name := range blocks {
		w.object(name+".", w.items[block])
	}
	return w.found
}

// itemDefaults returns what an item of a list or map, or a block, is before it is decoded.
func itemDefaults() map[reflect.Type]reflect.Value {
	route := withDefaults[Route]()
	route.Cache.setGiven()
	return map[reflect.Type]reflect.Value{
		reflect.TypeFor[*Service]():  reflect.ValueOf(withDefaults[Service]()),
		reflect.TypeFor[Listener]():  reflect.ValueOf(withDefaults[Listener]()),
		reflect.TypeFor[Route]():     reflect.ValueOf(route),
		reflect.TypeFor[Register]():  reflect.ValueOf(withDefaults[Register]()),
		reflect.TypeFor[Endpoint]():  reflect.ValueOf(withDefaults[Endpoint]()),
		reflect.TypeFor[Share]():     reflect.ValueOf(withDefaults[Share]()),
		reflect.TypeFor[TLS]():       reflect.ValueOf(TLS{}),
		reflect.TypeFor[RateLimit](): reflect.ValueOf(RateLimit{}),
		reflect.TypeFor[Check]():     reflect.ValueOf(withDefaults[Check]()),
		reflect.TypeFor[Allow]():     reflect.ValueOf(withDefaults[Allow]()),
		reflect.TypeFor[AllowRule](): reflect.ValueOf(AllowRule{}),
		reflect.TypeFor[KeyPair]():   reflect.ValueOf(KeyPair{}),
		reflect.TypeFor[Policy]():    reflect.ValueOf(DefaultPolicy()),

		reflect.TypeFor[KubernetesService](): reflect.ValueOf(KubernetesService{}),
		reflect.TypeFor[ZooKeeperService]():  reflect.ValueOf(*new(ZooKeeper).Of("")),
	}
}

// settingsWalk walks through the types of a configuration.
type settingsWalk struct {
	items map[reflect.Type]reflect.Value // what an item of a list or map is before it is decoded
	texts map[string]string              // by "Type.Field"
	found []setting
}

func (w *settingsWalk) object(prefix string, v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		isPolicy := v.Type() != reflect.TypeFor[Policy]() && len(f.index) > 1
		if !isPolicy {
			w.value(prefix+f.name, f.value(v), f, v.Type())
		}
	}
}

func (w *settingsWalk) value(key string, v reflect.Value, f field, of reflect.Type) {
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
		sf := of.FieldByIndex(f.index)
		w.found = append(w.found, setting{
			key, valuesOf(v, f), defaultOf(v, f),
			w.texts[of.Name()+"."+sf.Name], cmp.Or(sf.Tag.Get("reload"), "next"),
		})
	}
}

// valuesOf names the values of a key.
func valuesOf(v reflect.Value, f field) string {
	isDuration := v.Type() == reflect.TypeFor[time.Duration]()
	switch v.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		if f.single && len(f.names()) > 0 {
			return "`" + strings.Join(f.names(), "`, `") + "`, or list"
		}
		if f.single {
			return "number or list"
		}
		return "list"
	case reflect.Map:
		if v.Type().Elem() == reflect.TypeFor[Condition]() {
			return "condition by name"
		}
		return "text by name"
	case reflect.Float64:
		return f.in
	case reflect.String:
		if len(f.names()) > 0 {
			return "`" + strings.Join(f.names(), "`, `") + "`"
		}
		return "text"
	}
	values := "number"
	switch {
	case isDuration:
		values = "time"
	case f.size:
		values = "size"
	}
	switch {
	case f.max != "" && f.max != unlimited:
		values += " " + cmp.Or(f.min, "0") + "–" + f.max
	case f.min != "":
		values += " ≥ " + f.min
	}
	if f.auto != "" {
		values += ", `auto`"
	}
	return values
}

// unlimited is the max of a number that has no limit of its own; the page says so once.
const unlimited = "1000000000"

// defaultOf returns the value of a key that is not given.
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

// TestSettingsWalk: the walk finds keys of every kind.
func TestSettingsWalk(t *testing.T) {
	found := settings(map[string]string{"Policy.Timeout": "For all."})
	for _, want := range []setting{
		{"node.id", "text", "host name", "", "restart"},
		{"timeout", "time ≥ 1ms", "15s", "For all.", "next"},
		{"hedge.delay", "text", "auto", "", "next"},
		{"retry.on", "list", "`connect`, `refused`, `reset`", "", "next"},
		{"timeouts.idle", "time ≥ 1ms", "5m", "", "next"},
		{"limits.message", "size 1KiB–1GiB", "4MiB", "", "next message; on links next link"},
		{"services.*.endpoints.*.weight", "number 1–65535", "1", "", "next"},
		{"services.*.max_pending", "number ≥ 1", "1024", "", "next"},
		{"routes.*.service.*.weight", "number 0–65535", "1", "", "next"},
		{"services.*.max_concurrency", "number, `auto`", "0", "", "next; to or from 0 or auto: new service"},
		{"services.*.lb.panic", "[0,1]", "0.9", "", "next"},
		{"listeners.*.protocol", "`" + strings.Join(ListenerProtocols, "`, `") + "`", "–", "", "new listener"},
		{"check.timeout", "time ≥ 1ms", "1s", "", "next"},
	} {
		if !slices.Contains(found, want) {
			t.Errorf("no setting %+v", want)
		}
	}
}
