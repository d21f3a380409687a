package zookeeper

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/kept"
)

// follower finds the endpoints of one service for one watch.
type follower struct {
	r       *Registry
	service string
	of      Service
	list    *kept.List

	// Guarded by the mutex of the mirror.
	used      map[*entry]struct{}
	missing   map[*entry]struct{} // of used: those that are not fresh
	isPartial bool                // missing has had an entry since the last look began
	lost      bool                // the session was lost, and the follower has not looked since
	stopped   bool

	// Of the goroutine that looks.
	hold       hold
	wake       *time.Timer    // when hold may change its mind; nil means none
	isSet      bool           // the list was set once, with all records
	limit      registry.Limit // of what is listed or held
	providers  memo[provider]
	overrides  memo[override]
	instances  memo[instance]
	revisions  memo[revision]
	stay       map[key]bool // instances of the last look that was complete, and read all: others don't push them out
	told       string       // of the records that can't be used, the last that was logged
	unreadable string       // the last error that was logged
}

// look reads what the mirror has of the service, and delivers the endpoints, unless a key must be read first.
func (f *follower) look(m *mirror) {
	found, isComplete, isLost := f.findIn(m)
	if !isComplete {
		return
	}
	cached := f.list.Cached()
	switch {
	case len(cached) > 0: // what has gone since may come back, as after a lost session
		f.hold.current = heavier(cached)
		f.hold.lose(time.Now().Add(f.r.grace))
	case isLost:
		f.hold.lose(time.Time{})
	}
	endpoints := found.endpoints()
	isNews := f.tellUnreadable(found.err)
	if found.err != nil { // a start that knows no endpoints uses what can be read
		if f.isSet || len(cached) > 0 || len(endpoints)+len(f.hold.current) == 0 {
			return
		}
		if isNews {
			f.hold.lose(time.Time{}) // the node could be read before
		}
	}
	f.list.SetUnusable(found.malformed.count + found.overrides.count)
	f.tell(&found)
	if len(endpoints) == 0 && found.malformed.count > 0 && (f.isSet || len(cached) > 0) {
		return // a malformed record is no reason to drop endpoints; a start that knows none of them is ready with none
	}
	use, wake := f.hold.settle(endpoints, found.back, time.Now(), f.r.grace)
	if f.wake != nil {
		f.wake.Stop()
	}
	if !wake.IsZero() {
		f.wake = time.AfterFunc(time.Until(wake), func() { f.r.mirror.markDirty(f) })
	}
	doubt := kept.AfterChange
	if !f.isSet {
		doubt = kept.AfterReconnect
	}
	f.isSet = found.err == nil
	f.list.SetHeld(len(f.hold.held))
	f.list.Set(f.limit.Cut(reduced(use), f.service, f.r.log.Warn), doubt)
}

// findIn finds the records of the service. isComplete reports whether all keys are fresh: if not, the mirror wakes the
// follower once they are. isLost reports whether the session was lost since the last time that they were.
func (f *follower) findIn(m *mirror) (found findings, isComplete, isLost bool) {
	m.mu.Lock()
	if f.stopped {
		m.mu.Unlock()
		return findings{}, false, false
	}
	before := f.used
	f.used = make(map[*entry]struct{}, len(before))
	clear(f.missing)
	f.isPartial = false
	m.mu.Unlock() // records are parsed without it: the goroutine that receives from ZooKeeper waits for it
	found = findings{known: make(map[string]bool)}
	f.providers.begin()
	f.overrides.begin()
	f.instances.begin()
	f.revisions.begin()
	f.findProviders(m, &found)
	f.findInstances(m, &found)
	if isComplete, isLost = f.endLook(m, before, &found); !isComplete {
		return findings{}, false, false
	}
	return found, true, isLost
}

// endLook ends the use of each key of before that the look has not used again. It returns what findIn does.
func (f *follower) endLook(m *mirror, before map[*entry]struct{}, found *findings) (isComplete, isLost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for e := range before {
		if _, ok := f.used[e]; !ok {
			m.drop(f, e)
		}
	}
	if f.stopped || f.isPartial {
		if !f.stopped && len(f.missing) == 0 {
			m.mark(f) // what was missing has come meanwhile
		}
		return false, false
	}
	if found.err == nil || f.stay == nil {
		f.stay = found.instances
	}
	isLost, f.lost = f.lost, false
	return true, isLost
}

