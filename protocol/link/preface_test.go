package link

import (
	"encoding/binary"
	"testing"
)

func TestVersionChoice(t *testing.T) {
	for _, c := range []struct {
		name             string
		dialer, acceptor versions
		want             uint8
		err              error
	}{
		{"same", versions{1, 1}, versions{1, 1}, 1, nil},
		{"dialer is one ahead", versions{1, 2}, versions{1, 1}, 1, nil},
		{"acceptor is one ahead", versions{1, 1}, versions{1, 2}, 1, nil},
		{"both later", versions{2, 3}, versions{3, 4}, 3, nil},
		{"dialer is two ahead", versions{2, 3}, versions{1, 1}, 0, ErrVersion},
		{"acceptor is two ahead", versions{1, 1}, versions{2, 3}, 0, ErrVersion},
		{"nonsense", versions{3, 1}, versions{1, 3}, 0, ErrVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Settings{Features: 5}.withDefaults()
			hello := appendPreface(nil, Dialer, c.dialer, s)
			got, peer, err := parsePreface(hello, Acceptor, c.acceptor)
			if got != c.want || err != c.err || err == nil && peer != s {
				t.Fatalf("acceptor: version %d, %v, %+v", got, err, peer)
			}
			if err != nil {
				return
			}
			answer := appendPreface(nil, Acceptor, versions{got, got}, s)
			if v, _, err := parsePreface(answer, Dialer, c.dialer); v != c.want || err != nil {
				t.Errorf("dialer: version %d, %v", v, err)
			}
		})
	}
}

func TestPrefaceErrors(t *testing.T) {
	good := appendPreface(nil, Dialer, versions{1, 1}, Settings{}.withDefaults())
	with := func(at int, v byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = v
		return b
	}
	settings := func(s Settings) []byte { return appendPreface(nil, Dialer, versions{1, 1}, s) }
	for name, c := range map[string]struct {
		role Role
		b    []byte
		want error
	}{
		"http":           {Acceptor, []byte("GET / HTTP/1.1\r\n"), ErrMagic},
		"one wrong byte": {Acceptor, []byte("\x8dR?"), ErrMagic},
		"first wrong":    {Acceptor, with(0, 0x8c), ErrMagic},
		"last wrong":     {Acceptor, with(3, 'l'), ErrMagic},
		"both dialled":   {Dialer, good, ErrRole},
		"role 9":         {Acceptor, with(4, 9), ErrRole},
		"version 9":      {Acceptor, with(5, 9), ErrVersion},
		"refused":        {Dialer, AppendRefusal(nil), ErrRefused},
		"refused dialer": {Acceptor, AppendRefusal(nil), ErrRole},
		"no choice made": {Dialer, appendPreface(nil, Acceptor, versions{1, 2}, Settings{}.withDefaults()), ErrVersion},
		"cut settings":   {Acceptor, append(with(7, 1)[:8], 1), ErrSettings},
		"long settings":  {Acceptor, with(7, 0x80)[:8], ErrSettings},
		"small frames":   {Acceptor, settings(Settings{MinFrame - 1, 1 << 17, 1, 0}), ErrSettings},
		"small window":   {Acceptor, settings(Settings{MinFrame, MinFrame - 1, 1, 0}), ErrSettings},
		"no streams":     {Acceptor, settings(Settings{MinFrame, MinFrame, 0, 0}), ErrSettings},
	} {
		t.Run(name, func(t *testing.T) {
			splits(t, c.b, func(t *testing.T, parts [][]byte) {
				h := newRecorder()
				r := readerOf(c.role, Settings{}, ReaderLimits{}, h)
				var err error
				for _, p := range parts {
					err = r.Feed(p)
				}
				if err != c.want || len(h.events) != 0 {
					t.Errorf("got %v, events %q", err, h.events)
				}
			})
		})
	}
}

// Unknown settings, and settings larger than the limits of this version, are accepted.
func TestUnknownSettings(t *testing.T) {
	b := appendPreface(nil, Dialer, versions{1, 2}, Settings{1 << 20, 1 << 30, 1 << 20, 1 << 63})
	b = append(b, 1, 2, 3)
	b[7] += 3
	b = appendHeader(b, uint8(framePing), 7, 0)
	splits(t, b, func(t *testing.T, parts [][]byte) {
		h := newRecorder()
		r := readerOf(Acceptor, Settings{}, ReaderLimits{}, h)
		for _, p := range parts {
			if err := r.Feed(p); err != nil {
				t.Fatal(err)
			}
		}
		want := Settings{MaxFrame, MaxWindow, 1 << 20, 1 << 63}
		if h.version != 1 || h.peer != want || h.events[1] != "ping 7" {
			t.Errorf("version %d, %+v, %q", h.version, h.peer, h.events)
		}
	})
}

// TestSettingLimits: which numbers a peer may announce.
func TestSettingLimits(t *testing.T) {
	const most = 1<<32 - 1
	for _, c := range []struct {
		name   string
		fields [4]uint64
		want   Settings // nothing if they are refused
	}{
		{"least", [4]uint64{MinFrame, MinFrame, 1, 0}, Settings{MinFrame, MinFrame, 1, 0}},
		{"most", [4]uint64{most, most, most, 1<<64 - 1}, Settings{MaxFrame, MaxWindow, most, 1<<64 - 1}},
		{"frames of 4 GiB", [4]uint64{most + 1, most + 1, 1, 0}, Settings{}},
		{"a window of 4 GiB", [4]uint64{MinFrame, most + 1, 1, 0}, Settings{}},
		{"too many streams", [4]uint64{MinFrame, MinFrame, most + 1, 0}, Settings{}},
		{"window below frames", [4]uint64{MinFrame + 1, MinFrame, 1, 0}, Settings{}},
	} {
		var b []byte
		for _, v := range c.fields {
			b = binary.AppendUvarint(b, v)
		}
		got, err := parseSettings(b)
		if refused := c.want == (Settings{}); refused != (err == ErrSettings) || !refused && got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	longest := appendPreface(nil, Dialer, versions{1, 1}, Settings{}.withDefaults())
	longest = append(longest, make([]byte, prefaceHeader+0x7f-len(longest))...)
	longest[prefaceHeader-1] = 0x7f
	h := newRecorder()
	if err := readerOf(Acceptor, Settings{}, ReaderLimits{}, h).Feed(longest); err != nil || len(h.events) != 1 {
		t.Errorf("settings of 127 bytes: %v, %q", err, h.events)
	}
}

// TestChosenVersion: the preface of an acceptor names the version that was chosen, and no other.
func TestChosenVersion(t *testing.T) {
	w := NewWriter()
	w.Preface(Acceptor, Settings{})
	w.Open(7, Settings{})
	if b := w.Append(nil, 0); b[len(magic)+1] != 7 || b[len(magic)+2] != 7 {
		t.Errorf("% x", b)
	}
}
