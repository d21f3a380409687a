package etcd_test

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// scripted is an etcd without keys, whose streams of watches a test serves.
type scripted struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	pb.UnimplementedLeaseServer
	pb.UnimplementedAuthServer
	addr  string
	serve func(stream int, s watchStream) error // streams are counted from 1

	// list makes the response to a list of a service, and to a probe, whose service is empty. nil means that there are no keys.
	list func(service string) *pb.RangeResponse

	// revoke makes the result of the request to end a lease, which are counted from 1. nil means that all succeed.
	revoke func(n int) error

	// login makes the result of the request for a token, which are counted from 1. nil means that all succeed.
	login func(n int) error

	put chan string // gets the service of each put; nil means that nobody wants it

	// renew serves streams of leases, which are counted from 1. nil means that all renewals succeed.
	renew func(stream int, s leaseStream) error

	mu      sync.Mutex
	streams int
	leases  int // streams of leases
	grants  int // of leases
	revokes int // of leases
	logins  int
	lists   map[string]int // by service
	lost    uint64         // times that etcd has lost its data
	puts    map[string]int // by service
}

// startScripted starts an etcd that ends with the test.
func startScripted(t *testing.T, serve func(stream int, s watchStream) error) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &scripted{addr: l.Addr().String(), serve: serve, lists: make(map[string]int), puts: make(map[string]int)}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, e)
	pb.RegisterWatchServer(server, e)
	pb.RegisterLeaseServer(server, e)
	pb.RegisterAuthServer(server, e)
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		tasks.Wait()
	})
	return e
}

// header is the same in all responses.
func header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1, MemberId: 1, RaftTerm: 1, Revision: 1}
}

// Range implements pb.KVServer.
func (e *scripted) Range(_ context.Context, req *pb.RangeRequest) (*pb.RangeResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lists[serviceOf(req.Key)]++
	if e.list != nil {
		return e.list(serviceOf(req.Key)), nil
	}
	head := header()
	head.ClusterId += e.lost
	return &pb.RangeResponse{Header: head}, nil
}

// putRevision is that of all puts.
const putRevision = 5

// Put implements pb.KVServer.
func (e *scripted) Put(_ context.Context, req *pb.PutRequest) (*pb.PutResponse, error) {
	e.mu.Lock()
	e.puts[serviceOf(req.Key)]++
	e.mu.Unlock()
	if e.put != nil {
		e.put <- serviceOf(req.Key)
	}
	return &pb.PutResponse{Header: headerAt(putRevision)}, nil
}

// LeaseGrant implements pb.LeaseServer.
func (e *scripted) LeaseGrant(_ context.Context, req *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.grants++
	return &pb.LeaseGrantResponse{Header: header(), ID: 1, TTL: req.TTL}, nil
}

// LeaseRevoke implements pb.LeaseServer.
func (e *scripted) LeaseRevoke(context.Context, *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.revokes++; e.revoke != nil {
		if err := e.revoke(e.revokes); err != nil {
			return nil, err
		}
	}
	return &pb.LeaseRevokeResponse{Header: header()}, nil
}

// Authenticate implements pb.AuthServer.
func (e *scripted) Authenticate(context.Context, *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.logins++; e.login != nil {
		if err := e.login(e.logins); err != nil {
			return nil, err
		}
	}
	return &pb.AuthenticateResponse{Header: header(), Token: "token"}, nil
}

// LeaseKeepAlive implements pb.LeaseServer.
func (e *scripted) LeaseKeepAlive(s pb.Lease_LeaseKeepAliveServer) error {
	e.mu.Lock()
	e.leases++
	n := e.leases
	e.mu.Unlock()
	if e.renew != nil {
		return e.renew(n, leaseStream{s})
	}
	for {
		if err := (leaseStream{s}).answer(600); err != nil {
			return err
		}
	}
}

// leaseStream is the server's end of a stream that renews a lease.
type leaseStream struct{ pb.Lease_LeaseKeepAliveServer }

// answer receives the next request to renew the lease, and says how many seconds the lease has now.
func (s leaseStream) answer(ttl int64) error {
	req, err := s.Recv()
	if err == nil {
		err = s.Send(&pb.LeaseKeepAliveResponse{Header: header(), ID: req.ID, TTL: ttl})
	}
	return err
}

// serviceOf returns the service whose keys begin with this. The probe asks for none.
func serviceOf(key []byte) string { return strings.Trim(strings.TrimPrefix(string(key), prefix), "/") }

// Watch implements pb.WatchServer.
func (e *scripted) Watch(s pb.Watch_WatchServer) error {
	e.mu.Lock()
	e.streams++
	n := e.streams
	e.mu.Unlock()
	return e.serve(n, watchStream{s})
}

