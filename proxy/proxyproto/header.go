package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"strconv"
)

// Bounds of a header, in bytes. One of version 2 may carry more than addresses: proxies of clouds
// and certificates add some hundred bytes.
const (
	MaxText   = 107 // version 1, section 2.1
	MaxBinary = 2048
)

// Errors of Decode and Read.
var (
	ErrIncomplete = errors.New("proxyproto: the header is incomplete")
	ErrMalformed  = errors.New("proxyproto: no valid header")
	ErrUntrusted  = errors.New("proxyproto: the peer is not in proxy_protocol.trust")
)

// Header says for whom a proxy has made a connection. Source is the client and Destination the
// address that it has connected to. Both are zero if the connection is the proxy's own, such as a
// health check, or if the proxy does not know them, or if they are not of TCP.
type Header struct{ Source, Destination netip.AddrPort }

// signature begins a header of version 2.
const signature = "\r\n\r\n\x00\r\nQUIT\n"

// Values of version 2, section 2.2.
const (
	prelude = 16 // bytes before the addresses

	version2     = 2
	commandLocal = 0
	commandProxy = 1

	familyUnspecified = 0
	familyIP4         = 1
	familyIP6         = 2
	familyUnix        = 3

	transportUnspecified = 0
	transportStream      = 1
	transportDatagram    = 2

	typeCRC32C = 0x03
)

// addressBytes is the length of the two addresses of each family.
var addressBytes = [...]int{familyUnspecified: 0, familyIP4: 12, familyIP6: 36, familyUnix: 216}

// Decode reads the header at the start of b and returns its length. It returns ErrIncomplete if
// more bytes may complete it, and ErrMalformed as soon as none can.
func Decode(b []byte) (h Header, n int, err error) {
	switch {
	case startsWith(b, signature):
		return decodeBinary(b)
	case startsWith(b, "PROXY "):
		return decodeText(b)
	}
	return h, 0, ErrMalformed
}

// startsWith reports whether b starts with prefix, as far as it goes.
func startsWith(b []byte, prefix string) bool {
	n := min(len(b), len(prefix))
	return string(b[:n]) == prefix[:n]
}

func decodeText(b []byte) (h Header, n int, err error) {
	end := bytes.Index(b[:min(len(b), MaxText)], []byte("\r\n"))
	switch {
	case end >= 0:
	case len(b) >= MaxText:
		return h, 0, ErrMalformed
	default:
		return h, 0, ErrIncomplete
	}
	n = end + len("\r\n")
	fields := bytes.Split(b[:end], []byte(" "))
	family := string(fields[1])
	if family == "UNKNOWN" { // whatever follows is ignored
		return h, n, nil
	}
	if len(fields) != 6 || family != "TCP4" && family != "TCP6" {
		return h, 0, ErrMalformed
	}
	source, isSource := textAddr(fields[2], fields[4], family == "TCP4")
	destination, isDestination := textAddr(fields[3], fields[5], family == "TCP4")
	if !isSource || !isDestination {
		return h, 0, ErrMalformed
	}
	return Header{source, destination}, n, nil
}

func textAddr(host, port []byte, is4 bool) (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(string(host))
	number, errPort := strconv.ParseUint(string(port), 10, 16)
	if err != nil || errPort != nil || addr.Is4() != is4 || addr.Zone() != "" || len(port) > 1 && port[0] == '0' {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), true
}

