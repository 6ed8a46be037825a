package client

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

const (
	testID    = "payments-7"
	testPID   = int64(4711)
	testEpoch = int16(5)
)

// pipe is a gated connection with the broker's end of it in the test's hands.
type pipe struct {
	t      *testing.T
	gate   *gate
	conn   net.Conn
	broker net.Conn
}

func newPipe(t *testing.T) *pipe {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	g := &gate{transactionalID: testID}
	c, err := g.dialer((&net.Dialer{}).DialContext)(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), b.Close() })
	for _, end := range []net.Conn{c, b} { // what is not sent must not hang the test
		if err := end.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
	}
	return &pipe{t: t, gate: g, conn: c, broker: b}
}

// frame is a request as kgo writes it.
func frame(correlationID int32, req kmsg.Request) []byte {
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))
	return f.AppendRequest(nil, req, correlationID)
}

func (p *pipe) write(frames ...[]byte) {
	p.t.Helper()
	for _, f := range frames {
		if n, err := p.conn.Write(f); err != nil || n != len(f) {
			p.t.Fatalf("Write = %d, %v, want %d", n, err, len(f))
		}
	}
}

// received is the next frame at one end of the connection, length taken off.
func (p *pipe) received(from io.Reader) []byte {
	p.t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		p.t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(from, b); err != nil {
		p.t.Fatal(err)
	}
	return b
}

func (p *pipe) respond(frames ...[]byte) {
	p.t.Helper()
	for _, f := range frames {
		if _, err := p.broker.Write(f); err != nil {
			p.t.Fatal(err)
		}
	}
}

// nothingSent says that the broker got no bytes besides a request that is sent
// now for comparison.
func (p *pipe) nothingSent() {
	p.t.Helper()
	const mark = 99
	p.write(frame(mark, kmsg.NewPtrListGroupsRequest()))
	if _, _, id, _ := peekRequest(p.received(p.broker)); id != mark {
		p.t.Errorf("the broker got correlation id %d, want nothing before %d", id, mark)
	}
}

// offers lets the broker offer versions of InitProducerId on the connection.
func (p *pipe) offers(highest int16) {
	p.t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(3)
	p.write(frame(0, req))
	p.received(p.broker)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: keyInitProducerID, MaxVersion: highest}}
	sent := withSize(resp.AppendTo(kbin.AppendInt32(make([]byte, 4), 0)))
	p.respond(sent)
	if got := p.received(p.conn); string(got) != string(sent[4:]) {
		p.t.Fatalf("kgo read %x of ApiVersions, want %x", got, sent[4:])
	}
}

func initRequest() *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.SetVersion(initProducerIDStable)
	req.TransactionalID = kmsg.StringPtr(testID)
	req.TransactionTimeoutMillis = 1 << 30
	req.ProducerID, req.ProducerEpoch = testPID, testEpoch
	req.UnknownTags.Set(7, []byte("tag"))
	return req
}

func endTxnRequest(version int16, commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.SetVersion(version)
	req.TransactionalID, req.Commit = testID, commit
	req.ProducerID, req.ProducerEpoch = testPID, testEpoch
	return req
}

func (p *pipe) readEndTxn(correlationID int32, version int16) *kmsg.EndTxnResponse {
	p.t.Helper()
	b := p.received(p.conn)
	if got := int32(binary.BigEndian.Uint32(b)); got != correlationID {
		p.t.Fatalf("correlation id %d, want %d", got, correlationID)
	}
	resp := kmsg.NewPtrEndTxnResponse()
	resp.SetVersion(version)
	body := b[4:]
	if resp.IsFlexible() {
		body = body[1:] // no tags
	}
	if err := resp.ReadFrom(body); err != nil {
		p.t.Fatal(err)
	}
	return resp
}

func v6Response(correlationID int32) []byte {
	resp := wire.NewPtrInitProducerIDResponseV6()
	resp.ProducerID, resp.ProducerEpoch = testPID, testEpoch+1
	resp.ThrottleMillis = 3
	resp.OngoingTxnProducerID, resp.OngoingTxnProducerEpoch = 8, 9
	resp.UnknownTags.Set(2, []byte("new"))
	out := kbin.AppendInt32(make([]byte, 4), correlationID)
	out = append(out, 1, 5, 1, 'h') // a header tag 5 with one byte
	return withSize(resp.AppendTo(out))
}

