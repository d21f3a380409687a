// Package proxyproto reads and writes the header of the PROXY protocol, versions 1 and 2: the
// first bytes of a connection, by which a proxy says for whom it has made it
// (https://www.haproxy.org/download/2.6/doc/proxy-protocol.txt). Drivers read it before they pass
// a connection on. Whether there is a header is configured, and never guessed.
package proxyproto
