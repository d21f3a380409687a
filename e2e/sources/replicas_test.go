package sources

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// replicas are HTTP servers with an address each and the same port, which come and go.
type replicas struct {
	t       *testing.T
	network string // the first half of all addresses
	port    string
	next    int
	servers map[string]*http.Server // by address, without the port
	leaving []*http.Server          // serve on, and belong to the replicas no more
}

// newReplicas starts so many replicas. $REPLICAS names a network for them, as scripts/sources.sh has one; otherwise they are
// on one of the loopback interface that no other test uses.
func newReplicas(t *testing.T, count int) *replicas {
	t.Helper()
	_, port, _ := net.SplitHostPort(harness.FreeAddrs(t, 1)[0])
	r := &replicas{t: t, network: os.Getenv("REPLICAS"), port: port, servers: map[string]*http.Server{}}
	if r.network == "" {
		r.network = fmt.Sprintf("127.%d", 1+rand.IntN(250))
	}
	t.Cleanup(func() {
		for len(r.servers) > 0 {
			r.stopOne()
		}
		r.leave(0)
	})
	for range count {
		r.add()
	}
	return r
}

// add starts another replica, at an address that no other one had.
func (r *replicas) add() {
	r.t.Helper()
	r.next++
	addr := fmt.Sprintf("%s.%d.%d", r.network, r.next/200, 1+r.next%200)
	ln, err := net.Listen("tcp", net.JoinHostPort(addr, r.port))
	if err != nil {
		r.t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, addr) })}
	go func() { _ = s.Serve(ln) }()
	r.servers[addr] = s
}

// stopOne ends any replica, as a kill does.
func (r *replicas) stopOne() {
	r.removeOne()
	r.leave(0)
}

// removeOne removes any replica, which serves on until leave.
func (r *replicas) removeOne() {
	all := r.addrs()
	addr := all[rand.IntN(len(all))]
	r.leaving = append(r.leaving, r.servers[addr])
	delete(r.servers, addr)
}

// leave ends the replicas that were removed, but for the last ones.
func (r *replicas) leave(last int) {
	for len(r.leaving) > last {
		_ = r.leaving[0].Close()
		r.leaving = r.leaving[1:]
	}
}

// addrs returns the addresses of all replicas, without the port.
func (r *replicas) addrs() (all []string) {
	for a := range r.servers {
		all = append(all, a)
	}
	slices.Sort(all)
	return all
}

// await waits until the sidecar has these replicas and no others, and returns how long that took.
func (r *replicas) await(p *harness.Process, what string) time.Duration {
	r.t.Helper()
	begun := time.Now()
	eventually.Nil(r.t, "the endpoints to be right "+what, func() error {
		_, body := p.Get("/endpoints")
		known := strings.Count(body, `"address": "`+r.network+".")
		for a := range r.servers {
			if !strings.Contains(body, `"`+net.JoinHostPort(a, r.port)+`"`) {
				return fmt.Errorf("%s is missing; %d are known", a, known)
			}
		}
		if known != len(r.servers) {
			return fmt.Errorf("%d are known, want %d", known, len(r.servers))
		}
		return nil
	})
	return time.Since(begun)
}

// startLoad has eight callers send requests through a consumer.
func startLoad(t *testing.T, egress string) *harness.Load {
	return harness.StartLoad(t, 8, func() error {
		status, code, _, err := harness.Get(egress)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, code)
		}
		return err
	})
}
