package hello

import (
	"crypto/tls"
	"net"
	"testing"
)

// TestServerName: the name of a client's ClientHello, in one record or in many.
func TestServerName(t *testing.T) {
	real := capture(t)
	for name, b := range map[string][]byte{"one record": real, "many": inRecords(real[recordHeader:], 1)} {
		if got, err := ServerName(b); got != "server.test" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := ServerName(record(recordHandshake, message(100))); got != "" || err == nil {
		t.Errorf("of zeros: %q, %v", got, err)
	}
}

// TestServerNameVersions: a client may be older than package tls accepts, or send no name.
func TestServerNameVersions(t *testing.T) {
	for _, c := range []struct {
		config *tls.Config
		want   string
	}{
		{&tls.Config{ServerName: "old.test", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, "old.test"},
		{&tls.Config{ServerName: "new.test", MinVersion: tls.VersionTLS13}, "new.test"},
		{&tls.Config{InsecureSkipVerify: true}, ""},
	} {
		client, server := net.Pipe()
		go func() {
			_ = tls.Client(client, c.config).Handshake()
			client.Close()
		}()
		var r Reader
		var all []byte
		for whole := false; !whole; {
			b := make([]byte, 4096)
			n, err := server.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b[:n]...)
			if whole, err = r.Feed(b[:n]); err != nil {
				t.Fatal(err)
			}
		}
		server.Close()
		if got, err := ServerName(all); got != c.want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, c.want)
		}
	}
}
