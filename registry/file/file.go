// Package file finds endpoints in a file that another program writes. It is one of the sources of endpoints: anything else
// that knows where replicas are can be a source by a script.
//
// The file is a JSON object of the lists of all services. An endpoint is an address, or an object with the keys address,
// weight, zone and protocol:
//
//	{"compute": ["10.0.0.1:8080", {"address": "10.0.0.2:8080", "weight": 2, "zone": "a"}]}
//
// The file is looked at four times a second. On a network file system a change is seen once its cache of attributes has
// expired. A file that can't be read, or is invalid, is
// refused as a whole, and logged once: the last lists stay. The program should replace the file by renaming a new one,
// as a half-written file is invalid. A service that the file does not have is empty. Package kept has the rules for lists
// that become empty, and for a start without the file.
//
//	file.go   Registry: the watches, and the look at the file
//	lists.go  what the file says
package file

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/remora-proxy/remora/internal/tasks"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/kept"
)

// Options configures a Registry.
type Options struct {
	Path string // of the file

	// CacheDir stores the last known endpoints for a start without the file; it is made if missing. "" means no cache.
	CacheDir string

	Protocols registry.Protocols // a file with another protocol is invalid
	DNS       dns.Options        // how addresses that are host names are resolved
	Logger    *slog.Logger       // nil means no logs
}

// lookInterval is the time between two looks at the file. A look is a system call if the file has not changed.
const lookInterval = 250 * time.Millisecond

// settled is the age from which on a change of a file can't have the same time as the one before. The clocks of file
// systems tick as slowly as once in two seconds.
const settled = 2 * time.Second

// maxFile limits the file, in bytes.
const maxFile = 64 << 20

// Registry is the watch of one file, a registry.Watcher.
type Registry struct {
	opt      Options
	kept     kept.Options
	resolved *dns.Watcher
	contact  *registry.Contact
	tally    registry.Tally
	tasks    *tasks.Group

	mu    sync.Mutex
	lists map[string][]registry.Endpoint // of the last valid file, normalized; nil before the first one
	told  string                         // the last refusal that was logged; "" if the file is valid
	users map[*kept.List]string          // the service of each
}

var _ registry.Watcher = (*Registry)(nil)

// New returns at once, whether the file exists or not. The error concerns the cache directory. The caller must close the
// Registry.
func New(opt Options) (*Registry, error) {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	opt.DNS.Logger = cmp.Or(opt.DNS.Logger, opt.Logger)
	r := &Registry{opt: opt, contact: registry.NewContact(), tasks: tasks.New(), users: make(map[*kept.List]string)}
	r.kept = kept.Options{Origin: "file " + opt.Path, Tally: &r.tally}
	if opt.CacheDir != "" {
		var err error
		if r.kept.Cache, err = registry.OpenCache(opt.CacheDir, opt.Protocols, opt.Logger); err != nil {
			return nil, err
		}
	}
	r.resolved = dns.New(unresolved{r}, opt.DNS)
	r.tasks.Go(r.follow)
	return r, nil
}

// Watch implements registry.Watcher. The first snapshot comes with the first valid file, or from the cache.
func (r *Registry) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	return r.resolved.Watch(service, notify)
}

// Known returns what the running watches know of host names.
func (r *Registry) Known() dns.Known { return r.resolved.Known() }

// Condition returns whether the file is there and valid, and what the watches have found.
func (r *Registry) Condition() registry.Condition {
	now := r.contact.Condition()
	r.tally.Add(&now)
	return now
}

// Close ends all watches. It must not be called from a notify function.
func (r *Registry) Close() error {
	r.tasks.Close()
	err := r.resolved.Close()
	r.kept.Cache.Close()
	return err
}

// unresolved is the Registry as a watcher of addresses that may have host names.
type unresolved struct{ r *Registry }

func (u unresolved) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	r := u.r
	l := r.kept.Watch(service, notify)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users[l] = service
	if r.lists != nil {
		l.Set(r.lists[service], kept.AfterChange)
	}
	return func() {
		l.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.users, l)
	}
}

// follow looks at the file until Close.
func (r *Registry) follow() {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var seen os.FileInfo // of the file that was read last; nil if it must be read again
	for {
		now, err := os.Stat(r.opt.Path)
		if err != nil {
			seen = nil
			r.refuse(codeOf(err), err)
		} else if !same(seen, now) {
			isRead := r.read()
			if seen = now; !isRead || time.Since(now.ModTime()).Abs() < settled {
				seen = nil
			}
		}
		select {
		case <-r.tasks.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// same reports whether two looks have found the same content. a may be nil.
func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// read reads the file, and uses or refuses what it says. It reports whether the file could be read: if not, the next look
// tries again.
func (r *Registry) read() bool {
	f, err := os.Open(r.opt.Path)
	if err != nil {
		r.refuse(codeOf(err), err)
		return false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		r.refuse(codeOf(err), err)
		return false
	}
	lists, err := decode(data, r.opt.Protocols)
	if len(data) > maxFile {
		err = errors.New("file is too large")
	}
	if err != nil {
		r.refuse(registry.CodeInvalid, err)
	} else {
		r.use(lists)
	}
	return true
}

// use delivers the lists of a valid file.
func (r *Registry) use(lists map[string][]registry.Endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.contact.Succeed().Err != nil {
		r.opt.Logger.Info("file of endpoints is valid again", "file", r.opt.Path)
	}
	r.lists, r.told = lists, ""
	for l, service := range r.users {
		l.Set(lists[service], kept.AfterChange)
	}
}

// refuse notes why there is no valid file, and logs each other reason: there is none without a change of the file.
func (r *Registry) refuse(code string, err error) {
	r.contact.Fail(code, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told != err.Error() {
		r.told = err.Error()
		r.opt.Logger.Warn("file of endpoints is refused; the last known endpoints stay in use", "file", r.opt.Path, "code", code, "error", err)
	}
}

// codeOf returns the code of an error of the file system.
func codeOf(err error) string { return registry.CodeOf(err, registry.CodeFailed) }
