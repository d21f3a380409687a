package reactor

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/fair"
)

// Connections counts the connections of a Reactor and the descriptors that they need, and bounds both. Any goroutine may
// call its methods.
type Connections struct {
	max       int64 // accepted ones
	fileLimit int64 // of the process
	maxFiles  int64 // descriptors for accepted connections and what they need
	maxSource int   // of one source
	allLocal  bool  // connections to a loopback address have no limit by source

	refusing func() bool // only listeners of known peers accept; nil means never

	open   atomic.Int64 // on loops, without newcomers
	others atomic.Int64 // of a Reserver, Sockets, newcomers, and those that wait for a PROXY header

	taken         atomic.Int64 // accepted
	files         atomic.Int64 // counted by connFiles and streamFiles
	dialled       atomic.Int64 // connections to endpoints, and dials in progress
	refused       atomic.Int64 // because of max, maxFiles, the listener's limit or refusing
	refusedSource atomic.Int64 // because of maxSource

	// mu guards bySource. A connection is checked and counted under mu, so a refused connection never counts.
	mu sync.Mutex
	// bySource has an entry for each source with a connection, so at most max.
	bySource map[netip.Addr]int
}

type listenerLimit struct {
	max   int64       // 0 means no limit
	known func() bool // its peers must prove who they are, so the rest of max is for them while others are refused; nil means never
	taken atomic.Int64
}

// Accepted returns the number of accepted connections that are open.
func (p *Connections) Accepted() int64 { return p.taken.Load() }

// Max returns the limit of Accepted.
func (p *Connections) Max() int64 { return p.max }

// Files returns the number of descriptors of connections, without the pipes of streams.
func (p *Connections) Files() int64 { return p.open.Load() + p.others.Load() }

// FileLimit returns the limit of all descriptors of the process, as it was at the start.
func (p *Connections) FileLimit() int64 { return p.fileLimit }

// RefuseWhile makes listeners without TLS refuse each connection for which refusing, called on any
// goroutine, returns true. It must be called before Listen, Serve and Reserver.
func (p *Connections) RefuseWhile(refusing func() bool) { p.refusing = refusing }

// reservation counts a connection. The zero value counts none.
type reservation struct {
	of     *Connections
	limit  *listenerLimit // nil for a dialled one
	source netip.Addr     // zero if it does not count by source
	files  int64
}

// countedSource returns the source that a connection from remote to local counts for, if any.
func (p *Connections) countedSource(local, remote net.Addr) netip.Addr {
	if p.allLocal && isLoopback(local) {
		return netip.Addr{}
	}
	return fair.SourceOf(remote)
}

// reserve counts a connection of a source, which may be the zero Addr, that takes so many files;
// false means that a limit is reached.
func (p *Connections) reserve(source netip.Addr, in *listenerLimit, files int64) (_ reservation, ok bool) {
	refusing := p.refusing != nil && p.refusing() && (in.known == nil || !in.known())
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.taken.Load()
	switch {
	case refusing, taken >= p.max, taken > 0 && p.files.Load()+files > p.maxFiles, in.max > 0 && in.taken.Load() >= in.max:
		p.refused.Add(1)
		return reservation{}, false
	case !p.countSource(source):
		p.refusedSource.Add(1)
		return reservation{}, false
	}
	p.taken.Add(1)
	in.taken.Add(1)
	p.files.Add(files)
	return reservation{of: p, limit: in, source: source, files: files}, true
}

// attribute counts a connection by its source, which was not known when it was reserved; false means
// that the limit is reached. The zero Addr does not count.
func (at *reservation) attribute(source netip.Addr) bool {
	p := at.of
	if p.allLocal && source.IsLoopback() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.countSource(source) {
		p.refusedSource.Add(1)
		return false
	}
	at.source = source
	return true
}

// reserveDial counts a connection to an endpoint; false means that the others, with the pipes of
// streams, leave no descriptor for it. Then the admin API, the registry and the logs still have theirs.
func (p *Connections) reserveDial() (_ reservation, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dialled.Load()+p.files.Load()-p.taken.Load() >= p.maxFiles {
		return reservation{}, false
	}
	p.dialled.Add(1)
	return reservation{of: p}, true
}

// becomeStream counts the descriptors of a stream. New connections are refused in its place if
// they are too many.
func (at *reservation) becomeStream() {
	if at.limit != nil {
		at.of.files.Add(streamFiles - at.files)
		at.files = streamFiles
	}
}

