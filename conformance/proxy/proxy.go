// Package proxy stands between two parties of the protocol, reads what they say
// to one another, and changes, holds, answers or loses what it is told to.
//
// The suite listens in with it (what the coordinator sends to a participant is
// half of what there is to judge), and deliberately wrong targets are made with
// it. It keeps what Kafka promises of a connection: answers come in the order
// of the requests. A held request therefore holds the ones behind it on its
// connection, and only those.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Hooks are called for the messages that the proxy reads (see Reads), on the
// goroutine of the connection: a hook that blocks holds the connection. Both
// may be nil.
type Hooks struct {
	Request func(*Exchange)
	Answer  func(*Exchange)
	// Raw, when not nil, sees each request before it is read, its size first,
	// and returns what it shall be.
	Raw func(frame []byte) []byte
	// Oversize, when not nil, has the connection after a frame of impossible
	// size, and ends it by returning.
	Oversize func(net.Conn)
}

// Exchange is one request and its answer.
type Exchange struct {
	// Context ends with the proxy.
	Context context.Context
	// Conn numbers the connections of the process.
	Conn uint64
	// Request is set in both hooks, Response in Answer. Whoever changes one
	// calls Changed, or it goes on as the bytes it came in.
	Request  kmsg.Request
	Response kmsg.Response
	// Scope, when not nil, says which ids a fault is about: a look at many ids
	// names those of others too.
	Scope func(id string) bool
	// Acting, when not nil, is called before a hook answers, cuts or asks.
	Acting func()
	// Asked is when the request came, Answered when the answer did.
	Asked, Answered time.Time

	proxy             *Proxy
	changed, cut      bool
	own               kmsg.Response
	version, upstream int16 // what was asked in, and what upstream is asked in
	correlation       []byte
}

// Changed says that Request or Response is not what came.
func (x *Exchange) Changed() { x.changed = true }

// Answer gives resp in the other side's place, which then never hears of the
// request. The answer hook is not called.
func (x *Exchange) Answer(resp kmsg.Response) {
	x.Act()
	resp.SetVersion(x.version)
	x.own = resp
}

// Cut ends the connection: in Request before the request has gone on, in Answer
// before the answer has.
func (x *Exchange) Cut() {
	x.Act()
	x.cut = true
}

// Ask sends another request upstream, on a connection of its own.
func (x *Exchange) Ask(req kmsg.Request) (kmsg.Response, error) {
	x.Act()
	return ask(x.Context, x.proxy.upstream, req)
}

// AskBeside sends other requests upstream, all at once on a connection of their
// own, and does not wait for the answers.
func (x *Exchange) AskBeside(reqs ...kmsg.Request) {
	x.Act()
	go func() { _, _ = ask(x.Context, x.proxy.upstream, reqs...) }()
}

// Act says that a hook does something that cannot be seen of the exchange.
func (x *Exchange) Act() {
	if x.Acting != nil {
		x.Acting()
	}
}

// Proxy is a listener and what it passes on to.
type Proxy struct {
	hooks    Hooks
	listener net.Listener
	upstream string
	group    *group

	ctx    context.Context
	cancel context.CancelFunc
	off    atomic.Bool
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	busy   sync.WaitGroup
}

// group are the proxies in front of the nodes of one cluster. An address that a
// node names is replaced by that of a proxy in front of it.
type group struct {
	mu      sync.Mutex
	byNode  map[string]*Proxy
	byProxy map[string]bool
}

// Listen starts a proxy at an address, port 0 for any, in front of one node of
// a cluster. The cluster's other nodes get proxies when they are first named.
func Listen(ctx context.Context, address, upstream string, hooks Hooks) (*Proxy, error) {
	return listen(ctx, address, upstream, hooks, &group{byNode: map[string]*Proxy{}, byProxy: map[string]bool{}})
}

// Beside is Listen in front of another node of the same cluster.
func (p *Proxy) Beside(ctx context.Context, address, upstream string) (*Proxy, error) {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	return listen(ctx, address, upstream, p.hooks, p.group)
}

// listen is called with the lock of the group, or before anybody knows it.
func listen(ctx context.Context, address, upstream string, hooks Hooks, g *group) (*Proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{hooks: hooks, listener: l, upstream: upstream, group: g, conns: map[net.Conn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	g.byNode[upstream], g.byProxy[p.Addr()] = p, true
	p.busy.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends it and its connections, and the proxies of the same cluster.
func (p *Proxy) Close() {
	p.group.mu.Lock()
	all := make([]*Proxy, 0, len(p.group.byNode))
	for _, q := range p.group.byNode {
		all = append(all, q)
	}
	p.group.mu.Unlock()
	for _, q := range all {
		q.cancel()
		_ = q.listener.Close()
		q.drop()
	}
	for _, q := range all {
		q.busy.Wait()
	}
}

// Cut ends all connections and takes no new ones; Mend lets them in again.
func (p *Proxy) Cut() { p.each(func(q *Proxy) { q.off.Store(true); q.drop() }) }

// Mend ends a Cut.
func (p *Proxy) Mend() { p.each(func(q *Proxy) { q.off.Store(false) }) }

func (p *Proxy) each(f func(*Proxy)) {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	for _, q := range p.group.byNode {
		f(q)
	}
}

func (p *Proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// track keeps a connection for drop.
func (p *Proxy) track(c net.Conn) (untrack func()) {
	p.mu.Lock()
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) || p.ctx.Err() != nil {
			return
		}
		if err != nil {
			continue
		}
		if p.off.Load() {
			_ = c.Close()
			continue
		}
		p.busy.Go(func() { p.serve(c) })
	}
}

// nodeAddress is what a client is told in place of a node's address.
func (p *Proxy) nodeAddress(host string, port int32) (string, int32) {
	at := net.JoinHostPort(host, strconv.Itoa(int(port)))
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	if p.group.byProxy[at] {
		return host, port
	}
	q := p.group.byNode[at]
	if q == nil {
		var err error
		if q, err = listen(p.ctx, "127.0.0.1:0", at, p.hooks, p.group); err != nil {
			return host, port
		}
		q.off.Store(p.off.Load())
	}
	a := q.listener.Addr().(*net.TCPAddr)
	return a.IP.String(), int32(a.Port)
}

var connections atomic.Uint64
