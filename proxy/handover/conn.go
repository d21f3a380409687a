package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
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
	Version  int      `json:"version"`  // set by Conn.Offer; 0 in a refusal
	Restarts int      `json:"restarts"` // hot restarts that led to it
	Sockets  []string `json:"sockets"`  // the addresses they are configured with, in the order in which they follow
	Parked   string   `json:"parked"`   // where answers that wait with it can be fetched

	// Names are addresses of host names, as many as there is room for.
	Names map[string][]netip.Addr `json:"names,omitempty"`

	Refused string `json:"refused,omitempty"` // set by Conn.Refuse: why there is nothing else
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
	b, err := c.read()
	if err == nil && Word(b) != w {
		err = fmt.Errorf("%w: %q in the place of %q", ErrProtocol, b, w)
	}
	return err
}

// Outlive waits until the other process ends or speaks, or ctx is done, and closes c.
func (c *Conn) Outlive(ctx context.Context) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.uc.SetReadDeadline(time.Unix(1, 0)) })()
	_, _ = c.read()
}

// Offer tells of the process, and passes on sockets, which stay open here: the one at
// each of o.Sockets.
func (c *Conn) Offer(o Offer, sockets map[string]net.Listener) error {
	o.Version = Version
	names := o.Names
	o.Names = nil
	b, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	o.Names = fitting(names, maxMessage-len(b)-len(`,"names":{}`))
	if err := c.tell(o); err != nil {
		return err
	}
	for _, address := range o.Sockets {
		if err := c.pass(sockets[address]); err != nil {
			return fmt.Errorf("handover: %s: %w", address, err)
		}
	}
	return nil
}

// fitting are as many of all as take no more than so many bytes of a message.
func fitting(all map[string][]netip.Addr, left int) map[string][]netip.Addr {
	names := make(map[string][]netip.Addr)
	for host, addrs := range all {
		size := len(host) + len(`"":[],`)
		for _, a := range addrs {
			size += len(a.String()) + len(`"",`)
		}
		if left -= size; left >= 0 {
			names[host] = addrs
		}
	}
	return names
}

// Refuse tells the other process, in the place of an Offer, why it gets nothing now.
// One that knows of no refusals ends with ErrProtocol, for there is no such Version.
func (c *Conn) Refuse(why error) error { return c.tell(Offer{Refused: why.Error()}) }

func (c *Conn) tell(o Offer) error {
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

// Receive is the other end of Offer, and of Refuse. The sockets are the caller's, by
// address.
func (c *Conn) Receive() (o Offer, sockets map[string]net.Listener, err error) {
	b, err := c.read()
	if err != nil {
		return o, nil, err
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return o, nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if o.Refused != "" {
		return o, nil, fmt.Errorf("%w: %s", ErrRefused, o.Refused)
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
	rights := make([]byte, syscall.CmsgLen(4)) // one descriptor; the system closes any more
	_, n, _, _, err := c.uc.ReadMsgUnix(make([]byte, 1), rights)
	if err != nil {
		return nil, err
	}
	fd, err := descriptor(rights[:n])
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	return net.FileListener(f)
}

// read reads a message. Descriptors that come with it are closed by the system.
func (c *Conn) read() ([]byte, error) {
	b := make([]byte, maxMessage)
	n, err := c.uc.Read(b)
	if errors.Is(err, io.EOF) {
		return nil, ErrEnded
	}
	if err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	return b[:n], nil
}

// descriptor is the one in the rights that came with a message. When the process has
// no room for another there is none either.
func descriptor(rights []byte) (fd int, err error) {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return -1, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	for i := range messages {
		if fds, err := syscall.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return -1, fmt.Errorf("%w: no socket in it, or no descriptor left for it", ErrProtocol)
}
