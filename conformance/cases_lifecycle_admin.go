package conformance

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// looksAtThem are what operators see.
var looksAtThem = []Case{
	{
		ID: "LIFE-60", Clauses: []string{"C-ATOM-4", "C-REC-1"}, Needs: two,
		Title: "A committed transaction is described as it was answered", Means: "An operator is told another story than the client.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			req := s.Request(true)
			s.End(true)
			d := r.Becomes(s.ID, wire.StateCompleteCommit)
			r.Check(d.Sequence == req.Sequence && d.GlobalEpoch == s.Epoch && d.Reason == nil, "sequence, epoch or reason are not those of the transaction")
			r.Check(d.DecisionTimestampMillis > 0 && d.UpdateTimestampMillis >= d.DecisionTimestampMillis, "the times of decision and of the last record are wrong")
			r.Check(len(d.Participants) == 2, "%d participants are described, want 2", len(d.Participants))
			for _, p := range d.Participants {
				i := slices.IndexFunc(req.Participants, func(q wire.EndGlobalTxnRequestParticipant) bool { return q.ClusterID == p.ClusterID })
				r.Check(i >= 0 && p.ProducerID == req.Participants[i].ProducerID && p.ProducerEpoch == req.Participants[i].ProducerEpoch, "a participant is not named as it was listed")
				r.Check(p.State == wire.ParticipantComplete && p.OpenSinceMillis == -1, "a participant is %s, open for %d ms", stateName(p.State), p.OpenSinceMillis)
			}
		},
		Wrong: []wrong.Fault{describes("drops a participant", func(d *wire.DescribeGlobalTransactionsResponseGlobalTransaction) {
			d.Participants = d.Participants[:min(1, len(d.Participants))]
		})},
	},
	{
		ID: "LIFE-61", Clauses: []string{"C-END-14", "C-ADM-1"}, Needs: two,
		Title: "An abort that nobody asked for is described with its reason, one asked for without", Means: "Operators look for a fault that there is not, or miss one.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(false)
			d := r.Becomes(s.ID, wire.StateCompleteAbort)
			r.Check(d.Reason == nil, "an abort that was asked for has the reason %q", text(d.Reason))
			s.Write("w", r.A, r.B)
			req := s.Request(true)
			r.Producer(r.A, s.ID, NoTimeout)
			r.Answered(r.Decide(req), nil, wire.OutcomeAborted)
			r.Check(text(r.Becomes(s.ID, wire.StateCompleteAbort).Reason) != "", "an abort that nobody asked for has no reason")
		},
		Wrong: []wrong.Fault{describes("never gives a reason", func(d *wire.DescribeGlobalTransactionsResponseGlobalTransaction) { d.Reason = nil })},
	},
	{
		ID: "LIFE-62", Clauses: []string{"C-ADM-1"}, Needs: two,
		Title: "Several ids are described in the order asked for, each with its own code", Means: "A tool shows one id's state under another's name.",
		Run: func(r *Run) {
			known := r.ID()
			r.InitOK(r.InitRequest(known, longEnough, r.A, r.B))
			ids := []string{r.ID(), known, r.ID()}
			req := wire.NewPtrDescribeGlobalTransactionsRequest()
			req.GlobalTransactionalIDs = ids
			if len(r.s.target.Nodes) > 1 {
				r.NotApplicable("the ids have different coordinators")
			}
			resp := r.Coordinator(known, req).(*wire.DescribeGlobalTransactionsResponse)
			r.Check(len(resp.GlobalTransactions) == 3, "%d answers for 3 ids", len(resp.GlobalTransactions))
			for i, g := range resp.GlobalTransactions {
				r.Check(g.GlobalTransactionalID == ids[i], "answer %d is about another id", i+1)
				r.Refused("DescribeGlobalTransactions", g.ErrorCode, map[bool]error{false: kerr.TransactionalIDNotFound}[i == 1])
			}
		},
		Wrong: []wrong.Fault{wrong.Answers("sorts them", func(_ *wire.DescribeGlobalTransactionsRequest, resp *wire.DescribeGlobalTransactionsResponse) bool {
			slices.Reverse(resp.GlobalTransactions)
			slices.SortStableFunc(resp.GlobalTransactions, func(a, b wire.DescribeGlobalTransactionsResponseGlobalTransaction) int {
				return int(a.ErrorCode - b.ErrorCode)
			})
			return true
		})},
	},
	{
		ID: "LIFE-63", Clauses: []string{"C-ADM-1"}, Needs: []Need{NeedParticipants, NeedQuickScan},
		Title: "What a scan has seen open is shown as Ongoing, with its age", Means: "Operators do not see what holds readers back.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A)
			d := r.Becomes(s.ID, wire.StateOngoing)
			r.Check(len(d.Participants) == 1 && d.Participants[0].ClusterID == r.A.ID && d.Participants[0].OpenSinceMillis >= 0, "Ongoing does not name what is open, and since when")
			s.End(true)
			r.Becomes(s.ID, wire.StateCompleteCommit)
		},
		Wrong: []wrong.Fault{wrong.Stalling(describes("shows recorded states only", func(d *wire.DescribeGlobalTransactionsResponseGlobalTransaction) {
			if d.State == wire.StateOngoing {
				d.State = wire.StateEmpty
			}
		}))},
	},
	{
		ID: "LIFE-64", Clauses: []string{"C-ADM-2"}, Needs: two,
		Title: "List shows an id with its state", Means: "Operators do not find what they look for.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(true)
			r.Until("the id in ListGlobalTransactions", func() (bool, string) {
				g, found := r.Listed(s.ID)
				return found && g.State == wire.StateCompleteCommit && g.Sequence == s.Sequence-1 && !g.Heuristic && g.AgeMillis == -1, g.State
			})
		},
		Wrong: []wrong.Fault{wrong.Stalling(wrong.Answers("lists what is undecided only", func(_ *wire.ListGlobalTransactionsRequest, resp *wire.ListGlobalTransactionsResponse) bool {
			resp.GlobalTransactions = slices.DeleteFunc(resp.GlobalTransactions, func(g wire.ListGlobalTransactionsResponseGlobalTransaction) bool {
				return g.State == wire.StateCompleteCommit
			})
			return true
		}))},
	},
	filtered("LIFE-65", "by state", func(_ *Run, _ string, req *wire.ListGlobalTransactionsRequest) {
		req.StateFilters = []string{wire.StateCompleteCommit}
	},
		lists("ignores the states", func(req *wire.ListGlobalTransactionsRequest) { req.StateFilters = nil })),
	filtered("LIFE-66", "by pattern, on the whole id", func(_ *Run, id string, req *wire.ListGlobalTransactionsRequest) {
		p := regexp.QuoteMeta(id[:len(id)-1]) + "[" + id[len(id)-1:] + "]"
		req.PatternFilter = &p
	}, lists("ignores the pattern", func(req *wire.ListGlobalTransactionsRequest) { req.PatternFilter = nil })),
	{
		ID: "LIFE-67", Clauses: []string{"C-ADM-2"}, Needs: two,
		Title: "A pattern matches the whole id, not a part of it", Means: "An operator acts on more ids than named.",
		Run: func(r *Run) {
			id := r.ID()
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			req := wire.NewPtrListGlobalTransactionsRequest()
			part := regexp.QuoteMeta(id[:len(id)-1])
			req.PatternFilter = &part
			n := len(r.List(req))
			r.Check(n == 0, "a part of the id matches %d ids", n)
		},
		Wrong: []wrong.Fault{lists("matches parts", func(req *wire.ListGlobalTransactionsRequest) {
			if req.PatternFilter != nil {
				wide := ".*" + *req.PatternFilter + ".*"
				req.PatternFilter = &wide
			}
		})},
	},
	filtered("LIFE-68", "by heuristic outcome", func(_ *Run, _ string, req *wire.ListGlobalTransactionsRequest) { req.HeuristicOnly = true },
		lists("ignores HeuristicOnly", func(req *wire.ListGlobalTransactionsRequest) { req.HeuristicOnly = false })),
	filtered("LIFE-69", "by duration", func(_ *Run, _ string, req *wire.ListGlobalTransactionsRequest) { req.DurationFilterMillis = 0 },
		lists("ignores the duration", func(req *wire.ListGlobalTransactionsRequest) { req.DurationFilterMillis = -1 })),
	{
		ID: "LIFE-70", Clauses: []string{"C-ADM-2"}, Needs: []Need{NeedParticipants, NeedQuickScan},
		Title: "The duration filter finds what is open for long enough", Means: "The alarm for old transactions never fires.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A)
			req := wire.NewPtrListGlobalTransactionsRequest()
			req.DurationFilterMillis = 300
			r.Until("the open transaction in the list", func() (bool, string) {
				got := r.List(req)
				return len(got) == 1 && got[0].AgeMillis >= 300 && got[0].State == wire.StateOngoing, "not there"
			})
			req.DurationFilterMillis = time.Hour.Milliseconds()
			n := len(r.List(req))
			r.Check(n == 0, "%d ids are listed as open for an hour", n)
			s.End(true)
		},
		Wrong: []wrong.Fault{lists("lists whatever is open", func(req *wire.ListGlobalTransactionsRequest) {
			if req.DurationFilterMillis > 1000 {
				req.DurationFilterMillis = 0
			}
		})},
	},
	{
		ID: "LIFE-71", Clauses: []string{"C-ADM-2"},
		Title: "A name that is no state is given back as unknown", Means: "A typing error looks like an empty list.",
		Run: func(r *Run) {
			req := wire.NewPtrListGlobalTransactionsRequest()
			req.StateFilters = []string{"NoState", wire.StateOngoing}
			resp := r.listAny(req)
			r.Refused("ListGlobalTransactions", resp.ErrorCode, nil)
			r.Check(slices.Equal(resp.UnknownStateFilters, []string{"NoState"}), "unknown states are %v", resp.UnknownStateFilters)
		},
		Wrong: []wrong.Fault{wrong.Answers("says nothing of it", func(_ *wire.ListGlobalTransactionsRequest, resp *wire.ListGlobalTransactionsResponse) bool {
			resp.UnknownStateFilters = nil
			return true
		})},
	},
	{
		ID: "LIFE-72", Clauses: []string{"C-ADM-2"},
		Title: "A pattern that does not compile, or to too much, is refused", Means: "A typing error looks like an empty list, and a large program holds up everybody.",
		Run: func(r *Run) {
			for _, bad := range []string{"conformance-(", strings.Repeat("(?:.?){1000}", 1000)} {
				req := wire.NewPtrListGlobalTransactionsRequest()
				req.PatternFilter = &bad
				r.Refused("ListGlobalTransactions", r.listAny(req).ErrorCode, kerr.InvalidRegularExpression)
			}
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidRegularExpression)},
	},
	{
		ID: "LIFE-73", Clauses: []string{"C-ADM-2"}, Needs: two,
		Title: "Filters are combined with and", Means: "Operators get more than they asked for.",
		Run: func(r *Run) {
			id := r.ID()
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			req := wire.NewPtrListGlobalTransactionsRequest()
			p := regexp.QuoteMeta(id)
			req.PatternFilter, req.StateFilters = &p, []string{wire.StateEmpty}
			r.Check(len(r.List(req)) == 1, "the id is not found by both filters")
			req.StateFilters = []string{wire.StateCompleteAbort}
			r.Check(len(r.List(req)) == 0, "the id is found although one filter excludes it")
		},
		Wrong: []wrong.Fault{lists("combines them with or", func(req *wire.ListGlobalTransactionsRequest) { req.StateFilters = nil })},
	},
	{
		ID: "LIFE-74", Clauses: []string{"C-RES-1"}, Needs: two,
		Title: "There is nothing to abort where nothing is open", Means: "An operator's command seems to have done something.",
		Run: func(r *Run) {
			id := r.ID()
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			r.Refused("ResolveGlobalTransaction(abort)", r.Resolve(id, wire.ResolveAbort, nil).ErrorCode, kerr.InvalidTxnState)
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidTxnState)},
	},
	{
		ID: "LIFE-75", Clauses: []string{"C-RES-2"}, Needs: two,
		Title: "There is nothing to retry where nothing is pending", Means: "An operator's command seems to have done something.",
		Run: func(r *Run) {
			id := r.ID()
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			r.Refused("ResolveGlobalTransaction(retry)", r.Resolve(id, wire.ResolveRetry, nil).ErrorCode, kerr.InvalidTxnState)
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidTxnState)},
	},
	{
		ID: "LIFE-76", Clauses: []string{"C-RES-3"}, Needs: two,
		Title: "There is nothing to forget where nothing is torn", Means: "An operator's command seems to have done something.",
		Run: func(r *Run) {
			id := r.ID()
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			r.Refused("ResolveGlobalTransaction(forget)", r.Resolve(id, wire.ResolveForget, nil).ErrorCode, kerr.InvalidTxnState)
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidTxnState)},
	},
	{
		ID: "LIFE-77", Clauses: []string{"C-RES-4"}, Needs: two,
		Title: "There is nothing to give up where nothing is pending", Means: "An operator gives a healthy cluster up.",
		Run: func(r *Run) {
			id := r.ID()
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			r.Refused("ResolveGlobalTransaction(give up)", r.Resolve(id, wire.ResolveGiveUp, &r.A.ID).ErrorCode, kerr.InvalidTxnState)
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidTxnState)},
	},
	{
		ID: "LIFE-78", Clauses: []string{"C-RES-4"}, Needs: two,
		Title: "A cluster is named for giving up, and for nothing else", Means: "A mistyped command is carried out on something else.",
		Run: func(r *Run) {
			id := r.ID()
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			r.Refused("ResolveGlobalTransaction(give up) without a cluster", r.Resolve(id, wire.ResolveGiveUp, nil).ErrorCode, kerr.InvalidRequest)
			r.Refused("ResolveGlobalTransaction(retry) with a cluster", r.Resolve(id, wire.ResolveRetry, &r.A.ID).ErrorCode, kerr.InvalidRequest)
		},
		Wrong: []wrong.Fault{recodes(kerr.InvalidRequest, kerr.InvalidTxnState)},
	},
	{
		ID: "LIFE-79", Clauses: []string{"C-RES-1"}, Needs: two,
		Title: "An action that there is not is refused", Means: "A mistyped command is carried out as something else.",
		Run: func(r *Run) {
			id := r.ID()
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			r.Refused("ResolveGlobalTransaction(9)", r.Resolve(id, 9, nil).ErrorCode, kerr.InvalidRequest)
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidRequest)},
	},
	{
		ID: "LIFE-80", Clauses: []string{"C-ROLE-4", "C-RES-1"},
		Title: "An operator's word about an unknown id is refused", Means: "An operator believes to have ended something.",
		Run: func(r *Run) {
			r.Refused("ResolveGlobalTransaction of an unknown id", r.Resolve(r.ID(), wire.ResolveAbort, nil).ErrorCode, kerr.TransactionalIDNotFound)
		},
		Wrong: []wrong.Fault{hides(kerr.TransactionalIDNotFound)},
	},
}

