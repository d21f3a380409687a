package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/lab/child"
)

// Memory writes what count connections and requests, and a number of links, cost a sidecar in
// memory. There may be at most 250 links for each loop.
func Memory(ctx context.Context, t Tools, count, links int, w io.Writer) error {
	if count < 1 || links < 1 || links > maxAliases {
		return fmt.Errorf("bench: want at least 1 connection, and 1 to %d links", maxAliases)
	}
	// The sidecar needs a connection to the client and one to the replica for each request.
	if most, err := raiseDescriptors(2 * count); err != nil || most < 2*count {
		return errors.Join(err, fmt.Errorf("bench: too few descriptors for %d connections", count))
	}
	// Requests may wait for long, and take the endpoints in turn.
	slow := []string{"lb: {policy: weighted_round_robin}", "timeout: 10m"}
	o := Options{Tools: t}
	one := Row{Name: "sidecar", chain: []hop{sidecar{in: "http", out: "http", allLoops: true, service: slow}.hop()}}
	two := Row{Name: "mesh", aliases: links, chain: mesh(func(consumer, provider *sidecar) {
		consumer.allLoops, consumer.service, provider.allLoops, provider.insecure = true, slow, true, true
	})}
	return errors.Join(
		o.with(ctx, one, 1, func(s *Stack) error { return s.connectionMemory(ctx, count, w) }),
		o.with(ctx, two, 1, func(s *Stack) error { return s.linkMemory(ctx, links, w) }))
}

// resident is the resident memory of the i-th sidecar in KiB, after a collection. The
// consumer's is the first.
func (s *Stack) resident(ctx context.Context, i int) (float64, error) {
	if _, err := child.Call(ctx, http.MethodGet, "http://"+s.admins[i]+"/debug/pprof/heap?gc=1&debug=1"); err != nil {
		return 0, err
	}
	rss, err := Meter{s.sidecars[i]}.RSS()
	return float64(rss) / 1024, err
}

// report writes what each of count costs more than before. It returns the memory now.
func (s *Stack) report(ctx context.Context, w io.Writer, i int, what string, before float64, count int) (float64, error) {
	now, err := s.resident(ctx, i)
	if err != nil {
		return 0, err
	}
	files, err := os.ReadDir(proc(s.sidecars[i], "fd"))
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(w, "%-46s %5.1f KiB each, of %d; the process: %.0f MiB, %d descriptors\n",
		what, (now-before)/float64(count), count, now/1024, len(files))
	return now, err
}

// awaitMetric waits until a metric of the first sidecar has reached a value.
func (s *Stack) awaitMetric(ctx context.Context, name string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		v, err := metric(ctx, s.admins[0], name)
		if err != nil || int(v) >= want {
			return err
		}
		if err := errors.Join(sleep(ctx, settle/20), s.Check()); err != nil {
			return err
		}
	}
}

func (s *Stack) connectionMemory(ctx context.Context, count int, w io.Writer) error {
	empty, err := s.resident(ctx, 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "with nothing to do: %.0f MiB\n", empty/1024)
	var conns []net.Conn
	defer func() { closeAll(conns) }()
	for range count {
		c, err := net.Dial("tcp", s.Addr)
		if err != nil {
			return err
		}
		conns = append(conns, c)
	}
	if err := s.awaitMetric(ctx, "remora_downstream_connections", count); err != nil {
		return err
	}
	if _, err := s.report(ctx, w, 0, "a connection that was never used", empty, count); err != nil {
		return err
	}
	for _, c := range conns {
		if err := request(c); err != nil {
			return err
		}
	}
	before, err := s.report(ctx, w, 0, "a connection between requests", empty, count)
	if err != nil {
		return err
	}
	resume, err := suspend(ctx, s.replicas[0])
	defer resume()
	if err != nil {
		return err
	}
	for _, c := range conns {
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 300\r\n\r\n%s", computePath, s.Addr, strings.Repeat("x", 300))
	}
	if err := s.awaitMetric(ctx, "remora_endpoint_connections", count); err != nil {
		return err
	}
	_, err = s.report(ctx, w, 0, "a request in flight, and its connection on", before, count)
	return err
}

// suspend stops a replica by a signal, and returns once all its threads have stopped. It then
// accepts connections but does not respond, until resume is called.
func suspend(ctx context.Context, pid int) (resume func(), err error) {
	resume = func() { syscall.Kill(pid, syscall.SIGCONT) }
	err = syscall.Kill(pid, syscall.SIGSTOP)
	for err == nil {
		threads, _ := filepath.Glob(proc(pid, "task/*/stat"))
		if !slices.ContainsFunc(threads, func(file string) bool {
			b, _ := os.ReadFile(file)
			return !bytes.Contains(b, []byte(") T "))
		}) {
			break
		}
		err = sleep(ctx, time.Millisecond)
	}
	return resume, err
}

func (s *Stack) linkMemory(ctx context.Context, links int, w io.Writer) error {
	first, err := metric(ctx, s.admins[0], "remora_endpoint_connections")
	if err != nil {
		return err
	}
	var before [2]float64
	for i := range before {
		if before[i], err = s.resident(ctx, i); err != nil {
			return err
		}
	}
	// The loops share the connections, and each loop takes the endpoints in turn.
	conns, err := openIdle(ctx, s.Addr, 16)
	defer closeAll(conns)
	for i := 0; err == nil && i < links*len(conns); i++ {
		err = request(conns[i%len(conns)])
	}
	if err != nil {
		return err
	}
	all, err := metric(ctx, s.admins[0], "remora_endpoint_connections")
	for i, what := range []string{"a link, at the consumer", "a link, at the provider"} {
		if err == nil {
			_, err = s.report(ctx, w, i, what, before[i], int(all-first))
		}
	}
	return err
}
