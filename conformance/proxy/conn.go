package proxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// read are the API keys of Kafka's own whose messages are read; all of the
// coordinator's are besides. The others pass as bytes.
var read = map[int16]bool{
	int16(kmsg.Metadata): true, int16(kmsg.FindCoordinator): true, int16(kmsg.ApiVersions): true,
	int16(kmsg.InitProducerID): true, int16(kmsg.AddPartitionsToTxn): true, int16(kmsg.EndTxn): true,
	int16(kmsg.DescribeCluster): true, int16(kmsg.DescribeTransactions): true, int16(kmsg.ListTransactions): true,
	int16(kmsg.DescribeConfigs): true, int16(kmsg.Fetch): true, int16(kmsg.CreateACLs): true,
	int16(kmsg.AddOffsetsToTxn): true, int16(kmsg.TxnOffsetCommit): true,
}

// turn is an answer owed downstream, in order: upstream's, or the exchange's
// own.
type turn struct {
	x       *Exchange // nil: a message that is not read
	forward bool
}

// pipe is one connection.
type pipe struct {
	p        *Proxy
	id       uint64
	down, up net.Conn
	turns    chan turn
}

func (p *Proxy) serve(down net.Conn) {
	defer p.track(down)()
	up, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", p.upstream)
	if err != nil {
		return
	}
	defer p.track(up)()
	c := &pipe{p: p, id: connections.Add(1), down: down, up: up, turns: make(chan turn, 1024)}
	answers := make(chan struct{})
	go func() {
		defer close(answers)
		c.answers()
	}()
	c.requests()
	close(c.turns)
	// What has gone upstream is carried out whether anybody waits or not.
	select {
	case <-answers:
	case <-time.After(5 * time.Second):
	}
	_ = up.Close()
	_ = down.Close()
	<-answers
}

func (c *pipe) requests() {
	in := bufio.NewReader(c.down)
	for {
		frame, err := readFrame(in)
		if errors.Is(err, errFrame) && c.p.hooks.Oversize != nil {
			c.p.hooks.Oversize(c.down)
		}
		if err != nil {
			return
		}
		if c.p.hooks.Raw != nil && len(frame) > 14 {
			frame = c.p.hooks.Raw(frame)
		}
		x, body := c.exchange(frame)
		if x == nil {
			c.turns <- turn{forward: true}
			if _, err = c.up.Write(frame); err != nil {
				return
			}
			continue
		}
		if c.p.hooks.Request != nil {
			c.p.hooks.Request(x)
		}
		switch {
		case x.cut:
			_ = c.down.Close()
			return
		case x.own != nil:
			c.turns <- turn{x: x}
			continue
		case x.changed:
			frame = x.rewrite(frame[:len(frame)-len(body)])
		}
		x.changed = false
		c.turns <- turn{x: x, forward: true}
		if _, err = c.up.Write(frame); err != nil {
			return
		}
	}
}

func (c *pipe) answers() {
	in := bufio.NewReader(c.up)
	for t := range c.turns {
		frame, err := c.answer(in, t)
		if err == nil {
			_, err = c.down.Write(frame)
		}
		if err != nil {
			break
		}
	}
	_ = c.down.Close()
	for range c.turns { // so that the reader is not stuck with a turn
	}
}

var errCut = errors.New("proxy: cut")

// answer is the frame that the client gets.
func (c *pipe) answer(in *bufio.Reader, t turn) ([]byte, error) {
	if !t.forward {
		return t.x.frame(t.x.own), nil
	}
	frame, err := readFrame(in)
	if err != nil || t.x == nil {
		return frame, err
	}
	x := t.x
	x.Response = x.Request.ResponseKind()
	x.Response.SetVersion(x.upstream)
	body := frame[8:]
	if flexibleHeader(x.Response) {
		body = body[min(1, len(body)):] // no peer of ours tags a header
	}
	if err = x.Response.ReadFrom(body); err != nil {
		return frame, nil //nolint:nilerr // it is for the client to judge
	}
	x.Answered = time.Now()
	if c.p.hooks.Answer != nil {
		c.p.hooks.Answer(x)
	}
	if x.cut {
		return nil, errCut
	}
	if c.readdress(x.Response) || x.changed || x.upstream != x.version {
		x.Response.SetVersion(x.version)
		frame = x.frame(x.Response)
	}
	return frame, nil
}

