package sidecar

import (
	"reflect"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
)

// TestSettingsPageReloads: the last column of docs/settings.md is the effect of a reload
// that changes only the key.
func TestSettingsPageReloads(t *testing.T) {
	page := must.ReadFile(t, "../docs/settings.md")
	tried := 0
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) < 5 || !strings.HasPrefix(cells[0], "`") {
			continue
		}
		key, said := strings.Trim(cells[0], "`"), cells[len(cells)-1]
		old, changed := oneOfEach(t), oneOfEach(t)
		at := strings.Split(key, ".")
		value := setting(reflect.ValueOf(changed), at)
		if !value.IsValid() {
			ofFile := setting(reflect.ValueOf(changed), at[:1]).IsValid() // otherwise of a section that several keys have
			if ofFile && !strings.HasPrefix(key, "routes.*.service.*.") {
				t.Errorf("docs/settings.md has %s, which was not found", key)
			}
			continue
		}
		alter(value)
		tried++
		if got := effect(old, changed); !strings.HasPrefix(said, got) {
			t.Errorf("docs/settings.md has %q for %s; a reload that changes it is %q", said, key, got)
		}
	}
	if tried < 70 {
		t.Errorf("%d keys of the page were tried", tried)
	}
}

// oneOfEach returns a configuration with one entry in each list and map.
func oneOfEach(t *testing.T) *config.Config {
	c, err := config.Parse("", []byte(`
services: {app: {discover: static, endpoints: ["127.0.0.1:2"], max_concurrency: 8}}
routes: [{service: app}]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Listeners = []config.Listener{{Name: "in", Address: "127.0.0.1:1", Protocol: config.ProtocolHTTP}}
	c.Listeners[0].TLS.Certificates = []config.KeyPair{{}}
	c.Routes[0].Match = config.Match{Header: map[string]config.Condition{}, Query: map[string]config.Condition{}}
	c.Register = []config.Register{{Service: "app", Listener: "in"}}
	c.Registry.Kubernetes().Services = []config.KubernetesService{{}}
	c.Registry.ZooKeeper().Services = []config.ZooKeeperService{{}}
	return c
}

// setting returns the value of a key, in which * means the only entry. It returns the
// zero Value if there is no such key.
func setting(v reflect.Value, key []string) reflect.Value {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case len(key) == 0:
		return v
	case key[0] == "*" && v.Kind() == reflect.Slice:
		return setting(v.Index(0), key[1:])
	case key[0] == "*" && v.Kind() == reflect.Map:
		return setting(v.MapIndex(v.MapKeys()[0]), key[1:])
	case v.Kind() != reflect.Struct:
		return reflect.Value{}
	}
	for i := range v.NumField() {
		if blocks, ok := v.Field(i).Interface().(config.Blocks); ok && blocks[key[0]] != nil {
			return setting(reflect.ValueOf(blocks[key[0]]), key[1:])
		}
		if v.Type().Field(i).Tag.Get("yaml") == key[0] {
			return setting(v.Field(i), key[1:])
		}
	}
	return reflect.Value{}
}

// alter changes the value of v.
func alter(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Float64:
		v.SetFloat(v.Float() / 2)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), v.Len()+1, v.Len()+1))
	case reflect.Map:
		entry := reflect.MakeMap(v.Type())
		entry.SetMapIndex(reflect.ValueOf("x"), reflect.Zero(v.Type().Elem()))
		v.Set(entry)
	default:
		v.SetInt(v.Int() + 1)
	}
}

// effect returns the effect of a reload from old to cfg, in the words of the page.
func effect(old, cfg *config.Config) string {
	if len(fixedKeys(old, cfg)) > 0 {
		return "restart"
	}
	if !cfg.Listeners[0].Continues(&old.Listeners[0]) {
		return "new listener"
	}
	cfg.Listeners, cfg.Routes = nil, nil // they may name a service that does not exist
	if len(proxy.NewProcess(old, 0).Prepare(cfg, nil).Added()) > 0 {
		return "new service"
	}
	return "next"
}
