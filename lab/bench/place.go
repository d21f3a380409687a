package bench

import (
	"embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed conf
var configFiles embed.FS

var configs = template.Must(template.New("").Funcs(template.FuncMap{"port": port}).ParseFS(configFiles, "conf/*"))

// port is that of an address.
func port(addr string) (string, error) {
	_, p, err := net.SplitHostPort(addr)
	return p, err
}

// A place is where a proxy stands in a chain.
type place struct {
	Dir              string // for its own files; it exists
	Listen, Upstream string // addresses
	Admin            string // address, of sidecars

	hop    int // from the load's side, counted from 0
	size   size
	shared *shared
}

// configured is a hop's args: its configuration file, made of the template of that
// name, comes last.
func configured(name string, args ...string) func(place) ([]string, error) {
	return func(p place) ([]string, error) { return p.configure(name, p, args...) }
}

func (p place) configure(name string, data any, args ...string) ([]string, error) {
	path := filepath.Join(p.Dir, name)
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	if err := configs.ExecuteTemplate(f, name, data); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return append(args[:len(args):len(args)], path), f.Close()
}

func relayArgs(p place) ([]string, error) {
	listen, err := port(p.Listen)
	if err != nil {
		return nil, err
	}
	upstream, err := port(p.Upstream)
	return []string{listen, upstream}, err
}

// sidecarArgs are of a sidecar that speaks the protocol in with who calls, and out
// with what it calls.
func (p place) sidecarArgs(in, out string, m manner) (args []string, err error) {
	data := struct {
		place
		grown
		In, Out       string
		TLS, Observed string // YAML
	}{place: p, In: in, Out: out}
	if data.grown, err = p.grow(); err != nil {
		return nil, err
	}
	if m.tls {
		if data.TLS, err = p.shared.identity(); err != nil {
			return nil, err
		}
	}
	if m.observed {
		if data.Observed, err = p.shared.observe(p); err != nil {
			return nil, err
		}
	}
	return p.configure("remora.yaml", data, "run", "-c")
}