// miss notes that a key is not fresh. The caller holds the mutex of the mirror.
func (f *follower) miss(e *entry) {
	f.missing[e] = struct{}{}
	f.isPartial = true
}

// stop ends the use of all keys.
func (f *follower) stop(m *mirror) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.stopped = true
	for e := range f.used {
		m.drop(f, e)
	}
	delete(m.dirty, f)
}

// findings are the records of a service.
type findings struct {
	err error // of the first key that can't be read: what it would say is unknown, so the findings are not complete

	usable []registry.Endpoint // with Dubbo's weights
	known  map[string]bool     // addresses that the interface level has, usable or not
	back   []string            // addresses of the service's records, usable or not

	instances map[key]bool // that were read

	malformed malformed      // records of providers and instances
	overrides malformed      // records of configurators
	isCut     bool           // there are more than maxInstances instances
	others    map[string]int // records of other schemes, by these
}

// malformed counts records that can't be read.
type malformed struct {
	count   int
	example string // the first of them, as a log may have it
	reason  error  // of the example
}

func (m *malformed) add(example string, reason error) {
	if m.count++; m.count == 1 {
		m.example, m.reason = example, reason
	}
}

// read returns the value of a key, which is empty if the key is not fresh or can't be read.
func (d *findings) read(m *mirror, f *follower, k key) value {
	v, _ := m.use(f, k)
	if d.err == nil {
		d.err = v.err
	}
	return v
}

func (d *findings) addOther(scheme string) {
	if d.others == nil {
		d.others = make(map[string]int)
	}
	if len(d.others) < maxSchemes || d.others[scheme] > 0 {
		d.others[scheme]++
	}
}

const maxSchemes = 32 // that are counted

// endpoints returns the usable endpoints, one for each address, sorted by address. As in Dubbo, an endpoint of weight 0 is not
// used, unless all have weight 0.
func (d *findings) endpoints() []registry.Endpoint {
	isWeightless := func(e registry.Endpoint) bool { return e.Weight == 0 }
	if all := slices.DeleteFunc(slices.Clone(d.usable), isWeightless); len(all) > 0 {
		return distinct(all)
	}
	return distinct(d.usable)
}

// distinct sorts endpoints by address in place, and keeps the first of those with the same one.
func distinct(endpoints []registry.Endpoint) []registry.Endpoint {
	slices.SortStableFunc(endpoints, func(a, b registry.Endpoint) int { return strings.Compare(a.Addr, b.Addr) })
	return slices.CompactFunc(endpoints, func(a, b registry.Endpoint) bool { return a.Addr == b.Addr })
}

// findProviders finds records of the interface level.
func (f *follower) findProviders(m *mirror, d *findings) {
	dir := f.r.root + "/" + url.QueryEscape(f.of.Interface) + "/"
	names := d.read(m, f, key{dir + categoryProviders, true})
	overriding := d.read(m, f, key{dir + categoryOverrides, true})
	var overrides []override
	for _, name := range slices.Sorted(slices.Values(overriding.children)) {
		o := f.overrides.get(name, parseOverride)
		if o.err != nil && o.err != errNotOurs {
			d.overrides.add(shown(name), o.err)
		}
		if o.err == nil && f.asksFor(o.group, o.version) {
			overrides = append(overrides, o)
		}
	}
	slices.SortStableFunc(overrides, func(a, b override) int { return a.rank() - b.rank() })
	for _, name := range slices.Sorted(slices.Values(names.children)) {
		p := f.providers.get(name, parseProvider)
		if p.err != nil {
			d.malformed.add(shown(name), p.err)
			continue
		}
		d.known[p.addr] = true
		if !f.asksFor(p.group, p.version) {
			continue
		}
		for i := range overrides {
			overrides[i].apply(&p)
		}
		if p.scheme != f.of.Scheme {
			d.addOther(p.scheme)
			continue
		}
		d.back = append(d.back, p.addr)
		if !p.isDisabled {
			d.usable = append(d.usable, registry.Endpoint{Addr: p.addr, Weight: p.weight, Zone: p.zone, Node: p.node, Protocol: f.of.Protocol})
		}
	}
}

