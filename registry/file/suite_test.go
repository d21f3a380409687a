package file

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// written is a file of endpoints of one service that a test changes, as a script would.
type written struct {
	path  string
	lists map[string][]map[string]any
	gone  bool
}

func newWritten(t *testing.T) *written {
	return &written{path: filepath.Join(t.TempDir(), "endpoints.json"), lists: map[string][]map[string]any{}}
}

// write replaces the file.
func (w *written) write(t *testing.T) {
	t.Helper()
	if w.gone {
		return
	}
	b, err := json.Marshal(w.lists)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, w.path, string(b))
}

func replace(t *testing.T, path, content string) {
	t.Helper()
	must.WriteFile(t, path+".new", content)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func (w *written) remove(t *testing.T, e registry.Endpoint) {
	w.drop(e)
	w.write(t)
}

func (w *written) put(t *testing.T, e registry.Endpoint) {
	w.drop(e)
	w.lists[registrytest.Service] = append(w.lists[registrytest.Service], map[string]any{"address": e.Addr, "weight": e.Weight, "zone": e.Zone})
	w.write(t)
}

func (w *written) drop(e registry.Endpoint) {
	w.lists[registrytest.Service] = slices.DeleteFunc(w.lists[registrytest.Service], func(o map[string]any) bool { return o["address"] == e.Addr })
}

func open(t *testing.T, path, dir string) *Registry {
	t.Helper()
	r, err := New(Options{Path: path, CacheDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSuite runs the suite of all registries. An outage is a file that is not there.
func TestSuite(t *testing.T) {
	registrytest.Run(t, func(t *testing.T, endpoints ...registry.Endpoint) *registrytest.Registry {
		w := newWritten(t)
		for _, e := range endpoints {
			w.put(t, e)
		}
		return &registrytest.Registry{
			Open:   func(t *testing.T, dir string) registrytest.Client { return open(t, w.path, dir) },
			Put:    w.put,
			Remove: w.remove,
			Cut: func(cut bool) {
				if w.gone = cut; !cut {
					w.write(t)
				} else if err := os.Remove(w.path); err != nil {
					t.Fatal(err)
				}
			},
			Caches: true,
		}
	})
}
