//go:build kafka

package interop

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// link is a proxy before a cluster that advertises the link's address, so that
// all requests pass. While it holds, an EndTxn ends its connection instead: what
// was decided stays undone, and readers go on reading.
type link struct {
	addr     string
	ln       net.Listener
	upstream atomic.Pointer[string] // host:port
	holding  atomic.Bool
	held     atomic.Int64 // EndTxn requests kept back

	mu      sync.Mutex
	conns   map[net.Conn]bool
	closed  bool
	serving sync.WaitGroup
}

func newLink(t *testing.T) *link {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{addr: ln.Addr().String(), ln: ln, conns: map[net.Conn]bool{}}
	l.serving.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

func (l *link) to(addr string) { l.upstream.Store(&addr) }

func (l *link) accept() {
	for {
		client, err := l.ln.Accept()
		if err != nil {
			return // closed
		}
		l.serving.Go(func() { l.serve(client) })
	}
}

func (l *link) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	upstream := l.upstream.Load()
	if upstream == nil {
		return // the cluster is not up
	}
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", *upstream)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !l.track(client, server) {
		return
	}
	defer l.forget(client, server)
	l.serving.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close() // ends requests below
	})
	l.requests(server, client)
}

// requests passes requests on, frame by frame, until it must not.
func (l *link) requests(server io.Writer, client io.Reader) {
	const endTxn = 26
	head := make([]byte, 6) // size, API key
	for {
		if _, err := io.ReadFull(client, head); err != nil {
			return
		}
		if binary.BigEndian.Uint16(head[4:]) == endTxn && l.holding.Load() {
			l.held.Add(1)
			return
		}
		if _, err := server.Write(head); err != nil {
			return
		}
		if _, err := io.CopyN(server, client, int64(binary.BigEndian.Uint32(head))-2); err != nil {
			return
		}
	}
}

func (l *link) track(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		l.conns[c] = true
	}
	return !l.closed
}

func (l *link) forget(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		delete(l.conns, c)
	}
}

func (l *link) close() {
	_ = l.ln.Close()
	l.mu.Lock()
	l.closed = true
	for c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.serving.Wait()
}