// asksFor reports whether the service asks for the group and the version of a record.
func (f *follower) asksFor(group, version string) bool {
	return matches(f.of.Group, group) && matches(f.of.Version, version)
}

// findInstances finds records of the application level, of addresses that the interface level does not have: a record there
// may say that its provider must not be used.
//
// Which services an instance has is in its metadata. An application keeps them for itself, or writes them to ZooKeeper. In the
// former case Dubbo's consumers ask the application. The sidecar then believes the mapping of the interface to applications,
// or the settings.
func (f *follower) findInstances(m *mirror, d *findings) {
	revisions := make(map[key]bool) // that are read
	d.instances = make(map[key]bool)
	for _, at := range f.instanceKeys(m, d) {
		d.instances[at.key] = true
		data := d.read(m, f, at.key)
		if data.isLarge {
			d.malformed.add(at.app+"/"+at.id, errInstance)
			continue
		}
		if data.data == "" {
			continue // it has just gone, or can't be read
		}
		i := f.instances.get(data.data, parseInstance)
		if i.err != nil {
			d.malformed.add(at.app+"/"+at.id, i.err)
			continue
		}
		var meta value
		if i.revision != "" && i.revision != "0" && !strings.Contains(i.revision, "/") {
			k := key{f.r.root + "/metadata/" + at.app + "/" + i.revision, false}
			if revisions[k] || len(revisions) < maxRevisions {
				revisions[k] = true
				meta = d.read(m, f, k)
			}
		}
		if meta.err != nil {
			continue // whether the instance has the service is unknown
		}
		f.addInstance(&i, meta.data, d)
	}
}

// instanceKey is where an instance is.
type instanceKey struct {
	app, id string
	key     key
}

// instanceKeys returns where the instances of the service are, at most maxInstances: those that stay, and the first of the others.
func (f *follower) instanceKeys(m *mirror, d *findings) []instanceKey {
	var known, others []instanceKey
	for _, app := range f.applications(m, d) {
		dir := servicesRoot(f.r.opt.Chroot) + "/" + app
		ids := d.read(m, f, key{dir, true})
		for _, id := range slices.Sorted(slices.Values(ids.children)) {
			at := instanceKey{app, id, key{dir + "/" + id, false}}
			switch {
			case f.stay[at.key]:
				known = append(known, at)
			case len(others) <= maxInstances: // one more, so that the log says so
				others = append(others, at)
			}
		}
	}
	all := append(known, others...)
	d.isCut = len(all) > maxInstances
	return all[:min(len(all), maxInstances)]
}

const maxApplications = 64 // of one service; those of a mapping beyond are ignored

