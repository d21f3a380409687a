package proxy_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// recovering recovers from panics of what is posted, as loops of the driver do.
type recovering struct {
	*proxytest.NullLoop
	panics int
}

func (l *recovering) Post(f func()) {
	l.NullLoop.Post(func() {
		defer func() {
			if recover() != nil {
				l.panics++
			}
		}()
		f()
	})
}

// TestReloadOutlastsPanic: a loop that panics during a reload does not keep the reload waiting.
func TestReloadOutlastsPanic(t *testing.T) {
	parse := func(route string) *config.Config {
		cfg, err := config.Parse("test.yaml", []byte(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http}]
routes: [{`+route+`service: compute}]
services: {compute: {discover: static, endpoints: ["192.0.2.9:1"]}}`), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	net := proxytest.NewNullNet()
	proc := proxy.NewProcess(parse(""), 2)
	broken := &recovering{NullLoop: net.Loop()}
	for i, l := range []*recovering{broken, {NullLoop: net.Loop()}} {
		proxy.NewWorker(proc, l, slog.New(slog.NewTextHandler(io.Discard, nil)), uint64(i))
	}
	net.Pump()
	made := 0
	defer proxy.SetFilters(func(*exchange.FilterPlace) exchange.Filter {
		if made++; made == 1 {
			panic("a fault of a filter")
		}
		return nil
	})()
	prepared, switched := false, false
	g := proc.Prepare(parse("timeout: 9s, "), func() { prepared = true })
	net.Pump()
	proc.Switch(g, func() { switched = true })
	net.Pump()
	if broken.panics != 1 || !prepared || !switched {
		t.Errorf("panics: %d, prepared: %t, switched: %t", broken.panics, prepared, switched)
	}
}
