package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// Version is that of the conversation. Processes of different ones do not talk.
const Version = 1

// Word is a step that a process tells the other.
type Word string

// The words, in their order.
const (
	Ready    Word = "ready"    // the successor has all that it needs
	Released Word = "released" // the predecessor renews nothing any more that it has announced
	Serving  Word = "serving"  // the successor accepts connections
)

// Offer is what a predecessor tells of itself.
type Offer struct {
	Version  int      `json:"version"`  // set by Conn.Offer
	Restarts int      `json:"restarts"` // hot restarts that led to it
	Sockets  []string `json:"sockets"`  // the addresses they are configured with, in the order in which they follow
	Parked   string   `json:"parked"`   // where answers that wait with it can be fetched
}

// maxMessage bounds a message, in bytes.
const maxMessage = 64 << 10

// Conn is a conversation between two processes of one user.
type Conn struct {
	uc   *net.UnixConn
	peer int
}

// Peer is the process at the other end.
func (c *Conn) Peer() int { return c.peer }

// SetDeadline bounds all that is said and heard from now on.
func (c *Conn) SetDeadline(t time.Time) error { return c.uc.SetDeadline(t) }

// Close ends the conversation.
func (c *Conn) Close() error { return c.uc.Close() }

// Say tells the other process w.
func (c *Conn) Say(w Word) error {
	if _, err := c.uc.Write([]byte(w)); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	return nil
}

// Hear waits until the other process says w.
func (c *Conn) Hear(w Word) error {
	b, _, err := c.read()
	if err == nil && Word(b) != w {
		err = fmt.Errorf("%w: %q in the place of %q", ErrProtocol, b, w)
	}
	return err
}

// Offer tells of the process, and passes on sockets, which stay open here: the one at
// each of o.Sockets.
func (c *Conn) Offer(o Offer, sockets map[string]net.Listener) error {
	o.Version = Version
	b, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	if len(b) > maxMessage {
		return fmt.Errorf("%w: %d sockets are too many", ErrProtocol, len(o.Sockets))
	}
	if _, err := c.uc.Write(b); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	for _, address := range o.Sockets {
		if err := c.pass(sockets[address]); err != nil {
			return fmt.Errorf("handover: %s: %w", address, err)
		}
	}
	return nil
}

// pass sends the descriptor of ln as it is: os.File would make it, and with it that
// of the other process, block.
func (c *Conn) pass(ln net.Listener) error {
	socket, ok := ln.(syscall.Conn)
	if !ok {
		return fmt.Errorf("a %T can't be passed on", ln)
	}
	sc, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = sc.Control(func(fd uintptr) {
		_, _, failed = c.uc.WriteMsgUnix([]byte{0}, syscall.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, failed)
}

// Receive is the other end of Offer. The sockets are the caller's, by address.
func (c *Conn) Receive() (o Offer, sockets map[string]net.Listener, err error) {
	b, _, err := c.read()
	if err != nil {
		return o, nil, err
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return o, nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if o.Version != Version {
		return o, nil, fmt.Errorf("%w: version %d, want %d", ErrProtocol, o.Version, Version)
	}
	sockets = make(map[string]net.Listener, len(o.Sockets))
	for _, address := range o.Sockets {
		if sockets[address], err = c.take(); err != nil {
			delete(sockets, address)
			for _, ln := range sockets {
				_ = ln.Close()
			}
			return o, nil, fmt.Errorf("handover: %s: %w", address, err)
		}
	}
	return o, sockets, nil
}

// take receives a socket.
func (c *Conn) take() (net.Listener, error) {
	_, fd, err := c.read()
	if err != nil {
		return nil, err
	}
	if fd < 0 {
		return nil, fmt.Errorf("%w: no socket in it", ErrProtocol)
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	return net.FileListener(f)
}

// read reads a message, and the descriptor that came with it, or -1.
func (c *Conn) read() (b []byte, fd int, err error) {
	b, rights := make([]byte, maxMessage), make([]byte, syscall.CmsgLen(4))
	n, nr, flags, _, err := c.uc.ReadMsgUnix(b, rights)
	if err != nil {
		return nil, -1, fmt.Errorf("handover: %w", err)
	}
	if fd, err = descriptor(rights[:nr]); err != nil {
		return nil, -1, err
	}
	if flags&(syscall.MSG_TRUNC|syscall.MSG_CTRUNC) != 0 {
		if fd >= 0 {
			_ = syscall.Close(fd)
		}
		return nil, -1, fmt.Errorf("%w: too long", ErrProtocol)
	}
	return b[:n], fd, nil
}

// descriptor is the one in the rights that came with a message, or -1. Their buffer
// has room for one.
func descriptor(rights []byte) (fd int, err error) {
	if len(rights) == 0 {
		return -1, nil
	}
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return -1, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return fds[0], nil
}
