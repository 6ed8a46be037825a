package service_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog/memlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// slowPattern takes about 0.1 s for each id of slowIDs, ten times as long with the
// race detector.
const slowPattern = "(?:x+){230}Q"

// slowIDs opens ids of alice that are long enough to be matched slowly.
func (st *stage) slowIDs(n int) {
	st.t.Helper()
	for i := range n {
		id := fmt.Sprintf("alice-%d-%s", i, strings.Repeat("x", 32_000))
		if r := st.s.Handle(st.t.Context(), "User:alice", "h", initRequest(id, 1, "us")); codeOf(r) != 0 {
			st.t.Fatal(kerr.ErrorForCode(codeOf(r)))
		}
	}
}

func slowList() *wire.ListGlobalTransactionsRequest {
	req := wire.NewPtrListGlobalTransactionsRequest()
	pattern := "alice-.*" + slowPattern
	req.PatternFilter = &pattern
	return req
}

// C-SEC-1: how long a list takes says nothing of ids that the caller may not see.
func TestNothingIsMatchedThatTheCallerMayNotSee(t *testing.T) {
	st := play(t, memlog.NewStore(1), newClusters(), func(o *service.Options) { o.Authorizer = owners{} }).active()
	st.slowIDs(40)
	begun := time.Now()
	resp := st.s.Handle(t.Context(), "User:mallory", "h", slowList()).(*wire.ListGlobalTransactionsResponse)
	if took := time.Since(begun); resp.ErrorCode != 0 || len(resp.GlobalTransactions) > 0 || took > time.Second {
		t.Errorf("code %d with %d ids after %v; nothing was there to be matched", resp.ErrorCode, len(resp.GlobalTransactions), took)
	}
}

func TestAListHoldsUpNobodyElse(t *testing.T) {
	st := play(t, memlog.NewStore(1), newClusters(), func(o *service.Options) { o.Authorizer = owners{} }).active()
	st.slowIDs(60)
	ctx, leave := context.WithCancel(t.Context())
	listed := make(chan kmsg.Response)
	go func() { listed <- st.s.Handle(ctx, "User:alice", "h", slowList()) }()
	bob := requestsFor("bob-1")["DescribeGlobalTransactions"]
	for begun, asked := time.Now(), 0; asked < 100 || time.Since(begun) < 500*time.Millisecond; asked++ {
		asking := time.Now()
		resp := st.s.Handle(t.Context(), "User:bob", "h", bob)
		if took := time.Since(asking); took > time.Second || codeOf(resp) != kerr.TransactionalIDNotFound.Code {
			t.Fatalf("another request of the partition is answered %v after %v", kerr.ErrorForCode(codeOf(resp)), took)
		}
		select {
		case resp := <-listed:
			t.Fatalf("the list is there already: code %d; nothing was tested", resp.(*wire.ListGlobalTransactionsResponse).ErrorCode)
		default:
		}
	}
	leave()
	select {
	case <-listed:
	case <-time.After(patience):
		t.Error("the list goes on although its client has gone")
	}
}

func TestWhatAPatternCostsIsBounded(t *testing.T) {
	st := play(t, memlog.NewStore(1), newClusters()).active()
	for pattern, bound := range map[string]string{"(?:.?){1000}": "500 instructions", strings.Repeat("x", 1025): "at most 1024", strings.Repeat("(?:.?){1000}", 1000): "at most 1024"} {
		req := wire.NewPtrListGlobalTransactionsRequest()
		req.PatternFilter = &pattern
		resp := st.handle(req).(*wire.ListGlobalTransactionsResponse)
		err := kerr.ErrorForCode(resp.ErrorCode)
		if !errors.Is(err, kerr.InvalidRegularExpression) || resp.ErrorMessage == nil || !strings.Contains(*resp.ErrorMessage, bound) {
			t.Errorf("%.20q: %v, %q; want INVALID_REGULAR_EXPRESSION and %q", pattern, err, *resp.ErrorMessage, bound)
		}
	}
}

