package demo

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/remora-proxy/remora/internal/freeport"
)

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.ParseFS(templateFiles, "templates/*.yaml"))

const replicaCount = 3

var consumerModes = []string{"off", "shadow", "on"}

// layout has all addresses, on 127.0.0.1, and all files, in dir.
type layout struct {
	dir           string
	grpc          bool // what the requests are; else HTTP/1.1
	etcd          string
	replicas      [replicaCount]string
	links         [replicaCount]string // of the provider sidecars
	providerAdmin [replicaCount]string
	consumers     map[string]*consumer // by hedging mode of the sidecar, or by phase of a feature service
}

// consumer has a consumer sidecar's addresses. The load goes to listen.
type consumer struct{ listen, admin string }

// newLayout returns a layout with the consumers of the names, which are those of its map.
func newLayout(dir string, grpc bool, consumers []string) (*layout, error) {
	l := &layout{dir: dir, grpc: grpc, consumers: map[string]*consumer{}}
	want := []*string{&l.etcd}
	for _, name := range consumers {
		c := &consumer{}
		l.consumers[name] = c
		want = append(want, &c.listen, &c.admin)
	}
	for i := range replicaCount {
		want = append(want, &l.replicas[i], &l.links[i], &l.providerAdmin[i])
	}
	addrs, _, err := freeport.Loopback(len(want))
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	for i, addr := range addrs {
		*want[i] = addr
	}
	return l, nil
}

func (l *layout) providerFile(i int) string {
	return filepath.Join(l.dir, fmt.Sprintf("provider-%d.yaml", i+1))
}

func (l *layout) consumerFile(hedge string) string {
	return filepath.Join(l.dir, "consumer-hedging-"+hedge+".yaml")
}

func (l *layout) writeProviders() error {
	for i := range replicaCount {
		err := render("provider.yaml", l.providerFile(i), fields{
			ID: fmt.Sprintf("compute-%d", i+1), Admin: l.providerAdmin[i], Etcd: l.etcd,
			Link: l.links[i], Replica: l.replicas[i], GRPC: l.grpc,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) writeConfigs() error {
	if err := l.writeProviders(); err != nil {
		return err
	}
	for hedge, c := range l.consumers {
		err := render("consumer.yaml", l.consumerFile(hedge), fields{
			ID: "api-1", Admin: c.admin, Etcd: l.etcd, Listen: c.listen, Hedge: hedge, GRPC: l.grpc,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fields are the data of the templates; each template uses some.
type fields struct {
	File, ID, Admin, Etcd, Link, Replica, Listen, Hedge string
	GRPC                                                bool

	Phase, Delay    string
	Minute          time.Duration
	Affinity, Cache bool
}

func render(name, file string, data fields) error {
	data.File = filepath.Base(file)
	var text bytes.Buffer
	err := templates.ExecuteTemplate(&text, name, data)
	if err == nil {
		err = os.WriteFile(file, text.Bytes(), 0o666)
	}
	if err != nil {
		return fmt.Errorf("demo: configuration %s: %w", file, err)
	}
	return nil
}