// filtered has one id that is empty and one that is committed; a filter that
// only the committed one passes, or neither.
func filtered(id, how string, filter func(*Run, string, *wire.ListGlobalTransactionsRequest), bug wrong.Fault) Case {
	return Case{
		ID: id, Clauses: []string{"C-ADM-2"}, Needs: two,
		Title: "List is filtered " + how, Means: "Operators do not find what they look for among all ids.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(true)
			r.Becomes(s.ID, wire.StateCompleteCommit)
			other := r.ID()
			r.InitOK(r.InitRequest(other, longEnough, r.A, r.B))
			req := wire.NewPtrListGlobalTransactionsRequest()
			filter(r, s.ID, req)
			want := []string{s.ID}
			if req.HeuristicOnly || req.DurationFilterMillis >= 0 {
				want = nil
			}
			var got []string
			for _, g := range r.List(req) {
				got = append(got, g.GlobalTransactionalID)
			}
			r.Check(slices.Equal(got, want), "%d ids of this case pass the filter, want %d, or another one", len(got), len(want))
		},
		Wrong: []wrong.Fault{bug},
	}
}

// listAny asks any node, until it has loaded.
func (r *Run) listAny(req *wire.ListGlobalTransactionsRequest) (resp *wire.ListGlobalTransactionsResponse) {
	r.Until("ListGlobalTransactions", func() (bool, string) {
		got, err := r.front(r.s.target.first(), "", req)
		if err != nil {
			return false, err.Error()
		}
		resp = got.(*wire.ListGlobalTransactionsResponse)
		return !slices.Contains(again, resp.ErrorCode), codeName(resp.ErrorCode)
	})
	return resp
}
