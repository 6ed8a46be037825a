package broker

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

const (
	// stallTimeout is how long a client may take for one chunk of a frame that
	// it has begun, or for taking one response.
	stallTimeout = 30 * time.Second
	// keepBuffer is the largest read buffer that a connection keeps.
	keepBuffer = 16 << 10
	// connBuffer is the size of a connection's readers. Many connections are
	// idle; large frames pass a reader by.
	connBuffer = 4 << 10
)

var (
	// errEnded is the end that nobody needs to hear of.
	errEnded = errors.New("ended")
	// errUpstream is the end that kfake makes. What it answered before still
	// goes to the client.
	errUpstream = errors.New("the embedded broker closed the connection")
)

// conn is one client. Three goroutines share it: the reader, which routes
// requests; the writer, which answers in the order of the requests; and the
// one that reads what kfake answers. Each handler of the coordinator has one
// more.
type conn struct {
	f        *Front
	listener *Listener
	net      net.Conn
	log      zerolog.Logger

	who           caller
	login         login // of SASL
	authenticated bool  // by SASL, once at least
	trusted       bool  // one of the node's own

	ctx      context.Context // ends when the connection is of no use any more
	cancel   context.CancelFunc
	owed     chan *answer // in the order of the requests
	pending  atomic.Int32 // answers not yet written
	held     atomic.Int64 // of the front's budget
	draining atomic.Bool
	drained  chan struct{}  // closed when draining
	helpers  sync.WaitGroup // handlers, and the reader of kfake's answers

	upstream  net.Conn     // to kfake; nil until the first request for it
	forwarded chan *answer // those that kfake owes, in its order, which is ours
	waiting   *answer      // the last one with plan.waits; the reader's
}

// answer is one place in the order of the answers. ready gives the frame with
// its length; when it is closed there will be none, and the connection ends.
type answer struct {
	req   *request
	plan  plan
	cost  int64       // to be given back
	ready chan []byte // nil when nobody waits (plan.before)
	// answered is closed when kfake has answered a request of plan.waits.
	answered chan struct{}
}

func newConn(f *Front, l *Listener, nc net.Conn) *conn {
	c := &conn{
		f: f, listener: l, net: nc, who: caller{principal: anonymous, host: hostOf(nc.RemoteAddr())},
		log:       f.opts.Log.With().Stringer("client", nc.RemoteAddr()).Logger(),
		owed:      make(chan *answer, f.opts.Config.MaxInFlight),
		forwarded: make(chan *answer, 2*f.opts.Config.MaxInFlight),
		drained:   make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(f.ctx)
	if l.TLS != nil {
		c.net = tls.Server(nc, l.TLS)
	}
	if l.SASL != nil {
		c.login.stage = saslHandshake
	}
	return c
}

func (c *conn) serve() {
	// Reads and writes do not know of contexts: closing wakes them.
	stop := context.AfterFunc(c.ctx, func() { c.net.Close() }) //nolint:errcheck // nothing is left to do with it
	defer stop()
	defer c.login.end()
	if err := c.handshake(); err != nil {
		c.log.Debug().Err(err).Msg("no TLS connection came about")
		c.cancel()
		c.net.Close() //nolint:errcheck // nothing is left to do with it
		return
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		defer c.cancel()
		c.write()
	}()
	err := c.read()
	close(c.owed)
	if _, refused := errors.AsType[*frameError](err); refused {
		c.log.Debug().Err(err).Msg("connection closed because of a bad request")
	} else if !c.draining.Load() && !errors.Is(err, errUpstream) {
		c.linger()
		c.cancel() // the client is gone: nobody waits for what is owed
		if !errors.Is(err, errEnded) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			c.log.Debug().Err(err).Msg("connection lost")
		}
	}
	<-written
	c.net.Close() //nolint:errcheck // nothing is left to do with it
	close(c.forwarded)
	if c.upstream != nil {
		c.upstream.Close() //nolint:errcheck // an end of a pipe
	}
	c.helpers.Wait()
	c.giveBack(c.held.Load())
}

