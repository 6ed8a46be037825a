package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/node"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// rawClient speaks the protocol by hand, for what the library never does.
type rawClient struct {
	gtc       *kgo.Client
	id        string
	instance  [16]byte
	epoch     int32
	sequence  int64
	clusters  map[string]participantCluster
	producers map[string]*kgo.Client
	// refs name the transaction that is open, by cluster.
	refs map[string]wire.EndGlobalTxnRequestParticipant
}

// openRaw opens a session and initialises a producer on each cluster, with no
// transaction timeout unless one of its own is given.
func openRaw(ctx context.Context, addr, id string, clusters map[string]participantCluster, timeoutMillis int32, own ...map[string]time.Duration) (*rawClient, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.MaxVersions(wire.Versions()), kgo.RequestRetries(0))
	if err != nil {
		return nil, err
	}
	c := &rawClient{gtc: cl, id: id, clusters: clusters, producers: map[string]*kgo.Client{}, refs: map[string]wire.EndGlobalTxnRequestParticipant{}}
	_, _ = rand.Read(c.instance[:])
	req := c.initRequest(timeoutMillis)
	resp, err := repeat(ctx, func(ctx context.Context) (*wire.InitGlobalTxnResponse, int16, error) {
		r, askErr := req.RequestWith(ctx, cl)
		if askErr != nil {
			return nil, 0, askErr
		}
		return r, r.ErrorCode, nil
	})
	if err != nil {
		return nil, fmt.Errorf("InitGlobalTxn: %w", err)
	}
	if resp.ErrorCode != 0 {
		return nil, fmt.Errorf("InitGlobalTxn: %w %v", wire.ErrorForCode(resp.ErrorCode), resp.ErrorMessage)
	}
	c.epoch, c.sequence = resp.GlobalEpoch, resp.Sequence
	for name, at := range clusters {
		timeout := math.MaxInt32 * time.Millisecond
		for _, o := range own {
			timeout = cmp.Or(o[name], timeout)
		}
		c.producers[name], err = kgo.NewClient(kgo.SeedBrokers(at.addr), kgo.TransactionalID(id), kgo.TransactionTimeout(timeout))
		if err != nil {
			return nil, err
		}
		if _, _, err := c.producers[name].ProducerID(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *rawClient) close() {
	c.gtc.Close()
	for _, p := range c.producers {
		p.Close()
	}
}

func (c *rawClient) initRequest(timeoutMillis int32) *wire.InitGlobalTxnRequest {
	req := wire.NewPtrInitGlobalTxnRequest()
	req.GlobalTransactionalID, req.TimeoutMillis, req.InstanceID = c.id, timeoutMillis, c.instance
	for _, at := range c.clusters {
		req.ClusterIDs = append(req.ClusterIDs, at.id)
	}
	return req
}

// write begins a transaction on each named cluster and writes one record.
func (c *rawClient) write(ctx context.Context, topic, value string, clusters ...string) error {
	for _, name := range clusters {
		p := c.producers[name]
		if err := p.BeginTransaction(); err != nil {
			return err
		}
		if err := p.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			return err
		}
		if err := c.name(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// name lists a cluster among the participants.
func (c *rawClient) name(ctx context.Context, cluster string) error {
	pid, epoch, err := c.producers[cluster].ProducerID(ctx)
	c.refs[cluster] = wire.EndGlobalTxnRequestParticipant{ClusterID: c.clusters[cluster].id, ProducerID: pid, ProducerEpoch: epoch}
	return err
}

// endRequest names the open transaction.
func (c *rawClient) endRequest(commit bool, hold time.Duration) *wire.EndGlobalTxnRequest {
	req := wire.NewPtrEndGlobalTxnRequest()
	req.GlobalTransactionalID, req.GlobalEpoch, req.Sequence = c.id, c.epoch, c.sequence
	req.Committed, req.TimeoutMillis = commit, int32(hold.Milliseconds())
	for _, ref := range c.refs {
		req.Participants = append(req.Participants, ref)
	}
	return req
}

// end asks once.
func (c *rawClient) end(ctx context.Context, commit bool, hold time.Duration) (*wire.EndGlobalTxnResponse, error) {
	return c.endRequest(commit, hold).RequestWith(ctx, c.gtc)
}

// endUntilDecided repeats the request until an outcome that all participants
// have, or a final refusal, comes back.
func (c *rawClient) endUntilDecided(ctx context.Context, commit bool) (*wire.EndGlobalTxnResponse, error) {
	return repeat(ctx, func(ctx context.Context) (*wire.EndGlobalTxnResponse, int16, error) {
		r, err := c.end(ctx, commit, 2*time.Second)
		if err != nil {
			return nil, 0, err
		}
		pending := func(p wire.EndGlobalTxnResponseParticipant) bool { return p.State == wire.ParticipantPending }
		if r.ErrorCode == 0 && (r.Outcome == wire.OutcomeUnknown || slices.ContainsFunc(r.Participants, pending)) {
			return r, kerr.CoordinatorNotAvailable.Code, nil
		}
		return r, r.ErrorCode, nil
	})
}

// repeat asks until the answer is none that says "ask again".
func repeat[R any](ctx context.Context, ask func(context.Context) (R, int16, error)) (R, error) {
	for {
		once, cancel := context.WithTimeout(ctx, 30*time.Second)
		r, code, err := ask(once)
		cancel()
		if err == nil && !retriable(code) {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("code %d, %w: %w", code, err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func retriable(code int16) bool {
	return code == kerr.ConcurrentTransactions.Code || code == kerr.NotCoordinator.Code ||
		code == kerr.CoordinatorLoadInProgress.Code || code == kerr.CoordinatorNotAvailable.Code
}

// described asks DescribeGlobalTransactions about one id, until it is answered.
func described(ctx context.Context, cl kmsg.Requestor, id string) (wire.DescribeGlobalTransactionsResponseGlobalTransaction, error) {
	req := wire.NewPtrDescribeGlobalTransactionsRequest()
	req.GlobalTransactionalIDs = []string{id}
	return repeat(ctx, func(ctx context.Context) (one wire.DescribeGlobalTransactionsResponseGlobalTransaction, code int16, err error) {
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return one, 0, err
		}
		return resp.GlobalTransactions[0], resp.GlobalTransactions[0].ErrorCode, nil
	})
}

// listed asks ListGlobalTransactions about one id, until it is answered.
func listed(ctx context.Context, cl kmsg.Requestor, id string) (wire.ListGlobalTransactionsResponseGlobalTransaction, bool, error) {
	resp, err := repeat(ctx, func(ctx context.Context) (*wire.ListGlobalTransactionsResponse, int16, error) {
		resp, err := wire.NewPtrListGlobalTransactionsRequest().RequestWith(ctx, cl)
		if err != nil {
			return nil, 0, err
		}
		return resp, resp.ErrorCode, nil
	})
	if err != nil {
		return wire.ListGlobalTransactionsResponseGlobalTransaction{}, false, err
	}
	for _, g := range resp.GlobalTransactions {
		if g.GlobalTransactionalID == id {
			return g, true, nil
		}
	}
	return wire.ListGlobalTransactionsResponseGlobalTransaction{}, false, nil
}

// freeAddr is an address that nobody listens on now.
func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := node.FreeAddr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
