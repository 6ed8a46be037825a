package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/memlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// resolve is an operator's word, with the cluster where one is named.
func (st *stage) resolve(id string, action int8, cluster ...string) *wire.ResolveGlobalTransactionResponse {
	req := wire.NewPtrResolveGlobalTransactionRequest()
	req.GlobalTransactionalID, req.Action = id, action
	if len(cluster) > 0 {
		req.ClusterID = &cluster[0]
	}
	return st.handle(req).(*wire.ResolveGlobalTransactionResponse)
}

// A cluster is gone for good. Nothing but an operator's word ends the waiting,
// and what he says stays said until he forgets it.
func TestAClusterIsGivenUpByAnOperatorAlone(t *testing.T) {
	store := memlog.NewStore(1)
	away := func(ctx context.Context, id string, p txnlog.Participant, commit bool) gtc.EndAnswer {
		if p.ClusterID == "b" {
			return retry(ctx, id, p, commit)
		}
		return done(p)
	}
	c := newClusters()
	c.end = away
	st := play(t, store, c).active()
	s := st.open("pay", "a", "b")
	decided(t, s.endPending(), wire.OutcomeCommitted)
	if resp := st.resolve("pay", wire.ResolveGiveUp); resp.ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("no cluster named: %+v", resp)
	}
	if resp := st.resolve("pay", wire.ResolveGiveUp, "a"); resp.ErrorCode != kerr.InvalidTxnState.Code {
		t.Errorf("nothing is pending on a: %+v", resp)
	}
	if resp := st.resolve("pay", wire.ResolveGiveUp, "b"); resp.ErrorCode != 0 || resp.State != "CompleteCommit" {
		t.Fatalf("%+v", resp)
	}
	again := newClusters()
	for _, st := range []*stage{st, play(t, store, again).active()} {
		resp := s.on(st).until(true)
		if resp.ErrorCode != wire.HeuristicOutcome.Code || resp.Outcome != wire.OutcomeCommitted ||
			resp.Participants[0].State != wire.ParticipantComplete || resp.Participants[1].State != wire.ParticipantHeuristicUnknown {
			t.Errorf("%+v, want b unknown beside a decided commit", resp)
		}
		d := st.describe("pay")
		if p := d.Participants[1]; p.State != wire.ParticipantHeuristicUnknown || p.Message == nil || !strings.Contains(*p.Message, "given up by an operator") {
			t.Errorf("%+v", d)
		}
		if resp := st.handle(initRequest("pay", 2, "a")).(*wire.InitGlobalTxnResponse); resp.ErrorCode != wire.HeuristicOutcome.Code {
			t.Errorf("a torn id goes on: %+v", resp)
		}
		s = s.on(st)
	}
	if resp := s.st.resolve("pay", wire.ResolveForget); resp.ErrorCode != 0 {
		t.Errorf("%+v", resp)
	}
	resp := s.st.handle(initRequest("pay", 2, "a")).(*wire.InitGlobalTxnResponse)
	if resp.ErrorCode != 0 || resp.Sequence != s.sequence+1 {
		t.Errorf("%+v, want sequence %d", resp, s.sequence+1)
	}
	if told := fmt.Sprint(again.heard()); strings.Contains(told, "abort") || strings.Contains(told, " b ") {
		t.Error(told)
	}
}

// The metrics and the first client do not wait for the first scan.
func TestParticipantsAreConnectedAtTheStart(t *testing.T) {
	c := newClusters()
	play(t, memlog.NewStore(1), c, func(o *service.Options) { o.ScanInterval = time.Hour })
	eventually(t, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.connected == 0 {
			return errors.New("nobody has been connected to")
		}
		return nil
	})
}
