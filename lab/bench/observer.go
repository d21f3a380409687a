package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lab/child"
)

// What an observed sidecar is asked for: its metrics that often, and to log and to
// trace these shares of all requests.
const (
	scrapeEvery = time.Second
	logged      = 0.01
	traced      = 0.001
)

// An observer scrapes the metrics of sidecars and takes their spans.
type observer struct {
	ctx              context.Context
	stop             context.CancelFunc
	receiver         *http.Server
	addr             string
	work             sync.WaitGroup
	scrapes, exports atomic.Int64
}

func newObserver() (*observer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receiver of traces: %w", err)
	}
	o := &observer{addr: ln.Addr().String()}
	o.ctx, o.stop = context.WithCancel(context.Background())
	o.receiver = &http.Server{Handler: http.HandlerFunc(o.receive)}
	o.work.Go(func() { o.receiver.Serve(ln) })
	return o, nil
}

// receive takes an export of OTLP/HTTP and forgets it.
func (o *observer) receive(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	o.exports.Add(1)
	w.Header().Set("content-type", "application/x-protobuf")
}

// watch scrapes a sidecar from now on.
func (o *observer) watch(admin string) {
	o.work.Go(func() {
		tick := time.NewTicker(scrapeEvery)
		defer tick.Stop()
		for {
			select {
			case <-o.ctx.Done():
				return
			case <-tick.C:
			}
			// Not there yet, or no more: check tells whether there was any.
			if _, err := child.Call(o.ctx, http.MethodGet, "http://"+admin+"/metrics"); err == nil {
				o.scrapes.Add(1)
			}
		}
	})
}

// config is what a sidecar's configuration says of the observer, in YAML.
func (o *observer) config(log string) string {
	return fmt.Sprintf("access_log: {path: %q, sample: %g}\ntracing: {endpoint: \"http://%s\", sample: %g}", log, logged, o.addr, traced)
}

// check tells whether anything was seen.
func (o *observer) check() error {
	if o.scrapes.Load() == 0 || o.exports.Load() == 0 {
		return errors.New("nothing was observed")
	}
	return nil
}

func (o *observer) close() {
	o.stop()
	o.receiver.Close()
	o.work.Wait()
}
