package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/internal/eventually"
)

// Etcds is a cluster of three etcd processes.
type Etcds struct {
	Members []*EtcdMember
	Client  *clientv3.Client // of the members themselves

	t *testing.T
}

// EtcdMember is one of the processes.
type EtcdMember struct {
	Front *Forwarder // by which sidecars reach it

	dir  string // of the data
	addr string // for clients
	args []string
	cmd  *exec.Cmd
}

// StartEtcds starts a cluster, which ends with the test. It skips the test if etcd is not installed. flags are further ones of etcd.
func StartEtcds(t *testing.T, flags ...string) *Etcds {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("etcd is not installed: see scripts/install.sh")
	}
	const size = 3
	c := &Etcds{t: t}
	addrs := FreeAddrs(t, 2*size)
	var cluster, clients []string
	for i := range size {
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, addrs[size+i]))
	}
	for i := range size {
		m := &EtcdMember{dir: filepath.Join(t.TempDir(), "data"), addr: addrs[i], Front: Forward(t, addrs[i])}
		m.args = []string{
			"--name", fmt.Sprint("m", i), "--data-dir", m.dir, "--listen-client-urls", "http://" + addrs[i], "--advertise-client-urls", "http://" + addrs[i],
			"--listen-peer-urls", "http://" + addrs[size+i], "--initial-advertise-peer-urls", "http://" + addrs[size+i],
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", "new", "--heartbeat-interval", "100", "--election-timeout", "1000",
		}
		m.args = append(m.args, flags...)
		c.Members, clients = append(c.Members, m), append(clients, addrs[i])
	}
	c.Start(c.Members...)
	t.Cleanup(func() { c.Kill(c.Members...) })
	var err error
	if c.Client, err = clientv3.New(clientv3.Config{Endpoints: clients}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Client.Close() })
	return c
}

// Addr returns the address of the member itself.
func (m *EtcdMember) Addr() string { return m.addr }

// Start starts members.
func (c *Etcds) Start(members ...*EtcdMember) {
	c.t.Helper()
	for _, m := range members {
		m.cmd = exec.Command("etcd", m.args...)
		if err := m.cmd.Start(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Kill ends members without a warning.
func (c *Etcds) Kill(members ...*EtcdMember) {
	for _, m := range members {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
	}
}

// Signal sends a signal to members.
func (c *Etcds) Signal(sig syscall.Signal, members ...*EtcdMember) {
	for _, m := range members {
		_ = m.cmd.Process.Signal(sig)
	}
}

// Wipe replaces the data of the cluster by nothing.
func (c *Etcds) Wipe() {
	c.Kill(c.Members...)
	for _, m := range c.Members {
		if err := os.RemoveAll(m.dir); err != nil {
			c.t.Fatal(err)
		}
	}
	c.Start(c.Members...)
}

// SetSilent cuts sidecars off from members, or connects it again.
func (c *Etcds) SetSilent(silent bool, members ...*EtcdMember) {
	for _, m := range members {
		m.Front.SetSilent(silent)
	}
}

// Leader returns the member that leads, and the others.
func (c *Etcds) Leader() (leader *EtcdMember, others []*EtcdMember) {
	c.t.Helper()
	eventually.Nil(c.t, "etcd to have a leader", func() error {
		leader, others = nil, nil
		for _, m := range c.Members {
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
			st, err := c.Client.Status(ctx, m.addr)
			cancel()
			switch {
			case err != nil:
				return err
			case st.Leader == st.Header.MemberId:
				leader = m
			default:
				others = append(others, m)
			}
		}
		if leader == nil {
			return errors.New("none leads")
		}
		return nil
	})
	return leader, others
}

// Fronts returns the addresses by which sidecars reach the members, as a list in YAML.
func (c *Etcds) Fronts() string {
	var all []string
	for _, m := range c.Members {
		all = append(all, strconv.Quote(m.Front.Addr()))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// Metric returns the sum of a metric over all members.
func (c *Etcds) Metric(name string) (sum int) {
	c.t.Helper()
	for _, m := range c.Members {
		resp, err := http.Get("http://" + m.addr + "/metrics")
		if err != nil {
			c.t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			c.t.Fatal(err)
		}
		_, after, found := strings.Cut(string(text), "\n"+name+" ")
		var n int
		if _, err := fmt.Sscan(after, &n); !found || err != nil {
			c.t.Fatalf("etcd has no metric %s", name)
		}
		sum += n
	}
	return sum
}
