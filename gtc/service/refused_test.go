package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// refusing are clusters that have not opted in.
type refusing struct{ *clusters }

func (refusing) Check(_ context.Context, _ string, ids []string) []gtc.CheckResult {
	results := make([]gtc.CheckResult, len(ids))
	for i, id := range ids {
		results[i] = gtc.CheckResult{ClusterID: id, Code: gtc.CheckNotOptedIn, Detail: "not opted in"}
	}
	return results
}

// forgetful serves a partition whose log keeps nothing, so that what grows is the
// coordinator's.
func forgetful(t *testing.T, participants service.Participants, expirationMillis int64) *service.Service {
	t.Helper()
	cfg := gtc.DefaultConfig()
	cfg.ExpirationMillis, cfg.ScanIntervalMillis = expirationMillis, 10
	s, err := service.New(service.Options{
		Log: &streamed{}, Participants: participants, Config: cfg, Logger: zerolog.Nop(),
		ScanInterval: 10 * time.Millisecond, LazyLinger: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	s.OwnAll()
	eventually(t, func() error {
		if active, _ := s.Loaded(); active != 1 {
			return errors.New("it does not load")
		}
		return nil
	})
	return s
}

// longID is a name of 30 kB.
func longID(i int) string { return fmt.Sprintf("%d%s", i, strings.Repeat("x", 30_000)) }

// requestsOf are one of each kind about an id.
func requestsOf(id string) []kmsg.Request {
	end := wire.NewPtrEndGlobalTxnRequest()
	end.GlobalTransactionalID, end.TimeoutMillis = id, 1000
	end.Participants = []wire.EndGlobalTxnRequestParticipant{{ClusterID: "a", ProducerID: 7, ProducerEpoch: 3}}
	describe := wire.NewPtrDescribeGlobalTransactionsRequest()
	describe.GlobalTransactionalIDs = []string{id}
	resolve := wire.NewPtrResolveGlobalTransactionRequest()
	resolve.GlobalTransactionalID = id
	return []kmsg.Request{initRequest(id, 1, "a"), end, describe, resolve}
}

// grown is by how much the heap is larger than before.
func grown(before uint64) int64 { return int64(heap()) - int64(before) }

// Nobody reads metrics here: what is kept must not wait for them to be tidied up.
func TestNothingIsKeptOfRefusedRequests(t *testing.T) {
	s := forgetful(t, refusing{newClusters()}, time.Hour.Milliseconds())
	before := heap()
	for i := range 3000 {
		for _, req := range requestsOf(longID(i)) {
			if s.Handle(t.Context(), "", "", req) == nil {
				t.Fatal("no answer")
			}
		}
	}
	if kept := grown(before); kept > 4<<20 {
		t.Errorf("3000 unknown ids of 30 kB leave %d bytes, want 4 MiB at most", kept)
	}
}

func TestNothingIsKeptOfExpiredIDs(t *testing.T) {
	c := newClusters()
	c.open["a"] = nil // it is scanned, and has nothing open
	s := forgetful(t, c, 500)
	before := heap()
	for i := range 1000 {
		if resp := s.Handle(t.Context(), "", "", initRequest(longID(i), 1, "a")).(*wire.InitGlobalTxnResponse); resp.ErrorCode != 0 {
			t.Fatalf("InitGlobalTxn: %v", kerr.ErrorForCode(resp.ErrorCode))
		}
	}
	eventually(t, func() error {
		list := s.Handle(t.Context(), "", "", wire.NewPtrListGlobalTransactionsRequest()).(*wire.ListGlobalTransactionsResponse)
		if n := len(list.GlobalTransactions); n > 0 {
			return fmt.Errorf("%d ids are left", n)
		}
		return nil
	})
	if kept := grown(before); kept > 8<<20 {
		t.Errorf("1000 expired ids of 30 kB leave %d bytes, want 8 MiB at most", kept)
	}
}
