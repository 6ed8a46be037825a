package broker_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// tooLarge are regular expressions above each of the bounds.
var tooLarge = []string{"(?:.?){1000}", strings.Repeat("x", 1025), strings.Repeat("(?:.?){1000}", 1000)}

// open makes transactional ids known.
func open(t *testing.T, cl *kgo.Client, ids ...string) {
	t.Helper()
	for _, id := range ids {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 60_000, -1, -1
		if resp, err := req.RequestWith(t.Context(), cl); err != nil || resp.ErrorCode != 0 {
			t.Fatal(err, resp)
		}
	}
}

// listing asks for the ids that match.
func listing(t *testing.T, cl *kgo.Client, pattern string) ([]string, error) {
	t.Helper()
	req := kmsg.NewPtrListTransactionsRequest()
	req.TransactionalIDPattern = &pattern
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, s := range resp.TransactionStates {
		ids = append(ids, s.TransactionalID)
	}
	slices.Sort(ids)
	return ids, kerr.ErrorForCode(resp.ErrorCode)
}

func TestListTransactionsMatchesWholeIDsThatTheClientMayDescribe(t *testing.T) {
	n := startSecure(t, guarded)
	allowAlice(t, n, kadm.NewACLs().ResourcePatternType(kadm.ACLPatternPrefixed).TransactionalIDs("pay").Operations(kadm.OpWrite, kadm.OpDescribe))
	alice, mallory := n.client(t, 0, asAlice), n.client(t, 0, asMallory)
	open(t, alice, "pay", "pay-1", "payroll")
	for pattern, want := range map[string][]string{
		"": {"pay", "pay-1", "payroll"}, "pay": {"pay"}, "pay.*": {"pay", "pay-1", "payroll"}, "roll": nil, "pay-[0-9]|payroll": {"pay-1", "payroll"},
	} {
		if got, err := listing(t, alice, pattern); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q lists %q (%v), want %q", pattern, got, err, want)
		}
		if got, err := listing(t, mallory, pattern); err != nil || len(got) > 0 {
			t.Errorf("%q lists %q to somebody without rights (%v)", pattern, got, err)
		}
	}
	for _, pattern := range append(tooLarge, "pay(") {
		if got, err := listing(t, alice, pattern); !errors.Is(err, kerr.InvalidRegularExpression) || len(got) > 0 {
			t.Errorf("%.20q: %v with %q, want INVALID_REGULAR_EXPRESSION", pattern, err, got)
		}
	}
}

// kfake has one loop. What is slow about a pattern must not run there.
func TestASlowPatternOfListTransactionsHoldsUpNobody(t *testing.T) {
	n := startNode(t, nil)
	cl, other := n.client(t), n.client(t)
	for i := range 100 {
		open(t, cl, strings.Repeat("x", 10_000+i))
	}
	listed := make(chan error, 1)
	go func() { // about 0.03 s for each id, many times as long with the race detector
		req := kmsg.NewPtrListTransactionsRequest()
		req.TransactionalIDPattern = kmsg.StringPtr("(?:x+){230}Q")
		resp, err := req.RequestWith(t.Context(), cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		listed <- err
	}()
	for begun := time.Now(); time.Since(begun) < 500*time.Millisecond; {
		asking := time.Now()
		if _, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), other); err != nil || time.Since(asking) > time.Second {
			t.Fatalf("another client is answered after %v: %v", time.Since(asking), err)
		}
	}
	select {
	case err := <-listed:
		t.Fatalf("the list is there already (%v); nothing was tested", err)
	default:
	}
	if err := <-listed; err != nil && !errors.Is(err, kerr.RequestTimedOut) {
		t.Error(err)
	}
}

func TestARegularExpressionOfTopicsIsBounded(t *testing.T) {
	n := startSecure(t, guarded)
	allowAlice(t, n, kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral).Groups("g").Operations(kadm.OpRead))
	alice, mallory := n.client(t, 0, asAlice), n.client(t, 0, asMallory)
	beat := func(cl *kgo.Client, regex string, epoch int32) *kmsg.ConsumerGroupHeartbeatResponse {
		t.Helper()
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = "g", "m", epoch, 1000
		req.SubscribedTopicRegex, req.Topics = &regex, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return resp.(*kmsg.ConsumerGroupHeartbeatResponse)
	}
	for epoch, who := range []string{"a new member", "a member"} {
		for _, regex := range append(tooLarge, "t(") {
			resp := beat(alice, regex, int32(epoch))
			if err := kerr.ErrorForCode(resp.ErrorCode); !errors.Is(err, kerr.InvalidRegularExpression) || resp.ErrorMessage == nil {
				t.Errorf("%s, %.20q: %v, %v; want INVALID_REGULAR_EXPRESSION and why", who, regex, err, resp.ErrorMessage)
			}
		}
		if resp := beat(alice, "t.*", int32(epoch)); resp.ErrorCode != 0 {
			t.Errorf("%s is refused: %v", who, kerr.ErrorForCode(resp.ErrorCode))
		}
	}
	// Rights come first.
	if resp := beat(mallory, tooLarge[0], 0); resp.ErrorCode != kerr.GroupAuthorizationFailed.Code {
		t.Errorf("somebody without rights is told %v", kerr.ErrorForCode(resp.ErrorCode))
	}
}
