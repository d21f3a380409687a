package sidecar

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/handover"
)

// TestParkedAtPredecessor: a successor fetches the response of an unknown token from its
// predecessor, until that has ended.
func TestParkedAtPredecessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	path := filepath.Join(harness.SocketDir(t), "remora.sock")
	listener, err := handover.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ingress, parking := must.Listen(t), must.Listen(t)
	go func() {
		for {
			nc, err := parking.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(nc, make([]byte, len(link.Token{})))
			_, _ = io.WriteString(nc, "parked")
			nc.Close()
		}
	}()
	address := ingress.Addr().String()
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
admin: {address: ""}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}`, address, harness.NewApp(t).Addr), nil)
	if err != nil {
		t.Fatal(err)
	}
	predecessor := make(chan *handover.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		offer := handover.Offer{Sockets: []string{address}, Parked: parking.Addr().String()}
		err = errors.Join(
			conn.Offer(offer, map[string]syscall.Conn{address: ingress.(syscall.Conn)}), conn.Hear(handover.Ready),
			conn.Say(handover.Released), conn.Hear(handover.Serving))
		if err != nil {
			t.Error(err)
		}
		ingress.Close()
		predecessor <- conn
	}()
	s, err := start(t.Context(), quiet(t, cfg, path))
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	conn := harness.Receive(t, "the successor to serve", predecessor)
	fetched := func() string {
		t.Helper()
		nc := must.Dial(t, "tcp", address)
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(harness.Patience))
		_, _ = nc.Write(link.AppendStream(nil, &link.Stream{Kind: link.StreamAnswer, TimeLeft: harness.Patience, Token: link.Token{7}}))
		got, err := io.ReadAll(nc)
		if err != nil {
			t.Error(err)
		}
		return string(got)
	}
	if got := fetched(); got != "parked" {
		t.Errorf("fetched %q", got)
	}
	conn.Close()
	eventually.Nil(t, "the predecessor to be forgotten", func() error {
		if got := fetched(); got != string(rune(link.DeadlinePassed)) {
			return fmt.Errorf("fetched %q", got)
		}
		return nil
	})
}

// TestHotRestartBusy: a successor that connects during a reload is refused, and gets the
// reason.
func TestHotRestartBusy(t *testing.T) {
	path := filepath.Join(harness.SocketDir(t), "run", "remora.sock")
	listener, err := handover.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	var changing sync.Mutex
	changing.Lock() // like a reload
	s := &succession{log: slog.New(slog.DiscardHandler), successors: listener, changing: &changing}
	over := make(chan struct{})
	go func() { defer close(over); s.accept() }()
	_, err = inherit(config.Default(), path, s.log)
	if err == nil || !strings.Contains(err.Error(), errBusy.Error()) {
		t.Errorf("the successor ends with %v", err)
	}
	s.close()
	harness.Receive(t, "the listener to close", over)
}
