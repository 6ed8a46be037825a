package client

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// fakeCoordinator speaks the protocol of package wire over TCP and ends the
// participants' transactions with EndTxn of its own, as the coordinator does.
// It decides what it is asked and forgets nothing; faults come from endHook.
type fakeCoordinator struct {
	t        *testing.T
	addr     string
	clusters map[string]*kgo.Client // by cluster id

	mu       sync.Mutex
	requests []int16 // keys, in order, ApiVersions left out
	events   []string
	ids      map[string]*fakeID
	ends     int // EndTxn sent

	// findHook, initHook and endHook may answer instead; a nil response with
	// handled set breaks the connection. They run on the connection's
	// goroutine with the number of that request, from 1.
	findHook func(n int) (resp *wire.FindCoordinatorResponse, handled bool)
	initHook func(n int, req *wire.InitGlobalTxnRequest) (resp *wire.InitGlobalTxnResponse, handled bool)
	endHook  func(n int, req *wire.EndGlobalTxnRequest) (resp *wire.EndGlobalTxnResponse, handled bool)
	// dropAnswer is called when EndGlobalTxn has been carried out, before its
	// answer; true drops the answer and the connection.
	dropAnswer func(n int) bool
}

// fakeID is what the coordinator knows of one id.
type fakeID struct {
	instance [16]byte
	previous [16]byte // fenced by takeOver, if taken
	taken    bool
	epoch    int32
	sequence int64 // of the last decision
	ended    bool  // the session, by its timeout
	decided  map[int64]*wire.EndGlobalTxnResponse
}

func (f *fakeCoordinator) of(id string) *fakeID {
	if f.ids[id] == nil {
		f.ids[id] = &fakeID{decided: map[int64]*wire.EndGlobalTxnResponse{}}
	}
	return f.ids[id]
}

func newFakeCoordinator(t *testing.T, clusters ...participantCluster) *fakeCoordinator {
	t.Helper()
	f := &fakeCoordinator{t: t, clusters: map[string]*kgo.Client{}, ids: map[string]*fakeID{}}
	for _, c := range clusters {
		opts := []kgo.Opt{kgo.SeedBrokers(c.addr)}
		if c.transactionV1 {
			versions := kversion.Stable()
			versions.SetMaxKeyVersion(keyEndTxn, 4)
			opts = append(opts, kgo.MaxVersions(versions))
		}
		cl, err := kgo.NewClient(opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		f.clusters[c.id] = cl
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			wg.Go(func() {
				defer stop()
				defer func() { _ = c.Close() }()
				f.serve(ctx, c)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		wg.Wait()
	})
	return f
}

func (f *fakeCoordinator) serve(ctx context.Context, c net.Conn) {
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, frame); err != nil {
			return
		}
		b := kbin.Reader{Src: frame}
		key, version, correlationID := b.Int16(), b.Int16(), b.Int32()
		b.NullableString()
		req, ok := wire.RequestForKey(key, version)
		if !ok {
			req = kmsg.RequestForKey(key)
			req.SetVersion(version)
		}
		if req.IsFlexible() {
			kmsg.SkipTags(&b)
		}
		if err := req.ReadFrom(b.Src); err != nil {
			f.t.Errorf("coordinator got a request of key %d version %d that it cannot read: %v", key, version, err)
			return
		}
		resp := f.handle(ctx, req)
		if resp == nil {
			return
		}
		out := kbin.AppendInt32(make([]byte, 4), correlationID)
		if resp.IsFlexible() && key != keyApiVersions {
			out = append(out, 0)
		}
		if _, err := c.Write(withSize(resp.AppendTo(out))); err != nil {
			return
		}
	}
}

func (f *fakeCoordinator) handle(ctx context.Context, req kmsg.Request) kmsg.Response {
	f.mu.Lock()
	if req.Key() != keyApiVersions {
		f.requests = append(f.requests, req.Key())
	}
	n := f.countLocked(req.Key())
	f.mu.Unlock()
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		return f.apiVersions(req)
	case *wire.FindCoordinatorRequest:
		return f.findCoordinator(n, req)
	case *wire.InitGlobalTxnRequest:
		if f.initHook != nil {
			if resp, handled := f.initHook(n, req); handled {
				return orBreak(resp)
			}
		}
		return f.initGlobalTxn(req)
	case *wire.EndGlobalTxnRequest:
		if f.endHook != nil {
			if resp, handled := f.endHook(n, req); handled {
				return orBreak(resp)
			}
		}
		resp := f.endGlobalTxn(ctx, req)
		if f.dropAnswer != nil && f.dropAnswer(n) {
			return nil
		}
		return orBreak(resp)
	case *wire.DescribeGlobalTransactionsRequest:
		return f.describe(req)
	}
	f.t.Errorf("coordinator got an unexpected %T", req)
	return nil
}

func orBreak[T any, P interface {
	*T
	kmsg.Response
}](resp P) kmsg.Response {
	if resp == nil {
		return nil
	}
	return resp
}

func (f *fakeCoordinator) apiVersions(req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: keyApiVersions, MaxVersion: 4}}
	for _, a := range wire.APIs() {
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: a.Key, MaxVersion: a.MaxVersion})
	}
	return resp
}

