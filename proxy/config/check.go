package config

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/unixaddr"
)

// Check is an active health check: of each endpoint of a service, or of the
// application behind a registration. Without HTTP, TCP and GRPC there is none.
type Check struct {
	// Path of a GET that must return 200 to 399.
	HTTP string `yaml:"http"`
	// An accepted connection is enough.
	TCP bool `yaml:"tcp"`
	// Service that `grpc.health.v1` must report as serving, by HTTP/2. `/` means the server as a whole.
	GRPC string `yaml:"grpc"`
	// Port that is asked in place of the endpoint's, without TLS. 0 means the endpoint's.
	Port int `yaml:"port" max:"65535"`
	// Name or IP address that is asked in place of the endpoint's, without TLS. Empty means the endpoint's.
	Host string `yaml:"host"`
	// Of services, not of registrations: what becomes of an unhealthy endpoint. `keep`: its streams stay, and it is used if all are unhealthy. `close`: its streams are cut with `endpoint-down`, and it gets no request before a check has passed again.
	OnDown string `yaml:"on_down" oneof:"keep close"`
	// Time from one check to the next.
	Interval time.Duration `yaml:"interval" min:"10ms"`
	// For one check. Then it has failed.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`
	// Passes in a row that make it healthy again.
	Healthy int `yaml:"healthy" min:"1" max:"65535"`
	// Failures in a row that make it unhealthy.
	Unhealthy int `yaml:"unhealthy" min:"1" max:"65535"`
}

func (c *Check) setDefaults() {
	*c = Check{Interval: time.Second, Timeout: time.Second, Healthy: 2, Unhealthy: 3, OnDown: "keep"}
}

// OnDownClose is the value of Check.OnDown with which streams end.
const OnDownClose = "close"

// Enabled reports whether anything is checked.
func (c *Check) Enabled() bool { return c.HTTP != "" || c.TCP || c.GRPC != "" }

// Beside reports whether the check asks something beside the endpoint, which may speak another
// protocol.
func (c *Check) Beside() bool { return c.Port != 0 || c.Host != "" }

// check checks a check of a service, or of a registration.
func (c *Check) check(in scope, at path) {
	in.refuseIf(c.HTTP != "" && c.TCP, at, "expected http or tcp, got both")
	in.refuseIf(c.GRPC != "" && (c.HTTP != "" || c.TCP), at, "expected http, tcp or grpc, got grpc and another one")
	in.refuseIf(c.GRPC != "/" && strings.Contains(c.GRPC, "/"), at.key("grpc"),
		"expected the name of a service such as shop.Cart, or / for the server as a whole, got %q", public(c.GRPC))
	if _, err := url.ParseRequestURI(c.HTTP); c.HTTP != "" && (err != nil || !strings.HasPrefix(c.HTTP, "/")) {
		in.report(at.key("http"), `expected a path that starts with "/", got %q`, public(c.HTTP))
	}
	in.refuseIf(c.Host != "" && !isHostName(c.Host), at.key("host"), "expected a name or an IP address without a port, got %q", c.Host)
	in.refuseIf(!c.Enabled() && (c.Beside() || c.OnDown == OnDownClose), at, "expected http, tcp or grpc; without one there is no check")
	if in.service != nil {
		c.checkService(in, at)
	}
}

// checkService checks the check of a service's endpoints. Endpoints in etcd may have
// the protocol http although the service has another, so only those of a file are checked.
func (c *Check) checkService(in scope, at path) {
	s := in.service
	for _, e := range s.Endpoints {
		in.refuseIf(unixaddr.Is(e.Address) && c.Beside() && (c.Host == "" || c.Port == 0), at,
			"expected host and port, since the endpoint %s has neither", e.Address)
	}
	if c.Beside() {
		return
	}
	isForeign := s.isListed() && s.Protocol != ProtocolHTTP
	noGRPC := slices.Contains([]string{ProtocolLink, ProtocolDubbo, ProtocolTCP}, s.Protocol)
	in.refuseIf(c.GRPC != "" && s.isListed() && noGRPC, at.key("grpc"),
		"the endpoints speak %s, not gRPC; expected tcp: true", s.Protocol)
	in.refuseIf(c.HTTP != "" && isForeign, at.key("http"),
		"the endpoints speak %s, not %s; expected tcp: true", s.Protocol, ProtocolHTTP)
}
