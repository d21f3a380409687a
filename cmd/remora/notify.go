package main

import (
	"net"
	"os"
	"time"
)

// notifyTimeout bounds how long a service manager that does not read holds up what
// it is told of.
const notifyTimeout = time.Second

// notify tells the service manager of a change, if there is one that wants to know
// (sd_notify(3)). It has no answer, and nothing to do if it fails.
func notify(state string) {
	to := os.Getenv("NOTIFY_SOCKET")
	if to == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: to, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(notifyTimeout))
	_, _ = c.Write([]byte(state))
}