// drain lets the reader end; what is owed will still be answered.
func (c *conn) drain() {
	if c.draining.CompareAndSwap(false, true) {
		close(c.drained)
	}
	c.net.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // fails only when closed
}

// read routes requests until there are no more. A *frameError says that the
// client broke the protocol; what came before is still answered, as in Kafka.
func (c *conn) read() error {
	in := bufio.NewReaderSize(c.net, connBuffer)
	var buf []byte
	for {
		if err := c.awaitFrame(in); err != nil {
			return err
		}
		limit := c.f.opts.Config.SocketRequestMaxBytes
		if !c.login.open() {
			limit = min(limit, maxUnauthenticated)
		}
		cost := c.newCost()
		frame, err := readFrame(in, buf, limit, cost.waiting, cost.reserve)
		if err != nil {
			return err
		}
		if c.premature(frame) {
			return frameErrorf("a request before the SASL authentication")
		}
		req, err := parseRequest(frame, c.f.apis)
		if err != nil {
			return err
		}
		cost.parsed(req)
		p, refused := c.admit(req)
		if p == nil {
			return refused
		}
		if err := c.dispatch(req, *p, cost.held); err != nil {
			return err
		}
		if refused != nil {
			return refused
		}
		// A handler and an edit may still read the frame, and so may the
		// journal; kfake has its own copy.
		if buf = frame; p.handle != nil || p.edit != nil || c.f.journals(req.key) || cap(buf) > keepBuffer {
			buf = nil
		}
	}
}

// awaitFrame waits for the first byte of a frame. A client that waits for an
// answer is not idle.
func (c *conn) awaitFrame(in *bufio.Reader) error {
	idle := c.f.opts.Config.ConnectionsMaxIdle
	if !c.login.open() {
		idle = min(idle, stallTimeout) // it may hold a connection of the home cluster
	}
	for {
		if err := c.allow(idle); err != nil {
			return err
		}
		_, err := in.Peek(1)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) && !c.draining.Load() && c.pending.Load() > 0:
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errEnded
		}
		return err
	}
}

// allow sets the time for the next read. The look at draining comes after it,
// so that it cannot undo the deadline that drain has set.
func (c *conn) allow(d time.Duration) error {
	if err := c.net.SetReadDeadline(c.f.opts.Now().Add(d)); err != nil {
		return err
	}
	if c.draining.Load() {
		return errEnded
	}
	return nil
}

