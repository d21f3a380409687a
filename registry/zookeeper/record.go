package zookeeper

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/remora-proxy/remora/registry"
)

// record is what a registration writes: a provider's URL as the name of a node.
type record struct {
	dir  string // of the providers of the interface
	name string
	data string // as Dubbo writes it: the host
}

func (r record) path() string { return r.dir + "/" + r.name }

var errService = errors.New("registry/zookeeper: expected the name of one service, group and version")

// recordOf returns the record of a registration. Its name is the same in each process that registers the same, so that a
// process takes over the node of its predecessor. So it has no timestamp, by which Dubbo's consumers send a new provider less
// for its first ten minutes.
func (r *Registry) recordOf(reg *registry.Registration) (record, error) {
	of := r.serviceOf(reg.Service)
	addr, err := registry.ParseAddr(reg.Addr)
	if err != nil {
		return record{}, fmt.Errorf("%w: %q", err, reg.Addr)
	}
	if err := registry.CheckNames(reg.Zone, reg.Node); err != nil {
		return record{}, err
	}
	if reg.Service == "" || !isName(of.Interface) || strings.ContainsAny(of.Group+of.Version, ",*") {
		return record{}, errService
	}
	scheme, ok := r.opt.Registers[reg.Protocol]
	if !ok {
		return record{}, fmt.Errorf("registry/zookeeper: consumers of Dubbo can't call a listener of protocol %q; expected one of %s",
			reg.Protocol, strings.Join(slices.Sorted(maps.Keys(r.opt.Registers)), ", "))
	}
	application := ownApplication
	if len(of.Applications) > 0 {
		application = of.Applications[0]
	}
	parameters := map[string]string{
		keyInterface: of.Interface, keyApplication: application,
		keyGroup: of.Group, keyVersion: of.Version, keyZone: reg.Zone, keyNode: reg.Node,
		"side": "provider", "dynamic": "true", "generic": "false", "deprecated": "false",
		"serialization": scheme.Serialization, "prefer.serialization": scheme.Serialization,
	}
	parameters["dubbo"] = "2.0.2" // version of the protocol
	if reg.Weight > 1 {
		parameters[keyWeight] = strconv.Itoa(defaultWeight * reg.Weight)
	}
	for k, v := range reg.Metadata {
		if _, ok := parameters[k]; !ok && k != keyWeight {
			parameters[k] = v
		}
	}
	text := scheme.Name + "://" + addr.String() + "/" + of.Interface
	separator := "?"
	for _, k := range slices.Sorted(maps.Keys(parameters)) {
		if v := parameters[k]; v != "" && !strings.ContainsAny(k+v, "&=") {
			text += separator + k + "=" + v
			separator = "&"
		}
	}
	return record{
		dir: r.root + "/" + url.QueryEscape(of.Interface) + "/" + categoryProviders, name: url.QueryEscape(text), data: addr.Host,
	}, nil
}

const ownApplication = "remora" // the name of the application in records whose service has none
