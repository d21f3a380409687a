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
)

// EtcdOptions configures an embedded etcd server. The zero value is a server on
// a free port with data that goes away with it.
type EtcdOptions struct {
	// Dir holds the data and is kept by Close, so that a server started on it
	// again goes on where this one ended. "": a new directory that Close removes.
	Dir string

	// ClientAddr is the "ip:port" to serve clients on. "" or port 0: a free
	// port of 127.0.0.1; Addr tells which.
	ClientAddr string

	// CertFile, KeyFile and ClientCA are PEM files for TLS towards clients, who
	// must then show a certificate signed by ClientCA. "": plain text.
	CertFile, KeyFile, ClientCA string

	// ReadyTimeout bounds the wait for the server to elect itself. Default: 30 s.
	ReadyTimeout time.Duration

	Logger *zap.Logger // nil: silent
}

// Etcd is a cluster of one etcd server inside this process. It does not sync its
// data to disk: it survives the process, not the machine.
type Etcd struct {
	server  *embed.Etcd
	grpc    *grpc.Server
	tempDir string // removed by Close, unless ""
	scheme  string // of its client URL
}

// StartEtcd starts an etcd server and returns when it serves.
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
		opt.ClientAddr = "127.0.0.1:0"
	}
	if opt.ReadyTimeout == 0 {
		opt.ReadyTimeout = 30 * time.Second
	}
	if opt.Logger == nil {
		opt.Logger = zap.NewNop()
	}
	serving := make(chan *grpc.Server, 1)
	cfg := etcdConfig(opt)
	cfg.ServiceRegister = func(s *grpc.Server) {
		select {
		case serving <- s:
		default:
		}
	}
	e.scheme = cfg.ListenClientUrls[0].Scheme
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	e.server = server

	timeout := time.NewTimer(opt.ReadyTimeout)
	defer timeout.Stop()
	select {
	case e.grpc = <-serving: // after the server is ready
		return nil
	case err := <-server.Err():
		return err
	case <-server.Server.StopNotify():
		return errors.New("it stopped at once")
	case <-timeout.C:
		return errors.New("not ready in time")
	}
}

func etcdConfig(opt EtcdOptions) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = opt.Dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(opt.Logger)

	clients := []url.URL{{Scheme: "http", Host: opt.ClientAddr}}
	if opt.CertFile != "" {
		clients[0].Scheme = "https"
		cfg.ClientTLSInfo = transport.TLSInfo{
			CertFile: opt.CertFile, KeyFile: opt.KeyFile, TrustedCAFile: opt.ClientCA, ClientCertAuth: true,
		}
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = clients, clients
	// A cluster of one has no peers, but etcd insists on listening for them.
	peers := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peers, peers
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)

	// It stands for election alone: short ticks only make it ready sooner and
	// allow leases of one second.
	cfg.TickMs, cfg.ElectionMs = 50, 250
	cfg.UnsafeNoFsync = true
	cfg.BcryptCost = 4 // bcrypt's least: passwords in the lab guard nothing
	cfg.EnableGRPCGateway = false
	return cfg
}

// Addr is the "ip:port" on which clients are served.
func (e *Etcd) Addr() string { return e.server.Clients[0].Addr().String() }

// Endpoint is the URL on which clients are served.
func (e *Etcd) Endpoint() string { return e.scheme + "://" + e.Addr() }

// Close stops the server as a crash would, from its clients' point of view:
// connections are cut, whatever goes on on them. It returns when the port and
// the directory are free again; closing twice does nothing.
func (e *Etcd) Close() error {
	if e.grpc != nil {
		e.grpc.Stop() // embed's Close would wait seconds for watches to end
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
	if e.tempDir == "" {
		return nil
	}
	dir := e.tempDir
	e.tempDir = ""
	return os.RemoveAll(dir)
}
