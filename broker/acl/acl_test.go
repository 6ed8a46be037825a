package acl_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/kafka-gtc/kafka-gtc/broker/acl"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	txn      = kmsg.ACLResourceTypeTransactionalId
	literal  = kmsg.ACLResourcePatternTypeLiteral
	prefixed = kmsg.ACLResourcePatternTypePrefixed
	allow    = kmsg.ACLPermissionTypeAllow
	deny     = kmsg.ACLPermissionTypeDeny
	all      = kmsg.ACLOperationAll
	write    = kmsg.ACLOperationWrite
	describe = kmsg.ACLOperationDescribe
)

func binding(permission kmsg.ACLPermissionType, principal, host string, op kmsg.ACLOperation, pattern kmsg.ACLResourcePatternType, name string) acl.Binding {
	return acl.Binding{ResourceType: txn, ResourceName: name, Pattern: pattern, Principal: principal, Host: host, Operation: op, Permission: permission}
}

// The rules of Kafka's StandardAuthorizerData.
func TestACLsAreEvaluatedAsKafkaDoes(t *testing.T) {
	const alice, anywhere = "User:alice", "*"
	ask := func(op kmsg.ACLOperation, name string) acl.Request {
		return acl.Request{Principal: alice, Host: "10.0.0.1", Operation: op, Type: txn, Name: name}
	}
	for name, c := range map[string]struct {
		acls []acl.Binding
		ask  acl.Request
		want bool
	}{
		"no ACL":                          {nil, ask(write, "pay-1"), false},
		"literal":                         {[]acl.Binding{binding(allow, alice, anywhere, write, literal, "pay-1")}, ask(write, "pay-1"), true},
		"literal, a longer name":          {[]acl.Binding{binding(allow, alice, anywhere, write, literal, "pay")}, ask(write, "pay-1"), false},
		"prefixed":                        {[]acl.Binding{binding(allow, alice, anywhere, write, prefixed, "pay-")}, ask(write, "pay-1"), true},
		"prefixed, the prefix itself":     {[]acl.Binding{binding(allow, alice, anywhere, write, prefixed, "pay-")}, ask(write, "pay-"), true},
		"prefixed, another prefix":        {[]acl.Binding{binding(allow, alice, anywhere, write, prefixed, "pay-")}, ask(write, "pa-1"), false},
		"wildcard":                        {[]acl.Binding{binding(allow, alice, anywhere, write, literal, "*")}, ask(write, "pay-1"), true},
		"a prefix that is a star":         {[]acl.Binding{binding(allow, alice, anywhere, write, prefixed, "*")}, ask(write, "pay-1"), false},
		"everybody":                       {[]acl.Binding{binding(allow, "User:*", anywhere, write, literal, "pay-1")}, ask(write, "pay-1"), true},
		"somebody else":                   {[]acl.Binding{binding(allow, "User:bob", anywhere, write, literal, "pay-1")}, ask(write, "pay-1"), false},
		"another case":                    {[]acl.Binding{binding(allow, "User:Alice", anywhere, write, literal, "pay-1")}, ask(write, "pay-1"), false},
		"this host":                       {[]acl.Binding{binding(allow, alice, "10.0.0.1", write, literal, "pay-1")}, ask(write, "pay-1"), true},
		"another host":                    {[]acl.Binding{binding(allow, alice, "10.0.0.2", write, literal, "pay-1")}, ask(write, "pay-1"), false},
		"ALL":                             {[]acl.Binding{binding(allow, alice, anywhere, all, literal, "pay-1")}, ask(acl.TwoPhaseCommit, "pay-1"), true},
		"WRITE is not TWO_PHASE_COMMIT":   {[]acl.Binding{binding(allow, alice, anywhere, write, literal, "pay-1")}, ask(acl.TwoPhaseCommit, "pay-1"), false},
		"WRITE implies DESCRIBE":          {[]acl.Binding{binding(allow, alice, anywhere, write, literal, "pay-1")}, ask(describe, "pay-1"), true},
		"DESCRIBE does not imply WRITE":   {[]acl.Binding{binding(allow, alice, anywhere, describe, literal, "pay-1")}, ask(write, "pay-1"), false},
		"2PC does not imply DESCRIBE":     {[]acl.Binding{binding(allow, alice, anywhere, acl.TwoPhaseCommit, literal, "pay-1")}, ask(describe, "pay-1"), false},
		"DENY first":                      {[]acl.Binding{binding(deny, alice, anywhere, write, literal, "pay-1"), binding(allow, alice, anywhere, write, literal, "*")}, ask(write, "pay-1"), false},
		"DENY last":                       {[]acl.Binding{binding(allow, alice, anywhere, all, literal, "pay-1"), binding(deny, "User:*", anywhere, all, prefixed, "p")}, ask(write, "pay-1"), false},
		"DENY of WRITE leaves DESCRIBE":   {[]acl.Binding{binding(allow, alice, anywhere, describe, literal, "pay-1"), binding(deny, alice, anywhere, write, literal, "pay-1")}, ask(describe, "pay-1"), true},
		"DENY from another host":          {[]acl.Binding{binding(allow, alice, anywhere, write, literal, "pay-1"), binding(deny, alice, "10.0.0.2", write, literal, "pay-1")}, ask(write, "pay-1"), true},
		"an ACL of another resource type": {[]acl.Binding{{ResourceType: kmsg.ACLResourceTypeTopic, ResourceName: "pay-1", Pattern: literal, Principal: alice, Host: anywhere, Operation: write, Permission: allow}}, ask(write, "pay-1"), false},
	} {
		if got := acl.NewRules(c.acls, nil, false).Allows(c.ask); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if !acl.NewRules(c.acls, []string{alice}, false).Allows(c.ask) {
			t.Errorf("%s: a super user may not", name)
		}
	}
}