// prove ends the count by source: the peer has proved who it is, and many known peers may share an
// address.
func (at *reservation) prove() {
	if at.of != nil {
		at.of.forgetSource(at.source)
		at.source = netip.Addr{}
	}
}

// release uncounts the connection. It may be called again.
func (at *reservation) release() {
	p := at.of
	if p == nil {
		return
	}
	at.of = nil
	if at.limit == nil {
		p.dialled.Add(-1)
		return
	}
	p.forgetSource(at.source)
	p.files.Add(-at.files)
	at.limit.taken.Add(-1)
	p.taken.Add(-1)
}

// countSource counts a connection of a source; false means that the source has too many. The caller holds p.mu.
func (p *Connections) countSource(source netip.Addr) bool {
	if !source.IsValid() {
		return true
	}
	n := p.bySource[source]
	if n == p.maxSource {
		return false
	}
	p.bySource[source] = n + 1
	return true
}

func (p *Connections) forgetSource(source netip.Addr) {
	if !source.IsValid() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bySource[source]--; p.bySource[source] == 0 {
		delete(p.bySource, source)
	}
}

// Reserver returns the function with which a listener whose connections never reach a loop
// reserves each of them, under MaxConnections, MaxPerSource and its own max (0 means no
// limit). That function returns nil if a limit is reached, otherwise a release function, which
// may be called again. All may be called from any goroutine.
func (p *Connections) Reserver(max int) (reserve func(local, remote net.Addr) (release func())) {
	in := &listenerLimit{max: int64(max)}
	return func(local, remote net.Addr) (release func()) {
		at, ok := p.reserve(p.countedSource(local, remote), in, streamFiles)
		if !ok {
			return nil
		}
		o := &offLoop{}
		o.begin(p, at)
		return func() { o.end() }
	}
}

// isLoopback reports whether only this host can connect to a local address. So it finds the
// connections that the kernel redirected on this host, too, which have any remote address.
func isLoopback(local net.Addr) bool {
	tcp, ok := local.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// sourceParts is the part of MaxConnections that one source may have by default: four addresses
// must work together to use up the limit. It is large because many clients may share an address,
// behind a translator or a load balancer.
const sourceParts = 4

// limitSources sets the limit by source, after that of all connections.
func (p *Connections) limitSources(wanted int) {
	p.maxSource, p.allLocal = wanted, wanted == 0
	if wanted == 0 {
		p.maxSource = max(1, int(p.max/sourceParts))
	}
	p.bySource = make(map[netip.Addr]int)
}

// The limit of file descriptors (RLIMIT_NOFILE) is divided so that accepted connections leave
// room for all others:
//
//	processFiles          standard streams, logs, files that are read, name servers, health checks,
//	                      the export of spans, a hot restart
//	loopFiles             of each loop: those of its engine (at most four), and the second descriptors of connections that
//	                      come to the loop or leave it
//	Options.ReservedFiles of the admin API, the registry and the listening sockets
//	connFiles             of each accepted connection: its own, and one to an endpoint
//	streamFiles           instead, of each stream: besides these, two pipes through which the
//	                      kernel copies
//
// So each HTTP connection can have its request in flight. A link has many, which may use the
// descriptors that accepted connections leave: a dial without one fails (loop.ErrDialQueue).
const (
	processFiles = 64
	loopFiles    = 20
	connFiles    = 2
	streamFiles  = 6
)

// limitFiles sets the limits of accepted connections.
func (p *Connections) limitFiles(o *Options, log *slog.Logger) {
	files := fileLimit()
	p.fileLimit = int64(files)
	p.maxFiles = int64(files - processFiles - loopFiles*o.Loops - o.ReservedFiles)
	p.max = int64(capConnections(o.MaxConnections, int(p.maxFiles)))
	if int(p.max) < o.MaxConnections {
		log.Warn("fewer connections than configured: the limit of file descriptors allows no more",
			"connections", p.max, "configured", o.MaxConnections, "descriptors", files)
	}
}

// capConnections returns the limit of accepted connections: wanted, lowered to those for which
// there are files, or these if wanted is 0.
func capConnections(wanted, files int) int {
	most := max(1, files/connFiles)
	if wanted <= 0 {
		return most
	}
	return min(wanted, most)
}

func fileLimit() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024
	}
	return capFiles(uint64(r.Cur))
}

// capFiles returns how many of the descriptors that the system allows count. Some systems have no limit.
func capFiles(allowed uint64) int { return int(min(allowed, 1<<20)) }
