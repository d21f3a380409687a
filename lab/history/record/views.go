package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/lab/history"
)

// Sidecar is a sidecar whose views are recorded.
type Sidecar struct {
	Name  string
	Admin string // address of its admin API
	Token string // of the admin API; "" means none
}

// askEvery is how often a sidecar is asked for its views.
const askEvery = 50 * time.Millisecond

// Views records the views of a sidecar until ctx ends, and then the last ones.
func Views(ctx context.Context, s Sidecar, log *Log) {
	v := &views{of: s, log: log, client: &http.Client{Timeout: requestTimeout}, now: make(map[string]*view)}
	defer v.client.CloseIdleConnections()
	defer v.end()
	for every := time.NewTicker(askEvery); ; {
		v.ask(ctx)
		select {
		case <-every.C:
		case <-ctx.Done():
			every.Stop()
			return
		}
	}
}

// Follow runs Views for each of these sidecars. stop ends that, and waits.
func Follow(log *Log, all ...Sidecar) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	for _, s := range all {
		tasks.Go(func() { Views(ctx, s, log) })
	}
	return func() {
		cancel()
		tasks.Wait()
	}
}

// views are the present views of a sidecar.
type views struct {
	of     Sidecar
	log    *Log
	client *http.Client
	run    int
	now    map[string]*view // by service
}

// view is a view that the sidecar may still have.
type view struct {
	history.View
	version uint64 // grows within a process
}

// told is the part of the response of /endpoints that is recorded.
type told struct {
	Services map[string]struct {
		Version   uint64
		Source    string
		Revision  int64
		Endpoints []struct{ Address string }
	}
}

// ask asks the sidecar for its views.
func (v *views) ask(ctx context.Context) {
	asked := time.Now()
	t, err := v.get(ctx)
	now := time.Now()
	if errors.Is(err, syscall.ECONNREFUSED) && len(v.now) > 0 { // it has ended
		v.end()
		v.run++
	}
	if err != nil {
		return
	}
	for name, s := range t.Services {
		if last := v.now[name]; last != nil && s.Version < last.version {
			v.end()
			v.run++
			break
		}
	}
	for name, s := range t.Services {
		if s.Version == 0 {
			continue // it has none yet
		}
		last := v.now[name]
		if last == nil || last.version != s.Version {
			v.put(last)
			last = &view{version: s.Version, View: history.View{
				Sidecar: v.of.Name, Run: v.run, Service: name, Revision: s.Revision, Cached: s.Source == "cache", Endpoints: []string{}, First: now,
			}}
			for _, e := range s.Endpoints {
				last.Endpoints = append(last.Endpoints, e.Address)
			}
			v.now[name] = last
		}
		last.Asked, last.Told = asked, now
	}
}

func (v *views) get(ctx context.Context) (t told, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+v.of.Admin+"/endpoints", nil)
	if err != nil {
		return t, err
	}
	if v.of.Token != "" {
		req.Header.Set("Authorization", "Bearer "+v.of.Token)
	}
	resp, err := v.client.Do(req)
	if err != nil {
		return t, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return t, fmt.Errorf("status %d", resp.StatusCode)
	}
	return t, json.NewDecoder(resp.Body).Decode(&t)
}

// end records the present views.
func (v *views) end() {
	for name, last := range v.now {
		v.put(last)
		delete(v.now, name)
	}
}

func (v *views) put(last *view) {
	if last != nil {
		v.log.Put(&last.View)
	}
}
