package service_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog/memlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// owners is an authorizer by which each principal owns the ids that begin with
// its name; ops may look at all and resolve.
type owners struct{}

func (owners) Allows(who service.Caller, right service.Right, id string) bool {
	name := strings.TrimPrefix(who.Principal, "User:")
	if name == "ops" {
		return right == service.RightDescribe || right == service.RightResolve
	}
	return right != service.RightResolve && who.Host == "h" && strings.HasPrefix(id, name)
}

// requestsFor is every request about one id.
func requestsFor(id string) map[string]kmsg.Request {
	end := wire.NewPtrEndGlobalTxnRequest()
	end.GlobalTransactionalID, end.GlobalEpoch, end.Sequence, end.Committed, end.TimeoutMillis = id, 0, 1, true, 1000
	end.Participants = []wire.EndGlobalTxnRequestParticipant{{ClusterID: "us", ProducerID: 7, ProducerEpoch: 3}}
	describe := wire.NewPtrDescribeGlobalTransactionsRequest()
	describe.GlobalTransactionalIDs = []string{id}
	resolve := wire.NewPtrResolveGlobalTransactionRequest()
	resolve.GlobalTransactionalID = id
	return map[string]kmsg.Request{
		"InitGlobalTxn": initRequest(id, 9, "us"), "EndGlobalTxn": end,
		"DescribeGlobalTransactions": describe, "ResolveGlobalTransaction": resolve,
	}
}

// C-SEC-1, C-SEC-2: whatever the id, and whether there is one, the refusal is
// the same to the last byte, and no participant hears of it.
func TestARefusalDoesNotTellWhetherTheIDExists(t *testing.T) {
	st := play(t, memlog.NewStore(1), newClusters(), func(o *service.Options) { o.Authorizer = owners{} }).active()
	alice := st.s.Handle(t.Context(), "User:alice", "h", initRequest("alice-1", 1, "us", "eu")).(*wire.InitGlobalTxnResponse)
	if alice.ErrorCode != 0 {
		t.Fatalf("the owner: %v", kerr.ErrorForCode(alice.ErrorCode))
	}
	codes := map[string]int16{
		"InitGlobalTxn": 53, "EndGlobalTxn": 53, "DescribeGlobalTransactions": 53, "ResolveGlobalTransaction": 31,
	}
	missing := requestsFor("alice-2")
	for name, req := range requestsFor("alice-1") {
		there := st.s.Handle(t.Context(), "User:bob", "h", req)
		notThere := st.s.Handle(t.Context(), "User:bob", "h", missing[name])
		a := bytes.ReplaceAll(there.AppendTo(nil), []byte("alice-1"), []byte("alice-2"))
		if b := notThere.AppendTo(nil); !bytes.Equal(a, b) {
			t.Errorf("%s: % x of one that exists, % x of one that does not", name, a, b)
		}
		if code := codeOf(there); code != codes[name] {
			t.Errorf("%s: %v, want code %d", name, kerr.ErrorForCode(code), codes[name])
		}
		// The same name from another host is somebody else.
		if elsewhere := st.s.Handle(t.Context(), "User:alice", "x", req); codeOf(elsewhere) != codes[name] {
			t.Errorf("%s from another host: code %d", name, codeOf(elsewhere))
		}
	}
	for _, id := range []string{"alice-1", "alice-2"} {
		_, _, _, err := st.s.FindCoordinator("User:bob", "h", id)
		if !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) || err.Error() != "User:bob at host h needs DESCRIBE on the TransactionalId \""+id+"\"" {
			t.Errorf("FindCoordinator of %s: %v", id, err)
		}
	}
	if _, _, _, err := st.s.FindCoordinator("User:alice", "h", "alice-1"); err != nil {
		t.Errorf("FindCoordinator by the owner: %v", err)
	}
	st.clusters.set(func() {
		if len(st.clusters.told) > 0 {
			t.Errorf("participants were told %q", st.clusters.told)
		}
	})
	// Nothing of it has touched the owner's session.
	again := st.s.Handle(t.Context(), "User:alice", "h", initRequest("alice-1", 1, "us", "eu"))
	if !reflect.DeepEqual(again, alice) {
		t.Errorf("the owner's session is %+v, was %+v", again, alice)
	}
}

func codeOf(resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *wire.InitGlobalTxnResponse:
		return r.ErrorCode
	case *wire.EndGlobalTxnResponse:
		return r.ErrorCode
	case *wire.DescribeGlobalTransactionsResponse:
		return r.GlobalTransactions[0].ErrorCode
	case *wire.ResolveGlobalTransactionResponse:
		return r.ErrorCode
	}
	return -1
}

func TestAListLeavesOutWhatTheCallerMayNotSee(t *testing.T) {
	st := play(t, memlog.NewStore(1), newClusters(), func(o *service.Options) { o.Authorizer = owners{} }).active()
	for _, id := range []string{"alice-1", "bob-1", "bob-2"} {
		owner, _, _ := strings.Cut(id, "-")
		if r := st.s.Handle(t.Context(), "User:"+owner, "h", initRequest(id, 1, "us")); codeOf(r) != 0 {
			t.Fatalf("%s: %v", id, kerr.ErrorForCode(codeOf(r)))
		}
	}
	for who, want := range map[string][]string{
		"alice": {"alice-1"}, "bob": {"bob-1", "bob-2"}, "carol": nil, "ops": {"alice-1", "bob-1", "bob-2"},
	} {
		resp := st.s.Handle(t.Context(), "User:"+who, "h", wire.NewPtrListGlobalTransactionsRequest()).(*wire.ListGlobalTransactionsResponse)
		var got []string
		for _, g := range resp.GlobalTransactions {
			got = append(got, g.GlobalTransactionalID)
		}
		slices.Sort(got)
		if resp.ErrorCode != 0 || !slices.Equal(got, want) {
			t.Errorf("%s sees %q (code %d), want %q", who, got, resp.ErrorCode, want)
		}
	}
}

// C-RES-3: what an operator does is logged with who it was.
func TestTheLogNamesTheOperator(t *testing.T) {
	var logged safeBuffer
	st := play(t, memlog.NewStore(1), newClusters(), func(o *service.Options) { o.Authorizer, o.Logger = owners{}, zerolog.New(&logged) }).active()
	if r := st.s.Handle(t.Context(), "User:alice", "h", initRequest("alice-1", 1, "us")); codeOf(r) != 0 {
		t.Fatal(kerr.ErrorForCode(codeOf(r)))
	}
	st.s.Handle(t.Context(), "User:ops", "10.0.0.9", requestsFor("alice-1")["ResolveGlobalTransaction"])
	if !strings.Contains(logged.String(), `"principal":"User:ops","host":"10.0.0.9"`) {
		t.Errorf("the log does not name the operator:\n%s", logged.String())
	}
}
