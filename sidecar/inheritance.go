package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/handover"
	"github.com/remora-proxy/remora/proxy/reactor/unixsock"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/sidecar/sockets"
)

const (
	// offerTimeout bounds how long a predecessor may take to pass on its sockets.
	offerTimeout = 5 * time.Second

	// releaseTimeout bounds how long a predecessor may take to stop renewing its
	// registrations. It waits for the registry, which may be slow.
	releaseTimeout = 10 * time.Second
)

// inheritance is what a process takes over from its predecessor.
type inheritance struct {
	path        string         // of this process's own socket; empty for none
	predecessor *handover.Conn // nil if there is none
	restarts    int            // number of hot restarts before this process
	parked      string         // address of the predecessor's parked responses
	sockets     sockets.Open   // unused so far
	names       dns.Known      // addresses of host names from the predecessor
}

// inherit asks the process that listens at path for its sockets.
func inherit(cfg *config.Config, path string, log *slog.Logger) (*inheritance, error) {
	if path == "" {
		return &inheritance{}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), offerTimeout)
	defer cancel()
	conn, err := handover.Dial(ctx, path)
	if err != nil {
		if !errors.Is(err, handover.ErrNobody) {
			log.Warn("no hot restart", "socket", path, "error", err)
		}
		return &inheritance{path: path}, nil
	}
	in := &inheritance{path: path, predecessor: conn}
	_ = conn.SetDeadline(time.Now().Add(offerTimeout))
	offer, sockets, err := conn.Receive()
	if err != nil {
		in.close()
		return nil, notHandedOver(conn, err)
	}
	in.sockets, in.restarts, in.parked = sockets, offer.Restarts+1, offer.Parked
	in.adopt()
	in.names = dns.KnownFrom(offer.Names)
	if !in.sharesAddress(cfg) { // another sidecar with the same file
		log.Warn("no hot restart: another process has the socket",
			"socket", path, "pid", conn.Peer())
		in.close()
		return &inheritance{}, nil
	}
	log.Info("taking over", "from", conn.Peer(), "sockets", offer.Sockets)
	return in, nil
}

// notHandedOver returns the error of a start that can't take over.
func notHandedOver(from *handover.Conn, why error) error {
	return fmt.Errorf("the running process, %d, does not hand over: %w", from.Peer(), why)
}

// sharesAddress reports whether cfg has the address of one of the sockets.
func (in *inheritance) sharesAddress(cfg *config.Config) bool {
	hasSocket := func(l config.Listener) bool { return in.sockets.Overlap(l.Address) }
	return in.sockets.Overlap(cfg.Admin.Address) || slices.ContainsFunc(cfg.Listeners, hasSocket)
}

// adopt makes files of Unix sockets stay in their place when these are closed, until own: they are
// the predecessor's while it may go on.
func (in *inheritance) adopt() {
	for address, ln := range in.sockets {
		in.sockets[address] = sockets.Adopt(ln, address)
	}
}

// own makes this process remove the files of Unix sockets that it does not use.
func (in *inheritance) own() {
	for _, ln := range in.sockets {
		if ln, ok := ln.(*unixsock.Listener); ok {
			ln.Own()
		}
	}
}

// close closes the sockets that were not used. If the predecessor was not told that
// this process serves, it goes on.
func (in *inheritance) close() {
	if in.predecessor != nil {
		_ = in.predecessor.Close()
	}
	in.sockets.Close()
	in.sockets = nil
}

// exchangeReadyForReleased tells the predecessor that this process is ready, and waits until the
// predecessor has stopped renewing its registrations.
func (in *inheritance) exchangeReadyForReleased() error {
	conn := in.predecessor
	if conn == nil {
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(releaseTimeout))
	if err := conn.Say(handover.Ready); err != nil {
		return err
	}
	if err := conn.Hear(handover.Released); err != nil {
		return notHandedOver(conn, err)
	}
	_ = conn.SetDeadline(time.Time{})
	return nil
}

// sayServing tells the predecessor to drain. It first gives the registrations of this
// process time to reach the registry, because the predecessor then removes the rest of
// its own.
func (in *inheritance) sayServing(ctx context.Context, registered func() bool, log *slog.Logger) {
	if in.predecessor == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	poll(ctx, registered)
	if err := in.predecessor.Say(handover.Serving); err != nil {
		log.Warn("the predecessor has ended", "error", err)
	}
}
