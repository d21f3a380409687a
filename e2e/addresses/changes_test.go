package addresses

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// newConnections is a load in which each request has a connection of its own. Each must get bytes of a
// response, whatever a listener speaks.
type newConnections struct {
	made atomic.Int64
	stop context.CancelFunc
	all  sync.WaitGroup
	err  atomic.Pointer[error] // the first
}

func startConnections(network, addr string) *newConnections {
	l := &newConnections{}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for range 2 {
		l.all.Go(func() {
			for ctx.Err() == nil {
				if err := oneConnection(network, addr); err != nil {
					err = fmt.Errorf("%s: %w", addr, err)
					l.err.CompareAndSwap(nil, &err)
				}
				l.made.Add(1)
			}
		})
	}
	return l
}

func oneConnection(network, addr string) error {
	c, err := net.Dial(network, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(harness.Patience))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, len("HTTP/1.1 ")))
	return err
}

// pass waits for so many more connections.
func (l *newConnections) pass(t *testing.T, n int64) {
	t.Helper()
	until := l.made.Load() + n
	eventually.Nil(t, "connections", func() error {
		if made := l.made.Load(); made < until {
			return fmt.Errorf("%d, want %d", made, until)
		}
		return nil
	})
}

func (l *newConnections) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.all.Wait()
	if err := l.err.Load(); err != nil {
		t.Errorf("a connection failed: %v", *err)
	}
}

// TestAddressChanges moves listeners to addresses that overlap their old ones, and changes what else makes
// a new listener: by reloads, by hot restarts, and by reloads each of which a hot restart undoes while the
// reloaded listeners still end. No new connection is refused or reset.
func TestAddressChanges(t *testing.T) {
	a := harness.NewApp(t)
	_, port, _ := net.SplitHostPort(harness.FreeAddrs(t, 1)[0])
	other := harness.FreeAddrs(t, 1)[0]
	dir := harness.SocketDir(t)
	files := harness.CertFiles(t, testcerts.New(t), "in.test")
	config := func(listeners string) string {
		return fmt.Sprintf(`
loops: 2
listeners: [%s, %s]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`,
			strings.NewReplacer("PORT", port, "DIR", dir, "OTHER", other).Replace(listeners),
			fmt.Sprintf(`{name: stays, address: "unix:%s/stays", protocol: http, service: app}`, dir), a.Addr)
	}
	tcp := func(addr, more string) string {
		return fmt.Sprintf(`{name: a, address: %q, protocol: http, service: app%s}`, addr, more)
	}
	unix := func(path, more string) string {
		return fmt.Sprintf(`{name: u, address: "unix:%s", protocol: http, service: app%s}`, path, more)
	}
	steps := []struct{ tcp, unix string }{
		{tcp("127.0.0.1:PORT", ""), unix("DIR/u", "")},
		{tcp("0.0.0.0:PORT", ""), unix("DIR/./u", "")},
		{tcp("[::]:PORT", ""), unix("DIR/u", `, mode: "0606"`)},
		{tcp("0.0.0.0:PORT", ""), unix("DIR/u", `, mode: "0660"`)},
		{tcp("127.0.0.1:PORT", ""), strings.Replace(unix("DIR/u", ""), "name: u", "name: v", 1)},
		{tcp(":PORT", ""), unix("DIR/u", "")},
		{strings.Replace(tcp("127.0.0.1:PORT", ""), "name: a", "name: b", 1), unix("DIR/u", "")},
		{tcp("localhost:PORT", ""), unix("DIR/u", ", connections: 100")},
		{strings.Replace(tcp("127.0.0.1:PORT", ""), "http", "tcp", 1), strings.Replace(unix("DIR/u", ""), "http", "tcp", 1)},
		{strings.Replace(tcp("0.0.0.0:PORT", ""), "http", "tcp", 1), unix("DIR/u", "")},
		{tcp("127.0.0.1:PORT", fmt.Sprintf(", tls: {cert: %q, key: %q}", files.Cert, files.Key)),
			unix("DIR/u", fmt.Sprintf(", tls: {cert: %q, key: %q}", files.Cert, files.Key))},
		{tcp("127.0.0.1:PORT", ""), unix("DIR/u", "")},
		{tcp("127.0.0.1:PORT", "") + "," + strings.Replace(tcp("127.0.0.2:PORT", ""), "name: a", "name: b", 1), unix("DIR/u", "")},
		{tcp("0.0.0.0:PORT", ""), unix("DIR/u", "")},
		{tcp("127.0.0.1:PORT", "") + "," + strings.Replace(tcp("OTHER", ""), "name: a", "name: b", 1), unix("DIR/u", "")},
		{tcp("OTHER", "") + "," + strings.Replace(tcp("127.0.0.1:PORT", ""), "name: a", "name: b", 1), unix("DIR/u", "")},
	}
	before := config(steps[0].tcp + "," + steps[0].unix)
	for how, change := range map[string]func(p *harness.Process, yaml string) *harness.Process{
		"reload":  func(p *harness.Process, yaml string) *harness.Process { p.Reload(yaml, "applied"); return p },
		"restart": func(p *harness.Process, yaml string) *harness.Process { p.Write(yaml); return p.Replace() },
		"both": func(p *harness.Process, yaml string) *harness.Process {
			p.Reload(yaml, "applied")
			p.Write(before)
			p = p.Replace()
			p.Reload(yaml, "applied")
			before = yaml
			return p
		},
	} {
		t.Run(how, func(t *testing.T) {
			p := harness.Start(t, config(steps[0].tcp+","+steps[0].unix))
			p.Ready()
			overTCP, overUnix := startConnections("tcp", "127.0.0.1:"+port), startConnections("unix", filepath.Join(dir, "u"))
			for i, s := range append(steps[1:], steps[0]) {
				if how == "restart" && i%2 == 0 { // each costs a start
					continue
				}
				p = change(p, config(s.tcp+","+s.unix))
				overTCP.pass(t, 10)
				overUnix.pass(t, 10)
				serves(t, i+1, "tcp", "127.0.0.1:"+port, strings.Contains(s.tcp, "tls:"))
				serves(t, i+1, "unix", filepath.Join(dir, "u"), strings.Contains(s.unix, "tls:"))
				if _, mode, has := strings.Cut(s.unix, `mode: "0`); has {
					if info, err := os.Lstat(filepath.Join(dir, "u")); err != nil || !strings.HasPrefix(mode, fmt.Sprintf("%o", info.Mode().Perm())) {
						t.Errorf("step %d: the mode is %v, %v", i+1, info.Mode(), err)
					}
				}
			}
			if how == "reload" {
				harness.Refused(t, other)
				p.Says(t, `msg="listener closed" listener=a address=127.0.0.1:`+port)
			}
			overTCP.end(t)
			overUnix.end(t)
			p.Signal(syscall.SIGTERM)
			p.Ends()
		})
	}
}

// serves checks that a listener serves requests over its new connections, with TLS or without.
func serves(t *testing.T, step int, network, addr string, secure bool) {
	t.Helper()
	client := http.Client{Timeout: harness.Patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}}
	url := "http://a/"
	if secure {
		url = "https://a/"
	}
	eventually.Nil(t, fmt.Sprintf("step %d: %s to serve", step, addr), func() error { // a predecessor may accept a moment longer
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}
