package conformance

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// discoveryCases are about who coordinates an id.
var discoveryCases = []Case{
	{
		ID: "DISC-01", Clauses: []string{"C-ROLE-2"},
		Title: "FindCoordinator version 7 with key type 3 names a node", Means: "Clients find no coordinator.",
		Run: func(r *Run) {
			c := r.findAll(r.ID())[0]
			r.Refused("FindCoordinator", c.ErrorCode, nil)
			r.Check(c.NodeID >= 0 && c.Host != "" && c.Port > 0, "FindCoordinator answers ok without a node")
		},
		Wrong: []wrong.Fault{finds("answers ok and no node", func(c *wire.FindCoordinatorResponseCoordinator) { c.NodeID, c.Host, c.Port = -1, "", -1 })},
	},
	{
		ID: "DISC-02", Clauses: []string{"C-ROLE-2"},
		Title: "FindCoordinator of several ids answers each, by its name", Means: "A client with a ring of ids asks the wrong node.",
		Run: func(r *Run) {
			ids := []string{r.ID(), r.ID(), r.ID()}
			var got []string
			for _, c := range r.findAll(ids...) {
				r.Refused("FindCoordinator", c.ErrorCode, nil)
				got = append(got, c.Key)
			}
			slices.Sort(got)
			slices.Sort(ids)
			r.Check(slices.Equal(got, ids), "FindCoordinator of three ids answers %d, or others", len(got))
		},
		Wrong: []wrong.Fault{wrong.Answers("answers the first id only", func(_ *wire.FindCoordinatorRequest, resp *wire.FindCoordinatorResponse) bool {
			resp.Coordinators = resp.Coordinators[:1]
			return true
		})},
	},
	old(3, 6), old(4, 4), old(5, 3), old(6, 1),
	{
		ID: "DISC-07", Clauses: []string{"C-ROLE-2"}, Needs: two,
		Title: "The node that FindCoordinator names takes the id's requests", Means: "Clients go in circles.",
		Run: func(r *Run) {
			id := r.ID()
			var resp kmsg.Response
			r.Until("asking the node that FindCoordinator names", func() (bool, string) {
				c := r.Find(id)
				if c.ErrorCode != 0 {
					return false, codeName(c.ErrorCode)
				}
				var err error
				resp, err = r.front(fmt.Sprintf("%s:%d", c.Host, c.Port), "", r.InitRequest(id, longEnough, r.A, r.B))
				r.Must(err, "InitGlobalTxn at the node that FindCoordinator names")
				code := codeOf(resp)
				return !slices.Contains(again, code) && !slices.Contains(notYet, code), codeName(code)
			})
			r.Refused("InitGlobalTxn at the node that FindCoordinator names", codeOf(resp), nil)
		},
		Wrong: []wrong.Fault{wrong.Stalling(recodes(nil, kerr.NotCoordinator))},
	},
	{
		ID: "DISC-08", Clauses: []string{"C-ROLE-2", "C-LOG-2"}, Needs: []Need{NeedNodes},
		Title: "All nodes name the same coordinator", Means: "Two clients of one id talk to two coordinators.",
		Run: func(r *Run) {
			id := r.ID()
			r.Until("all nodes naming the same coordinator", func() (bool, string) {
				var named []string
				for _, at := range r.s.target.bootstraps() {
					req := wire.NewPtrFindCoordinatorRequest()
					req.CoordinatorType, req.CoordinatorKeys = wire.CoordinatorTypeGlobalTransaction, []string{id}
					resp, err := r.front(at, "", req)
					r.Must(err, "FindCoordinator")
					c := resp.(*wire.FindCoordinatorResponse).Coordinators[0]
					named = append(named, fmt.Sprint(c.NodeID, c.ErrorCode))
				}
				return len(slices.Compact(named)) == 1, fmt.Sprint(named)
			})
		},
		Wrong: []wrong.Fault{wrong.Stalling(finds("names one node after the other", func(c *wire.FindCoordinatorResponseCoordinator) { c.NodeID = turns.Add(1) }))},
	},
	{
		ID: "DISC-09", Clauses: []string{"C-ROLE-4"}, Needs: []Need{NeedParticipants, NeedNodes},
		Title: "A node that does not own an id's partition says so", Means: "Two nodes decide about one id.",
		Run: func(r *Run) {
			id := r.ID()
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			c := r.Find(id)
			owner := fmt.Sprintf("%s:%d", c.Host, c.Port)
			for _, at := range r.s.target.bootstraps() {
				if at == owner {
					continue
				}
				resp, err := r.front(at, "", r.InitRequest(id, longEnough, r.A, r.B))
				r.Must(err, "InitGlobalTxn at another node")
				r.Refused("InitGlobalTxn at another node", codeOf(resp), kerr.NotCoordinator)
			}
		},
		Wrong: []wrong.Fault{hides(kerr.NotCoordinator)},
	},
	{
		ID: "DISC-10", Clauses: []string{"C-ROLE-3"}, Needs: []Need{NeedParticipants, NeedHome},
		Title: "An id is kept in the partition of its Java hash", Means: "Nodes of two implementations look for an id in two places.",
		Run: func(r *Run) {
			// With characters outside ASCII and outside 16 bits, and one whose hash is negative.
			for _, suffix := range []string{"a", "é", "😀", "zzzzzzzzzz"} {
				id := r.ID() + suffix
				r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
				r.Check(r.logged(r.partitionOf(id), id) != nil, "the id with %q at its end is not in the partition of its hash", suffix)
			}
		},
		Wrong: []wrong.Fault{wrong.Requests("puts ids into other partitions", func(req *wire.InitGlobalTxnRequest) bool {
			req.GlobalTransactionalID += "!"
			return true
		})},
	},
}