func TestInitProducerIDIsUpgraded(t *testing.T) {
	for _, size := range []int{1 << 20, 1, 3, 11} { // of the pieces
		p := newPipe(t)
		p.offers(initProducerID2PC)
		p.gate.setUpgrade(true, false)
		p.gate.setPhase(phaseInit)

		sent := frame(1, initRequest())
		for len(sent) > 0 {
			n := min(size, len(sent))
			p.write(sent[:n])
			sent = sent[n:]
		}
		got := p.received(p.broker)
		key, version, id, _ := peekRequest(got)
		if key != keyInitProducerID || version != 6 || id != 1 {
			t.Fatalf("broker got key %d v%d id %d, want 22 v6 id 1", key, version, id)
		}
		r, err := parseRequest(got, true)
		if err != nil {
			t.Fatal(err)
		}
		v6 := wire.NewPtrInitProducerIDRequestV6()
		if err := v6.ReadFrom(r.body); err != nil {
			t.Fatal(err)
		}
		tags := 0
		v6.UnknownTags.Each(func(key uint32, value []byte) {
			if key == 7 && string(value) == "tag" {
				tags++
			}
		})
		if !v6.Enable2PC || v6.KeepPreparedTxn || *v6.TransactionalID != testID || v6.TransactionTimeoutMillis != 1<<30 ||
			v6.ProducerID != testPID || v6.ProducerEpoch != testEpoch || tags != 1 {
			t.Errorf("broker got %+v", v6)
		}

		out := v6Response(1)
		for len(out) > 0 {
			n := min(size, len(out))
			p.respond(out[:n])
			out = out[n:]
		}
		b := kbin.Reader{Src: p.received(p.conn)}
		id = b.Int32()
		header := kmsg.ReadTags(&b)
		v5 := kmsg.NewPtrInitProducerIDResponse()
		v5.SetVersion(5)
		if err := v5.ReadFrom(b.Src); err != nil {
			t.Fatal(err)
		}
		if id != 1 || header.Len() != 1 || v5.ProducerID != testPID || v5.ProducerEpoch != testEpoch+1 || v5.ThrottleMillis != 3 || v5.UnknownTags.Len() != 1 {
			t.Errorf("kgo read id %d, %d header tags, %+v", id, header.Len(), v5)
		}
		if !p.gate.wasUpgraded() {
			t.Error("the gate does not know that it upgraded")
		}
	}
}

func TestInitProducerIDStaysV5(t *testing.T) {
	for name, c := range map[string]struct {
		offered int16
		upgrade bool
	}{"not offered": {5, true}, "not wanted": {6, false}} {
		t.Run(name, func(t *testing.T) {
			p := newPipe(t)
			p.offers(c.offered)
			p.gate.setUpgrade(c.upgrade, false)
			p.gate.setPhase(phaseInit)
			sent := frame(1, initRequest())
			p.write(sent)
			if got := p.received(p.broker); string(got) != string(sent[4:]) {
				t.Errorf("broker got %x, want %x", got, sent[4:])
			}
		})
	}
}

func TestInitProducerIDIsHeldBack(t *testing.T) {
	for name, c := range map[string]struct {
		phase phase
		code  int16
	}{
		"shut":     {phaseShut, kerr.InvalidProducerEpoch.Code},
		"adopt":    {phaseAdopt, kerr.InvalidProducerEpoch.Code},
		"required": {phaseInit, kerr.UnsupportedVersion.Code},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipe(t)
			p.offers(initProducerIDStable)
			p.gate.setUpgrade(true, name == "required")
			p.gate.setPhase(c.phase)
			p.write(frame(1, initRequest()))
			b := p.received(p.conn)
			resp := kmsg.NewPtrInitProducerIDResponse()
			resp.SetVersion(5)
			if err := resp.ReadFrom(b[5:]); err != nil || resp.ErrorCode != c.code {
				t.Errorf("kgo read %+v, %v, want code %d", resp, err, c.code)
			}
			p.nothingSent()
		})
	}
}

func TestEndTxnIsAnsweredFromTheReply(t *testing.T) {
	for _, version := range []int16{0, 2, 3, 4, 5} {
		p := newPipe(t)
		next := testEpoch
		if version == 5 {
			next++
		}
		p.gate.adopt(adoption{commit: true, id: testPID, epoch: testEpoch, nextID: testPID, nextEpoch: next})
		for try := range int32(2) { // kgo asks again on a broken connection
			p.write(frame(try, endTxnRequest(version, true)))
			resp := p.readEndTxn(try, version)
			if resp.ErrorCode != 0 {
				t.Errorf("v%d: code %d", version, resp.ErrorCode)
			}
			if version == 5 && (resp.ProducerID != testPID || resp.ProducerEpoch != next) {
				t.Errorf("v5: goes on as %d/%d, want %d/%d", resp.ProducerID, resp.ProducerEpoch, testPID, next)
			}
		}
		p.nothingSent()
		if !p.gate.adopted() {
			t.Errorf("v%d: not adopted", version)
		}
	}
}

