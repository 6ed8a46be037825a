package conformance

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// rightsCases are about where rights come from, and about what a request cannot
// make the coordinator do.
var rightsCases = []Case{
	{
		ID: "SEC-14", Clauses: []string{"C-SEC-6"}, Needs: []Need{NeedParticipants, NeedPrincipals, NeedHome},
		Title: "The home cluster's ACLs are in force soon, by name, prefix and host, and DENY goes before ALLOW", Means: "Who was shut out goes on, or rights reach further than they were given.",
		Run: func(r *Run) {
			who := r.s.target.Principals["stranger"].user
			if who == "" {
				r.NotApplicable("the principal stranger does not log in by name")
			}
			who = "User:" + who
			id, further := r.ID(), r.ID()
			longer := id + "-more"
			for _, at := range []string{id, further, longer} {
				r.InitOK(r.InitRequest(at, longEnough, r.A, r.B))
				r.Check(!r.shown(at), "the stranger sees an id before it was allowed")
			}
			named := func(id string) *kadm.ACLBuilder {
				return kadm.NewACLs().TransactionalIDs(id).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpDescribe)
			}
			becomes := func(id string, want bool) {
				r.Until("an ACL in force", func() (bool, string) { return r.shown(id) == want, "not yet" })
			}
			r.acl(named(further).Allow(who).AllowHosts("192.0.2.1")) // nobody's (RFC 5737)
			r.acl(named(id).Allow(who).AllowHosts("*"))
			becomes(id, true)
			r.Check(!r.shown(further), "what is allowed from another host is allowed from this one")
			r.Check(!r.shown(longer), "what is allowed for a name is allowed for a longer one")
			r.acl(named(id).ResourcePatternType(kadm.ACLPatternPrefixed).Allow(who).AllowHosts("*"))
			becomes(longer, true)
			r.acl(named(id).Deny(who).DenyHosts("*"))
			becomes(id, false)
			r.Check(r.shown(longer), "what is denied for a name is denied for a longer one")
		},
		Wrong: []wrong.Fault{
			wrong.Stalling(acls("does not know DENY", func(acl *kmsg.CreateACLsRequestCreation) { acl.PermissionType = kmsg.ACLPermissionTypeAllow })),
			acls("takes a name for a prefix", func(acl *kmsg.CreateACLsRequestCreation) {
				acl.ResourcePatternType = kmsg.ACLResourcePatternTypePrefixed
			}),
			acls("does not look at the host", func(acl *kmsg.CreateACLsRequestCreation) { acl.Host = "*" }),
		},
	},
	{
		ID: "SEC-15", Clauses: []string{"C-SEC-7"}, Needs: two,
		Title: "A request that names an address makes the coordinator connect to nobody", Means: "Whoever may ask the coordinator sends it, with its login, wherever they like.",
		Run: func(r *Run) {
			ln, err := (&net.ListenConfig{}).Listen(r.ctx, "tcp", "127.0.0.1:0")
			r.Must(err, "listening")
			r.later(func() { _ = ln.Close() })
			var came atomic.Bool
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					came.Store(true)
					_ = c.Close()
				}
			}()
			at := ln.Addr().String()
			req := r.InitRequest(r.ID(), longEnough, r.A)
			req.ClusterIDs = append(req.ClusterIDs, at)
			r.Refused("InitGlobalTxn", r.Init(req).ErrorCode, wire.UnknownParticipant)
			s := r.Open()
			s.Write("v", r.A, r.B)
			end := s.Request(true)
			end.Participants[1].ClusterID = at
			r.Answered(r.Ask(end), wire.UnknownParticipant, wire.OutcomeUnknown)
			r.Refused("ResolveGlobalTransaction", r.Resolve(s.ID, wire.ResolveGiveUp, &at).ErrorCode, kerr.InvalidTxnState)
			s.End(true)
			r.Never("the coordinator connects to an address of a request", 200*time.Millisecond, func() (bool, string) { return came.Load(), "it has" })
		},
		Wrong: []wrong.Fault{wrong.Does("connects to what it is told", false, func(x *proxy.Exchange) {
			req, ok := x.Request.(*wire.InitGlobalTxnRequest)
			if !ok {
				return
			}
			x.Act()
			for _, at := range req.ClusterIDs {
				if c, err := (&net.Dialer{}).DialContext(x.Context, "tcp", at); err == nil {
					_ = c.Close()
				}
			}
		})},
	},
}

// shown reports whether the stranger may describe an id that is known.
func (r *Run) shown(id string) bool {
	req := wire.NewPtrDescribeGlobalTransactionsRequest()
	req.GlobalTransactionalIDs = []string{id}
	code := r.As("stranger", id, req).(*wire.DescribeGlobalTransactionsResponse).GlobalTransactions[0].ErrorCode
	if code != 0 {
		r.Refused("DescribeGlobalTransactions by the stranger", code, kerr.TransactionalIDAuthorizationFailed)
	}
	return code == 0
}

// acl gives or takes a right on ids of this case, for as long as it runs.
func (r *Run) acl(b *kadm.ACLBuilder) {
	adm := kadm.NewClient(r.home())
	r.later(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), 5*time.Second)
		defer cancel()
		_, _ = adm.DeleteACLs(ctx, b)
	})
	got, err := adm.CreateACLs(r.ctx, b)
	r.Must(err, "creating an ACL")
	for _, g := range got {
		if errors.Is(g.Err, kerr.ClusterAuthorizationFailed) {
			r.NotApplicable("the suite may not change the ACLs of the home cluster")
		}
		r.Must(g.Err, "creating an ACL")
	}
}

// acls is a coordinator that reads the ACLs in its own way.
func acls(text string, f func(*kmsg.CreateACLsRequestCreation)) wrong.Fault {
	return wrong.Requests(text, func(req *kmsg.CreateACLsRequest) bool {
		for i := range req.Creations {
			f(&req.Creations[i])
		}
		return true
	})
}
