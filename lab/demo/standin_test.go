package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/lab/feature"
	"github.com/remora-proxy/remora/lab/replica"
	"github.com/remora-proxy/remora/proxy/config"
)

// roleEnv says how the stand-in for the sidecar behaves.
const roleEnv = "REMORA_DEMO_TEST_ROLE"

// TestMain lets this binary stand in for remora-lab and remora, which the demo starts.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch os.Args[1] {
	case "etcd":
		err = runEtcd(ctx, os.Args[3])
	case "replica":
		err = runReplica(ctx, flagsOf(os.Args[2:]))
	case "store":
		err = runStore(ctx, flagsOf(os.Args[2:]))
	case "run":
		err = runSidecar(ctx, os.Args[3])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runEtcd(ctx context.Context, addr string) error {
	e, err := lab.StartEtcd(lab.EtcdOptions{ClientAddr: addr})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return e.Close()
}

func flagsOf(args []string) map[string]string {
	flags := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		flags[args[i]] = args[i+1]
	}
	return flags
}

func runStore(ctx context.Context, flags map[string]string) error {
	minute, err := time.ParseDuration(flags["--minute"])
	if err != nil {
		return err
	}
	s, err := feature.StartStore(feature.StoreOptions{Listen: flags["--listen"], Minute: minute})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return s.Close()
}

func runReplica(ctx context.Context, flags map[string]string) error {
	seed, err := strconv.ParseUint(flags["--seed"], 10, 64)
	if err != nil {
		return err
	}
	r, err := replica.Start(replica.Options{Listen: flags["--listen"], Name: flags["--name"], Mode: replica.Mode(flags["--mode"]),
		Seed: seed, Sigma: .5, StallMean: time.Minute, StallLen: 20 * time.Millisecond,
		Store: flags["--store"], CacheKind: replica.CacheKind(flags["--cache-kind"])})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return r.Close(context.Background())
}

// runSidecar forwards requests: a provider to its replica, a consumer in turn to the providers,
// whose files are beside its own.
func runSidecar(ctx context.Context, file string) error {
	if os.Getenv(roleEnv) == "sidecar that fails" {
		return fmt.Errorf("bad fish")
	}
	c, err := config.Load(file)
	if err != nil {
		return err
	}
	s := &standIn{}
	if compute := c.Services["compute"]; compute != nil {
		s.mode = compute.Hedge.Mode
		files, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "provider-*.yaml"))
		for _, f := range files {
			p, err := config.Load(f)
			if err != nil {
				return err
			}
			s.to = append(s.to, p.Register[0].Advertise)
		}
	} else {
		s.to = []string{c.Services["local"].Endpoints[0].Address}
	}
	failed := make(chan error, 2)
	admin := http.NewServeMux()
	admin.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	admin.HandleFunc("/hedging", s.hedging)
	admin.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { w.Write(metricsOf(float64(s.n.Load()))) })
	go func() { failed <- http.ListenAndServe(c.Admin.Address, admin) }()
	go func() { failed <- http.ListenAndServe(c.Listeners[0].Address, http.HandlerFunc(s.forward)) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

type standIn struct {
	mode string // of hedging; "": a provider
	to   []string
	n    atomic.Int64
}

// warm is the number of requests of the tests' warm-up.
const warm = 40

// forward "hedges" ten requests of the measurement by sending them twice.
func (s *standIn) forward(w http.ResponseWriter, r *http.Request) {
	n := s.n.Add(1)
	body, _ := io.ReadAll(r.Body)
	if s.mode == "on" && n > warm && n <= warm+10 {
		if resp, err := s.send(r, body, n+1); err == nil {
			resp.Body.Close()
		}
	}
	resp, err := s.send(r, body, n)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("x-nonce", resp.Header.Get("x-nonce"))
	w.WriteHeader(resp.StatusCode)
	io.Copy(w, resp.Body)
}

func (s *standIn) send(r *http.Request, body []byte, n int64) (*http.Response, error) {
	req, err := http.NewRequest(r.Method, "http://"+s.to[n%int64(len(s.to))]+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("x-nonce", r.Header.Get("x-nonce"))
	req.Header.Set("x-key", r.Header.Get("x-key"))
	return http.DefaultClient.Do(req)
}

// hedging has counts from the start: the demo must take differences.
func (s *standIn) hedging(w http.ResponseWriter, _ *http.Request) {
	hedges, won, budget := 3, 1, 1
	if s.mode == "on" && s.n.Load() > warm {
		hedges, won, budget = 13, 5, 8
	}
	forecast := "[]"
	if s.mode == "shadow" {
		forecast = `[{"delay_ms":2.6,"current":true,"p99_ms":3.5,"p999_ms":null,"extra_load":0.03}]`
	}
	fmt.Fprintf(w, `{"services":{"compute":{"mode":%q,"hedges":%d,"won":%d,"gates":{"budget":%d},"routes":[{"shadow":%s}]}}}`,
		s.mode, hedges, won, budget, forecast)
}