// applications returns the names of the applications that have the service.
func (f *follower) applications(m *mirror, d *findings) (names []string) {
	if len(f.of.Applications) > 0 {
		return f.of.Applications
	}
	k := key{f.r.root + "/mapping/" + f.of.Interface, false}
	mapping := d.read(m, f, k)
	if mapping.isLarge && d.err == nil {
		d.err = fmt.Errorf("%s: %w", k.path, errData)
	}
	for name := range strings.SplitSeq(mapping.data, ",") {
		if name = strings.TrimSpace(name); isName(name) && len(names) < maxApplications && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// isName reports whether a text may be the name of a node.
func isName(text string) bool {
	return text != "" && text != "." && text != ".." && !strings.ContainsFunc(text, func(c rune) bool { return c == '/' || c < ' ' })
}

// addInstance adds the endpoints of an instance. meta is the metadata of its revision, or "".
func (f *follower) addInstance(i *instance, meta string, d *findings) {
	if meta != "" {
		if rev := f.revisions.get(meta, parseRevision); rev.err == nil {
			f.addExported(i, &rev, d)
			return
		}
	}
	for _, p := range i.ports {
		f.addPort(i, p, i.weight, d)
	}
}

// addExported adds the endpoints at which an instance has the service by its metadata.
func (f *follower) addExported(i *instance, rev *revision, d *findings) {
	for _, s := range rev.services {
		if s.Name != f.of.Interface || !f.asksFor(s.Group, s.Version) {
			continue
		}
		weight := i.weight
		if w := s.Params[keyWeight]; w != "" && weight > 0 {
			weight = parseWeight(w)
		}
		at := slices.IndexFunc(i.ports, func(p instancePort) bool { return p.Protocol == s.Protocol })
		if s.Port == 0 && at >= 0 {
			s.Port = i.ports[at].Port
		}
		f.addPort(i, instancePort{s.Port, s.Protocol}, weight, d)
	}
}

func (f *follower) addPort(i *instance, p instancePort, weight int, d *findings) {
	addr, err := i.addr(p.Port)
	if err != nil {
		d.malformed.add(fmt.Sprintf("%s, port %d", i.host, p.Port), err)
		return
	}
	if d.known[addr] {
		return
	}
	if p.Protocol != f.of.Scheme {
		d.addOther(p.Protocol)
		return
	}
	d.back = append(d.back, addr)
	d.usable = append(d.usable, registry.Endpoint{Addr: addr, Weight: weight, Zone: i.zone, Protocol: f.of.Protocol})
}

// tellUnreadable logs why records can't be read, once for as long as the reason stays the same. It reports whether it did.
func (f *follower) tellUnreadable(err error) (isNews bool) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	isNews = text != "" && text != f.unreadable
	if isNews {
		f.r.log.Warn("service can't be read whole in ZooKeeper; the known endpoints stay in use", "service", f.service, "code", codeOf(err), "error", err)
	}
	f.unreadable = text
	return isNews
}

// tell logs records that can't be used, once for as long as they stay the same.
func (f *follower) tell(d *findings) {
	text := fmt.Sprint(d.malformed, d.overrides, d.isCut, slices.Sorted(maps.Keys(d.others)))
	if d.malformed.count+d.overrides.count == 0 && !d.isCut && (len(d.others) == 0 || len(d.usable) > 0) {
		text = "" // a provider may offer several protocols: there is nothing to tell while one of them is used
	}
	if text == f.told {
		return
	}
	if f.told = text; text == "" {
		return
	}
	args := []any{"service", f.service, "interface", f.of.Interface, "usable", len(d.usable)}
	if m := &d.malformed; m.count > 0 {
		args = append(args, "malformed", m.count, "example", shortened(m.example), "reason", m.reason)
	}
	if m := &d.overrides; m.count > 0 {
		args = append(args, "malformed_overrides", m.count, "override", shortened(m.example), "override_reason", m.reason)
	}
	if len(d.others) > 0 {
		args = append(args, "other_protocols", shortened(fmt.Sprint(d.others)), "expected", f.of.Scheme)
	}
	if d.isCut {
		args = append(args, "instances_at_most", maxInstances)
	}
	f.r.log.Warn("records in ZooKeeper can't be used", args...)
}

// shortened returns the start of a text that others control.
func shortened(text string) string {
	const longest = 200
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// reduced divides the weights of endpoints by what divides all of them: Dubbo's default weight is 100, and that of other sources
// 1, with which a service may merge them. If a weight is still above registry.MaxWeight, all are scaled down.
func reduced(endpoints []registry.Endpoint) []registry.Endpoint {
	divisor, heaviest := 0, 0
	for _, e := range endpoints {
		divisor = gcd(divisor, e.Weight)
		heaviest = max(heaviest, e.Weight)
	}
	divisor = max(divisor, 1)
	heaviest /= divisor
	endpoints = slices.Clone(endpoints)
	for i := range endpoints {
		w := endpoints[i].Weight / divisor
		if heaviest > registry.MaxWeight {
			w = int(int64(w) * registry.MaxWeight / int64(heaviest))
		}
		endpoints[i].Weight = w
	}
	return registry.Normalize(endpoints)
}

// heavier returns endpoints of the cache, which reduced has made, with weights like those of Dubbo.
func heavier(endpoints []registry.Endpoint) []registry.Endpoint {
	endpoints = slices.Clone(endpoints)
	for i := range endpoints {
		endpoints[i].Weight *= defaultWeight
	}
	return endpoints
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
