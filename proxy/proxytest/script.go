package proxytest

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
)

// LinkResponder puts a linkResponder in the place of the first provider's sidecar.
func (m *Mesh) LinkResponder() *linkResponder {
	m.Nodes[1].Stop[0]()
	a := &linkResponder{m: m, w: link.NewWriter()}
	a.w.Preface(link.Acceptor, link.Settings{})
	a.w.Open(1, link.Settings{Window: 1}) // it sends a frame of DATA: Send makes the others
	a.Says = a.w.Append(nil, 1<<20)
	m.W.Net.Listen(Ingress, m.Nodes[1].Loop, func() loop.Receiver { return a })
	return a
}

// RespondOverLink replaces the first provider's sidecar by one that responds with resp to
// the first request of each link. The path of the request must contain /s.
func (m *Mesh) RespondOverLink(resp *protocol.Response) {
	m.Nodes[1].Stop[0]()
	w := link.NewWriter()
	w.Preface(link.Acceptor, link.Settings{})
	w.Open(1, link.Settings{Features: link.FeatureStreams})
	preface := w.Append(nil, 1<<20)
	w.Response(1, resp, protocol.CodecHTTP, nil)
	says := w.Append(nil, 1<<20)
	m.W.Net.Listen(Ingress, m.Nodes[1].Loop, func() loop.Receiver {
		asked := false
		return &Peer{Says: preface, Reply: func(heard []byte) []byte {
			if asked || !bytes.Contains(heard, []byte("/s")) {
				return nil
			}
			asked = true
			return says
		}}
	})
}

// ReplaceProvider puts p in the place of the first provider's sidecar.
func (m *Mesh) ReplaceProvider(p *Peer) {
	m.Nodes[1].Stop[0]()
	m.W.Net.Listen(Ingress, m.W.Loop("10.0.1.1-raw"), func() loop.Receiver { return p })
}