func decodeBinary(b []byte) (h Header, n int, err error) {
	if len(b) < prelude {
		return h, 0, ErrIncomplete
	}
	version, command := b[12]>>4, b[12]&0xf
	family, transport := int(b[13]>>4), b[13]&0xf
	n = prelude + int(binary.BigEndian.Uint16(b[14:]))
	switch {
	case version != version2 || command > commandProxy || n > MaxBinary:
		return h, 0, ErrMalformed
	case command == commandLocal:
		family = familyUnspecified // what is said of the addresses is ignored
	case family >= len(addressBytes) || transport > transportDatagram || n < prelude+addressBytes[family]:
		return h, 0, ErrMalformed
	}
	if len(b) < n {
		return h, 0, ErrIncomplete
	}
	if command == commandProxy && !validExtras(b[:n], prelude+addressBytes[family]) {
		return h, 0, ErrMalformed
	}
	if transport != transportStream {
		return h, n, nil
	}
	switch addrs := b[prelude:n]; family {
	case familyIP4:
		h.Source, h.Destination = binaryAddrs(addrs, netip.AddrFrom4([4]byte(addrs)), netip.AddrFrom4([4]byte(addrs[4:])), 8)
	case familyIP6:
		h.Source, h.Destination = binaryAddrs(addrs, netip.AddrFrom16([16]byte(addrs)), netip.AddrFrom16([16]byte(addrs[16:])), 32)
	}
	return h, n, nil
}

func binaryAddrs(b []byte, from, to netip.Addr, ports int) (source, destination netip.AddrPort) {
	return netip.AddrPortFrom(from.Unmap(), binary.BigEndian.Uint16(b[ports:])),
		netip.AddrPortFrom(to.Unmap(), binary.BigEndian.Uint16(b[ports+2:]))
}

// validExtras reports whether the values from at on fill the header, and whether its checksum, if
// it has one, is right. Other values are ignored.
func validExtras(header []byte, at int) bool {
	const head = 3 // type and length of a value
	for at < len(header) {
		if len(header) < at+head {
			return false
		}
		start := at + head
		kind, end := header[at], start+int(binary.BigEndian.Uint16(header[at+1:]))
		if end > len(header) || kind == typeCRC32C && !validChecksum(header, start, end) {
			return false
		}
		at = end
	}
	return true
}

// validChecksum checks the CRC32c between start and end, which counts as 0 in the header that it
// covers.
func validChecksum(header []byte, start, end int) bool {
	const size = 4
	if end-start != size {
		return false
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, header[:start])
	sum = crc32.Update(sum, table, make([]byte, size))
	return crc32.Update(sum, table, header[end:]) == binary.BigEndian.Uint32(header[start:])
}

// Append appends the header of a version, 1 or 2, to dst. Invalid addresses, and those of two
// families, become unknown ones.
func Append(dst []byte, version int, h Header) []byte {
	from, to := h.Source.Addr().Unmap().WithZone(""), h.Destination.Addr().Unmap().WithZone("")
	known := from.IsValid() && to.IsValid()
	if known && from.Is4() != to.Is4() { // of a listener for both families
		from, to = netip.AddrFrom16(from.As16()), netip.AddrFrom16(to.As16())
	}
	if version == 1 {
		return appendText(dst, known, from, to, &h)
	}
	dst = append(dst, signature...)
	dst = append(dst, version2<<4|commandProxy)
	switch {
	case !known:
		return append(dst, 0, 0, 0)
	case from.Is4():
		dst = append(dst, familyIP4<<4|transportStream, 0, byte(addressBytes[familyIP4]))
	default:
		dst = append(dst, familyIP6<<4|transportStream, 0, byte(addressBytes[familyIP6]))
	}
	dst = append(append(dst, from.AsSlice()...), to.AsSlice()...)
	dst = binary.BigEndian.AppendUint16(dst, h.Source.Port())
	return binary.BigEndian.AppendUint16(dst, h.Destination.Port())
}

func appendText(dst []byte, known bool, from, to netip.Addr, h *Header) []byte {
	if !known {
		return append(dst, "PROXY UNKNOWN\r\n"...)
	}
	family := "PROXY TCP6 "
	if from.Is4() {
		family = "PROXY TCP4 "
	}
	dst = append(dst, family...)
	dst = append(from.AppendTo(dst), ' ')
	dst = append(to.AppendTo(dst), ' ')
	dst = append(strconv.AppendUint(dst, uint64(h.Source.Port()), 10), ' ')
	return append(strconv.AppendUint(dst, uint64(h.Destination.Port()), 10), "\r\n"...)
}