// expect checks how many streams there were, and how often each service was listed.
func (e *scripted) expect(t *testing.T, streams int, lists map[string]int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.lists, "") // of the probe
	if e.streams != streams || !maps.Equal(e.lists, lists) {
		t.Errorf("%d streams, lists %v; want %d, %v", e.streams, e.lists, streams, lists)
	}
}

// watchStream is the server's end of a stream of watches.
type watchStream struct{ pb.Watch_WatchServer }

// asked receives the next request to open a watch, and returns its service.
func (s watchStream) asked() (service string, err error) {
	for {
		req, err := s.Recv()
		if err != nil {
			return "", err
		}
		if create := req.GetCreateRequest(); create != nil {
			return serviceOf(create.Key), nil
		}
	}
}

// confirm confirms a watch.
func (s watchStream) confirm(number int64) error {
	return s.Send(&pb.WatchResponse{Header: header(), WatchId: number, Created: true})
}

// put sends an event to a watch: a service has an endpoint.
func (s watchStream) put(number int64, service, addr string) error {
	return s.Send(&pb.WatchResponse{Header: header(), WatchId: number, Events: putAt(2, service, addr)})
}

// putAt is the event that puts the only key of a service.
func putAt(revision int64, service, addr string) []*mvccpb.Event {
	return []*mvccpb.Event{{Type: mvccpb.PUT, Kv: keyAt(revision, service, addr)}}
}

// keyAt is the only key of a service.
func keyAt(revision int64, service, addr string) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(prefix + "/" + service + "/n"), Value: []byte(`{"Addr":"` + addr + `"}`), ModRevision: revision}
}

// confirmAll confirms each watch, and sends an endpoint to it, until the end of the stream.
func (s watchStream) confirmAll(addr string) error {
	for number := int64(0); ; number++ {
		service, err := s.asked()
		if err == nil {
			err = s.confirm(number)
		}
		if err == nil {
			err = s.put(number, service, addr)
		}
		if err != nil {
			return err
		}
	}
}

// TestWatchRequest: a watch asks for all keys of its service since the list, and for the progress of a member of etcd that has
// nothing new.
func TestWatchRequest(t *testing.T) {
	asked := make(chan *pb.WatchCreateRequest, 1)
	e := startScripted(t, func(_ int, s watchStream) error {
		for {
			req, err := s.Recv()
			if err != nil {
				return err
			}
			if create := req.GetCreateRequest(); create != nil {
				select {
				case asked <- create:
				default: // the test wants the first one
				}
			}
		}
	})
	e.list = func(string) *pb.RangeResponse { return &pb.RangeResponse{Header: headerAt(5)} }
	registrytest.Watch(t, open(t, e.addr, nil), "s").WaitAddrs()
	want := &pb.WatchCreateRequest{Key: []byte(prefix + "/s/"), RangeEnd: []byte(prefix + "/s0"), StartRevision: 6, ProgressNotify: true}
	select {
	case got := <-asked:
		if got.String() != want.String() {
			t.Errorf("the request is %v, want %v", got, want)
		}
	case <-time.After(timeout):
		t.Error("no watch")
	}
}

// TestRefusedWatch: a refused watch opens on another stream, with a new token, and lists again. The watches that are open stay
// on theirs, and those that were to follow lose nothing.
func TestRefusedWatch(t *testing.T) {
	listed := make(chan struct{}) // closed when all services are listed
	others := make(chan struct{}) // closed when the other watches follow
	e := startScripted(t, func(stream int, s watchStream) error {
		if stream > 1 {
			return s.confirmAll("10.0.0.2:80")
		}
		if _, err := s.asked(); err != nil {
			return err
		}
		if err := s.confirm(5); err != nil {
			return err
		}
		if _, err := s.asked(); err != nil {
			return err
		}
		<-listed
		if err := s.Send(&pb.WatchResponse{
			Header: header(), WatchId: -1, Created: true, Canceled: true, CancelReason: rpctypes.ErrInvalidAuthToken.Error(),
		}); err != nil {
			return err
		}
		<-others
		if err := s.put(5, "first", "10.0.0.1:80"); err != nil {
			return err
		}
		_, err := s.asked()
		return err
	})
	r := open(t, e.addr, nil)
	first := registrytest.Watch(t, r, "first")
	first.WaitAddrs()
	refused := registrytest.Watch(t, r, "refused")
	refused.WaitAddrs()
	next := registrytest.Watch(t, r, "next")
	next.WaitAddrs()
	close(listed)
	next.WaitAddrs("10.0.0.2:80")
	refused.WaitAddrs("10.0.0.2:80")
	close(others)
	first.WaitAddrs("10.0.0.1:80")
	e.expect(t, 2, map[string]int{"first": 1, "refused": 2, "next": 1})
}