func TestTheArraysOfARequestAreBounded(t *testing.T) {
	st := play(t, memlog.NewStore(1), newClusters()).active()
	s := st.open("x", "us", "eu")
	request := func(n int) []kmsg.Request {
		names := make([]string, n)
		refs := make([]wire.EndGlobalTxnRequestParticipant, n)
		for i := range n {
			names[i] = fmt.Sprint("n", i)
			refs[i] = wire.EndGlobalTxnRequestParticipant{ClusterID: names[i], ProducerID: 7, ProducerEpoch: 3}
		}
		end := s.request(true, patience)
		end.Participants = refs
		describe := wire.NewPtrDescribeGlobalTransactionsRequest()
		describe.GlobalTransactionalIDs = names
		list := wire.NewPtrListGlobalTransactionsRequest()
		list.StateFilters = names
		return []kmsg.Request{initRequest("x", 2, names...), end, describe, list}
	}
	code := func(resp kmsg.Response) (int16, *string) {
		switch r := resp.(type) {
		case *wire.InitGlobalTxnResponse:
			return r.ErrorCode, r.ErrorMessage
		case *wire.EndGlobalTxnResponse:
			return r.ErrorCode, r.ErrorMessage
		case *wire.DescribeGlobalTransactionsResponse:
			return r.GlobalTransactions[len(r.GlobalTransactions)-1].ErrorCode, r.GlobalTransactions[0].ErrorMessage
		case *wire.ListGlobalTransactionsResponse:
			return r.ErrorCode, r.ErrorMessage
		}
		return 0, nil
	}
	for i, req := range request(1000) {
		if _, message := code(st.handle(req)); message != nil && strings.Contains(*message, "one request may name") {
			t.Errorf("%T with 1000 elements: %s", request(1)[i], *message)
		}
	}
	for _, req := range request(1001) {
		got, message := code(st.handle(req))
		if got != kerr.InvalidRequest.Code || message == nil || !strings.HasPrefix(*message, "1001 ") || !strings.HasSuffix(*message, "one request may name 1000") {
			t.Errorf("%T with 1001 elements: %v, %v", req, kerr.ErrorForCode(got), message)
		}
	}
}

// What a client has sent comes back to whoever reads the error: on a terminal, or
// in the log of the client.
func TestAMessageRepeatsAClientsValueQuotedAndCut(t *testing.T) {
	hostile := "\x1b[2J\u202e\n" + strings.Repeat("x", 30_000)
	st := play(t, memlog.NewStore(1), newClusters(), func(o *service.Options) { o.Authorizer = owners{} }).active()
	if r := st.s.Handle(t.Context(), "User:alice", "h", initRequest("alice-1", 1, "us")); codeOf(r) != 0 {
		t.Fatal(kerr.ErrorForCode(codeOf(r)))
	}
	message := func(resp kmsg.Response) *string {
		switch r := resp.(type) {
		case *wire.InitGlobalTxnResponse:
			return r.ErrorMessage
		case *wire.EndGlobalTxnResponse:
			return r.ErrorMessage
		case *wire.DescribeGlobalTransactionsResponse:
			return r.GlobalTransactions[0].ErrorMessage
		case *wire.ListGlobalTransactionsResponse:
			return r.ErrorMessage
		}
		return resp.(*wire.ResolveGlobalTransactionResponse).ErrorMessage
	}
	check := func(what string, resp kmsg.Response) {
		t.Helper()
		m := message(resp)
		if m == nil || *m != plain.Text(*m) || len(*m) > 1000 {
			t.Errorf("%s: %.200q", what, fmt.Sprint(m))
		}
	}
	for name, req := range requestsFor(hostile) {
		check(name+" without a right", st.s.Handle(t.Context(), "User:mallory", "h", req))
		check(name+" by a strange principal", st.s.Handle(t.Context(), "User:m\x1b]0;x\a", "h", req))
	}
	ask := func(what string, req kmsg.Request) {
		t.Helper()
		check(what, st.s.Handle(t.Context(), "User:alice", "h", req))
	}
	ask("a cluster twice", initRequest("alice-1", 2, hostile, hostile))
	end := requestsFor("alice-1")["EndGlobalTxn"].(*wire.EndGlobalTxnRequest)
	end.GlobalEpoch, end.Sequence = 1, math.MaxInt64
	ask("a number", end)
	end.Participants[0].ClusterID = hostile
	end.Participants = append(end.Participants, end.Participants[0])
	ask("a participant twice", end)
	list := slowList()
	*list.PatternFilter = "(" + hostile[:100]
	ask("a pattern", list)
	giveUp := requestsFor("alice-1")["ResolveGlobalTransaction"].(*wire.ResolveGlobalTransactionRequest)
	giveUp.Action, giveUp.ClusterID = wire.ResolveGiveUp, &hostile
	check("give up", st.s.Handle(t.Context(), "User:ops", "h", giveUp))
}
