package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/remora-proxy/remora/lab/child"
	"github.com/remora-proxy/remora/lab/replica"
)

// amid measures for d in the midst of a load, once it has gone on for lead: connections
// are neither opened nor closed meanwhile, and those that are open count in the resident
// memory. Latencies alone are of the whole load, its start included.
func (s *Stack) amid(ctx context.Context, l Load, lead, d time.Duration) (Sample, error) {
	var (
		result *Result
		failed error
		ended  = make(chan struct{})
	)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(ended)
		result, failed = l.send(ctx, s.Tools, s.URL)
	}()
	sample, err := s.between(ctx, lead, d)
	select {
	case <-ended:
		if err == nil && failed == nil {
			err = errLoadEnded
		}
	default:
		if err != nil {
			cancel() // the load does not end of itself for long
		}
	}
	<-ended
	if err := errors.Join(err, failed); err != nil {
		return sample, err
	}
	sample.Errors = result.Errors
	sample.Figures[P50], sample.Figures[P99] = result.P50, result.P99
	return sample, nil
}

// errLoadEnded is that a load was over before the second look at what it costs: this
// would count time in which nothing happened.
var errLoadEnded = errors.New("the load ended while it was measured")

// between makes the sample of what happens for d, after lead.
func (s *Stack) between(ctx context.Context, lead, d time.Duration) (Sample, error) {
	sample := Sample{Row: s.row.Name, Figures: Figures{}}
	if err := sleep(ctx, lead); err != nil {
		return sample, err
	}
	before, err := s.look(ctx)
	if err != nil {
		return sample, err
	}
	if err := sleep(ctx, d); err != nil {
		return sample, err
	}
	after, err := s.look(ctx)
	if err != nil {
		return sample, err
	}
	sample.Requests = after.served - before.served
	if sample.Requests == 0 {
		return sample, fmt.Errorf("no request was answered in %v", d)
	}
	sample.Figures[Rate] = float64(sample.Requests) / after.at.Sub(before.at).Seconds()
	sample.Figures.cost(after.all.Since(before.all), sample.Requests)
	sample.Figures[RSS] = mebibytes(after.rss)
	if len(s.Meter) > 1 {
		consumer := after.consumer.Since(before.consumer).CPU
		sample.Figures[ConsumerCPU] = float64(consumer) / float64(time.Microsecond) / float64(sample.Requests)
		sample.Figures[ConsumerRSS] = mebibytes(after.consumerRSS)
	}
	return sample, nil
}

// A look is what stands at one moment.
type look struct {
	at               time.Time
	served           int64 // requests, by the replica
	all, consumer    Usage
	rss, consumerRSS int64 // bytes
}

func (s *Stack) look(ctx context.Context) (l look, err error) {
	consumer := s.Meter[len(s.Meter)-1:] // it was started last
	if l.served, err = s.served(ctx); err != nil {
		return l, err
	}
	l.at = time.Now()
	if l.all, err = s.Meter.Usage(); err != nil {
		return l, err
	}
	if l.consumer, err = consumer.Usage(); err != nil {
		return l, err
	}
	if l.rss, err = s.Meter.RSS(); err != nil {
		return l, err
	}
	l.consumerRSS, err = consumer.RSS()
	return l, err
}

// served asks the lab's replica, past the sidecars.
func (s *Stack) served(ctx context.Context) (int64, error) {
	b, err := child.Call(ctx, http.MethodGet, "http://"+s.backend+"/stats")
	if err != nil {
		return 0, fmt.Errorf("replica: %w", err)
	}
	var stats replica.Stats
	if err := json.Unmarshal(b, &stats); err != nil {
		return 0, fmt.Errorf("replica: %w", err)
	}
	return stats.Served, nil
}
