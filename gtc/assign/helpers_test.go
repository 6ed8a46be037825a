package assign_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// network is one node's way to the home cluster. Frozen, nothing passes: what
// the cluster sees of a node that is stopped.
type network struct {
	mu      sync.Mutex
	frozen  chan struct{} // closed when it may go on; nil: not frozen
	fetches map[string]int
}

func newNetwork() *network { return &network{fetches: map[string]int{}} }

func (n *network) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = make(chan struct{})
}

func (n *network) thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.frozen != nil {
		close(n.frozen)
		n.frozen = nil
	}
}

func (n *network) pass() {
	n.mu.Lock()
	frozen := n.frozen
	n.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func (n *network) fetchesOf(clientPrefix string) (sum int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, count := range n.fetches {
		if strings.HasPrefix(id, clientPrefix) {
			sum += count
		}
	}
	return sum
}

func (n *network) dial(ctx context.Context, proto, addr string) (net.Conn, error) {
	n.pass()
	c, err := new(net.Dialer).DialContext(ctx, proto, addr)
	if err != nil {
		return nil, err
	}
	return conn{c, n}, nil
}

type conn struct {
	net.Conn
	n *network
}

// Write counts Fetch by client id: kgo writes whole frames.
func (c conn) Write(b []byte) (int, error) {
	c.n.pass()
	if len(b) > 14 && binary.BigEndian.Uint16(b[4:]) == uint16(kmsg.Fetch) {
		size := int(binary.BigEndian.Uint16(b[12:]))
		c.n.mu.Lock()
		c.n.fetches[string(bytes.Clone(b[14:min(14+size, len(b))]))]++
		c.n.mu.Unlock()
	}
	return c.Conn.Write(b)
}

func (c conn) Read(b []byte) (int, error) {
	k, err := c.Conn.Read(b)
	c.n.pass()
	return k, err
}

// participants are two clusters on which whatever is asked for succeeds; open
// is what a scan finds.
type participants struct {
	mu   sync.Mutex
	open []gtc.OpenTransaction
	ends []string
}

func (p *participants) Check(_ context.Context, _ string, clusterIDs []string) []gtc.CheckResult {
	checks := make([]gtc.CheckResult, len(clusterIDs))
	for i, id := range clusterIDs {
		checks[i].ClusterID = id
	}
	return checks
}

func (p *participants) Vote(_ context.Context, _ string, refs []gtc.ParticipantRef) []gtc.Vote {
	votes := make([]gtc.Vote, len(refs))
	for i := range votes {
		votes[i] = gtc.Vote{Code: gtc.VotePrepared, EndTxnVersion: 5}
	}
	return votes
}

func (p *participants) End(_ context.Context, e gtc.EndTxn) gtc.EndAnswer {
	of, commit := e.Participant, e.Commit
	p.mu.Lock()
	defer p.mu.Unlock()
	what := "abort "
	if commit {
		what = "commit "
	}
	p.ends = append(p.ends, what+of.ClusterID)
	p.open = nil
	return gtc.EndAnswer{Outcome: gtc.EndDone, NextProducerID: of.ProducerID, NextProducerEpoch: of.ProducerEpoch + 1, EndTxnVersion: 5}
}

func (p *participants) Scan(_ context.Context, clusterID string, known func(string) bool) ([]gtc.OpenTransaction, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var open []gtc.OpenTransaction
	for _, o := range p.open {
		if known(o.ID) && clusterID != "" {
			open = append(open, o)
		}
	}
	return open, nil
}

func (p *participants) Aliases() []string { return []string{"a", "b"} }

func (p *participants) Learn(_ context.Context, alias string) (string, error) { return alias, nil }

func (p *participants) ended() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.ends...)
}

func (p *participants) seeOpen(o gtc.OpenTransaction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = []gtc.OpenTransaction{o}
}

// syncBuffer takes a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func errNotYet(ended []string) error { return fmt.Errorf("only %v so far", ended) }

var notCoordinator = kerr.NotCoordinator.Code

func wireDescribe(id string) *wire.DescribeGlobalTransactionsRequest {
	req := wire.NewPtrDescribeGlobalTransactionsRequest()
	req.GlobalTransactionalIDs = []string{id}
	return req
}

func describeCode(resp kmsg.Response) int16 {
	return resp.(*wire.DescribeGlobalTransactionsResponse).GlobalTransactions[0].ErrorCode
}

// fencedCount reads gtc_log_fenced_total.
func fencedCount(t *testing.T, n *node) float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(n.Metrics())
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "gtc_log_fenced_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("no gtc_log_fenced_total")
	return 0
}
