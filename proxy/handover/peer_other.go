//go:build !linux

package handover

// supported reports whether the system has Unix sockets that preserve message boundaries.
const supported = false

func peerOf(int) (user, process int, err error) { return 0, 0, ErrUnsupported }
