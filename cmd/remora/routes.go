package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/route"
)

// newRoutes returns the command "remora routes", whose commands are about routes.
func newRoutes() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "routes",
		Short: "Try the routes of a configuration file",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("expected a command; %s --help lists them", cmd.CommandPath())
		},
	}
	cmd.AddCommand(failing(newRoutesTest()))
	return cmd
}

// newRoutesTest returns the command "remora routes test".
func newRoutesTest() *cobra.Command {
	var file, listener string
	var headers []string
	cmd := &cobra.Command{
		Use:   `test -c FILE "METHOD URL"`,
		Short: "Say which route takes an HTTP request, and why",
		Long: "Say which route takes an HTTP request, why those before it do not, and what becomes of the request.\n" +
			"Nothing is sent. Headers count as those of a trusted client. Without a route the exit code is 1.",
		Example: `  remora routes test -c remora.yaml "GET http://users.svc/v1/users?page=2" -H 'x-tier: gold'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := load(cmd, file)
			if err != nil {
				return err
			}
			t := routeTest{out: cmd.OutOrStdout(), cfg: cfg}
			if t.listener, err = routedListener(cfg, listener); err != nil {
				return err
			}
			if t.req, err = parseRequest(args[0], headers, &cfg.Limits); err != nil {
				return err
			}
			return t.run()
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file (YAML)")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err) // the flag was defined one line above
	}
	cmd.Flags().StringArrayVarP(&headers, "header", "H", nil, `header of the request, as "name: value"; may be repeated`)
	cmd.Flags().StringVar(&listener, "listener", "", "name of the listener; empty means the first one that has routes")
	return cmd
}

// routedListener returns the listener with that name, or the first, whose requests the routes
// direct.
func routedListener(cfg *config.Config, name string) (*config.Listener, error) {
	for i := range cfg.Listeners {
		if l := &cfg.Listeners[i]; l.HasRoutes() && (name == "" || l.Name == name) {
			return l, nil
		}
	}
	if name != "" {
		return nil, fmt.Errorf("there is no http listener %q without a service", name)
	}
	return nil, fmt.Errorf("no http listener without a service: the routes get no HTTP requests")
}

// parseRequest reads a request as "METHOD URL", as a listener would.
func parseRequest(line string, headers []string, lim *config.Limits) (*protocol.Request, error) {
	method, target, ok := strings.Cut(line, " ")
	if !ok {
		method, target = "GET", line
	}
	_, rest, ok := strings.Cut(target, "://")
	if !ok && method != "CONNECT" {
		return nil, fmt.Errorf(`expected "METHOD http://host/path", got %q`, line)
	}
	host := cmp.Or(rest, target)
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		host, rest = rest[:i], rest[i:]
	} else {
		rest = ""
	}
	switch {
	case method == "CONNECT":
		rest = host
	case !strings.HasPrefix(rest, "/"):
		rest = "/" + rest
	}
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", method, rest, host)
	for _, h := range headers {
		text += h + "\r\n"
	}
	req := new(protocol.Request)
	limits := protocol.Limits{Header: int(lim.Header), Headers: lim.Headers, Message: protocol.NoLimit}
	if _, err := http1.DecodeRequest([]byte(text+"\r\n"), req, new(http1.Head), &limits); err != nil {
		return nil, fmt.Errorf("the request would be refused: %w", err)
	}
	return req, nil
}

// routeTest is one run of "remora routes test".
type routeTest struct {
	out      io.Writer
	cfg      *config.Config
	listener *config.Listener
	req      *protocol.Request
}

func (t *routeTest) printf(format string, args ...any) { fmt.Fprintf(t.out, format+"\n", args...) }

// run prints what becomes of the request.
func (t *routeTest) run() error {
	plans := route.Plans(t.cfg)
	table := route.NewTable(plans)
	t.printf("%s, at listener %s", t.request(string(t.req.Authority)), t.listener.Name)
	if rules := route.NewPathRules(&t.listener.Path); table.ByPath && rules != nil && !rules.Normal(t.req.Path) {
		path, ok := rules.AppendNormal(nil, t.req.Path)
		if !ok {
			t.printf("refused: 400 bad-path, the path is ambiguous")
			return reported{}
		}
		if string(path) != string(t.req.Path) {
			t.printf("normalized: %s", path)
		}
		t.req.Path = path
	}
	for _, trial := range table.Explain(t.req) {
		plan := &plans[trial.Plan]
		verdict := "no"
		if trial.Takes {
			verdict = "takes it"
		}
		t.printf("routes[%d]: %s", plan.Index, verdict)
		for _, c := range trial.Conditions {
			if c.Met {
				t.printf("  met      %s", c.Text)
			} else {
				t.printf("  not met  %s, got %s", c.Text, c.Got)
			}
		}
		if len(trial.Conditions) == 0 {
			t.printf("  met      no condition")
		}
		if trial.Takes {
			t.outcome(plan)
			return nil
		}
	}
	if t.listener.Unrouted == config.UnroutedDirect && !t.ruled(table, plans) {
		t.printf("no route: on to %s itself, as far as direct may reach it", t.req.Authority)
		return nil
	}
	t.printf("no route: 404 no-route")
	return reported{}
}

// ruled reports whether a route that names the host has rules, which keep requests from the host itself.
func (t *routeTest) ruled(table *route.Table, plans []route.Plan) (ruled bool) {
	table.EachOfHost(t.req.Authority, func(plan int, named bool) bool {
		for i := plan; i < len(plans) && plans[i].Index == plans[plan].Index; i++ {
			s := t.cfg.Services[plans[i].Service]
			ruled = ruled || named && (plans[i].Route.Allow.Enforced() || s != nil && s.Allow.Enforced())
		}
		return !ruled
	})
	return ruled
}

// request returns the request as one to host.
func (t *routeTest) request(host string) string {
	target := string(t.req.Path)
	if target != "" { // empty for CONNECT
		target = " " + target
	}
	return string(t.req.Method) + target + " to " + host
}

// outcome prints what the route of the plan does.
func (t *routeTest) outcome(plan *route.Plan) {
	r := plan.Route
	if w := route.NewRewrite(plan); w != nil {
		t.req.Path = w.Append(nil, t.req.Path)
	}
	if a := route.NewAnswer(plan); a != nil {
		var res protocol.Response
		a.Fill(&res, t.req, nil)
		t.printf("  status: %d", res.Status)
		if to := protocol.Find(res.Headers, "location"); to != nil {
			t.printf("  location: %s", to)
		} else {
			t.printf("  body: %d bytes", len(res.Body))
		}
	} else {
		t.printf("  service: %s", strings.Join(shares(r), ", "))
		t.printf("  sent as: %s", t.request(cmp.Or(r.Rewrite.Host, string(t.req.Authority))))
		t.edits("request", &r.RequestHeaders)
		t.fallback(&r.Fallback)
	}
	t.edits("response", &r.ResponseHeaders)
}

// fallback prints what callers get in place of failures.
func (t *routeTest) fallback(f *config.Fallback) {
	switch on := strings.Join(f.On, ", "); {
	case f.Service != "":
		t.printf("  fallback: service %s within %s, on %s", f.Service, f.Timeout, on)
	case f.Enabled():
		t.printf("  fallback: status %d, on %s", cmp.Or(f.Respond.Status, 200), on)
	}
}

// edits prints the names of headers that a route changes. Their values may be secrets.
func (t *routeTest) edits(of string, e *config.HeaderEdits) {
	for _, list := range []struct {
		verb  string
		names []string
	}{
		{"set", slices.Sorted(maps.Keys(e.Set))}, {"added", slices.Sorted(maps.Keys(e.Add))}, {"removed", e.Remove},
	} {
		if len(list.names) > 0 {
			t.printf("  %s headers %s: %s", of, list.verb, strings.Join(list.names, ", "))
		}
	}
}

// shares returns the services of a route, with their shares if there are several.
func shares(r *config.Route) (out []string) {
	sum := 0
	for _, s := range r.Split {
		sum += s.Weight
	}
	for _, s := range r.Split {
		out = append(out, fmt.Sprintf("%s (%d of %d)", s.Name, s.Weight, sum))
	}
	if len(out) == 0 {
		out = []string{r.Service}
	}
	return out
}
