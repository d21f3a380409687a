package session

import (
	"encoding/binary"
	"errors"
)

// ErrFormat means that bytes are not what the protocol has at their place.
var ErrFormat = errors.New("zookeeper: the server does not speak the protocol of ZooKeeper")

// encoder appends values in ZooKeeper's encoding, which is that of Hadoop's Jute: numbers are big-endian, and what varies in
// length begins with its length in 4 bytes.
type encoder struct{ b []byte }

func (e *encoder) int32(n int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(n)) }
func (e *encoder) int64(n int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(n)) }

func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
		return
	}
	e.b = append(e.b, 0)
}

func (e *encoder) text(s string) {
	e.int32(int32(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) bytes(b []byte) {
	e.int32(int32(len(b)))
	e.b = append(e.b, b...)
}

// decoder reads values. After the first value that is not there, err is set, and all values are zero.
type decoder struct {
	b   []byte
	err error
}

// take returns the next n bytes, which alias the input.
func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.err = ErrFormat
		return nil
	}
	part := d.b[:n:n]
	d.b = d.b[n:]
	return part
}

func (d *decoder) int32() int32 {
	if b := d.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if b := d.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (d *decoder) bool() bool {
	b := d.take(1)
	return b != nil && b[0] != 0
}

// bytes aliases the input. A length of -1 means none.
func (d *decoder) bytes() []byte {
	n := d.int32()
	if n == -1 {
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) text() string { return string(d.bytes()) }

// texts returns a list, whose count is checked against what is left before memory is taken for it.
func (d *decoder) texts() []string {
	n := d.int32()
	if n < 0 || int(n) > len(d.b)/4 {
		if n != -1 {
			d.err = ErrFormat
		}
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.text())
	}
	if d.err != nil {
		return nil
	}
	return list
}

// stat is what this package uses of a node's Stat, which has 68 bytes.
func (d *decoder) stat() Stat {
	d.take(8 + 8 + 8 + 8) // zxids and times of creation and of the last change
	s := Stat{Version: d.int32()}
	d.take(4 + 4) // versions of the children and of the ACL
	s.Owner = d.int64()
	d.take(4 + 4 + 8) // length of the data, number and version of the children
	return s
}

// Stat describes a node.
type Stat struct {
	Version int32 // of the data
	Owner   int64 // id of the session that the node ends with; 0 means none
}