// TestStreamEnds: when a stream ends, or confirms no watch any more, all its watches list again and open on another.
func TestStreamEnds(t *testing.T) {
	for name, end := range map[string]func(s watchStream) error{
		"error":  func(watchStream) error { return rpctypes.ErrGRPCNoLeader },
		"silent": func(s watchStream) error { <-s.Context().Done(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			e := startScripted(t, func(stream int, s watchStream) error {
				if stream > 1 {
					return s.confirmAll("10.0.0.1:80")
				}
				for number := range int64(2) {
					if _, err := s.asked(); err != nil {
						return err
					}
					if err := s.confirm(number); err != nil {
						return err
					}
				}
				if _, err := s.asked(); err != nil {
					return err
				}
				return end(s)
			})
			r := open(t, e.addr, nil)
			var all []*registrytest.Sink
			for _, service := range []string{"a", "b", "c"} {
				all = append(all, registrytest.Watch(t, r, service))
			}
			for _, sink := range all {
				sink.WaitAddrs("10.0.0.1:80")
			}
			e.expect(t, 2, map[string]int{"a": 2, "b": 2, "c": 2})
		})
	}
}

// TestEndedWatch: a watch that etcd ends lists again, and opens on its stream again. Etcd keeps a watch whose revision was compacted, until
// it is told to forget the watch.
func TestEndedWatch(t *testing.T) {
	for name, c := range map[string]struct {
		end       *pb.WatchResponse
		forgotten []int64
	}{
		"canceled":  {&pb.WatchResponse{WatchId: 1, Canceled: true, CancelReason: "why"}, nil},
		"compacted": {&pb.WatchResponse{WatchId: 1, CompactRevision: 7}, []int64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			var forgotten []int64
			e := startScripted(t, func(_ int, s watchStream) error {
				for number := range int64(2) {
					if _, err := s.asked(); err != nil {
						return err
					}
					if err := s.confirm(1 + number); err != nil {
						return err
					}
				}
				c.end.Header = header()
				if err := s.Send(c.end); err != nil {
					return err
				}
				for {
					req, err := s.Recv()
					if err != nil {
						return err
					}
					if cancel := req.GetCancelRequest(); cancel != nil {
						forgotten = append(forgotten, cancel.WatchId)
					}
					if create := req.GetCreateRequest(); create != nil {
						if err := s.confirm(3); err != nil {
							return err
						}
						if err := s.put(3, serviceOf(create.Key), "10.0.0.1:80"); err != nil {
							return err
						}
					}
				}
			})
			r := open(t, e.addr, nil)
			ended := registrytest.Watch(t, r, "ended")
			ended.WaitAddrs()
			registrytest.Watch(t, r, "stays").WaitAddrs()
			ended.WaitAddrs("10.0.0.1:80")
			e.expect(t, 1, map[string]int{"ended": 2, "stays": 1})
			if !slices.Equal(forgotten, c.forgotten) {
				t.Errorf("the watches %v were forgotten, want %v", forgotten, c.forgotten)
			}
		})
	}
}

// TestLostData: when a response shows that etcd has lost its data, all watches list again, even if their stream goes on.
func TestLostData(t *testing.T) {
	e := startScripted(t, func(_ int, s watchStream) error { return s.confirmAll("10.0.0.1:80") })
	r := open(t, e.addr, brief)
	first, second := registrytest.Watch(t, r, "first"), registrytest.Watch(t, r, "second")
	first.WaitAddrs("10.0.0.1:80")
	second.WaitAddrs("10.0.0.1:80")
	e.mu.Lock()
	e.lost++
	e.mu.Unlock()
	for _, service := range []string{"first", "second"} {
		eventually.True(t, "another list of "+service, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.lists[service] > 1
		})
	}
	if n := r.Stats().DataLosses; n != 1 {
		t.Errorf("%d losses of data", n)
	}
}

// TestStopWhileOpening: etcd is told to forget a watch that has stopped before etcd confirmed it.
func TestStopWhileOpening(t *testing.T) {
	asked, stopped, forgotten := make(chan struct{}), make(chan struct{}), make(chan int64, 1)
	e := startScripted(t, func(_ int, s watchStream) error {
		if _, err := s.asked(); err != nil {
			return err
		}
		if err := s.confirm(1); err != nil {
			return err
		}
		if _, err := s.asked(); err != nil {
			return err
		}
		close(asked)
		<-stopped
		if err := s.confirm(2); err != nil {
			return err
		}
		for {
			req, err := s.Recv()
			if err != nil {
				return err
			}
			if cancel := req.GetCancelRequest(); cancel != nil {
				forgotten <- cancel.WatchId
			}
		}
	})
	r := open(t, e.addr, nil)
	registrytest.Watch(t, r, "stays").WaitAddrs()
	stop := r.Watch("stops", func(*registry.Snapshot) {})
	<-asked
	stop()
	close(stopped)
	if number := <-forgotten; number != 2 {
		t.Errorf("watch %d was forgotten, want 2", number)
	}
}

