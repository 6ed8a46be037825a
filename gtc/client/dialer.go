package client

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
)

// dialFunc is the shape of kgo.Dialer's argument and of net.Dialer.DialContext.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialer wraps the connections of a participant's producer so that
//
//   - InitProducerId leaves only when the protocol allows it, and as v6 with
//     Enable2Pc where the cluster offers that;
//   - kgo's EndTxn, after the coordinator has ended the transaction, is
//     answered from the coordinator's reply and does not leave.
//
// All else passes through. The wrapper relies on how kgo uses a connection,
// which is how every Kafka client does: one goroutine writes, one reads, every
// request is answered, and in order. (acks=0 has no answers, but kgo refuses
// it for a transactional producer.)
func (g *gate) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newConn(c, g), nil
	}
}

// handling says what the reader does with the response to one request.
type handling int8

const (
	pass      handling = iota // hand it on as it comes
	versions                  // look into it, then hand it on
	downgrade                 // InitProducerId v6 to v5
	local                     // there is none: exchange.answer takes its place
)

// exchange is one request whose response kgo has not read in full.
type exchange struct {
	handling handling
	version  int16  // of the request, for versions
	answer   []byte // for local: the whole frame
}

// conn is a connection of kgo's. Write and Read may run at the same time.
type conn struct {
	net.Conn
	gate *gate

	partial []byte // writer: begin of a frame that came in pieces

	mu      sync.Mutex
	pending []exchange // requests in order, the oldest first
	initMax int16      // highest InitProducerId that the broker offers

	in   *bufio.Reader // reader: from the broker
	left int           // reader: bytes left of a frame that passes
	out  []byte        // reader: rewritten or own frame, left to hand on
}

func newConn(c net.Conn, g *gate) *conn {
	return &conn{Conn: c, gate: g, initMax: -1, in: bufio.NewReader(c)}
}

// Write takes whole frames, as kgo writes them, without a copy, and pieces of
// frames as well.
func (c *conn) Write(p []byte) (int, error) {
	if len(c.partial) == 0 && frameLength(p) == len(p) {
		return c.writeFrame(p)
	}
	c.partial = append(c.partial, p...)
	for {
		n := frameLength(c.partial)
		if n < 0 || n > len(c.partial) {
			return len(p), nil
		}
		if _, err := c.writeFrame(c.partial[:n]); err != nil {
			return 0, err
		}
		c.partial = append(c.partial[:0], c.partial[n:]...)
	}
}

// frameLength is the length of the frame that b begins with, its length field
// included; -1 when b has not even that.
func frameLength(b []byte) int {
	if len(b) < sizeBytes {
		return -1
	}
	return sizeBytes + int(binary.BigEndian.Uint32(b))
}

func (c *conn) writeFrame(frame []byte) (int, error) {
	send, x, err := c.judge(frame)
	if err != nil {
		return 0, err
	}
	// Before the write: the response may be there before it returns.
	c.mu.Lock()
	c.pending = append(c.pending, x)
	c.mu.Unlock()
	if x.handling == local {
		return len(frame), nil
	}
	n, err := c.Conn.Write(send)
	if err == nil {
		return len(frame), nil
	}
	// kgo sends again, on another connection, what it knows never left.
	return min(n, len(frame)), err
}

// judge decides what is sent in the place of a frame, and how its response is
// handled.
func (c *conn) judge(frame []byte) ([]byte, exchange, error) {
	body := frame[sizeBytes:]
	key, version, correlationID, err := peekRequest(body)
	if err != nil {
		return nil, exchange{}, err
	}
	var v verdict
	switch key {
	case keyApiVersions:
		return frame, exchange{handling: versions, version: version}, nil
	case keyInitProducerID:
		r, parsed, err := parseInitProducerID(body, version)
		if err != nil {
			return nil, exchange{}, err
		}
		c.mu.Lock()
		brokerMax := c.initMax
		c.mu.Unlock()
		v = c.gate.initProducerID(parsed, brokerMax)
		if v.upgrade {
			return upgradeInitProducerID(r, parsed), exchange{handling: downgrade}, nil
		}
	case keyEndTxn:
		_, parsed, err := parseEndTxn(body, version)
		if err != nil {
			return nil, exchange{}, err
		}
		v = c.gate.endTxn(parsed)
	}
	if v.answer != nil {
		return nil, exchange{handling: local, answer: responseFrame(correlationID, v.answer)}, nil
	}
	return frame, exchange{handling: pass}, nil
}

// Read hands on the responses in the order of their requests.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(c.out) == 0 && c.left == 0 {
		if err := c.nextFrame(); err != nil {
			return 0, err
		}
	}
	if len(c.out) > 0 {
		n := copy(p, c.out)
		c.out = c.out[n:]
		return n, nil
	}
	n, err := c.in.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// nextFrame begins the response to the oldest request.
func (c *conn) nextFrame() error {
	x, ok := c.oldest()
	if !ok {
		// A read before its request: what comes answers a request of then.
		if _, err := c.in.Peek(sizeBytes); err != nil {
			return err
		}
		if x, ok = c.oldest(); !ok {
			return fmt.Errorf("%v sent a response to no request", c.RemoteAddr())
		}
	}
	switch x.handling {
	case local:
		c.out = x.answer
	case pass:
		size, err := c.in.Peek(sizeBytes)
		if err != nil {
			return err
		}
		c.left = frameLength(size)
	case versions, downgrade:
		frame, err := c.wholeFrame()
		if err != nil {
			return err
		}
		if c.out, err = c.rewrite(x, frame); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending[:0], c.pending[1:]...)
	return nil
}

func (c *conn) oldest() (exchange, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		return exchange{}, false
	}
	return c.pending[0], true
}

// rewrite returns what kgo is given for a response, length in front.
func (c *conn) rewrite(x exchange, frame []byte) ([]byte, error) {
	if x.handling == downgrade {
		return downgradeInitProducerID(frame[sizeBytes:])
	}
	initMax := initProducerIDMax(frame[sizeBytes:], x.version)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.initMax = initMax
	return frame, nil
}

// wholeFrame takes one frame, length in front, from the broker. What it has
// read is lost when the rest does not come; kgo drops a connection after any
// error of a read.
func (c *conn) wholeFrame() ([]byte, error) {
	size, err := c.in.Peek(sizeBytes)
	if err != nil {
		return nil, err
	}
	n := frameLength(size)
	if n > maxRewritten {
		return nil, fmt.Errorf("response of %d bytes from %v is longer than the %d that it may have", n, c.RemoteAddr(), maxRewritten)
	}
	frame := make([]byte, n)
	_, err = io.ReadFull(c.in, frame)
	return frame, err
}
