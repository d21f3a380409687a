package inject

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Options says what is added to a pod.
type Options struct {
	Image      string // of the sidecar
	PullPolicy string // Always, IfNotPresent or Never; "" leaves it to Kubernetes
	Config     string // name of the ConfigMap whose key remora.yaml is the configuration
	TLS        string // name of the Secret with certificates and keys, in /tls; "" means none
	Env        []string
	LinkPort   int // where other sidecars reach this one, for the description of the container; 0 means none
	AdminPort  int // of admin.address in the configuration
	Drain      bool
	User       int // whom the sidecar runs as

	CPURequest, MemoryRequest, CPULimit, MemoryLimit string // of the sidecar; "" for CPULimit means none, and it is that of each container

	Intercept Intercept
}

// Intercept says what is redirected to the sidecar, by scripts/intercept.sh.
type Intercept struct {
	On      bool
	Image   string // has the script as its entrypoint, and iptables
	Port    int    // of the listeners with transparent: true
	Ports   string // redirect only these, as "80,8000-8100"; "" means all
	NoIPv6  bool
	Exclude []string // addresses to leave alone, as CIDRs

	ExcludePorts string // leave these alone
}

const defaultAdminPort = 9901

// DefaultOptions returns the options of a command line without flags.
func DefaultOptions() Options {
	return Options{
		Image: "remora:latest", Config: "remora", AdminPort: defaultAdminPort, User: 65532,
		CPURequest: "100m", MemoryRequest: "64Mi",
		MemoryLimit: "896Mi", // the worst case; less with a lower limits.buffered
		Intercept:   Intercept{Image: "remora-intercept:latest", Port: 15001},
	}
}

// What Kubernetes accepts, as far as a wrong value would give another meaning to a manifest. The API server checks the rest.
// The expressions are compiled when they are used: each sidecar would keep their 200 KiB.
const (
	validPolicy   = `^(Always|IfNotPresent|Never)$`
	validName     = `^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`
	validImage    = `^[!-~]{1,1000}$`
	validQuantity = `^[0-9]{1,18}(\.[0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$`
	validVariable = `^[A-Za-z_][A-Za-z0-9_]*=`
	portList      = `^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`
)

func matches(expression, value string) bool { return regexp.MustCompile(expression).MatchString(value) }

// Check returns an error about the first option that is wrong.
func (o *Options) Check() error {
	for _, c := range []struct {
		option, value string
		valid         string
		optional      bool
		example       string
	}{
		{"image", o.Image, validImage, false, "an image such as remora:latest"},
		{"image-pull-policy", o.PullPolicy, validPolicy, true, "Always, IfNotPresent or Never"},
		{"config", o.Config, validName, false, "the name of a ConfigMap"},
		{"tls", o.TLS, validName, true, "the name of a Secret"},
		{"cpu-request", o.CPURequest, validQuantity, false, "a quantity such as 100m"},
		{"memory-request", o.MemoryRequest, validQuantity, false, "a quantity such as 64Mi"},
		{"cpu-limit", o.CPULimit, validQuantity, true, "a quantity such as 2"},
		{"memory-limit", o.MemoryLimit, validQuantity, false, "a quantity such as 896Mi"},
		{"intercept-image", o.Intercept.Image, validImage, false, "an image such as remora-intercept:latest"},
	} {
		if !matches(c.valid, c.value) && (c.value != "" || !c.optional) {
			return fmt.Errorf("--%s: expected %s, got %q", c.option, c.example, c.value)
		}
	}
	taken := make(map[string]bool)
	for _, v := range variables {
		taken[v.name] = true
	}
	for _, e := range o.Env {
		if !matches(validVariable, e) || !utf8.ValidString(e) {
			return fmt.Errorf("--env: expected NAME=VALUE, got %q", e)
		}
		name, _, _ := strings.Cut(e, "=")
		if taken[name] {
			return fmt.Errorf("--env: the sidecar has the variable %s already", name)
		}
		taken[name] = true
	}
	for _, p := range []struct {
		option string
		port   int
	}{{"admin-port", o.AdminPort}, {"intercept-port", o.Intercept.Port}} {
		if p.port < 1 || p.port > 65535 {
			return fmt.Errorf("--%s: expected a port from 1 to 65535, got %d", p.option, p.port)
		}
	}
	if o.LinkPort < 0 || o.LinkPort > 65535 {
		return fmt.Errorf("--link-port: expected a port from 1 to 65535, got %d", o.LinkPort)
	}
	if o.User < 1 || o.User > 1<<31-1 {
		return fmt.Errorf("--proxy-uid: expected a number from 1 to %d, got %d", 1<<31-1, o.User)
	}
	return o.Intercept.check()
}

func (i *Intercept) check() error {
	if !i.On && (i.Ports != "" || i.ExcludePorts != "" || len(i.Exclude) > 0 || i.NoIPv6) {
		return errors.New("--ports, --exclude-ports, --exclude and --no-ipv6 say what is redirected: expected --intercept, too")
	}
	if !validPorts(i.Ports) {
		return fmt.Errorf("--ports: expected ports such as 80,8000-8100, got %q", i.Ports)
	}
	if !validPorts(i.ExcludePorts) {
		return fmt.Errorf("--exclude-ports: expected ports such as 80,8000-8100, got %q", i.ExcludePorts)
	}
	for _, cidr := range i.Exclude {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			if _, err := netip.ParseAddr(cidr); err != nil || strings.Contains(cidr, "%") {
				return fmt.Errorf("--exclude: expected an address or a CIDR, got %q", cidr)
			}
		}
	}
	return nil
}

func validPorts(ports string) bool {
	if ports == "" {
		return true
	}
	if !matches(portList, ports) {
		return false
	}
	for item := range strings.SplitSeq(ports, ",") {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, errTo := strconv.ParseUint(last, 10, 16)
		if err != nil || errTo != nil || from == 0 || to < from {
			return false
		}
	}
	return true
}