func (f *fakeCoordinator) findCoordinator(n int, req *wire.FindCoordinatorRequest) kmsg.Response {
	if f.findHook != nil {
		if resp, handled := f.findHook(n); handled {
			return orBreak(resp)
		}
	}
	host, port := splitAddr(f.t, f.addr)
	resp := wire.NewPtrFindCoordinatorResponse()
	for _, key := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, wire.FindCoordinatorResponseCoordinator{Key: key, Host: host, Port: port})
	}
	return resp
}

func (f *fakeCoordinator) initGlobalTxn(req *wire.InitGlobalTxnRequest) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, "InitGlobalTxn")
	resp := wire.NewPtrInitGlobalTxnResponse()
	g := f.of(req.GlobalTransactionalID)
	switch {
	case g.taken && g.previous == req.InstanceID:
		resp.ErrorCode = kerr.ProducerFenced.Code
		return resp
	case req.InstanceID != g.instance:
		g.instance, g.ended = req.InstanceID, false
		g.epoch++
	case g.ended:
		resp.ErrorCode = kerr.ProducerFenced.Code
		return resp
	}
	resp.GlobalEpoch, resp.Sequence = g.epoch, g.sequence+1
	return resp
}

func (f *fakeCoordinator) describe(req *wire.DescribeGlobalTransactionsRequest) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := wire.NewPtrDescribeGlobalTransactionsResponse()
	for _, id := range req.GlobalTransactionalIDs {
		g := wire.DescribeGlobalTransactionsResponseGlobalTransaction{GlobalTransactionalID: id, State: wire.StateEmpty}
		if known := f.ids[id]; known != nil {
			g.GlobalEpoch, g.Sequence, g.SessionEnded = known.epoch, known.sequence, known.ended
		} else {
			g.ErrorCode = kerr.TransactionalIDNotFound.Code
		}
		resp.GlobalTransactions = append(resp.GlobalTransactions, g)
	}
	return resp
}

// endGlobalTxn decides as asked unless the transaction was decided before, and
// ends it on every participant.
func (f *fakeCoordinator) endGlobalTxn(ctx context.Context, req *wire.EndGlobalTxnRequest) *wire.EndGlobalTxnResponse {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := wire.NewPtrEndGlobalTxnResponse()
	g := f.of(req.GlobalTransactionalID)
	if known := g.decided[req.Sequence]; known != nil && req.GlobalEpoch == g.epoch {
		return known
	}
	switch {
	case req.GlobalEpoch != g.epoch || g.ended:
		resp.ErrorCode = kerr.ProducerFenced.Code
		return resp
	case req.Sequence != g.sequence+1:
		resp.ErrorCode = kerr.InvalidTxnState.Code
		return resp
	}
	resp.Outcome = wire.OutcomeAborted
	if req.Committed {
		resp.Outcome = wire.OutcomeCommitted
	}
	for _, p := range req.Participants {
		out := wire.EndGlobalTxnResponseParticipant{ClusterID: p.ClusterID, State: wire.ParticipantComplete}
		end, err := f.endTxnLocked(ctx, req.GlobalTransactionalID, p, req.Committed)
		if err != nil {
			f.t.Errorf("EndTxn on %s: %v", p.ClusterID, err)
			return nil
		}
		out.ProducerID, out.ProducerEpoch = p.ProducerID, p.ProducerEpoch
		if end.ProducerID >= 0 {
			out.ProducerID, out.ProducerEpoch = end.ProducerID, end.ProducerEpoch
		}
		resp.Participants = append(resp.Participants, out)
	}
	g.sequence = req.Sequence
	g.decided[req.Sequence] = resp
	return resp
}

func (f *fakeCoordinator) endTxnLocked(ctx context.Context, id string, p wire.EndGlobalTxnRequestParticipant, commit bool) (*kmsg.EndTxnResponse, error) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID = id
	req.ProducerID, req.ProducerEpoch = p.ProducerID, p.ProducerEpoch
	req.Commit = commit
	f.ends++
	resp, err := req.RequestWith(ctx, f.clusters[p.ClusterID])
	if err != nil {
		return nil, err
	}
	return resp, kerr.ErrorForCode(resp.ErrorCode)
}

func (f *fakeCoordinator) countLocked(key int16) int {
	n := 0
	for _, k := range f.requests {
		if k == key {
			n++
		}
	}
	return n
}

func (f *fakeCoordinator) count(key int16) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.countLocked(key)
}

// keys are the keys of the requests so far.
func (f *fakeCoordinator) keys() []int16 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

func (f *fakeCoordinator) note(event string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, event)
}

func (f *fakeCoordinator) noted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// endSession does what the coordinator does at the timeout of an undecided
// transaction.
func (f *fakeCoordinator) endSession() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of(globalID).ended = true
}

// takeOver is another client's InitGlobalTxn.
func (f *fakeCoordinator) takeOver() {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.of(globalID)
	g.epoch++
	g.previous, g.instance, g.taken = g.instance, [16]byte{1}, true
}

func refusal(code int16) *wire.EndGlobalTxnResponse {
	resp := wire.NewPtrEndGlobalTxnResponse()
	resp.ErrorCode = code
	return resp
}