// serveLifeless serves a stream that ceases to give signs of life once it has a watch, and later streams as they should be.
func serveLifeless(stream int, s watchStream) error {
	if stream > 1 {
		return s.confirmAll("10.0.0.1:80")
	}
	if _, err := s.asked(); err != nil {
		return err
	}
	if err := s.confirm(0); err != nil {
		return err
	}
	for isFirst := true; ; {
		req, err := s.Recv()
		if err == nil && req.GetProgressRequest() != nil && isFirst {
			isFirst = false
			err = s.Send(&pb.WatchResponse{Header: header(), WatchId: -1})
		}
		if err != nil {
			return err
		}
	}
}

// TestLifelessStream: a watch whose stream gives no sign of life any more lists again, and opens on another.
func TestLifelessStream(t *testing.T) {
	t.Parallel() // it mostly waits
	e := startScripted(t, serveLifeless)
	r := open(t, e.addr, nil)
	registrytest.Watch(t, r, "s").WaitAddrs("10.0.0.1:80")
	e.expect(t, 2, map[string]int{"s": 2})
}

// TestLifelessStreamOfRegistration: the watch of a registration's own key leaves a stream without signs of life, too.
func TestLifelessStreamOfRegistration(t *testing.T) {
	t.Parallel() // it mostly waits
	e := startScripted(t, serveLifeless)
	open(t, e.addr, nil).Register(at("10.0.0.1:80", 0))
	eventually.True(t, "another stream", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.streams == 2
	})
}

// TestLoginRefused: a Registry whose first logins are refused says so, once in the log, and tries again until one succeeds.
func TestLoginRefused(t *testing.T) {
	e := startScripted(t, func(_ int, s watchStream) error { return s.confirmAll("10.0.0.1:80") })
	allowed := make(chan struct{})
	e.login = func(int) error {
		select {
		case <-allowed:
			return nil
		default:
			return rpctypes.ErrGRPCAuthFailed
		}
	}
	var log logCounter
	r := open(t, e.addr, func(o *etcd.Options) { o.Username, o.Password, o.Logger = "me", "secret", slog.New(&log) })
	got := registrytest.Watch(t, r, "s")
	eventually.True(t, "some tries", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.logins > 2
	})
	if now := r.Condition(); now.Up || now.Code != registry.CodeDenied || !strings.Contains(r.Stats().LastError, "authentication failed") {
		t.Errorf("%+v, %s", now, r.Stats().LastError)
	}
	close(allowed)
	got.WaitAddrs("10.0.0.1:80")
	if down, up := log.count("etcd does not respond; the last known endpoints stay in use"), log.count("etcd responds"); down != 1 || up != 1 || r.Stats().LastError != "" {
		t.Errorf("the log says %d and %d times how etcd responds; the last error is %q", down, up, r.Stats().LastError)
	}
}

// TestRevoke: a registration is withdrawn once etcd has ended its lease, or has none any more. A new one has another lease.
func TestRevoke(t *testing.T) {
	e := startScripted(t, func(_ int, s watchStream) error { return s.confirmAll("10.0.0.1:80") })
	allowed := make(chan struct{})
	e.revoke = func(int) error {
		select {
		case <-allowed:
			return nil
		default:
			return rpctypes.ErrGRPCNoSpace
		}
	}
	var log logCounter
	h := open(t, e.addr, logTo(&log)).Register(at("10.0.0.1:80", 0))
	count := func(of *int) int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return *of
	}
	waitState(t, h, registry.Registered)
	h.Withdraw()
	eventually.True(t, "a refusal", func() bool { return h.Err() != nil && count(&e.revokes) > 1 })
	if h.State() != registry.Withdrawn || !strings.Contains(h.Err().Error(), "space") || log.count("withdrawn") != 0 {
		t.Errorf("%v, %v; withdrawn %d times", h.State(), h.Err(), log.count("withdrawn"))
	}
	close(allowed)
	eventually.True(t, "the end of the lease", func() bool { return h.Err() == nil })
	if h.State() != registry.Withdrawn || log.count("withdrawn") != 1 {
		t.Errorf("%v; withdrawn %d times", h.State(), log.count("withdrawn"))
	}
	h.Restore()
	waitState(t, h, registry.Registered)
	if n := count(&e.grants); n != 2 {
		t.Errorf("%d leases", n)
	}
	e.mu.Lock()
	e.revoke = func(int) error { return rpctypes.ErrGRPCLeaseNotFound }
	before := e.revokes
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := h.Close(ctx); err != nil || count(&e.revokes) != before+1 {
		t.Errorf("closed: %v, after %d requests", err, count(&e.revokes)-before)
	}
}
