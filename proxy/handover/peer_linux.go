package handover

import "syscall"

// supported reports whether the system has Unix sockets that preserve message boundaries.
const supported = true

// peerOf returns the user and the process at the other end of a Unix socket.
func peerOf(fd int) (user, process int, err error) {
	peer, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return int(peer.Uid), int(peer.Pid), nil
}
