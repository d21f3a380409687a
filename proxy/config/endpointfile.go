package config

import "path/filepath"

// EndpointFile is a file that another program writes.
type EndpointFile struct {
	// A JSON object of the endpoints of all services, as [docs/discovery.md](discovery.md) shows. `discover: file` requires it.
	Path string `yaml:"path" reload:"restart"`
}

// DiscoverFile is the value of Service.Discover for endpoints in an EndpointFile.
const DiscoverFile = "file"

func init() { declareRegistry(DiscoverFile, new(EndpointFile)) }

// EndpointFile returns the settings of the file of endpoints.
func (r *Registry) EndpointFile() *EndpointFile { return block[EndpointFile](r.Blocks) }

func (f *EndpointFile) servers() (key string, n int) {
	if f.Path != "" {
		n = 1
	}
	return "path", n
}

func (f *EndpointFile) registers() bool { return false }

func (f *EndpointFile) tls() *TLS { return nil }

// check reports a path that depends on the directory in which the sidecar was started.
func (f *EndpointFile) check(in scope, at path) {
	in.refuseIf(f.Path != "" && !filepath.IsAbs(f.Path), at.key("path"), "expected an absolute path, got %q", f.Path)
}