// exchange reads a request, and returns nil for one that passes as bytes.
func (c *pipe) exchange(frame []byte) (*Exchange, []byte) {
	header := frame[4:]
	if len(header) < 10 {
		return nil, nil
	}
	key, version := int16(binary.BigEndian.Uint16(header)), int16(binary.BigEndian.Uint16(header[2:]))
	req, ours := wire.RequestForKey(key, version)
	if !ours {
		if req = kmsg.RequestForKey(key); req == nil || !read[key] || version > req.MaxVersion() {
			return nil, nil
		}
		req.SetVersion(version)
	}
	rest := header[8:]
	if n := int16(binary.BigEndian.Uint16(rest)); n > 0 {
		if len(rest) < 2+int(n) {
			return nil, nil
		}
		rest = rest[2+n:]
	} else {
		rest = rest[2:]
	}
	if req.IsFlexible() {
		if len(rest) == 0 || rest[0] != 0 { // tags of the header: not of this suite
			return nil, nil
		}
		rest = rest[1:]
	}
	if req.ReadFrom(rest) != nil {
		return nil, nil
	}
	return &Exchange{
		Context: c.p.ctx, Conn: c.id, Request: req, Asked: time.Now(), proxy: c.p,
		version: version, upstream: version, correlation: header[4:8],
	}, rest
}

// rewrite is the changed request with the header that it came with.
func (x *Exchange) rewrite(header []byte) []byte {
	frame := append([]byte(nil), header...)
	x.upstream = x.Request.GetVersion()
	binary.BigEndian.PutUint16(frame[6:], uint16(x.upstream))
	frame = x.Request.AppendTo(frame)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

func (x *Exchange) frame(resp kmsg.Response) []byte {
	frame := append(make([]byte, 4), x.correlation...)
	if flexibleHeader(resp) {
		frame = append(frame, 0)
	}
	frame = resp.AppendTo(frame)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// flexibleHeader: the answer to ApiVersions has header version 0 always, so that
// a client reads it whatever it knows (KIP-511).
func flexibleHeader(resp kmsg.Response) bool {
	return resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions)
}

// readdress sends the clients of a cluster to the proxies of its nodes.
func (c *pipe) readdress(resp kmsg.Response) (changed bool) {
	to := func(host *string, port *int32) {
		if *port <= 0 {
			return
		}
		if h, n := c.p.nodeAddress(*host, *port); h != *host || n != *port {
			*host, *port, changed = h, n, true
		}
	}
	switch resp := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range resp.Brokers {
			to(&resp.Brokers[i].Host, &resp.Brokers[i].Port)
		}
	case *kmsg.DescribeClusterResponse:
		for i := range resp.Brokers {
			to(&resp.Brokers[i].Host, &resp.Brokers[i].Port)
		}
	case *kmsg.FindCoordinatorResponse:
		to(&resp.Host, &resp.Port)
		for i := range resp.Coordinators {
			to(&resp.Coordinators[i].Host, &resp.Coordinators[i].Port)
		}
	case *wire.FindCoordinatorResponse:
		for i := range resp.Coordinators {
			to(&resp.Coordinators[i].Host, &resp.Coordinators[i].Port)
		}
	}
	return changed
}

var errFrame = errors.New("proxy: a frame of impossible size")

// readFrame returns a frame with its size.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > 100<<20 {
		return nil, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	frame := make([]byte, 4+n)
	copy(frame, size[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// ask sends requests on a connection of their own, and returns the last answer.
func ask(ctx context.Context, addr string, reqs ...kmsg.Request) (last kmsg.Response, err error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	var frames []byte
	for i, req := range reqs {
		frames = append(frames, (&kmsg.RequestFormatter{}).AppendRequest(nil, req, int32(i))...)
	}
	if _, err = c.Write(frames); err != nil {
		return nil, err
	}
	for _, req := range reqs {
		var answer []byte
		if answer, err = readFrame(c); err != nil {
			return nil, err
		}
		last = req.ResponseKind()
		last.SetVersion(req.GetVersion())
		body := answer[8:]
		if flexibleHeader(last) {
			body = body[min(1, len(body)):]
		}
		if err = last.ReadFrom(body); err != nil {
			return nil, err
		}
	}
	return last, nil
}
