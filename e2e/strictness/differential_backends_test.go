package strictness

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// backendFiles has the configurations and applications of the backends.
const backendFiles = "../../scripts/differential"

// backend is a server that reads what Remora forwards.
type backend struct {
	name    string
	needs   string   // "", or the environment variable that says where its packages are
	config  string   // the file of its configuration in backendFiles, "" if it has none
	command []string // may contain variables, as a configuration does
}

// The environment of scripts/differential.sh.
const (
	systemPython = "DIFFERENTIAL_PYTHON" // an interpreter with Debian's packages
	venvPython   = "DIFFERENTIAL_VENV"   // an interpreter with those of PyPI
	javaClasses  = "DIFFERENTIAL_JAVA"   // a class path
	cloudwego    = "DIFFERENTIAL_HERTZ"  // the program of scripts/cloudwego
	newestPeers  = "DIFFERENTIAL_PEERS"  // the folder of the programs that scripts/peers.sh brings
)

func pythonBackends(suffix, needs string) []backend {
	python := "$" + needs
	return []backend{
		{"gunicorn" + suffix, needs, "", []string{python, "-m", "gunicorn", "--log-level", "critical",
			"-k", "gthread", "--threads", "2", "-b", "$LISTEN", "app:wsgi"}},
		{"uvicorn" + suffix, needs, "", []string{python, "-m", "uvicorn", "--log-level", "critical",
			"--http", "h11", "--host", "$HOST", "--port", "$PORT", "app:asgi"}},
		{"hypercorn" + suffix, needs, "", []string{python, "-m", "hypercorn", "--log-level", "critical", "-b", "$LISTEN", "$FILES/app.py:asgi"}},
		{"tornado" + suffix, needs, "", []string{python, "$FILES/app.py", "tornado", "$PORT"}},
		{"aiohttp" + suffix, needs, "", []string{python, "$FILES/app.py", "aiohttp", "$PORT"}},
	}
}

// backends lists all servers. Those of Debian's packages and of Go come first.
func backends() []backend {
	all := []backend{
		{name: "net/http"},
		{"nginx", "", "nginx.conf", []string{"nginx", "-e", "stderr", "-c", "$CONFIG"}},
		{"haproxy", "", "haproxy.cfg", []string{"haproxy", "-db", "-f", "$CONFIG"}},
		{"apache", "", "apache.conf", []string{"apache2", "-DFOREGROUND", "-f", "$CONFIG"}},
		{"lighttpd", "", "lighttpd.conf", []string{"lighttpd", "-D", "-f", "$CONFIG"}},
		{"node", "", "", []string{"node", "$FILES/app.js", "$PORT"}},
		{"hertz", cloudwego, "", []string{"$" + cloudwego, "echo", "-addr", "$LISTEN"}},
		{"hertz-stream", cloudwego, "", []string{"$" + cloudwego, "echo", "-addr", "$LISTEN", "-stream"}},
	}
	all = append(all, pythonBackends("-debian", systemPython)...)
	all = append(all, pythonBackends("", venvPython)...)
	python := func(name string, args ...string) backend {
		return backend{name, venvPython, "", append([]string{"$" + venvPython, "-m"}, args...)}
	}
	return append(all,
		python("uvicorn-httptools", "uvicorn", "--log-level", "critical", "--http", "httptools", "--host", "$HOST", "--port", "$PORT", "app:asgi"),
		python("gevent", "gunicorn", "--log-level", "critical", "-k", "gevent_pywsgi", "-b", "$LISTEN", "app:wsgi"),
		python("waitress", "waitress", "--no-clear-untrusted-proxy-headers", "--listen", "$LISTEN", "app:wsgi"),
		python("daphne", "daphne", "-v", "0", "-b", "$HOST", "-p", "$PORT", "app:asgi"),
		python("granian", "granian", "--interface", "asgi", "--log-level", "critical", "--host", "$HOST", "--port", "$PORT", "app:asgi"),
		backend{"nginx-newest", newestPeers, "nginx.conf", []string{"$" + newestPeers + "/nginx", "-e", "stderr", "-c", "$CONFIG"}},
		backend{"haproxy-newest", newestPeers, "haproxy.cfg", []string{"$" + newestPeers + "/haproxy", "-db", "-f", "$CONFIG"}},
		backend{"jetty", javaClasses, "", []string{"java", "-cp", "$" + javaClasses, "Echo", "jetty", "$PORT"}},
		backend{"tomcat", javaClasses, "", []string{"java", "-cp", "$" + javaClasses, "Echo", "tomcat", "$PORT"}})
}

// start starts the server and returns its address. It ends with the test.
func (b *backend) start(t *testing.T) (addr string) {
	server := httptest.NewServer(http.HandlerFunc(echoHandler))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	echo := server.Listener.Addr().String()
	if b.command == nil {
		return echo
	}
	addr = harness.FreeAddrs(t, 1)[0]
	scgi := harness.ServeTCP(t, serveSCGI)
	dir := t.TempDir()
	files, err := filepath.Abs(backendFiles)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{"DOLLAR": "$", "DIR": dir, "FILES": files, "LISTEN": addr, "SCGI": scgi, "HTTP": echo,
		"CONFIG": filepath.Join(dir, b.config), b.needs: os.Getenv(b.needs)}
	values["HOST"], values["PORT"], _ = net.SplitHostPort(addr)
	values["SCGIHOST"], values["SCGIPORT"], _ = net.SplitHostPort(scgi)
	expand := func(s string) string { return os.Expand(s, func(name string) string { return values[name] }) }
	b.prepare(t, dir, expand)

	var command []string
	for _, word := range b.command {
		command = append(command, expand(word))
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+files)
	cmd.Dir = dir
	harness.StartProgram(t, cmd)
	eventually.Nil(t, b.name+" to respond", func() error { return respond(addr) })
	return addr
}

// prepare writes the configuration, and the file that servers without application have
// at /early.
func (b *backend) prepare(t *testing.T, dir string, expand func(string) string) {
	if b.config == "" {
		return
	}
	text, err := os.ReadFile(filepath.Join(backendFiles, b.config))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, b.config), []byte(expand(string(text))), 0o600)
	}
	files := filepath.Join(dir, "files")
	err = errors.Join(err, os.Mkdir(files, 0o755), os.WriteFile(filepath.Join(files, "early"), []byte(earlyEcho), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

func respond(addr string) error {
	resp, err := http.Get("http://" + addr + "/ready")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "method=") {
		return fmt.Errorf("%d %q, %v", resp.StatusCode, body, err)
	}
	return nil
}
