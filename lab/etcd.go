package lab

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/remora-proxy/remora/internal/freeport"
)

// EtcdOptions configures an embedded etcd server.
type EtcdOptions struct {
	Dir        string // of the data, which Close keeps; "" means a new one that Close removes
	ClientAddr string // "ip:port" for clients; "" means a free one, see Addr, which is free again after Close

	// PEM files for TLS with clients, whose certificate ClientCA must have signed. "" means
	// plain text.
	CertFile, KeyFile, ClientCA string
}

// readyTimeout bounds the wait for the server to elect itself.
const readyTimeout = 2 * time.Minute

// Etcd is a cluster of one etcd server in this process. It does not sync its data to disk: the
// data survives the process, but not the machine.
type Etcd struct {
	server  *embed.Etcd
	grpc    *grpc.Server
	tempDir string // Close removes it; "" means none
	release func() // of the address; nil if there is none to release
}

// StartEtcd starts an etcd server, and returns once it serves.
func StartEtcd(opt EtcdOptions) (*Etcd, error) {
	e := &Etcd{}
	if opt.Dir == "" {
		dir, err := os.MkdirTemp("", "remora-etcd-")
		if err != nil {
			return nil, fmt.Errorf("lab: data directory of etcd: %w", err)
		}
		opt.Dir, e.tempDir = dir, dir
	}
	if err := e.start(opt); err != nil {
		e.Close()
		return nil, fmt.Errorf("lab: start etcd: %w", err)
	}
	return e, nil
}

func (e *Etcd) start(opt EtcdOptions) error {
	if opt.ClientAddr == "" {
		// Not port 0: a client that dials again while etcd restarts could get that port for its own end.
		addrs, release, err := freeport.Loopback(1)
		if err != nil {
			return err
		}
		opt.ClientAddr, e.release = addrs[0], release
	}
	serving := make(chan *grpc.Server, 1)
	cfg := etcdConfig(opt)
	cfg.ServiceRegister = func(s *grpc.Server) {
		select {
		case serving <- s:
		default:
		}
	}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	e.server = server
	select {
	case e.grpc = <-serving: // after the server is ready
		return nil
	case err := <-server.Err():
		return err
	case <-server.Server.StopNotify():
		return errors.New("it stopped at once")
	case <-time.After(readyTimeout):
		return errors.New("not ready in time")
	}
}

func etcdConfig(opt EtcdOptions) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = opt.Dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())

	clients := []url.URL{{Scheme: "http", Host: opt.ClientAddr}}
	if opt.CertFile != "" {
		clients[0].Scheme = "https"
		cfg.ClientTLSInfo = transport.TLSInfo{
			CertFile: opt.CertFile, KeyFile: opt.KeyFile, TrustedCAFile: opt.ClientCA, ClientCertAuth: true,
		}
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = clients, clients
	// A cluster of one has no peers, but etcd needs an address for them.
	peers := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peers, peers
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)

	// Short ticks make it ready sooner, and allow leases of one second.
	cfg.TickMs, cfg.ElectionMs = 50, 250
	cfg.UnsafeNoFsync = true
	cfg.BcryptCost = 4 // the minimum: passwords in the lab protect nothing
	cfg.EnableGRPCGateway = false
	return cfg
}

// Addr returns the "ip:port" for clients.
func (e *Etcd) Addr() string { return e.server.Clients[0].Addr().String() }

// Endpoint returns the URL for clients.
func (e *Etcd) Endpoint() string {
	return e.server.Config().ListenClientUrls[0].Scheme + "://" + e.Addr()
}

// Close stops the server as a crash would: it cuts all connections. It returns once the port
// and the directory are free. A second Close does nothing.
func (e *Etcd) Close() error {
	if e.grpc != nil {
		e.grpc.Stop() // Close of embed would wait seconds for watches
		e.grpc = nil
	}
	if e.server != nil {
		e.server.Close()
		for _, l := range e.server.Clients {
			if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				return err
			}
		}
		e.server = nil
	}
	if e.release != nil {
		e.release()
		e.release = nil
	}
	dir := e.tempDir
	e.tempDir = ""
	return os.RemoveAll(dir) // nothing if it is ""
}
