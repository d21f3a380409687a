package engine

import (
	"github.com/remora-proxy/remora/proxy/reactor/epoll"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

func openEpoll() (kernel.Poller, error) { return epoll.Open() }
