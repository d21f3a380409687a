package names

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// familiesVariable makes the test binary run a command with sockets of only these families, as
// RestrictAddressFamilies of systemd does.
const familiesVariable = "REMORA_TEST_FAMILIES"

var familyOf = map[string]uint32{"AF_UNIX": unix.AF_UNIX, "AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6, "AF_NETLINK": unix.AF_NETLINK}

func init() {
	allowed := os.Getenv(familiesVariable)
	if allowed == "" {
		return
	}
	_ = os.Unsetenv(familiesVariable)
	err := restrict(strings.Fields(allowed))
	if err == nil {
		err = syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// restrict makes socket(2) fail with EAFNOSUPPORT for other families, in this thread and what it executes. seccomp(2)
// describes the data: the number of the call is at 0, its first argument at 16.
func restrict(allowed []string) error {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		give  = unix.BPF_RET | unix.BPF_K
	)
	pass := unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ALLOW}
	filter := []unix.SockFilter{{Code: load, K: 0}, {Code: equal, Jt: 1, K: unix.SYS_SOCKET}, pass, {Code: load, K: 16}}
	for _, name := range allowed {
		filter = append(filter, unix.SockFilter{Code: equal, Jf: 1, K: familyOf[name]}, pass)
	}
	filter = append(filter, unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// TestUnitFamilies: with the address families of the systemd unit the sidecar knows the addresses of its host, which
// direct requests do not reach. Without netlink it does not, and reaches only addresses that its list has.
func TestUnitFamilies(t *testing.T) {
	unit := must.ReadFile(t, "../../packaging/remora.service")
	found := regexp.MustCompile(`(?m)^RestrictAddressFamilies=(.*)$`).FindSubmatch(unit)
	if found == nil {
		t.Fatal("the unit restricts no families")
	}
	own := "127.0.0.2"
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			own = p.Addr().String()
		}
	}
	listed := nameApp(t)
	app := must.ListenOn(t, "tcp", own+":0")
	for name, c := range map[string]struct {
		families string
		blind    bool
	}{
		"the unit":        {string(found[1]), false},
		"without netlink": {"AF_INET AF_INET6 AF_UNIX", true},
	} {
		t.Run(name, func(t *testing.T) {
			egress := harness.FreeAddrs(t, 1)[0]
			p := harness.NewProcess(t, directConfig(egress, filepath.Join(t.TempDir(), "access"), `, direct: {allow: [127.0.0.1, 0.0.0.0/0]}`))
			cmd := exec.Command(os.Args[0], harness.Binary, "run", "-c", p.File)
			cmd.Env = append(os.Environ(), familiesVariable+"="+c.families)
			p = p.Launch(cmd)
			p.Ready()
			get := func(host string) string {
				return exchanged(t, harness.DialPlain(t, egress), "GET http://"+host+"/ HTTP/1.1\r\nHost: x\r\n\r\n")
			}
			if got := get(app.Addr().String()); got != "403" {
				t.Errorf("an address of this host: %s, want 403", got)
			}
			if got, want := get(listed), "200  "+listed; got != want {
				t.Errorf("an address in the list: %s, want %s", got, want)
			}
			const says = "those of this host are not known"
			if c.blind {
				p.AwaitLog(says)
			} else if strings.Contains(p.Output.String(), says) {
				t.Errorf("the log says %q", says)
			}
		})
	}
}
