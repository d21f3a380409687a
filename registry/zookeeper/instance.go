package zookeeper

import (
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/remora-proxy/remora/registry"
)

// Bounds of records of the application level.
const (
	maxPorts     = 64                    // of an instance
	maxInstances = registry.MaxEndpoints // of one service that are read
	maxRevisions = 1024                  // of one service whose metadata is read
)

// instance is a record of the application level: the data of /services/APPLICATION/ID, in the JSON of Curator's service
// discovery.
type instance struct {
	err      error // why the record can't be used; nothing else is set then
	host     string
	ports    []instancePort
	revision string // of the metadata, which says what the application serves; "" or "0" means none
	weight   int
	zone     string
}

// instancePort is an entry of dubbo.endpoints.
type instancePort struct {
	Port     int    `json:"port"`
	Protocol string `json:"protocol"`
}

var errInstance = errors.New("not an instance of Curator's service discovery")

// parseInstance reads the data of an instance's node.
func parseInstance(data string) instance {
	var record struct {
		Address string `json:"address"`
		Port    int    `json:"port"`
		Enabled *bool  `json:"enabled"`
		Payload struct {
			Metadata map[string]string `json:"metadata"`
		} `json:"payload"`
	}
	if err := json.Unmarshal([]byte(data), &record); err != nil {
		return instance{err: errInstance}
	}
	meta := record.Payload.Metadata
	i := instance{host: record.Address, revision: meta["dubbo.metadata.revision"], weight: defaultWeight, zone: meta[keyZone]}
	if _, err := i.addr(max(record.Port, 1)); err != nil {
		return instance{err: err}
	}
	if err := registry.CheckNames(i.zone, ""); err != nil {
		return instance{err: err}
	}
	if w := meta[keyWeight]; w != "" {
		i.weight = parseWeight(w)
	}
	if record.Enabled != nil && !*record.Enabled {
		i.weight = 0
	}
	if text := meta["dubbo.endpoints"]; text != "" {
		if err := json.Unmarshal([]byte(text), &i.ports); err != nil || len(i.ports) > maxPorts {
			return instance{err: errInstance}
		}
	}
	return i
}

// addr returns the address of the instance at a port.
func (i *instance) addr(port int) (string, error) {
	a, err := registry.ParseAddr(net.JoinHostPort(strings.Trim(i.host, "[]"), strconv.Itoa(port)))
	return a.String(), err
}

// revision is what the metadata of a revision says of one service: the data of /dubbo/metadata/APPLICATION/REVISION, which
// applications write with metadata-type=remote or report-metadata=true.
type revision struct {
	err      error
	services []exported
}

// exported is a service that an application has in a revision.
type exported struct {
	Name     string            `json:"name"` // of the interface
	Group    string            `json:"group"`
	Version  string            `json:"version"`
	Protocol string            `json:"protocol"`
	Port     int               `json:"port"` // 0 means that of the protocol in dubbo.endpoints
	Params   map[string]string `json:"params"`
}

func parseRevision(data string) revision {
	var record struct {
		Services map[string]exported `json:"services"`
	}
	if err := json.Unmarshal([]byte(data), &record); err != nil || record.Services == nil {
		return revision{err: errInstance}
	}
	var r revision
	for _, s := range record.Services {
		r.services = append(r.services, s)
	}
	return r
}
