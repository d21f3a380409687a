package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/remora-proxy/remora/registry"
)

// update is the value of a key, in the JSON of etcd's naming/endpoints, so that gRPC clients
// with etcd's resolver can read it.
type update struct {
	Op       uint8 // 0 means add; naming/endpoints never stores another value
	Addr     string
	Metadata json.RawMessage
}

// metadata is the part of update.Metadata that this package uses.
type metadata struct {
	Weight   int    `json:"weight"`
	Zone     string `json:"zone"`
	Protocol string `json:"protocol"`
	Node     string `json:"node"`
}

// reserved are the keys of update.Metadata that the fields of metadata use.
var reserved = map[string]bool{"weight": true, "zone": true, "protocol": true, "node": true}

// maxValue limits a value, in bytes.
const maxValue = 64 << 10

var (
	errOp     = errors.New("operation is not 0")
	errLarge  = errors.New("value is too large")
	errWeight = errors.New("weight is negative")
	errHeavy  = fmt.Errorf("weight is above %d", registry.MaxWeight)
)

// decode decodes a value. Metadata that is not an object belongs to another system and is
// ignored; an object must be valid. A weight above MaxWeight, which only other systems write,
// counts as MaxWeight.
func decode(value []byte, protocols registry.Protocols) (registry.Endpoint, error) {
	if len(value) > maxValue {
		return registry.Endpoint{}, errLarge
	}
	var u update
	if err := json.Unmarshal(value, &u); err != nil {
		return registry.Endpoint{}, err
	}
	if u.Op != 0 {
		return registry.Endpoint{}, errOp
	}
	addr, err := registry.ParseAddr(u.Addr)
	if err != nil {
		return registry.Endpoint{}, err
	}
	m := metadata{Weight: 1}
	if len(u.Metadata) > 0 && u.Metadata[0] == '{' {
		if err := json.Unmarshal(u.Metadata, &m); err != nil {
			return registry.Endpoint{}, err
		}
	}
	if err := protocols.Check(m.Protocol); err != nil {
		return registry.Endpoint{}, err
	}
	if err := registry.CheckNames(m.Zone, m.Node); err != nil {
		return registry.Endpoint{}, err
	}
	if m.Weight < 0 {
		return registry.Endpoint{}, errWeight
	}
	return registry.Endpoint{
		Addr:     addr.String(),
		Weight:   min(max(m.Weight, 1), registry.MaxWeight),
		Zone:     m.Zone,
		Protocol: m.Protocol,
		Node:     m.Node,
	}, nil
}

func encode(reg registry.Registration, protocols registry.Protocols) (string, error) {
	if reg.Weight < 0 {
		return "", errWeight
	}
	if reg.Weight > registry.MaxWeight {
		return "", errHeavy
	}
	meta := make(map[string]any, len(reg.Metadata)+len(reserved))
	for k, v := range reg.Metadata {
		if !reserved[k] {
			meta[k] = v
		}
	}
	meta["weight"] = max(reg.Weight, 1)
	meta["zone"], meta["protocol"], meta["node"] = reg.Zone, reg.Protocol, reg.Node
	raw, err := json.Marshal(meta)
	if err != nil {
		return "", err
	}
	value, err := json.Marshal(update{Addr: reg.Addr, Metadata: raw})
	if err != nil {
		return "", err
	}
	// A value that consumers would ignore must not be registered.
	if _, err := decode(value, protocols); err != nil {
		return "", err
	}
	return string(value), nil
}

// checkService refuses names whose keys would belong to another service.
func checkService(name string) error {
	if name == "" || strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") {
		return fmt.Errorf("registry/etcd: service name %q is empty or has a / at an end", name)
	}
	return nil
}

func (r *Registry) servicePrefix(service string) string {
	return r.opt.Prefix + "/" + service + "/"
}

// nested reports whether a key with a service's prefix belongs to another service, whose name
// begins with this service's name and a "/".
func nested(prefix, key string) bool { return strings.Contains(key[len(prefix):], "/") }

func (r *Registry) entry(reg *registry.Registration) (key, value string, err error) {
	if err := checkService(reg.Service); err != nil {
		return "", "", err
	}
	if reg.Node == "" || strings.Contains(reg.Node, "/") {
		return "", "", fmt.Errorf("registry/etcd: node id %q is empty or has a / in it", reg.Node)
	}
	addr, err := registry.ParseAddr(reg.Addr)
	if err != nil {
		return "", "", fmt.Errorf("registry/etcd: address to register: %w", err)
	}
	reg.Addr = addr.String()
	if value, err = encode(*reg, r.opt.Protocols); err != nil {
		return "", "", fmt.Errorf("registry/etcd: registration of %s: %w", reg.Service, err)
	}
	return r.servicePrefix(reg.Service) + reg.Node + "@" + reg.Addr, value, nil
}
