package starter

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/config"
)

// option is a setting of the file that is a comment.
var option = regexp.MustCompile(`(?m)^( *)# ( *[a-z_]+: ?[\[{\dt\n]| +- \{|routes:)`)

// TestFile: the file is valid, as are the settings in its comments, and the application's address is in
// one place.
func TestFile(t *testing.T) {
	text := string(file)
	if _, err := config.Parse("file", file, nil); err != nil {
		t.Error(err)
	}
	if n := strings.Count(text, "EDIT"); n != 1 {
		t.Errorf("%d addresses to edit", n)
	}
	for _, key := range []string{"check", "max_concurrency", "idempotent", "hedge", "routes", "access_log"} {
		if !strings.Contains(text, "# "+key+":") {
			t.Errorf("no comment shows %s", key)
		}
	}
	all := option.ReplaceAllString(text, "$1$2")
	all = strings.NewReplacer("    service: app ", "    #", "services:\n", "services:\n  users: {discover: static, endpoints: [\"a:1\"]}\n").Replace(all)
	c, err := config.Parse("file", []byte(all), nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, all)
	}
	app := c.Services["app"]
	if app.Check.HTTP != "/healthz" || app.MaxConcurrency != 64 || app.Idempotent[0] != config.IdempotentTrue || app.Hedge.Mode != config.HedgeOn ||
		len(c.Routes) != 2 || c.AccessLog.Path != "stdout" {
		t.Errorf("not all comments were read: %+v, %+v", app, c)
	}
}

// TestWrite: a file that exists is not touched.
func TestWrite(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := write("new.yaml"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("new.yaml"); string(got) != string(file) {
		t.Errorf("wrote %q, %v", got, err)
	}
	must.WriteFile(t, "mine.yaml", "mine")
	if err := write("mine.yaml"); err == nil || !strings.HasPrefix(err.Error(), "mine.yaml exists") {
		t.Errorf("an existing file: %v", err)
	}
	if got, _ := os.ReadFile("mine.yaml"); string(got) != "mine" {
		t.Errorf("overwritten: %q", got)
	}
	if err := write("none/new.yaml"); err == nil {
		t.Error("no error without the folder")
	}
}

// TestConfig: flags make the configuration that a file would, and errors name the flags.
func TestConfig(t *testing.T) {
	flags := Flags{Listen: "127.0.0.1:15001", To: []string{"127.0.0.1:8080", "app.test:80"}, Admin: ""}
	got, err := flags.Config()
	if err != nil {
		t.Fatal(err)
	}
	app := got.Services[service]
	if got.Listeners[0].Address != flags.Listen || got.Listeners[0].Service != service || app.Protocol != config.ProtocolHTTP ||
		len(app.Endpoints) != 2 || app.Endpoints[1].Address != flags.To[1] || got.Admin.Address != "" || got.Log.Format != config.FormatText {
		t.Errorf("%+v, %+v", got, app)
	}
	for _, c := range []struct {
		flags Flags
		want  string // parts, with a comma between
	}{
		{Flags{"15001", []string{"a:1"}, ""}, `--listen: expected host:port, got "15001"`},
		{Flags{":1", []string{"a:1", "8080"}, ""}, `--to: expected host:port, got "8080"`},
		{Flags{":1", []string{"http://a:1"}, ""}, `--to: expected host:port`},
		{Flags{":1", []string{"${HOME}:1"}, ""}, `--to: expected an IP address or a name before the port, got "${HOME}:1"`},
		{Flags{":1", []string{"a:1", "a:1"}, ""}, `--to: a:1 is listed twice`},
		{Flags{":1", []string{""}, ""}, `--to: expected host:port, got ""`},
		{Flags{":1", []string{"a:1"}, "0.0.0.0:9"}, `--admin: expected a loopback address`},
		{Flags{"127.0.0.1:9", []string{"a:1"}, "127.0.0.1:9"}, `--listen: 127.0.0.1:9 is already used by admin.address`},
		{Flags{"x", []string{"y"}, ""}, "--listen: expected host:port, got \"x\"; the port is missing\n--to: expected host:port, got \"y\""},
	} {
		text := ""
		if _, err := c.flags.Config(); err != nil {
			text = err.Error()
		}
		if !strings.HasPrefix(text, c.want) || c.want == "" && text != "" {
			t.Errorf("%+v: got %q, want %q", c.flags, text, c.want)
		}
	}
}
