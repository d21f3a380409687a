package link

import (
	"bytes"
	"embed"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
)

// A vector is a file in testdata with lines such as
//
//	reader dialer|acceptor     which side reads the bytes; the first line
//	8d 52 4d 4c   # meaning    bytes on the wire, in hexadecimal
//	62 *100       # meaning    one byte, repeated
//	= event                    the events that the Reader reports, in order
//	! link_magic               the code of the error that ends the link
//
// Empty lines and lines that start with # are ignored.
type vector struct {
	name   string
	role   Role
	wire   []byte
	events []string
	code   string
}

//go:embed testdata/*.txt
var vectorFiles embed.FS

func loadVectors(t testing.TB) (vs []vector) {
	files, err := fs.Glob(vectorFiles, "testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		text, err := vectorFiles.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		v := vector{name: strings.TrimSuffix(filepath.Base(file), ".txt")}
		for _, line := range strings.Split(string(text), "\n") {
			switch {
			case line == "reader dialer":
				v.role = Dialer
			case line == "reader acceptor":
				v.role = Acceptor
			case strings.HasPrefix(line, "= "):
				v.events = append(v.events, line[2:])
			case strings.HasPrefix(line, "! "):
				v.code = line[2:]
			default:
				digits, _, _ := strings.Cut(line, "#")
				digits, times, _ := strings.Cut(strings.TrimSpace(digits), "*")
				b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
				if n := 0; times != "" && err == nil {
					n, err = strconv.Atoi(times)
					b = bytes.Repeat(b, n)
				}
				if err != nil {
					t.Fatalf("%s: %q: %v", file, line, err)
				}
				v.wire = append(v.wire, b...)
			}
		}
		if v.role == 0 {
			t.Fatalf("%s: no reader", file)
		}
		vs = append(vs, v)
	}
	return vs
}

func TestVectorsRead(t *testing.T) {
	for _, v := range loadVectors(t) {
		t.Run(v.name, func(t *testing.T) {
			splits(t, v.wire, func(t *testing.T, parts [][]byte) {
				h := newRecorder()
				r := readerOf(v.role, Settings{Features: FeatureStreams}, ReaderLimits{}, h)
				var err error
				for _, p := range parts {
					err = r.Feed(p)
				}
				if code := codeOf(err); code != v.code {
					t.Errorf("got error %q, want %q", code, v.code)
				}
				if got, want := strings.Join(h.events, "\n"), strings.Join(v.events, "\n"); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		})
	}
}

func codeOf(err error) string {
	if e, ok := err.(*Error); ok {
		return e.Code
	}
	return ""
}

// written has the vectors that a Writer can produce.
var written = map[string]func(w *Writer){
	"preface-dialer":   func(w *Writer) { w.Preface(Dialer, Settings{Features: 1}) },
	"preface-acceptor": func(w *Writer) { w.Preface(Acceptor, Settings{MaxFrame: 8192, Window: 65536, MaxStreams: 100}) },
	"request": func(w *Writer) {
		w.Preface(Dialer, Settings{})
		w.Request(1, vectorRequest(), 500*time.Millisecond, nil)
	},
	"interning": func(w *Writer) {
		w.Preface(Dialer, Settings{})
		for id := range uint64(4) {
			w.Request(id+1, vectorRequest(), 0, nil)
		}
	},
	"response": func(w *Writer) {
		w.Preface(Acceptor, Settings{})
		w.Response(1, &protocol.Response{Status: 200, Reason: []byte("OK"), Headers: headers("content-length", "2"),
			Body: []byte("hi"), DeclaredLength: -1}, protocol.CodecHTTP, nil)
		w.Response(300, &protocol.Response{Status: 304, Reason: []byte("Same"), DeclaredLength: 7,
			Trailers: headers("x-sum", "1")}, dubbo.CodecHessian2, nil)
	},
	"response-token": func(w *Writer) {
		w.Preface(Acceptor, Settings{Features: FeatureStreams})
		w.Open(1, Settings{Features: FeatureStreams})
		w.Response(1, &protocol.Response{Status: 200, Reason: []byte("OK"), DeclaredLength: 1 << 33, StreamToken: vectorToken[:]},
			protocol.CodecHTTP, nil)
	},
	"request-dubbo": func(w *Writer) {
		w.Preface(Dialer, Settings{})
		w.Request(1, &protocol.Request{Codec: dubbo.CodecHessian2, Service: []byte("local"), Method: []byte("log"),
			Path: []byte("com.acme.Log"), OneWay: true, Body: []byte{0x05, '2', '.', '0', '.', '2'}}, 0, nil)
	},
	"request-alone": func(w *Writer) {
		w.Preface(Dialer, Settings{})
		w.Request(1, &protocol.Request{Method: []byte("GET"), Path: []byte("/"), Attempt: 1, Alone: true}, 0, nil)
	},
	"request-hold": func(w *Writer) {
		w.Preface(Dialer, Settings{})
		w.Request(1, &protocol.Request{Method: []byte("GET"), Path: []byte("/"), Hold: 40 * time.Millisecond}, 0, nil)
	},
	"request-batch": func(w *Writer) {
		w.Preface(Dialer, Settings{})
		w.Request(1, &protocol.Request{Method: []byte("GET"), Path: []byte("/"), Attempt: 1, Batch: true}, 0, nil)
	},
	"response-dubbo": func(w *Writer) {
		w.Preface(Acceptor, Settings{})
		w.Response(1, &protocol.Response{Status: 404, Reason: []byte("Not Found"), RPC: 60, Body: []byte{0x02, 'n', 'o'}, DeclaredLength: -1},
			dubbo.CodecHessian2, nil)
	},
	"interim": func(w *Writer) {
		w.Preface(Acceptor, Settings{})
		w.Interim(1, &protocol.Response{Status: 103, Headers: headers("link", "</a>")})
		w.Interim(2, &protocol.Response{Status: 102})
		w.Response(1, &protocol.Response{Status: 204, Reason: []byte("No Content"), DeclaredLength: -1}, protocol.CodecHTTP, nil)
	},
	"long": func(w *Writer) {
		w.Preface(Dialer, Settings{})
		w.Open(1, Settings{MaxFrame: MinFrame})
		for id := range uint64(2) {
			w.Request(id+1, &protocol.Request{Method: []byte("PUT"), Path: []byte("/"), Body: bytes.Repeat([]byte{'b'}, 4200)}, 0, nil)
		}
	},
	"control-acceptor": func(w *Writer) {
		w.Preface(Acceptor, Settings{})
		w.CancelAck(1, CancelDropped)
		w.Refused(2, TooLarge)
		w.GoAway(300, Draining)
		w.Credit(65536)
		w.Ping(0)
		w.Pong(1000)
		w.Load(Load{Pending: 12, Queued: 3, Latency: 1500 * time.Microsecond, SinceResponse: 250 * time.Microsecond})
	},
	"cancelled": func(w *Writer) {
		w.Preface(Acceptor, Settings{})
		w.CancelAck(1, CancelAtApp)
		w.CancelAck(1, CancelFinished)
		w.CancelAck(2, CancelClosed)
	},
	"tied-dialer": func(w *Writer) {
		w.Preface(Dialer, Settings{})
		w.Start(300)
		w.Withdraw(5)
		w.Request(1, &protocol.Request{Method: []byte("GET"), Path: []byte("/"), Attempt: 1, Hedge: true, Tied: true, Idempotent: true}, 0, nil)
	},
	"tied-acceptor": func(w *Writer) {
		w.Preface(Acceptor, Settings{MaxFrame: 8192, Window: 65536, MaxStreams: 100, Features: FeatureStarts})
		w.Start(300)
	},
	"control-dialer": func(w *Writer) { w.Preface(Dialer, Settings{}); w.Cancel(5) },
	"probe":          func(w *Writer) { w.Preface(Dialer, Settings{}); w.Probe() },
	"answer": func(w *Writer) {
		w.Preface(Acceptor, Settings{Features: FeatureProbes})
		w.Load(Load{Pending: 1})
		w.Answer(Load{Pending: 2, SinceResponse: -1})
		w.Load(Load{Pending: 4, Queued: 1, Latency: 20 * time.Millisecond, SinceResponse: time.Millisecond})
	},
}

var vectorToken = Token{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf}

// Vectors of streams need no Writer.
func TestStreamVectorsWritten(t *testing.T) {
	for name, s := range map[string]Stream{
		"stream-http":   {Kind: StreamHTTP, TimeLeft: 1500 * time.Microsecond},
		"stream-opaque": {Kind: StreamOpaque},
		"stream-answer": {Kind: StreamAnswer, TimeLeft: time.Millisecond, Token: vectorToken},
	} {
		i := slices.IndexFunc(loadVectors(t), func(v vector) bool { return v.name == name })
		if i < 0 {
			t.Errorf("%s: no such file", name)
			continue
		}
		if v, b := loadVectors(t)[i], AppendStream(nil, &s); !bytes.HasPrefix(v.wire, b) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, hex.Dump(b), hex.Dump(v.wire))
		}
	}
}

