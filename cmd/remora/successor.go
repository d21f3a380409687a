package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/handover"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/registry/dns"
)

const (
	// offerTimeout bounds how long a predecessor may take to pass on its sockets.
	offerTimeout = 5 * time.Second

	// releaseTimeout bounds how long it may take to leave its endpoints in the
	// registry to this process. It waits for the registry, if that is slow.
	releaseTimeout = 10 * time.Second
)

// inheritance is what a process takes over from the one whose place it takes.
type inheritance struct {
	door        string                  // where this process's own is to be; empty: nowhere
	predecessor *handover.Conn          // nil: there is none
	restarts    int                     // that led to this process
	parked      string                  // where the predecessor has answers that wait to be fetched
	sockets     map[string]net.Listener // not used yet, by the address in the configuration
	names       dns.Known               // what the predecessor knows of host names
}

// inherit asks the process whose door is at path for its sockets.
func inherit(cfg *config.Config, path string, log *slog.Logger) (*inheritance, error) {
	if path == "" {
		return &inheritance{}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), offerTimeout)
	defer cancel()
	conn, err := handover.Dial(ctx, path)
	if err != nil {
		if !errors.Is(err, handover.ErrNobody) {
			log.Warn("no hot restart", "door", path, "error", err)
		}
		return &inheritance{door: path}, nil
	}
	in := &inheritance{door: path, predecessor: conn}
	_ = conn.SetDeadline(time.Now().Add(offerTimeout))
	offer, sockets, err := conn.Receive()
	if err != nil {
		in.close()
		return nil, notHandedOver(conn, err)
	}
	in.sockets, in.restarts, in.parked = sockets, offer.Restarts+1, offer.Parked
	in.names = dns.KnownAs(offer.Names)
	if !in.shares(cfg) { // another sidecar, of the same file
		log.Warn("no hot restart: the door is another process's", "door", path, "pid", conn.Peer())
		in.close()
		return &inheritance{}, nil
	}
	log.Info("taking over", "from", conn.Peer(), "sockets", offer.Sockets)
	return in, nil
}

// notHandedOver is the error of a start that can't take over.
func notHandedOver(from *handover.Conn, why error) error {
	return fmt.Errorf("the process that runs, %d, does not hand over: %w", from.Peer(), why)
}

// shares tells whether cfg has the address of one of the sockets.
func (in *inheritance) shares(cfg *config.Config) bool {
	if in.sockets[cfg.Admin.Address] != nil {
		return true
	}
	for i := range cfg.Listeners {
		if in.sockets[cfg.Listeners[i].Address] != nil {
			return true
		}
	}
	return false
}

// socket is the one at address, or a new one if there is none.
func (in *inheritance) socket(address string) (net.Listener, error) {
	if ln := in.sockets[address]; ln != nil {
		delete(in.sockets, address)
		return ln, nil
	}
	return reactor.Bind(address)
}

// close gives up what was not used; the predecessor goes on if it was not relieved.
func (in *inheritance) close() {
	if in.predecessor != nil {
		_ = in.predecessor.Close()
	}
	for _, ln := range in.sockets {
		_ = ln.Close()
	}
	in.sockets = nil
}

// succeed says that this process can serve in the place of the one before, and waits
// until that has left the registry to it.
func (s *sidecar) succeed() error {
	before := s.inherited.predecessor
	if before == nil {
		return nil
	}
	_ = before.SetDeadline(time.Now().Add(releaseTimeout))
	if err := before.Say(handover.Ready); err != nil {
		return err
	}
	if err := before.Hear(handover.Released); err != nil {
		return notHandedOver(before, err)
	}
	_ = before.SetDeadline(time.Time{})
	return nil
}

// relieve has the predecessor drain, once what is announced has had time to come to
// the registry: what the predecessor still has there goes then.
func (s *sidecar) relieve() {
	before := s.inherited.predecessor
	if before == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ended, leaveTimeout)
	defer cancel()
	until(ctx, s.entered)
	if err := before.Say(handover.Serving); err != nil {
		s.log.Warn("the process before has ended", "error", err)
	}
}

// outlive waits for the end of the process before, with which its address for parked
// answers may become anybody's.
func (s *sidecar) outlive(before *handover.Conn) {
	defer close(s.before)
	before.Outlive(s.ended)
	s.streams.Forget()
}

// entered tells whether all that is announced is in the registry.
func (s *sidecar) entered() bool {
	for _, a := range s.announcements {
		if !a.entered() {
			return false
		}
	}
	return true
}

// lasting tells whether an address is the same for each process: port 0 is not.
func lasting(address string) bool { return !strings.HasSuffix(address, ":0") }

// runtimeDir is where the socket of a hot restart is by default, a directory that
// belongs to this process's user: that of the service manager, of the session, or
// one of our own.
func runtimeDir() string {
	if dirs := os.Getenv("RUNTIME_DIRECTORY"); dirs != "" { // systemd.exec(5)
		first, _, _ := strings.Cut(dirs, ":")
		return first
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "remora")
	}
	if os.Geteuid() == 0 {
		return "/run/remora"
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("remora-%d", os.Geteuid()))
}

// doorPath is the same for a process and the one that is to take its place, and for
// no other in this directory: they have the same file, and of what it says the same
// that no reload changes and no two processes share, in the same network. Without a
// directory it is empty.
func doorPath(dir, file string, cfg *config.Config) string {
	if dir == "" {
		return ""
	}
	if abs, err := filepath.Abs(file); err == nil { // not resolved: a link is swapped with each new content
		file = abs
	}
	network, _ := os.Readlink("/proc/self/ns/net")
	sum := sha256.Sum256([]byte(strings.Join([]string{file, cfg.Node.ID, cfg.Admin.Address, network}, "\x00")))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])+".sock")
}
