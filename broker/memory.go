package broker

import (
	"context"
	"net"
	"sync"
)

// address is a host:port that nothing listens on: kfake tells it to clients
// as its own.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// memoryListener hands out the ends of in-memory connections.
type memoryListener struct {
	addr  address
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newMemoryListener(addr string) *memoryListener {
	return &memoryListener{addr: address(addr), conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Addr() net.Addr { return l.addr }

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// dial connects; the accepting end sees from as its peer's address.
func (l *memoryListener) dial(ctx context.Context, from net.Addr) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- memoryConn{far, from}:
		return near, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// memoryConn is one end of a pipe with the address of who is behind it.
type memoryConn struct {
	net.Conn
	remote net.Addr
}

func (c memoryConn) RemoteAddr() net.Addr { return c.remote }
