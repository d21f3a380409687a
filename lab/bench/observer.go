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

// observer scrapes proxies' metrics each second and receives the spans of sidecars. A nil one does nothing.
type observer struct {
	ctx      context.Context
	stop     context.CancelFunc
	receiver *http.Server
	addr     string // of the receiver
	work     sync.WaitGroup
	exports  atomic.Int64
	scraped  chan struct{} // closed by first
	first    sync.Once     // successful scrape
	traced   bool          // some sidecar exports spans
}

func newObserver() (*observer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receiver of traces: %w", err)
	}
	o := &observer{addr: ln.Addr().String(), scraped: make(chan struct{})}
	o.ctx, o.stop = context.WithCancel(context.Background())
	o.receiver = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // an export of OTLP/HTTP
		o.exports.Add(1)
		w.Header().Set("content-type", "application/x-protobuf")
	})}
	o.work.Go(func() { o.receiver.Serve(ln) })
	return o, nil
}

// scrape asks for the metrics at a URL until close.
func (o *observer) scrape(metrics string) {
	o.work.Go(func() {
		for sleep(o.ctx, time.Second) == nil {
			// The proxy may not listen yet, or no more: check fails if none ever responded.
			if _, err := child.Call(o.ctx, http.MethodGet, metrics); err == nil {
				o.first.Do(func() { close(o.scraped) })
			}
		}
	})
}

// check returns an error if nothing was observed. After a short load it waits for the first scrape.
func (o *observer) check(ctx context.Context) error {
	if o == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	select {
	case <-o.scraped:
	case <-ctx.Done():
		return errors.New("no metrics were scraped")
	}
	if o.traced && o.exports.Load() == 0 {
		return errors.New("no spans were exported")
	}
	return nil
}

func (o *observer) close() {
	if o != nil {
		o.stop()
		o.receiver.Close()
		o.work.Wait()
	}
}
