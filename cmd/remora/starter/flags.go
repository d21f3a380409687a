package starter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/proxy/config"
)

// service is the name of the only service of a sidecar without a file, as logs and metrics show it.
const service = "app"

// Flags take the place of a configuration file.
type Flags struct {
	Listen string   // where requests come in
	To     []string // the endpoints that they go to
	Admin  string   // the admin API; empty means none
}

// names are the flags by the setting that each sets.
var names = []struct{ setting, flag string }{
	{"listeners[0].address", "--listen"},
	{"services." + service + ".endpoints", "--to"},
	{"admin.address", "--admin"},
}

// Add defines the flags on a command.
func (f *Flags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Listen, "listen", "", "without a file: address for HTTP requests")
	cmd.Flags().StringArrayVar(&f.To, "to", nil, "without a file: address of your application; repeat it for several replicas")
	cmd.Flags().StringVar(&f.Admin, "admin", config.Default().Admin.Address, "without a file: address of the admin API; empty for none")
}

// Check reports whether the command line has all that a sidecar needs without a file, or none of it beside
// one. with are the other flags that need a file.
func Check(cmd *cobra.Command, with ...string) (withoutFile bool, err error) {
	set := cmd.Flags().Changed
	withoutFile = set("listen") || set("to")
	switch {
	case !withoutFile && !set("config"):
		return false, errors.New("expected -c FILE, or --listen ADDR and --to ADDR")
	case !withoutFile && set("admin"):
		return false, errors.New("--admin goes with --listen and --to; a file has admin.address")
	case !withoutFile:
		return false, nil
	case set("config"):
		return false, errors.New("--listen and --to take the place of a file; leave them out, or leave out -c")
	case !set("listen"):
		return false, errors.New("--to needs --listen ADDR, where requests come in")
	case !set("to"):
		return false, errors.New("--listen needs --to ADDR, where requests go")
	}
	for _, flag := range with {
		if set(flag) {
			return false, fmt.Errorf("--%s needs a file: -c FILE", flag)
		}
	}
	return true, nil
}

// Config returns the configuration that a file with these addresses would be. Its errors name the flags.
func (f *Flags) Config() (*config.Config, error) {
	type settings map[string]any
	text, err := json.Marshal(settings{ // which is YAML
		"log":       settings{"format": config.FormatText},
		"admin":     settings{"address": f.Admin},
		"listeners": []any{settings{"name": "http", "address": f.Listen, "protocol": config.ProtocolHTTP, "service": service}},
		"services":  settings{service: settings{"discover": config.DiscoverStatic, "endpoints": f.To}},
	})
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse("", []byte(strings.ReplaceAll(string(text), "$", "$$")), nil)
	var wrong config.Errors
	if !errors.As(err, &wrong) {
		return cfg, err
	}
	var errs []error
	for _, e := range wrong {
		errs = append(errs, fmt.Errorf("%s: %s", FlagOf(e.Path), e.Text))
	}
	return nil, errors.Join(errs...)
}

// FlagOf returns the flag that sets a setting, or the setting itself if there is none.
func FlagOf(setting string) string {
	for _, n := range names {
		if strings.HasPrefix(setting, n.setting) {
			return n.flag
		}
	}
	return setting
}
