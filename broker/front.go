// Package broker is the front of a node: it owns the sockets, and stands
// between clients and what serves them.
//
// Behind it are the embedded broker (kfake, a Kafka broker as a library, fed
// through an in-memory listener) and the coordinator, each only when the node
// has that role. kfake calls a nil request for an API key that it does not
// know and allocates whatever length it reads; therefore nothing reaches it
// that was not bounded and parsed here. Requests go on as the bytes they came
// in, except where this node's behaviour is Kafka's and kfake's is not, or
// where the coordinator's protocol adds to Kafka's (see route.go).
package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"github.com/kafka-gtc/kafka-gtc/broker/acl"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
)

// Options are what a front needs.
type Options struct {
	Config *config.Config
	// Node is what clients are told of this node: its id and the advertised
	// address.
	Node Node
	// Embedded is the broker behind the front; nil on a node without that role.
	Embedded *Embedded
	// Coordinator is the role gtc; nil on a node without it, which then shows
	// nothing of it.
	Coordinator Coordinator
	// ACLs, when not nil, are those of the embedded broker's authorizer, which
	// then is on (Config.Authorizer).
	ACLs *acl.Cache
	// DialHome connects to the home cluster, which authenticates the clients
	// of a node without the embedded broker; nil when no listener asks for it.
	DialHome func(ctx context.Context) (net.Conn, error)
	// Journal, when not nil, sees the requests of transactions that go to the
	// embedded broker and their answers.
	Journal Journal
	// Fatal is called when the journal fails, or the storage of the embedded
	// broker; the node must end then. It must not block.
	Fatal func(error)
	// Now is the clock that deadlines are set by.
	Now func() time.Time
	Log zerolog.Logger
}

// Journal remembers of transactions what kfake keeps in memory alone (package
// durable). An error means that the disk has failed: the request is then not
// forwarded, or its answer not given.
type Journal interface {
	// Request is called before kfake sees a request.
	Request(req kmsg.Request) error
	// Response is called with kfake's answer before the client sees it, or
	// with nil when there is none.
	Response(req kmsg.Request, resp kmsg.Response) error
}

// Front serves clients. Its methods are safe for concurrent use.
type Front struct {
	opts Options
	apis apiTable

	ctx    context.Context // of every connection
	cancel context.CancelFunc
	slots  chan struct{} // one for each connection of Serve
	budget *semaphore.Weighted

	mu        sync.Mutex
	draining  bool
	listeners []net.Listener
	conns     map[*conn]struct{}
	perIP     map[string]int32 // connections of Serve
	running   sync.WaitGroup   // connections and listeners

	topics recent[[16]byte, string] // their names, which an id keeps
}

// NewFront asks the embedded broker what it serves and makes a front for it.
// The front has no listener until Serve, and needs none for Dial.
func NewFront(ctx context.Context, opts Options) (*Front, error) {
	f := &Front{
		opts:  opts,
		slots: make(chan struct{}, opts.Config.MaxConnections),
		conns: make(map[*conn]struct{}),
		perIP: make(map[string]int32),

		budget: semaphore.NewWeighted(opts.Config.QueuedMaxRequestBytes),
	}
	var err error
	if f.apis, err = f.table(ctx); err != nil {
		return nil, fmt.Errorf("asking the embedded broker for its API versions: %w", err)
	}
	if opts.Embedded != nil && opts.Fatal != nil {
		opts.Embedded.storage.onFailure(opts.Fatal)
	}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return f, nil
}

// acceptPause is how long Serve waits after a failed Accept, which mostly
// means that the process is out of file descriptors.
const acceptPause = 50 * time.Millisecond

// Serve accepts connections until Shutdown, which also closes the listener;
// then it returns nil. Its clients speak plain text and are nobody.
func (f *Front) Serve(ln net.Listener) error { return f.ServeListener(ln, Listener{}) }

// ServeListener is Serve for clients that have to show who they are. It speaks
// TLS itself: ln is plain.
func (f *Front) ServeListener(ln net.Listener, as Listener) error {
	if !f.track(func() { f.listeners = append(f.listeners, ln) }) {
		return ln.Close()
	}
	defer f.running.Done()
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed) || f.ctx.Err() != nil:
			return nil
		default:
			f.opts.Log.Error().Err(err).Stringer("listener", ln.Addr()).Msg("accepting a connection failed")
			if !f.pause(acceptPause) {
				return nil
			}
			continue
		}
		// As with Kafka's max.connections, those above the limit wait: one of
		// each listener here, the others in the listen queue. The place is
		// taken after the connection: else each listener would keep one that
		// another needs.
		select {
		case f.slots <- struct{}{}:
			f.accept(c, &as)
		case <-f.ctx.Done():
			return c.Close()
		}
	}
}

// accept serves a client unless its address has as many connections as it may.
func (f *Front) accept(c net.Conn, as *Listener) {
	ip := hostOf(c.RemoteAddr())
	f.mu.Lock()
	full := f.perIP[ip] >= f.opts.Config.MaxConnectionsPerIP
	if !full {
		f.perIP[ip]++
	}
	f.mu.Unlock()
	if full {
		<-f.slots
		c.Close() //nolint:errcheck // never served
		f.opts.Log.Debug().Str("ip", ip).Msg("connection closed: the address has max.connections.per.ip open")
		return
	}
	f.start(newConn(f, as, c), func() {
		<-f.slots
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.perIP[ip]--; f.perIP[ip] == 0 {
			delete(f.perIP, ip)
		}
	})
}

// pause waits, and says false when the front stops meanwhile.
func (f *Front) pause(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(f.ctx, d)
	defer cancel()
	<-ctx.Done()
	return f.ctx.Err() == nil
}

// Dial connects to this front in memory; network and address are ignored. It
// fits kgo.Dialer, and is how the node's own clients see what others see.
func (f *Front) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	c := newConn(f, &Listener{}, memoryConn{far, address("127.0.0.1:0")})
	c.trusted = true
	if !f.start(c, func() {}) {
		return nil, errors.Join(net.ErrClosed, near.Close(), far.Close())
	}
	return near, nil
}

// track runs note unless the front is draining, and counts one running part.
func (f *Front) track(note func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.draining {
		return false
	}
	f.running.Add(1)
	note()
	return true
}

func (f *Front) start(c *conn, release func()) bool {
	if !f.track(func() { f.conns[c] = struct{}{} }) {
		release()
		c.cancel()
		c.net.Close() //nolint:errcheck // never served
		return false
	}
	go func() {
		defer f.running.Done()
		defer release()
		c.serve()
		f.mu.Lock()
		delete(f.conns, c)
		f.mu.Unlock()
	}()
	return true
}

// Shutdown stops accepting and reading, lets what was asked be answered until
// ctx ends, and then closes what is left. It returns when nothing of the front
// runs any more; the error is ctx's when answers were cut off.
func (f *Front) Shutdown(ctx context.Context) error {
	f.mu.Lock()
	f.draining = true
	for _, ln := range f.listeners {
		ln.Close() //nolint:errcheck // nothing is left to do with it
	}
	for c := range f.conns {
		c.drain()
	}
	f.mu.Unlock()

	done := make(chan struct{})
	go func() { f.running.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("answers still owed were cut off: %w", ctx.Err())
	}
	f.cancel()
	<-done
	return err
}