// findAll asks where the coordinators of ids are, until each has one.
func (r *Run) findAll(ids ...string) (found []wire.FindCoordinatorResponseCoordinator) {
	req := wire.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = wire.CoordinatorTypeGlobalTransaction, ids
	r.Until("FindCoordinator", func() (bool, string) {
		found = r.Bootstrap(req).(*wire.FindCoordinatorResponse).Coordinators
		i := slices.IndexFunc(found, func(c wire.FindCoordinatorResponseCoordinator) bool { return slices.Contains(again, c.ErrorCode) })
		return len(found) > 0 && i < 0, "a coordinator is not available"
	})
	return found
}

// old asks in a version of before the role.
func old(n int, version int16) Case {
	return Case{
		ID: fmt.Sprintf("DISC-%02d", n), Clauses: []string{"C-ROLE-2"},
		Title: fmt.Sprintf("FindCoordinator version %d refuses key type 3", version), Means: "A client takes a node that does not know the role for the coordinator.",
		Run: func(r *Run) {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.Version, req.CoordinatorType = version, wire.CoordinatorTypeGlobalTransaction
			req.CoordinatorKey, req.CoordinatorKeys = r.ID(), []string{r.ID()}
			resp := r.Bootstrap(req).(*kmsg.FindCoordinatorResponse)
			code := resp.ErrorCode
			if version >= 4 {
				r.Check(code != 0 || len(resp.Coordinators) == 1, "FindCoordinator of one id answers %d", len(resp.Coordinators))
				if code == 0 {
					code = resp.Coordinators[0].ErrorCode
				}
			}
			r.Refused(fmt.Sprintf("FindCoordinator version %d for key type 3", version), code, kerr.InvalidRequest)
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidRequest)},
	}
}

var turns atomic.Int32

func finds(text string, f func(*wire.FindCoordinatorResponseCoordinator)) wrong.Fault {
	return wrong.Answers(text, func(req *wire.FindCoordinatorRequest, resp *wire.FindCoordinatorResponse) bool {
		for i := range resp.Coordinators {
			f(&resp.Coordinators[i])
		}
		return req.CoordinatorType == wire.CoordinatorTypeGlobalTransaction
	})
}
