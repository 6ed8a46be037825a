package participant

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// A broker reads no further request of a connection before it has answered the
// one before. So an EndTxn that is slow must not stand in front of all others.
func TestAnEndTxnThatIsSlowHoldsUpOnlyItsLane(t *testing.T) {
	a := fake(t, "A")
	release := make(chan struct{})
	slow := &slowFirst{release: release}
	cfg := at("a", a.ListenAddrs()...)
	cfg.ClientOpts = append(cfg.ClientOpts, kgo.Dialer(slow.dial))
	c := drive(t, cfg)
	const n = 40
	var parts [n]txnlog.Participant
	for i := range parts {
		p := newProducer(t, fmt.Sprint("tid-", i), noTimeoutDuration, a.ListenAddrs()...)
		p.write("t")
		parts[i] = prepared(t, c, fmt.Sprint("tid-", i), p.ref("A"))
	}
	end := func(i int) {
		if ans := c.End(context.Background(), gtc.EndTxn{ID: fmt.Sprint("tid-", i), Participant: parts[i], Commit: true}); ans.Outcome != gtc.EndDone {
			t.Errorf("tid-%d: %+v, want done", i, ans)
		}
	}
	var first, others sync.WaitGroup
	first.Go(func() { end(0) })
	eventually(t, slow.stands)
	lane := func(i int) *session {
		s, err := c.all[0].endSession(t.Context(), fmt.Sprint("tid-", i))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ran := 0
	for i := 1; i < n; i++ {
		if lane(i) != lane(0) {
			ran++
			others.Go(func() { end(i) })
		}
	}
	others.Wait()
	if ran < n/2 {
		t.Errorf("%d of %d ids have another lane than the first", ran, n-1)
	}
	close(release)
	first.Wait()
}

// slowFirst holds the connection that carries the first EndTxn.
type slowFirst struct {
	release chan struct{}
	mu      sync.Mutex
	held    bool
}

func (s *slowFirst) stands() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

func (s *slowFirst) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &slowConn{conn, s}, err
}

type slowConn struct {
	net.Conn
	s *slowFirst
}

func (c *slowConn) Write(b []byte) (int, error) {
	if len(b) >= 6 && int16(binary.BigEndian.Uint16(b[4:])) == keyEndTxn {
		c.s.mu.Lock()
		first := !c.s.held
		c.s.held = true
		c.s.mu.Unlock()
		if first {
			<-c.s.release
		}
	}
	return c.Conn.Write(b)
}
