package commands

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/syncbuffer"
)

// TestTopOnATerminal: top draws until q or Ctrl-C, and restores the terminal.
func TestTopOnATerminal(t *testing.T) {
	app := httptest.NewServer(http.NotFoundHandler())
	defer app.Close()
	p := harness.Start(t, fmt.Sprintf(topConfig, app.Listener.Addr()))
	p.Ready()
	for _, key := range []string{"q", "\x03"} {
		ours, theirs := terminal(t)
		before, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(harness.Binary, "top", "--admin", p.Admin)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var shown syncbuffer.Buffer
		go func() {
			b := make([]byte, 4096)
			for {
				n, err := ours.Read(b)
				if err != nil {
					return
				}
				_, _ = shown.Write(b[:n])
			}
		}()
		eventually.Nil(t, "a frame", func() error {
			if text := shown.String(); !strings.Contains(text, app.Listener.Addr().String()) {
				return fmt.Errorf("%q", text)
			}
			return nil
		})
		if _, err := ours.WriteString(key); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after %q: %v", key, err)
		}
		const mainScreen = "\x1b[?25h\x1b[?1049l" // with the cursor
		eventually.Nil(t, "the main screen", func() error {
			if text := shown.String(); !strings.HasSuffix(text, mainScreen) {
				return fmt.Errorf("%q", text)
			}
			return nil
		})
		after, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
		if err != nil || *after != *before {
			t.Errorf("the terminal is %+v, and was %+v: %v", after, before, err)
		}
		theirs.Close()
		ours.Close()
	}
}

// terminal opens a pair of pseudo terminals.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}
