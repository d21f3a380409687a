package handover

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
)

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
