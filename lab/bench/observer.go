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
	ctx              context.Context
	stop             context.CancelFunc
	receiver         *http.Server
	addr             string // of the receiver
	work             sync.WaitGroup
	scrapes, exports atomic.Int64
	traced           bool // some sidecar exports spans
}

func newObserver() (*observer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receiver of traces: %w", err)
	}
	o := &observer{addr: ln.Addr().String()}
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
				o.scrapes.Add(1)
			}
		}
	})
}

func (o *observer) check() error {
	if o != nil && (o.scrapes.Load() == 0 || o.traced && o.exports.Load() == 0) {
		return errors.New("nothing was observed")
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