func vectorRequest() *protocol.Request {
	return &protocol.Request{
		Service: []byte("compute"), Method: []byte("POST"), Path: []byte("/v1/x?y"), Authority: []byte("compute:80"),
		Headers: headers("accept", "text/plain", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
		Body:    []byte("hello"), Attempt: 1, Hedge: true, Idempotent: true,
	}
}

var update = flag.Bool("update", false, "write new bytes and events into testdata, without comments")

func TestVectorsWritten(t *testing.T) {
	for name, f := range written {
		t.Run(name, func(t *testing.T) {
			w := NewWriter()
			f(w)
			w.Open(1, Settings{})
			b := w.Append(nil, 1<<20)
			if *update {
				writeVector(t, name, b, w.role)
				return
			}
			for _, v := range loadVectors(t) {
				if v.name == name {
					if !bytes.Equal(b, v.wire) {
						t.Errorf("got\n%s\nwant\n%s", hex.Dump(b), hex.Dump(v.wire))
					}
					return
				}
			}
			t.Error("no such file")
		})
	}
}

func writeVector(t *testing.T, name string, b []byte, writer Role) {
	var sb strings.Builder
	role, reader := Dialer, "reader dialer\n"
	if writer == Dialer {
		role, reader = Acceptor, "reader acceptor\n"
	}
	sb.WriteString(reader)
	h := newRecorder()
	r := readerOf(role, Settings{}, ReaderLimits{}, h)
	if err := r.Feed(b); err != nil {
		t.Fatal(err)
	}
	for _, f := range append([][]byte{b[:8+b[7]]}, cut(t, b[8+b[7]:])...) {
		for len(f) > 0 {
			n := min(len(f), 32)
			fmt.Fprintf(&sb, "% x\n", f[:n])
			f = f[n:]
		}
		sb.WriteString("\n")
	}
	for _, e := range h.events {
		sb.WriteString("= " + e + "\n")
	}
	must.WriteFile(t, "testdata/"+name+".txt", sb.String())
}

// cut splits b at the ends of its frames.
func cut(t *testing.T, b []byte) (fs [][]byte) {
	for len(b) > 0 {
		f, n, err := parseHeader(b, MaxFrame)
		if err != nil {
			t.Fatal(err)
		}
		fs, b = append(fs, b[:n+f.length]), b[n+f.length:]
	}
	return fs
}