func TestEndTxnNeverLeavesWithoutLeave(t *testing.T) {
	adopt := adoption{commit: true, id: testPID, epoch: testEpoch, nextID: testPID, nextEpoch: testEpoch + 1}
	other := adopt
	other.epoch--
	for name, c := range map[string]struct {
		set     func(*gate)
		version int16
		commit  bool
	}{
		"commit while shut":       {func(g *gate) { g.setPhase(phaseShut) }, 5, true},
		"abort while shut":        {func(g *gate) { g.setPhase(phaseShut) }, 5, false},
		"commit while lending":    {func(g *gate) { g.lend(testPID, testEpoch) }, 5, true},
		"abort of a commit":       {func(g *gate) { g.adopt(adopt) }, 5, false},
		"another epoch":           {func(g *gate) { g.adopt(other) }, 5, true},
		"kgo cannot follow on v4": {func(g *gate) { g.adopt(adopt) }, 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipe(t)
			c.set(p.gate)
			p.write(frame(1, endTxnRequest(c.version, c.commit)))
			if resp := p.readEndTxn(1, c.version); resp.ErrorCode != kerr.InvalidTxnState.Code {
				t.Errorf("code %d, want INVALID_TXN_STATE", resp.ErrorCode)
			}
			p.nothingSent()
			if p.gate.adopted() {
				t.Error("adopted")
			}
		})
	}
}

// A producer that comes into the midst of a transaction gets its id from here.
func TestInitProducerIDIsAnsweredWithWhatIsLent(t *testing.T) {
	p := newPipe(t)
	p.offers(initProducerID2PC)
	p.gate.setUpgrade(true, true)
	p.gate.lend(testPID, testEpoch)
	p.write(frame(1, initRequest()))
	b := p.received(p.conn)
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.SetVersion(5)
	if err := resp.ReadFrom(b[5:]); err != nil || resp.ErrorCode != 0 || resp.ProducerID != testPID || resp.ProducerEpoch != testEpoch {
		t.Errorf("kgo read %+v, %v, want %d/%d", resp, err, testPID, testEpoch)
	}
	p.nothingSent()
}

// Own answers come in the order of the requests, between those of the broker,
// however these are cut.
func TestAnswersKeepTheOrderOfRequests(t *testing.T) {
	for _, size := range []int{1 << 20, 1, 5, 9} {
		p := newPipe(t)
		p.offers(initProducerID2PC)
		p.gate.setUpgrade(true, false)
		p.gate.setPhase(phaseInit)
		p.write(frame(1, kmsg.NewPtrListGroupsRequest()), frame(2, initRequest()))
		p.gate.adopt(adoption{commit: true, id: testPID, epoch: testEpoch, nextID: testPID, nextEpoch: 6})
		p.write(
			frame(3, endTxnRequest(5, true)),
			frame(4, kmsg.NewPtrListGroupsRequest()),
			frame(5, endTxnRequest(5, true)),
			frame(6, endTxnRequest(5, true)),
		)
		go func() {
			big := make([]byte, 100_000) // longer than any buffer
			out := append(responseOf(1, nil), v6Response(2)...)
			out = append(out, responseOf(4, big)...)
			for len(out) > 0 {
				n := min(size*1000, len(out))
				_, _ = p.broker.Write(out[:n])
				out = out[n:]
			}
		}()
		reader := io.Reader(p.conn)
		if size < 1<<20 {
			reader = shortReader{p.conn, size}
		}
		for want := int32(1); want <= 6; want++ {
			b := p.received(reader)
			if got := int32(binary.BigEndian.Uint32(b)); got != want {
				t.Fatalf("pieces of %d: response %d comes in the place of %d", size, got, want)
			}
			if want == 4 && len(b) != 4+100_000 {
				t.Errorf("the long response has %d bytes", len(b))
			}
		}
	}
}

type shortReader struct {
	r io.Reader
	n int
}

func (s shortReader) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }

func responseOf(correlationID int32, body []byte) []byte {
	return withSize(append(kbin.AppendInt32(make([]byte, 4), correlationID), body...))
}

func TestRewrittenResponseIsBounded(t *testing.T) {
	p := newPipe(t)
	p.offers(initProducerID2PC)
	p.gate.setUpgrade(true, false)
	p.gate.setPhase(phaseInit)
	p.write(frame(1, initRequest()))
	p.respond([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1})
	if _, err := p.conn.Read(make([]byte, 10)); err == nil {
		t.Error("a response of 2 GiB was accepted")
	}
}

func TestResponseToNoRequestIsRefused(t *testing.T) {
	p := newPipe(t)
	p.respond(responseOf(1, nil))
	if _, err := p.conn.Read(make([]byte, 10)); err == nil {
		t.Error("read a response to no request")
	}
}

// A broker's bytes may be anything; the rewriting must not panic.
func FuzzResponseRewriting(f *testing.F) {
	f.Add(v6Response(1)[4:], int16(3))
	f.Add([]byte{0, 0, 0, 1, 0, 35}, int16(5))
	f.Fuzz(func(_ *testing.T, b []byte, version int16) {
		_, _ = downgradeInitProducerID(b)
		initProducerIDMax(b, version&7)
	})
}

func FuzzRequestJudging(f *testing.F) {
	f.Add(frame(1, initRequest())[4:])
	f.Add(frame(1, endTxnRequest(5, true))[4:])
	f.Fuzz(func(_ *testing.T, b []byte) {
		c := &conn{gate: &gate{transactionalID: testID}}
		_, _, _ = c.judge(withSize(append(make([]byte, 4), b...)))
	})
}
