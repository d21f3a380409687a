package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/remora-proxy/remora/lab/child"
)

// maxAliases is how many addresses of 127.0.1.0/24 there may be.
const maxAliases = 250

// Memory writes what count connections and requests, and up to maxAliases links for each loop,
// cost a sidecar in memory.
func Memory(ctx context.Context, t Tools, count, links int, w io.Writer) error {
	if count < 1 || links < 1 || links > maxAliases {
		return fmt.Errorf("bench: want at least 1 connection, and 1 to %d links", maxAliases)
	}
	if most, err := raiseDescriptors(count); err != nil || most < count {
		return errors.Join(err, fmt.Errorf("bench: too few descriptors for %d connections", count))
	}
	// Requests may wait for long, and take the endpoints in turn.
	slow := []string{"lb: {policy: weighted_round_robin}", "timeout: 10m"}
	o := Options{Tools: t}
	alone := sidecar{In: "http", Out: "http", AllLoops: true, Service: slow}
	one := Row{Name: "sidecar", chain: []hop{alone.hop()}}
	two := Row{Name: "mesh", chain: mesh(func(consumer, provider *sidecar) {
		consumer.AllLoops, consumer.Service, consumer.Aliases = true, slow, links
		provider.AllLoops, provider.Exposed = true, true
	})}
	return errors.Join(
		o.with(ctx, one, 1, func(s *Stack) error { return s.connectionMemory(ctx, count, w) }),
		o.with(ctx, two, 1, func(s *Stack) error { return s.linkMemory(ctx, links, w) }))
}

// resident is the resident memory of the i-th sidecar, after a collection.
func (s *Stack) resident(ctx context.Context, i int) (Usage, error) {
	collect := "http://" + s.sidecars[i].addr + "/debug/pprof/heap?gc=1&debug=1"
	if _, err := child.Call(ctx, http.MethodGet, collect); err != nil {
		return Usage{}, err
	}
	return Meter{s.sidecars[i].PID()}.Usage()
}

// report writes what each of count costs more than before, without pages of files: new work brings
// some of the program, too. It returns the memory now.
func (s *Stack) report(ctx context.Context, w io.Writer, i int, what string, before Usage, count int) (Usage, error) {
	now, err := s.resident(ctx, i)
	if err != nil {
		return now, err
	}
	files, err := os.ReadDir(proc(s.sidecars[i].PID(), "fd"))
	if err != nil {
		return now, err
	}
	_, err = fmt.Fprintf(w, "%-46s %5.1f KiB each, of %d; the process: %.0f MiB, %d descriptors\n",
		what, float64(now.Own-before.Own)/1024/float64(count), count, mebibytes(now.RSS), len(files))
	return now, err
}

// metric is that of the first sidecar.
func (s *Stack) metric(ctx context.Context, name string) (float64, error) {
	text, err := s.sidecars[0].metrics(ctx)
	if err != nil {
		return 0, err
	}
	return child.Metric(text, name)
}

func (s *Stack) await(ctx context.Context, name string, want int) error {
	return child.Await(ctx, s.sidecars[0].Process, name, func(ctx context.Context) error {
		v, err := s.metric(ctx, name)
		if err == nil && int(v) < want {
			err = fmt.Errorf("%v of %d", v, want)
		}
		return err
	})
}

func (s *Stack) connectionMemory(ctx context.Context, count int, w io.Writer) error {
	empty, err := s.resident(ctx, 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "with nothing to do: %.0f MiB\n", mebibytes(empty.RSS))
	conns, err := connect(ctx, s.Addr, count, false)
	defer conns.close()
	if err != nil {
		return err
	}
	if err := s.await(ctx, "remora_downstream_connections", count); err != nil {
		return err
	}
	if _, err := s.report(ctx, w, 0, "a connection that was never used", empty, count); err != nil {
		return err
	}
	if err := conns.request(); err != nil {
		return err
	}
	before, err := s.report(ctx, w, 0, "a connection between requests", empty, count)
	if err != nil {
		return err
	}
	defer syscall.Kill(s.replicas[0].PID(), syscall.SIGCONT)
	if err := suspend(ctx, s.replicas[0].Process); err != nil {
		return err
	}
	for _, c := range conns {
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 300\r\n\r\n%s", computePath, s.Addr, strings.Repeat("x", 300))
	}
	if err := s.await(ctx, "remora_endpoint_connections", count); err != nil {
		return err
	}
	_, err = s.report(ctx, w, 0, "a request in flight, and its connection on", before, count)
	return err
}

// suspend stops a replica by a signal, and returns once all its threads have stopped. It then
// accepts connections but does not respond, until it gets SIGCONT.
func suspend(ctx context.Context, p *child.Process) error {
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		return err
	}
	return child.Await(ctx, p, "threads to stop", func(context.Context) error {
		threads, err := filepath.Glob(proc(p.PID(), "task/*/stat"))
		if slices.ContainsFunc(threads, func(file string) bool {
			b, _ := os.ReadFile(file)
			return !bytes.Contains(b, []byte(") T "))
		}) {
			return errors.New("some are running")
		}
		return err
	})
}

func (s *Stack) linkMemory(ctx context.Context, links int, w io.Writer) error {
	first, err := s.metric(ctx, "remora_endpoint_connections")
	if err != nil {
		return err
	}
	var before [2]Usage
	for i := range before {
		if before[i], err = s.resident(ctx, i); err != nil {
			return err
		}
	}
	// The loops share the connections, and each loop takes the endpoints in turn.
	conns, err := connect(ctx, s.Addr, 16, true)
	defer conns.close()
	for i := 1; err == nil && i < links; i++ {
		err = conns.request()
	}
	if err != nil {
		return err
	}
	all, err := s.metric(ctx, "remora_endpoint_connections")
	for i, what := range []string{"a link, at the consumer", "a link, at the provider"} {
		if err == nil {
			_, err = s.report(ctx, w, i, what, before[i], int(all-first))
		}
	}
	return err
}
