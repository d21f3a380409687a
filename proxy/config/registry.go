package config

// Registry configures where services are found and registered.
type Registry struct {
	Etcd Etcd `yaml:"etcd"`
	// Directory for the last known endpoints: lets the sidecar start while etcd is down. Empty means none.
	CacheDir string `yaml:"cache_dir" reload:"restart"`
}

// Registries are the sources of endpoints.
var Registries = []string{DiscoverEtcd, DiscoverStatic}

// Registries that a default or a rule mentions.
const (
	DiscoverEtcd   = "etcd"   // watch the registry
	DiscoverStatic = "static" // Service.Endpoints
)
