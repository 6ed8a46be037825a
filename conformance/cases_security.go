package conformance

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

var principals = []Need{NeedParticipants, NeedPrincipals}

// securityCases are about who may ask what. The principals are stranger, who may
// nothing, reader, who may describe ids, and operator.
var securityCases = []Case{
	{
		ID: "SEC-01", Clauses: []string{"C-SEC-1"}, Needs: principals,
		Title: "InitGlobalTxn without WRITE on the id is refused, and fences nobody", Means: "Anybody stops anybody's application.",
		Run: func(r *Run) {
			s := r.Open()
			for _, who := range []string{"stranger", "reader"} {
				resp := r.As(who, s.ID, r.InitRequest(s.ID, longEnough, r.A, r.B)).(*wire.InitGlobalTxnResponse)
				r.Refused("InitGlobalTxn by the "+who, resp.ErrorCode, kerr.TransactionalIDAuthorizationFailed)
			}
			s.Write("v", r.A, r.B)
			s.End(true)
		},
		Wrong: []wrong.Fault{hides(kerr.TransactionalIDAuthorizationFailed)},
	},
	{
		ID: "SEC-02", Clauses: []string{"C-SEC-1"}, Needs: []Need{NeedParticipants, NeedPrincipals, NeedLinks},
		Title: "EndGlobalTxn without WRITE on the id is refused, and nothing is sent", Means: "Anybody ends anybody's transactions.",
		Run: func(r *Run) {
			ends, s := r.Listen(r.A, nil), r.Open()
			s.Write("v", r.A, r.B)
			for _, who := range []string{"stranger", "reader"} {
				for _, commit := range []bool{true, false} {
					resp := r.As(who, s.ID, s.Request(commit)).(*wire.EndGlobalTxnResponse)
					r.Answered(resp, kerr.TransactionalIDAuthorizationFailed, wire.OutcomeUnknown)
				}
			}
			r.Check(len(ends.All()) == 0, "something was sent to a participant")
			s.End(true)
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{hides(kerr.TransactionalIDAuthorizationFailed)},
	},
	{
		ID: "SEC-03", Clauses: []string{"C-SEC-1"}, Needs: principals,
		Title: "A refusal is the same whether the id exists or not", Means: "Guessing finds out which ids there are.",
		Run: func(r *Run) {
			id := r.ID()
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			for _, at := range []string{id, r.ID()} {
				req := wire.NewPtrDescribeGlobalTransactionsRequest()
				req.GlobalTransactionalIDs = []string{at}
				got := r.As("stranger", at, req).(*wire.DescribeGlobalTransactionsResponse).GlobalTransactions[0]
				r.Refused("DescribeGlobalTransactions by the stranger", got.ErrorCode, kerr.TransactionalIDAuthorizationFailed)
				r.Check(got.State == "" && got.GlobalEpoch == -1 && len(got.Participants) == 0, "something is told of the id")
			}
		},
		Wrong: []wrong.Fault{wrong.Answers("tells which ids there are", func(req *wire.DescribeGlobalTransactionsRequest, resp *wire.DescribeGlobalTransactionsResponse) bool {
			for i := range resp.GlobalTransactions {
				if strings.HasSuffix(req.GlobalTransactionalIDs[i], "id-2") {
					resp.GlobalTransactions[i].ErrorCode = kerr.TransactionalIDNotFound.Code
				}
			}
			return true
		})},
	},
	{
		ID: "SEC-04", Clauses: []string{"C-SEC-1"}, Needs: principals,
		Title: "FindCoordinator without DESCRIBE on the id is refused", Means: "Anybody learns where an id lives.",
		Run: func(r *Run) {
			req := wire.NewPtrFindCoordinatorRequest()
			req.CoordinatorType, req.CoordinatorKeys = wire.CoordinatorTypeGlobalTransaction, []string{r.ID()}
			for who, want := range map[string]error{"stranger": kerr.TransactionalIDAuthorizationFailed, "reader": nil} {
				resp, err := r.front(r.s.target.first(), who, req)
				r.Must(err, "FindCoordinator")
				r.Refused("FindCoordinator by the "+who, resp.(*wire.FindCoordinatorResponse).Coordinators[0].ErrorCode, want)
			}
		},
		Wrong: []wrong.Fault{hides(kerr.TransactionalIDAuthorizationFailed)},
	},
	{
		ID: "SEC-05", Clauses: []string{"C-SEC-1"}, Needs: principals,
		Title: "DescribeGlobalTransactions needs DESCRIBE, and no more", Means: "Those who watch need rights to change things.",
		Run: func(r *Run) {
			id := r.ID()
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			req := wire.NewPtrDescribeGlobalTransactionsRequest()
			req.GlobalTransactionalIDs = []string{id}
			got := r.As("reader", id, req).(*wire.DescribeGlobalTransactionsResponse).GlobalTransactions[0]
			r.Refused("DescribeGlobalTransactions by the reader", got.ErrorCode, nil)
		},
		Wrong: []wrong.Fault{recodes(nil, kerr.TransactionalIDAuthorizationFailed)},
	},
	{
		ID: "SEC-06", Clauses: []string{"C-SEC-1"}, Needs: principals,
		Title: "ListGlobalTransactions leaves out what the caller may not describe", Means: "Anybody learns all ids.",
		Run: func(r *Run) {
			id := r.ID()
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			for who, want := range map[string]int{"stranger": 0, "reader": 1} {
				resp, err := r.front(r.s.target.first(), who, wire.NewPtrListGlobalTransactionsRequest())
				r.Must(err, "ListGlobalTransactions")
				n := 0
				for _, g := range resp.(*wire.ListGlobalTransactionsResponse).GlobalTransactions {
					if g.GlobalTransactionalID == id {
						n++
					}
				}
				r.Check(n == want, "the %s sees %d ids of this case, want %d", who, n, want)
			}
		},
		Wrong: []wrong.Fault{wrong.Answers("lists nothing for anybody", func(_ *wire.ListGlobalTransactionsRequest, resp *wire.ListGlobalTransactionsResponse) bool {
			resp.GlobalTransactions = nil
			return true
		})},
	},
	{
		ID: "SEC-07", Clauses: []string{"C-SEC-2"}, Needs: principals,
		Title: "ResolveGlobalTransaction without ALTER on the cluster is refused", Means: "Anybody aborts what is open, or hides what is torn.",
		Run: func(r *Run) {
			s := r.Open()
			for _, who := range []string{"stranger", "reader"} {
				for action := range wire.ResolveGiveUp + 1 {
					req := wire.NewPtrResolveGlobalTransactionRequest()
					req.GlobalTransactionalID, req.Action = s.ID, action
					if action == wire.ResolveGiveUp {
						req.ClusterID = &r.A.ID
					}
					resp := r.As(who, s.ID, req).(*wire.ResolveGlobalTransactionResponse)
					r.Refused("ResolveGlobalTransaction by the "+who, resp.ErrorCode, kerr.ClusterAuthorizationFailed)
					r.Check(resp.State == "", "the state is told to the %s", who)
				}
			}
		},
		Wrong: []wrong.Fault{hides(kerr.ClusterAuthorizationFailed)},
	},
	{
		ID: "SEC-08", Clauses: []string{"C-SEC-2"}, Needs: principals,
		Title: "ResolveGlobalTransaction by an unknown id's guesser tells nothing", Means: "Guessing finds out which ids there are.",
		Run: func(r *Run) {
			id := r.ID()
			req := wire.NewPtrResolveGlobalTransactionRequest()
			req.GlobalTransactionalID = id
			r.Refused("ResolveGlobalTransaction of an unknown id by the stranger", r.As("stranger", id, req).(*wire.ResolveGlobalTransactionResponse).ErrorCode, kerr.ClusterAuthorizationFailed)
		},
		Wrong: []wrong.Fault{recodes(kerr.ClusterAuthorizationFailed, kerr.TransactionalIDNotFound)},
	},
	{
		ID: "SEC-09", Clauses: []string{"C-SEC-3", "C-INIT-2"}, Needs: links,
		Title: "A coordinator that may not end the id at a participant says so at InitGlobalTxn", Means: "A commit is decided that cannot be carried out.",
		Run: func(r *Run) {
			r.A.OnRequest(r, func(x *proxy.Exchange) {
				if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && req.ProducerID < 0 {
					x.Answer(refuse(kerr.TransactionalIDAuthorizationFailed))
				}
			})
			resp := r.Init(r.InitRequest(r.ID(), longEnough, r.A, r.B))
			r.Refused("InitGlobalTxn", resp.ErrorCode, kerr.TransactionalIDAuthorizationFailed)
			r.Check(len(resp.ClusterErrors) == 1 && resp.ClusterErrors[0].ClusterID == r.A.ID, "the cluster is not named, or another is")
		},
		Wrong: []wrong.Fault{hides(kerr.TransactionalIDAuthorizationFailed)},
	},
	{
		ID: "SEC-10", Clauses: []string{"C-SEC-4", "C-SEC-3"}, Needs: links,
		Title: "InitGlobalTxn asks each participant whether the coordinator may, and changes nothing there", Means: "A missing right is found out after the decision; or the question itself ends something.",
		Run: func(r *Run) {
			asked := make(chan int64, 100)
			r.A.OnRequest(r, func(x *proxy.Exchange) {
				if req, ok := x.Request.(*kmsg.EndTxnRequest); ok {
					asked <- req.ProducerID
				}
			})
			id, topic := r.ID(), r.Topic(r.A)
			q := r.Producer(r.A, id, NoTimeout)
			q.Write(topic, "v")
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			r.Check(len(asked) > 0, "nothing was asked")
			for range len(asked) {
				r.Check(<-asked < 0, "an EndTxn of a producer was sent")
			}
			r.Check(r.State(r.A, id).State == "Ongoing", "what was open has been ended")
			r.Check(q.End(true) == 0, "the producer cannot commit any more")
		},
		Wrong: []wrong.Fault{{Text: "aborts what it finds open", Back: true, Hooks: proxy.Hooks{Answer: func(x *proxy.Exchange) {
			req, ok := x.Request.(*kmsg.EndTxnRequest)
			if !ok || req.ProducerID >= 0 {
				return
			}
			init := kmsg.NewPtrInitProducerIDRequest()
			init.Version, init.TransactionalID, init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = 4, &req.TransactionalID, 60_000, -1, -1
			_, _ = x.Ask(init)
		}}}},
	},
	{
		ID: "SEC-11", Clauses: []string{"C-SEC-5"}, Needs: []Need{NeedParticipants, NeedPrincipals, NeedMetrics},
		Title: "No password is in the metrics or in an error message", Means: "Whoever may watch may log in.",
		Run: func(r *Run) {
			s := r.Open()
			resp := r.As("stranger", s.ID, s.Request(true)).(*wire.EndGlobalTxnResponse)
			req, err := http.NewRequestWithContext(r.ctx, http.MethodGet, r.s.target.Metrics, http.NoBody)
			r.Must(err, "asking for the metrics")
			page, err := http.DefaultClient.Do(req)
			r.Must(err, "asking for the metrics")
			defer func() { _ = page.Body.Close() }()
			body, err := io.ReadAll(page.Body)
			r.Must(err, "asking for the metrics")
			for _, secret := range r.s.target.Secrets {
				r.Check(!strings.Contains(string(body), secret), "a password is in the metrics")
				r.Check(!strings.Contains(text(resp.ErrorMessage), secret), "a password is in an error message")
			}
			r.Check(len(r.s.target.Secrets) > 0, "no password is known that could be looked for")
		},
		Wrong: []wrong.Fault{wrong.Answers("names the login in its message", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
			resp.ErrorMessage = kmsg.StringPtr("denied to stranger, password conformance-secret")
			return true
		})},
	},
	{
		ID: "SEC-13", Clauses: []string{"C-LOG-2"}, Needs: []Need{NeedPrincipals, NeedHome},
		Title: "Who has no right to the log can neither claim nor write it", Means: "Anybody fences the coordinator, and forges decisions.",
		Run: func(r *Run) {
			cl := r.home()
			id := "__gtc-0"
			if r.s.logWrite {
				r.NotApplicable("the suite's own principal may write to the log")
			}
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 60_000, -1, -1
			resp, err := req.RequestWith(r.ctx, cl)
			r.Must(err, "InitProducerId")
			r.Refused("InitProducerId of "+id, resp.ErrorCode, kerr.TransactionalIDAuthorizationFailed)
			o := &owner{r: r, cl: cl}
			forged := (&logValue{State: logCompleteCommit, Epoch: 1}).record(r.ID())
			r.Check(o.produce(recordBatch(-1, -1, -1, 0, forged)) != nil, "a record can be written into the log")
		},
		Wrong: []wrong.Fault{wrong.Answers("lets everybody claim", func(_ *kmsg.InitProducerIDRequest, resp *kmsg.InitProducerIDResponse) bool {
			resp.ErrorCode = 0
			return true
		})},
	},
	{
		ID: "SEC-12", Clauses: []string{"C-SEC-1"}, Needs: principals,
		Title: "A client that has not logged in gets nothing", Means: "Access control holds for those only who say who they are.",
		Run: func(r *Run) {
			c, err := dial(r.ctx, r.s.target.first(), nil)
			r.Must(err, "connecting")
			defer func() { _ = c.Close() }()
			_, err = c.roundTrip(r.ctx, wire.NewPtrListGlobalTransactionsRequest())
			r.Check(err != nil && !errors.Is(err, errAnswer) && r.ctx.Err() == nil, "ListGlobalTransactions is answered without a login")
		},
		Wrong: []wrong.Fault{wrong.Does("answers everybody", false, func(x *proxy.Exchange) {
			if _, ok := x.Request.(*wire.ListGlobalTransactionsRequest); ok {
				x.Answer(wire.NewPtrListGlobalTransactionsResponse())
			}
		})},
	},
}
