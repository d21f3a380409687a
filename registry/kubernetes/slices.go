package kubernetes

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/remora-proxy/remora/registry"
)

// endpointSlice is the part of a discovery.k8s.io/v1 EndpointSlice that this package uses.
type endpointSlice struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	AddressType string `json:"addressType"` // IPv4, IPv6 or FQDN
	Endpoints   []struct {
		Addresses  []string `json:"addresses"` // interchangeable: the first is used
		Conditions struct {
			Ready       *bool `json:"ready"`
			Serving     *bool `json:"serving"`
			Terminating *bool `json:"terminating"`
		} `json:"conditions"`
		Zone      string `json:"zone"`
		TargetRef struct {
			UID string `json:"uid"`
		} `json:"targetRef"`
		Hints struct {
			ForZones []struct {
				Name string `json:"name"`
			} `json:"forZones"`
		} `json:"hints"`
	} `json:"endpoints"`
	Ports []struct {
		Name     string `json:"name"`
		Protocol string `json:"protocol"`
		Port     int    `json:"port"`
	} `json:"ports"`
}

// serviceLabel names the Service that an EndpointSlice belongs to.
const serviceLabel = "kubernetes.io/service-name"

// service returns the name of the Service that the slice belongs to, or "".
func (s *endpointSlice) service() string { return s.Metadata.Labels[serviceLabel] }

// sliceIndex has the slices of a namespace. A list of a thousand Services is read once for each.
type sliceIndex struct {
	byName    map[string]*endpointSlice
	byService map[string]map[string]*endpointSlice // by name
}

func newSliceIndex() *sliceIndex {
	return &sliceIndex{byName: make(map[string]*endpointSlice), byService: make(map[string]map[string]*endpointSlice)}
}

// put adds a slice, or replaces the one with its name.
func (x *sliceIndex) put(s *endpointSlice) {
	x.remove(s.Metadata.Name)
	x.byName[s.Metadata.Name] = s
	of := x.byService[s.service()]
	if of == nil {
		of = make(map[string]*endpointSlice)
		x.byService[s.service()] = of
	}
	of[s.Metadata.Name] = s
}

func (x *sliceIndex) remove(name string) {
	s := x.byName[name]
	if s == nil {
		return
	}
	delete(x.byName, name)
	of := x.byService[s.service()]
	if delete(of, name); len(of) == 0 {
		delete(x.byService, s.service())
	}
}

// replica is an address of a Service, as a slice describes it.
type replica struct {
	endpoint registry.Endpoint
	pod      string // uid; "" means unknown
	ready    bool
	draining bool // not ready, but it still serves until it ends
	zones    []string
}

// endpointsOf returns the endpoints of a Service at its port, which is named or numbered, or its only one if port is "".
// zone is that of this sidecar, or "". An endpoint that permits refuses does not count as ready below. If it is ready it is still
// returned, so that package dns can count and log it.
//
// As in kube-proxy, endpoints that are not ready are left out, unless none is ready: then those that end and still serve are
// used. Hints count if each ready endpoint has some, and one of them is for this zone. A pod with addresses of both families
// is one endpoint, by its IPv4 address. wrong are the endpoints with a wrong address or zone.
func endpointsOf(all []*endpointSlice, port, zone string, permits func(addr string) bool) (endpoints []registry.Endpoint, wrong wrongEndpoints, err error) {
	var replicas []replica
	for _, s := range all {
		number, err := s.port(port)
		if err != nil {
			return nil, wrongEndpoints{}, err
		}
		if number == 0 {
			continue
		}
		replicas = s.appendReplicas(replicas, number, &wrong)
	}
	replicas = slices.DeleteFunc(replicas, func(r replica) bool {
		refused := !permits(r.endpoint.Addr)
		if refused && r.ready {
			endpoints = append(endpoints, r.endpoint)
		}
		return refused
	})
	replicas = onePerPod(replicas)
	usable := slices.DeleteFunc(slices.Clone(replicas), func(r replica) bool { return !r.ready })
	if len(usable) == 0 {
		usable = slices.DeleteFunc(replicas, func(r replica) bool { return !r.draining })
	}
	for _, r := range hinted(usable, zone) {
		endpoints = append(endpoints, r.endpoint)
	}
	return endpoints, wrong, nil
}

// port returns the number of a port of the slice, or 0 if its endpoints have no such port.
func (s *endpointSlice) port(want string) (int, error) {
	found := 0
	var names []string
	for _, p := range s.Ports {
		if cmp.Or(p.Protocol, "TCP") != "TCP" || p.Port < 1 || p.Port > 65535 {
			continue
		}
		if want != "" && (want == p.Name || want == strconv.Itoa(p.Port)) {
			return p.Port, nil
		}
		found = p.Port
		names = append(names, cmp.Or(p.Name, strconv.Itoa(p.Port)))
	}
	switch {
	case want != "":
		return 0, nil
	case len(names) > 1:
		return 0, fmt.Errorf("it has several ports; expected one of %s as its port", strings.Join(names, ", "))
	}
	return found, nil
}

// wrongEndpoints are endpoints with a wrong address or zone.
type wrongEndpoints struct {
	count   int
	example string // an address, the same in each order of the slices
}

func (w *wrongEndpoints) add(addr string) {
	if w.count++; w.count == 1 || addr < w.example {
		w.example = addr
	}
}

// err returns an error that says how many there are, or nil.
func (w *wrongEndpoints) err() error {
	if w.count == 0 {
		return nil
	}
	return fmt.Errorf("%d endpoints have wrong addresses or zones, such as %.200q", w.count, w.example)
}

// appendReplicas appends the endpoints of the slice. Those with a wrong address or zone are added to wrong.
func (s *endpointSlice) appendReplicas(to []replica, port int, wrong *wrongEndpoints) []replica {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		addr, err := registry.ParseAddr(net.JoinHostPort(e.Addresses[0], strconv.Itoa(port)))
		if err != nil || registry.CheckNames(e.Zone, "") != nil {
			wrong.add(e.Addresses[0])
			continue
		}
		r := replica{
			endpoint: registry.Endpoint{Addr: addr.String(), Weight: 1, Zone: e.Zone},
			pod:      e.TargetRef.UID,
			ready:    e.Conditions.Ready == nil || *e.Conditions.Ready,
		}
		terminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
		serving := e.Conditions.Serving != nil && *e.Conditions.Serving // without it what is ready serves: that is used anyway
		r.draining = terminating && serving
		for _, z := range e.Hints.ForZones {
			r.zones = append(r.zones, z.Name)
		}
		to = append(to, r)
	}
	return to
}

// onePerPod leaves out the IPv6 addresses of pods that have an IPv4 address.
func onePerPod(all []replica) []replica {
	four := map[string]bool{}
	for _, r := range all {
		if r.pod != "" && !strings.HasPrefix(r.endpoint.Addr, "[") {
			four[r.pod] = true
		}
	}
	return slices.DeleteFunc(all, func(r replica) bool {
		return r.pod != "" && four[r.pod] && strings.HasPrefix(r.endpoint.Addr, "[")
	})
}

// hinted returns the replicas that are meant for callers in zone.
func hinted(all []replica, zone string) []replica {
	var ours []replica
	for _, r := range all {
		if len(r.zones) == 0 {
			return all
		}
		if slices.Contains(r.zones, zone) {
			ours = append(ours, r)
		}
	}
	if len(ours) == 0 {
		return all
	}
	return ours
}