// allow.everyone.if.no.acl.found frees what no ACL speaks of, whomever it is for.
func TestWhatNoACLSpeaksOfIsFreeOnlyIfConfigured(t *testing.T) {
	r := acl.NewRules([]acl.Binding{binding(allow, "User:bob", "*", write, literal, "pay-1")}, nil, true)
	for id, want := range map[string]bool{"pay-1": false, "other": true} {
		if got := r.Allows(acl.Request{Principal: "User:alice", Host: "h", Operation: write, Type: txn, Name: id}); got != want {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
}

// home is a cluster whose ACLs can be read, or not.
type home struct {
	mu   sync.Mutex
	err  error
	code int16
	acls []acl.Binding
}

func (h *home) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *home) answer(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := req.(*kmsg.DescribeACLsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeACLsResponse)
	resp.ErrorCode = h.code
	for _, b := range h.acls {
		if b.ResourceType == asked.ResourceType || asked.ResourceType == kmsg.ACLResourceTypeAny {
			resp.Resources = append(resp.Resources, kmsg.DescribeACLsResponseResource{
				ResourceType: b.ResourceType, ResourceName: b.ResourceName, ResourcePatternType: b.Pattern,
				ACLs: []kmsg.DescribeACLsResponseResourceACL{{Principal: b.Principal, Host: b.Host, Operation: b.Operation, PermissionType: b.Permission}},
			})
		}
	}
	return resp, h.err
}

func TestUntilTheACLsAreReadEverybodyIsRefusedAndThenTheLastStay(t *testing.T) {
	var logged bytes.Buffer
	h := &home{err: errors.New("connection refused")}
	ticks := make(chan time.Time)
	c := acl.NewCache(t.Context(), acl.Options{
		Source: h.answer, SuperUsers: []string{"User:admin"}, Interval: time.Hour,
		// Also with this setting: that there is no ACL is not known.
		AllowIfNoACL: true, After: func(time.Duration) <-chan time.Time { return ticks }, Log: zerolog.New(&logged),
	})
	defer c.Close()
	alice := acl.Request{Principal: "User:alice", Host: "h", Operation: write, Type: txn, Name: "pay-1"}
	admin := alice
	admin.Principal = "User:admin"
	if c.Allows(alice) || !c.Allows(admin) {
		t.Errorf("never read: alice %v, a super user %v", c.Allows(alice), c.Allows(admin))
	}
	// Two ticks are one look at least: the second is taken after the first's.
	look := func() { ticks <- time.Time{}; ticks <- time.Time{} }
	h.set(func() { h.err, h.acls = nil, []acl.Binding{binding(allow, "User:alice", "*", write, literal, "pay-1")} })
	look()
	if !c.Allows(alice) {
		t.Error("read: alice may not")
	}
	for name, fail := range map[string]func(){
		"away":    func() { h.err = io.ErrUnexpectedEOF },
		"refused": func() { h.err, h.code = nil, kerr.ClusterAuthorizationFailed.Code },
		"off":     func() { h.err, h.code = nil, kerr.SecurityDisabled.Code },
	} {
		h.set(fail)
		look()
		if !c.Allows(alice) {
			t.Errorf("%s: the ACLs last read are gone", name)
		}
	}
	h.set(func() { h.err, h.code, h.acls = nil, 0, nil })
	h.set(func() { h.acls = []acl.Binding{binding(deny, "User:alice", "*", all, literal, "*")} })
	look()
	if c.Allows(alice) {
		t.Error("read again: alice still may")
	}
	if n := strings.Count(logged.String(), "cannot be read"); n != 2 || !strings.Contains(logged.String(), "read again") {
		t.Errorf("%d times told that they cannot be read, want 2 (never, and later):\n%s", n, logged.String())
	}
}

// Counter-example: a right is taken away while the broker is busy; the look fails,
// and without another one the right stays in force until the next change.
func TestALookThatFailedIsTakenAgain(t *testing.T) {
	h := &home{acls: []acl.Binding{binding(allow, "User:alice", "*", write, literal, "pay-1")}}
	ticks := make(chan time.Time)
	c := acl.NewCache(t.Context(), acl.Options{Source: h.answer, After: func(time.Duration) <-chan time.Time { return ticks }, Log: zerolog.Nop()})
	defer c.Close()
	alice := acl.Request{Principal: "User:alice", Host: "h", Operation: write, Type: txn, Name: "pay-1"}
	h.set(func() { h.err, h.acls = io.ErrUnexpectedEOF, nil })
	if err := c.Refresh(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) || !c.Allows(alice) {
		t.Errorf("Refresh: %v; alice %v", err, c.Allows(alice))
	}
	ticks <- time.Time{} // fails too
	h.set(func() { h.err = nil })
	ticks <- time.Time{}
	for c.Allows(alice) { // the look is under way
		runtime.Gosched()
	}
}

func TestAllMeansAllResources(t *testing.T) {
	b := binding(allow, "User:alice", "*", kmsg.ACLOperationRead, literal, "g")
	b.ResourceType = kmsg.ACLResourceTypeGroup
	for _, all := range []bool{true, false} {
		c := acl.NewCache(t.Context(), acl.Options{Source: (&home{acls: []acl.Binding{b}}).answer, All: all, Log: zerolog.Nop()})
		if got := c.Allows(acl.Request{Principal: "User:alice", Host: "h", Operation: kmsg.ACLOperationRead, Type: b.ResourceType, Name: "g"}); got != all {
			t.Errorf("All is %v: alice reads as the group: %v", all, got)
		}
		c.Close()
	}
}

func TestTheCoordinatorsRightsAreKafkasOperations(t *testing.T) {
	const id = "pay-1"
	clusterAlter := acl.Binding{
		ResourceType: kmsg.ACLResourceTypeCluster, ResourceName: acl.ClusterName, Pattern: literal,
		Principal: "User:a", Host: "*", Operation: kmsg.ACLOperationAlter, Permission: allow,
	}
	on := func(op kmsg.ACLOperation) acl.Binding { return binding(allow, "User:a", "*", op, literal, id) }
	rights := []service.Right{service.RightDescribe, service.RightUse, service.RightOpen, service.RightResolve}
	for name, c := range map[string]struct {
		acls []acl.Binding
		want []bool // of rights
	}{
		"nothing":                    {nil, []bool{false, false, false, false}},
		"DESCRIBE":                   {[]acl.Binding{on(describe)}, []bool{true, false, false, false}},
		"WRITE":                      {[]acl.Binding{on(write)}, []bool{true, true, false, false}},
		"TWO_PHASE_COMMIT":           {[]acl.Binding{on(acl.TwoPhaseCommit)}, []bool{false, false, false, false}},
		"WRITE and TWO_PHASE_COMMIT": {[]acl.Binding{on(write), on(acl.TwoPhaseCommit)}, []bool{true, true, true, false}},
		"ALL":                        {[]acl.Binding{on(all)}, []bool{true, true, true, false}},
		"ALTER on the cluster":       {[]acl.Binding{clusterAlter}, []bool{false, false, false, true}},
	} {
		cache := acl.NewCache(t.Context(), acl.Options{Source: (&home{acls: c.acls}).answer, Log: zerolog.Nop()})
		for i, right := range rights {
			who := service.Caller{Principal: "User:a", Host: "h"}
			if got := (acl.Coordinator{Cache: cache}).Allows(who, right, id); got != c.want[i] {
				t.Errorf("%s: right %d is %v", name, right, got)
			}
		}
		cache.Close()
	}
}
