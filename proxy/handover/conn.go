package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Version is the version of the protocol. Processes with different versions can't
// hand over.
const Version = 1

// Word is a message that announces a step of the handover.
type Word string

// The words, in the order in which they are sent.
const (
	Ready    Word = "ready"    // the successor is ready to accept
	Released Word = "released" // the predecessor has stopped renewing its registrations
	Serving  Word = "serving"  // the successor accepts connections
)

// Offer is the first message of a predecessor. It describes the predecessor.
type Offer struct {
	Version  int      `json:"version"`  // set by Conn.Offer; 0 in a refusal
	Restarts int      `json:"restarts"` // number of hot restarts before this process
	Sockets  []string `json:"sockets"`  // their configured addresses, in the order in which the sockets follow
	Parked   string   `json:"parked"`   // address from which the predecessor's parked responses can be fetched

	// Names are what is known of host names, as many as fit into the message. The texts are those of package registry/dns.
	Names map[string][]string `json:"names,omitempty"`

	Refused string `json:"refused,omitempty"` // the reason for a refusal, set by Conn.Refuse
}

// maxMessage bounds a message, in bytes.
const maxMessage = 64 << 10

// Conn is a connection between two processes of one user.
type Conn struct {
	uc   *net.UnixConn
	peer int
}

// Peer returns the process ID of the other process.
func (c *Conn) Peer() int { return c.peer }

// SetDeadline bounds all sends and receives from now on.
func (c *Conn) SetDeadline(t time.Time) error { return c.uc.SetDeadline(t) }

// Close closes the connection.
func (c *Conn) Close() error { return c.uc.Close() }

// Say sends w to the other process.
func (c *Conn) Say(w Word) error { return c.write([]byte(w)) }

// Hear waits for w from the other process. Any other message is ErrProtocol.
func (c *Conn) Hear(w Word) error {
	b, err := c.read()
	if err == nil && Word(b) != w {
		err = fmt.Errorf("%w: got %q, want %q", ErrProtocol, b, w)
	}
	return err
}

// Outlive waits until the other process has ended or ctx is done, and closes c. A
// message ends the wait too.
func (c *Conn) Outlive(ctx context.Context) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.uc.SetReadDeadline(time.Unix(1, 0)) })()
	_, _ = c.read()
}

// Offer sends o, and then the socket of each address in o.Sockets. The sockets stay
// open in this process.
func (c *Conn) Offer(o Offer, sockets map[string]syscall.Conn) error {
	o.Version = Version
	names := o.Names
	o.Names = nil
	b, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	o.Names = namesWithin(maxMessage-len(b)-len(`,"names":{}`), names)
	if err := c.sendOffer(o); err != nil {
		return err
	}
	for _, address := range o.Sockets {
		if err := c.sendSocket(sockets[address]); err != nil {
			return fmt.Errorf("handover: %s: %w", address, err)
		}
	}
	return nil
}

// namesWithin returns as many of all as fit into the given number of bytes.
func namesWithin(room int, all map[string][]string) map[string][]string {
	names := make(map[string][]string)
	for host, texts := range all {
		size := len(host) + len(`"":[],`)
		for _, text := range texts {
			size += len(text) + len(`"",`)
		}
		if room -= size; room >= 0 {
			names[host] = texts
		}
	}
	return names
}

// Refuse sends a refusal with its reason instead of an offer. A successor that does
// not know refusals gets ErrProtocol, because a refusal has Version 0.
func (c *Conn) Refuse(why error) error { return c.sendOffer(Offer{Refused: why.Error()}) }

func (c *Conn) sendOffer(o Offer) error {
	b, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	if len(b) > maxMessage {
		return fmt.Errorf("%w: the offer of %d sockets is too long", ErrProtocol, len(o.Sockets))
	}
	return c.write(b)
}

// sendSocket sends the descriptor of socket without os.File, which would make it
// blocking, in the other process too.
func (c *Conn) sendSocket(socket syscall.Conn) error {
	return control(socket, func(fd int) error {
		_, _, err := c.uc.WriteMsgUnix([]byte{0}, syscall.UnixRights(fd), nil)
		return err
	})
}

// control calls f with the descriptor of c.
func control(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(err, failed)
}

// Receive receives an Offer, or a refusal as ErrRefused. The caller owns the sockets,
// which are keyed by their configured address.
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
		if sockets[address], err = c.receiveSocket(); err != nil {
			delete(sockets, address)
			for _, ln := range sockets {
				_ = ln.Close()
			}
			return o, nil, fmt.Errorf("handover: %s: %w", address, err)
		}
	}
	return o, sockets, nil
}

func (c *Conn) receiveSocket() (net.Listener, error) {
	rights := make([]byte, syscall.CmsgLen(4)) // room for one descriptor; the kernel closes any other
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

// write sends b as one message.
func (c *Conn) write(b []byte) error {
	if _, err := c.uc.Write(b); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	return nil
}

// read reads a message. The kernel closes descriptors that were sent with it.
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

// descriptor returns the descriptor in the rights of a message. The rights are empty
// if the process has reached its limit of descriptors.
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
	return -1, fmt.Errorf("%w: no socket in the message, or the limit of open files is reached", ErrProtocol)
}