// dispatch takes a place in the order of the answers and sets the request on
// its way. It blocks while too much is owed: that is the back-pressure.
func (c *conn) dispatch(req *request, p plan, cost int64) error {
	if p.sent == nil {
		p.sent = req.body
	}
	a := &answer{req: req, plan: p, cost: cost, ready: make(chan []byte, 1)}
	if p.handle == nil {
		// Unbuffered, so that the answers of a client that does not take them
		// stay with kfake.
		a.ready = make(chan []byte)
	}
	if !p.silent {
		c.pending.Add(1)
		select {
		case c.owed <- a:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
	if p.handle == nil {
		err := c.forward(a)
		if p.silent {
			c.giveBack(cost)
		}
		return err
	}
	who := c.who
	c.helpers.Go(func() {
		defer close(a.ready)
		if resp := p.handle(c.ctx, who); resp != nil {
			a.ready <- encodeResponse(req.correlationID, resp)
		}
	})
	return nil
}

// forward hands a request to kfake. It blocks while kfake is busy with this
// connection: kfake serves one request of a connection after the other, and so
// does Kafka.
func (c *conn) forward(a *answer) error {
	if c.upstream == nil {
		up, err := c.f.opts.Embedded.dialAs(c.ctx, address(net.JoinHostPort(c.who.host, "0")), c.nameForEmbedded())
		if err != nil {
			close(a.ready)
			return fmt.Errorf("%w: %w", errUpstream, err)
		}
		c.upstream = up
		context.AfterFunc(c.ctx, func() { up.Close() }) //nolint:errcheck // an end of a pipe
		c.helpers.Go(c.readUpstream)
	}
	if f := c.f; f.journals(a.req.key) {
		if err := f.opts.Journal.Request(a.plan.sent); err != nil {
			f.opts.Fatal(err)
			close(a.ready)
			return fmt.Errorf("%w: %w", errUpstream, err)
		}
	}
	for _, before := range a.plan.before {
		hidden := &answer{req: &request{key: before.Key(), version: before.GetVersion(), correlationID: a.req.correlationID}}
		raw := kmsg.NewRequestFormatter().AppendRequest(nil, before, a.req.correlationID)
		if err := c.sendUpstream(hidden, raw); err != nil {
			return err
		}
	}
	if a.plan.ends != nil {
		c.holdBack(a.plan.ends)
	}
	raw := a.req.raw
	if a.plan.raw != nil {
		raw = a.plan.raw
	}
	if a.plan.waits != nil && c.mayJoin(a.plan.waits.group) {
		return c.await(a, raw)
	}
	return c.sendUpstream(a, raw)
}

// sendUpstream writes one frame to kfake, after saying whose answer comes next.
func (c *conn) sendUpstream(a *answer, raw []byte) error {
	if !a.plan.silent {
		select {
		case c.forwarded <- a:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
	if _, err := c.upstream.Write(raw); err != nil {
		return errUpstream
	}
	return nil
}

// readUpstream gives each answer of kfake to the one that waits for it.
func (c *conn) readUpstream() {
	in := bufio.NewReaderSize(c.upstream, connBuffer)
	for a := range c.forwarded {
		frame, err := c.nextUpstream(in, a)
		if a.answered != nil {
			close(a.answered)
		}
		if err != nil {
			if c.ctx.Err() == nil {
				c.log.Debug().Err(err).Str("request", wire.NameForKey(a.req.key)).Int16("version", a.req.version).
					Msg("the embedded broker gave no answer; closing the connection, as Kafka does")
			}
			if a.ready == nil {
				continue // the request behind it fails too
			}
			close(a.ready)
			break
		}
		if a.ready == nil {
			continue
		}
		select {
		case a.ready <- frame:
		case <-c.ctx.Done():
		}
	}
	for a := range c.forwarded {
		if c.f.journals(a.req.key) {
			c.f.record(a.plan.sent, nil) //nolint:errcheck // reported by record
		}
	}
}

func (c *conn) nextUpstream(in *bufio.Reader, a *answer) ([]byte, error) {
	frame, err := readResponse(in)
	if err == nil {
		err = checkID(frame, a.req.correlationID)
	}
	if err == nil {
		err = c.f.opts.Embedded.stored(a.req.key)
	}
	journal := c.f.journals(a.req.key)
	if err != nil {
		if journal {
			return nil, errors.Join(err, c.f.record(a.plan.sent, nil))
		}
		return nil, err
	}
	if !journal && a.plan.edit == nil {
		return frame, nil
	}
	resp := a.plan.sent.ResponseKind()
	if err := decodeResponse(frame, resp); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if journal {
		if err := c.f.record(a.plan.sent, resp); err != nil {
			return nil, err
		}
	}
	if a.plan.edit == nil {
		return frame, nil
	}
	return encodeResponse(a.req.correlationID, a.plan.edit(resp)), nil
}

// record gives an answer, or that there is none, to the journal.
func (f *Front) record(req kmsg.Request, resp kmsg.Response) error {
	err := f.opts.Journal.Response(req, resp)
	if err != nil {
		f.opts.Fatal(err)
	}
	return err
}

// write sends the answers in the order of the requests.
func (c *conn) write() {
	for a := range c.owed {
		select {
		case frame, ok := <-a.ready:
			if !ok {
				return
			}
			if err := c.send(frame); err != nil {
				return
			}
			c.pending.Add(-1)
			c.giveBack(a.cost)
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *conn) send(frame []byte) error {
	for len(frame) > 0 {
		n := min(len(frame), 1<<20)
		if err := c.net.SetWriteDeadline(c.f.opts.Now().Add(stallTimeout)); err != nil {
			return err
		}
		if _, err := c.net.Write(frame[:n]); err != nil {
			return err
		}
		frame = frame[n:]
	}
	return nil
}
