package handover

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Dir returns the default directory of the socket for hot restarts. It belongs
// to this process's user: the directory of the service manager or of the session, or
// one of the sidecar's own.
func Dir() string {
	if dirs := os.Getenv("RUNTIME_DIRECTORY"); dirs != "" { // systemd.exec(5)
		first, _, _ := strings.Cut(dirs, ":")
		return first
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "remora")
	}
	if os.Geteuid() == 0 {
		return "/run/remora"
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("remora-%d", os.Geteuid()))
}

// Path returns the path of the socket at which a process awaits its successor. It is the same
// for a process and its successor, and different for all other processes with the same
// directory. It depends on the path of the configuration file, on the network namespace, and on
// settings that no reload changes and no two processes share: the node's id and the address of
// the admin API. It is empty without a directory.
func Path(dir, file, node, admin string) string {
	if dir == "" {
		return ""
	}
	if abs, err := filepath.Abs(file); err == nil { // symbolic links stay: they change with the content
		file = abs
	}
	network, _ := os.Readlink("/proc/self/ns/net")
	sum := sha256.Sum256([]byte(strings.Join([]string{file, node, admin, network}, "\x00")))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])+".sock")
}
