package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/remora-proxy/remora/registry"
)

// endpoint is an endpoint of the file.
type endpoint struct {
	Address  string `json:"address"`
	Weight   *int   `json:"weight"`
	Zone     string `json:"zone"`
	Protocol string `json:"protocol"`
}

// UnmarshalJSON implements json.Unmarshaler: an endpoint may be its address alone.
func (e *endpoint) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, &e.Address)
	}
	type plain endpoint // without this method
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(e))
}

var (
	errWeight  = fmt.Errorf("weight is not 1 to %d", registry.MaxWeight)
	errTooMany = fmt.Errorf("more than %d endpoints", registry.MaxEndpoints)
	errTwice   = errors.New("address is listed twice")
)

// decode returns the lists of a file, normalized. The error names the service and the endpoint.
func decode(data []byte, protocols registry.Protocols) (map[string][]registry.Endpoint, error) {
	var all map[string][]endpoint
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	if all == nil {
		return nil, errors.New("expected an object, got null")
	}
	lists := make(map[string][]registry.Endpoint, len(all))
	for service, endpoints := range all {
		if len(endpoints) > registry.MaxEndpoints {
			return nil, fmt.Errorf("service %q: %w", service, errTooMany)
		}
		seen := make(map[string]bool, len(endpoints))
		list := make([]registry.Endpoint, 0, len(endpoints))
		for i, e := range endpoints {
			known, err := e.check(protocols)
			if err == nil && seen[known.Addr] {
				err = errTwice
			}
			if err != nil {
				return nil, fmt.Errorf("service %q, endpoint %d: %w", service, i+1, err)
			}
			seen[known.Addr] = true
			list = append(list, known)
		}
		lists[service] = registry.Normalize(list)
	}
	return lists, nil
}

func (e *endpoint) check(protocols registry.Protocols) (registry.Endpoint, error) {
	addr, err := registry.ParseAddr(e.Address)
	if err != nil {
		return registry.Endpoint{}, fmt.Errorf("%w, but %q", err, e.Address)
	}
	if err := protocols.Check(e.Protocol); err != nil {
		return registry.Endpoint{}, err
	}
	if err := registry.CheckNames(e.Zone, ""); err != nil {
		return registry.Endpoint{}, err
	}
	weight := 1
	if e.Weight != nil {
		weight = *e.Weight
	}
	if weight < 1 || weight > registry.MaxWeight {
		return registry.Endpoint{}, errWeight
	}
	return registry.Endpoint{Addr: addr.String(), Weight: weight, Zone: e.Zone, Protocol: e.Protocol}, nil
}
