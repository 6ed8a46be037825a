package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
	"github.com/kafka-gtc/kafka-gtc/wire/pattern"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// Handle answers one of the coordinator's RPCs to a principal, as User:alice,
// connected from a host, if it may ask. It returns when the answer is known or
// ctx, the life of the connection, ends; then the response is nil.
func (s *Service) Handle(ctx context.Context, principal, host string, req kmsg.Request) kmsg.Response {
	return s.authorized(ctx, Caller{Principal: principal, Host: host}, req)
}

// FindCoordinator names the node that coordinates an id, to a principal that
// may look at it.
func (s *Service) FindCoordinator(principal, from, id string) (nodeID int32, host string, port int32, err error) {
	if who := (Caller{Principal: principal, Host: from}); !s.allows(who, RightDescribe, id) {
		return -1, "", -1, &deniedError{lacks(who, RightDescribe, id)}
	}
	if s.o.Membership == nil {
		return s.o.NodeID, s.o.Host, s.o.Port, nil
	}
	n, known := s.o.Membership.Owner(txnlog.PartitionFor(id, s.o.Log.Partitions()))
	if !known {
		return -1, "", -1, errNoOwner
	}
	return n.ID, n.Host, n.Port, nil
}

// do hands an event to the owner of the id and waits for the core's response.
func (s *Service) do(ctx context.Context, id string, event func(gtc.RequestID) gtc.Event) (gtc.Response, error) {
	sh, err := s.shardFor(id)
	if err != nil {
		return gtc.Response{}, err
	}
	if !sh.active.Load() {
		return gtc.Response{}, sh.whyInactive()
	}
	request := gtc.RequestID(s.requests.Add(1))
	reply := s.calls.add(request)
	defer s.calls.drop(request)
	sh.inbox.put(task{
		run: func(t *term) {
			t.requests[request] = struct{}{}
			sh.step(event(request))
		},
		gone: func() { s.calls.answer(request, answer{err: errLoading}) },
	})
	select {
	case a := <-reply:
		return a.response, a.err
	case <-sh.ctx.Done():
		return gtc.Response{}, errNotCoordinator
	case <-ctx.Done():
		return gtc.Response{}, context.Cause(ctx)
	}
}

// whyInactive tells a partition that is being read from one that cannot be.
func (sh *shard) whyInactive() error {
	if why := sh.refused.Load(); why != nil && txnlog.Refuses(*why) {
		return fmt.Errorf("%w: %w", errUnreadable, *why)
	}
	return errLoading
}

// errorCode maps what kept a request from the core.
func errorCode(err error) (int16, *string) {
	code := kerr.CoordinatorNotAvailable.Code
	switch {
	case errors.Is(err, errNotCoordinator):
		code = kerr.NotCoordinator.Code
	case errors.Is(err, errLoading):
		code = kerr.CoordinatorLoadInProgress.Code
	case errors.Is(err, errUnreadable):
		code = wire.CorruptGlobalTransactionLog.Code
	case errors.Is(err, pattern.ErrTooSlow):
		code = kerr.RequestTimedOut.Code
	}
	return code, text(err.Error())
}

// codes maps the core's results to the protocol's; KIP.md has the table.
var codes = map[gtc.Code]int16{
	gtc.CodeNone:                    0,
	gtc.CodeConcurrentTransactions:  kerr.ConcurrentTransactions.Code,
	gtc.CodeFenced:                  kerr.ProducerFenced.Code,
	gtc.CodeInvalidRequest:          kerr.InvalidRequest.Code,
	gtc.CodeInvalidTxnState:         kerr.InvalidTxnState.Code,
	gtc.CodeInvalidTimeout:          kerr.InvalidTransactionTimeout.Code,
	gtc.CodeUnknownID:               kerr.TransactionalIDNotFound.Code,
	gtc.CodeOutcomeTooOld:           wire.GlobalTransactionTooOld.Code,
	gtc.CodeParticipantUnavailable:  wire.ParticipantNotAvailable.Code,
	gtc.CodeUnknownParticipant:      wire.UnknownParticipant.Code,
	gtc.CodeClusterIDMismatch:       wire.ParticipantClusterIDMismatch.Code,
	gtc.CodeNotOptedIn:              wire.ParticipantNotEnabled.Code,
	gtc.CodeParticipantUnauthorized: kerr.TransactionalIDAuthorizationFailed.Code,
	gtc.CodeHeuristicOutcome:        wire.HeuristicOutcome.Code,
	gtc.CodePolicyViolation:         kerr.PolicyViolation.Code,
}

var checkCodes = map[gtc.CheckCode]int16{
	gtc.CheckOK:                0,
	gtc.CheckUnavailable:       wire.ParticipantNotAvailable.Code,
	gtc.CheckUnknownCluster:    wire.UnknownParticipant.Code,
	gtc.CheckClusterIDMismatch: wire.ParticipantClusterIDMismatch.Code,
	gtc.CheckNotOptedIn:        wire.ParticipantNotEnabled.Code,
	gtc.CheckUnauthorized:      kerr.TransactionalIDAuthorizationFailed.Code,
}

// text is a message for people. Some of it may be a client's or a cluster's.
func text(s string) *string {
	if s == "" {
		return nil
	}
	shown := plain.Text(s)
	return &shown
}

func (s *Service) initGlobalTxn(ctx context.Context, req *wire.InitGlobalTxnRequest) kmsg.Response {
	resp := req.ResponseKind().(*wire.InitGlobalTxnResponse)
	r, err := s.do(ctx, req.GlobalTransactionalID, func(id gtc.RequestID) gtc.Event {
		return gtc.InitRequest{
			Request: id, ID: req.GlobalTransactionalID, TimeoutMillis: req.TimeoutMillis,
			ClusterIDs: req.ClusterIDs, InstanceID: req.InstanceID,
		}
	})
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = errorCode(err)
		return resp
	}
	resp.ErrorCode, resp.ErrorMessage = codes[r.Code], text(r.Message)
	resp.GlobalEpoch, resp.Sequence = r.GlobalEpoch, r.Sequence
	if r.Code == gtc.CodeNone {
		s.warnOfRetention(req.ClusterIDs...)
	}
	for _, c := range r.Checks {
		resp.ClusterErrors = append(resp.ClusterErrors, wire.InitGlobalTxnResponseClusterError{
			ClusterID: c.ClusterID, ErrorCode: checkCodes[c.Code], ErrorMessage: text(c.Detail),
		})
	}
	return resp
}

func (s *Service) endGlobalTxn(ctx context.Context, req *wire.EndGlobalTxnRequest) kmsg.Response {
	resp := req.ResponseKind().(*wire.EndGlobalTxnResponse)
	refs := make([]gtc.ParticipantRef, len(req.Participants))
	for i, p := range req.Participants {
		refs[i] = gtc.ParticipantRef{ClusterID: p.ClusterID, ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch}
	}
	ctx, stop := s.patience(ctx, req.TimeoutMillis)
	defer stop()
	r, err := s.do(ctx, req.GlobalTransactionalID, func(id gtc.RequestID) gtc.Event {
		return gtc.EndRequest{
			Request: id, ID: req.GlobalTransactionalID, GlobalEpoch: req.GlobalEpoch, Sequence: req.Sequence,
			Commit: req.Committed, Participants: refs, TimeoutMillis: req.TimeoutMillis,
		}
	})
	if errors.Is(err, errLate) {
		resp.ErrorMessage = text(err.Error())
		return resp // outcome unknown: what may be decided is not durable yet
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = errorCode(err)
		return resp
	}
	resp.ErrorCode, resp.ErrorMessage = codes[r.Code], text(r.Message)
	resp.Outcome = int8(r.Outcome)
	for _, p := range r.Participants {
		resp.Participants = append(resp.Participants, wire.EndGlobalTxnResponseParticipant{
			ClusterID: p.ClusterID, State: int8(p.State),
			ProducerID: p.NextProducerID, ProducerEpoch: p.NextProducerEpoch, Message: text(p.Detail),
		})
	}
	return resp
}

// lateAnswer is how long after the client's deadline the core's answer, which
// says more, is still waited for.
const lateAnswer = time.Second

// patience ends with errLate some time after the deadline of an EndGlobalTxn. By
// then the core has answered, but that answer waits for the log, however long
// the log takes; and the client would take silence for a lost connection.
func (s *Service) patience(ctx context.Context, timeoutMillis int32) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	wait := time.Duration(max(timeoutMillis, 0))*time.Millisecond + lateAnswer
	stop := s.o.Clock.After(wait, func() { cancel(errLate) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

func (s *Service) resolve(ctx context.Context, who Caller, req *wire.ResolveGlobalTransactionRequest) kmsg.Response {
	resp := req.ResponseKind().(*wire.ResolveGlobalTransactionResponse)
	r, err := s.do(ctx, req.GlobalTransactionalID, func(id gtc.RequestID) gtc.Event {
		ev := gtc.ResolveRequest{Request: id, ID: req.GlobalTransactionalID, Action: gtc.ResolveAction(req.Action)}
		if req.ClusterID != nil {
			ev.ClusterID = *req.ClusterID
		}
		return ev
	})
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = errorCode(err)
		return resp
	}
	resp.ErrorCode, resp.ErrorMessage = codes[r.Code], text(r.Message)
	if r.Code == gtc.CodeNone || r.Code == gtc.CodeInvalidTxnState {
		resp.State = string(gtc.NameOf(r.State))
		s.o.Logger.Warn().Str("principal", who.Principal).Str("host", who.Host).Str("global.transactional.id", req.GlobalTransactionalID).Stringer("action", gtc.ResolveAction(req.Action)).
			Any("cluster", req.ClusterID).Bool("done", r.Code == gtc.CodeNone).Msg("an operator resolved a global transaction")
	}
	return resp
}

// query runs f on a shard's machine and waits until what f saw is durable.
func (s *Service) query(ctx context.Context, sh *shard, f func(*gtc.Machine, gtc.Time)) error {
	if !sh.active.Load() {
		return sh.whyInactive()
	}
	done := make(chan error, 1)
	gone := func() { done <- errLoading }
	sh.inbox.put(task{
		run: func(t *term) {
			f(t.machine, s.o.Clock.Now())
			sh.whenDurable(func() { done <- nil }, gone)
		},
		gone: gone,
	})
	select {
	case err := <-done:
		return err
	case <-sh.ctx.Done():
		return errNotCoordinator
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Service) describe(ctx context.Context, who Caller, req *wire.DescribeGlobalTransactionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*wire.DescribeGlobalTransactionsResponse)
	refused := tooMany("ids", req.GlobalTransactionalIDs)
	for _, id := range req.GlobalTransactionalIDs {
		one := wire.NewDescribeGlobalTransactionsResponseGlobalTransaction()
		switch {
		case !s.allows(who, RightDescribe, id):
			one.ErrorCode, one.ErrorMessage = kerr.TransactionalIDAuthorizationFailed.Code, text(lacks(who, RightDescribe, id))
		case refused != nil:
			one.ErrorCode, one.ErrorMessage = kerr.InvalidRequest.Code, refused
		default:
			one = s.describeOne(ctx, id)
		}
		one.GlobalTransactionalID = id
		resp.GlobalTransactions = append(resp.GlobalTransactions, one)
	}
	return resp
}

func (s *Service) describeOne(ctx context.Context, id string) wire.DescribeGlobalTransactionsResponseGlobalTransaction {
	one := wire.NewDescribeGlobalTransactionsResponseGlobalTransaction()
	sh, err := s.shardFor(id)
	if err == nil {
		// The shard may come to it when this request has given up, so what it
		// fills is read only if query says that it has.
		seen := one
		err = s.query(ctx, sh, func(m *gtc.Machine, now gtc.Time) {
			d, ok := m.Describe(now, id)
			if !ok {
				seen.ErrorCode = kerr.TransactionalIDNotFound.Code
				return
			}
			fillDescription(&seen, d)
		})
		if err == nil {
			return seen
		}
	}
	one.ErrorCode, one.ErrorMessage = errorCode(err)
	return one
}

func fillDescription(one *wire.DescribeGlobalTransactionsResponseGlobalTransaction, d gtc.Description) {
	v := d.Value
	one.State = string(d.State)
	one.GlobalEpoch, one.Sequence, one.TimeoutMillis = v.GlobalEpoch, v.Sequence, v.TimeoutMillis
	one.SessionEnded, one.ClusterIDs = v.SessionEnded, v.ClusterIDs
	one.DecisionTimestampMillis, one.UpdateTimestampMillis = v.DecidedMillis, v.UpdatedMillis
	one.Reason = text(v.Reason)
	for _, p := range d.Participants {
		detail := p.Detail
		if p.Leftover {
			detail = wire.LeftoverMessage + detail
		}
		one.Participants = append(one.Participants, wire.DescribeGlobalTransactionsResponseGlobalTransactionParticipant{
			ClusterID: p.ClusterID, ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch,
			State: int8(p.State), OpenSinceMillis: p.AgeMillis, Message: text(detail),
		})
	}
}

// list answers for the ids of this node; like ListTransactions it must be sent
// to every coordinator to see all, and leaves out in silence what the caller may
// not look at. Nothing is matched with a pattern that the caller may not see:
// the time that it takes would tell what is there. And only what needs a shard
// runs on its loop, which serves everybody.
func (s *Service) list(ctx context.Context, who Caller, req *wire.ListGlobalTransactionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*wire.ListGlobalTransactionsResponse)
	match, err := newFilter(req)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = kerr.InvalidRegularExpression.Code, text(err.Error())
		return resp
	}
	resp.UnknownStateFilters = match.unknown
	shards, err := s.allOwned()
	slices.SortFunc(shards, func(a, b *shard) int { return int(a.partition - b.partition) })
	for _, sh := range shards {
		if err != nil {
			break
		}
		var found []wire.ListGlobalTransactionsResponseGlobalTransaction
		found, err = s.listShard(ctx, who, sh, match)
		resp.GlobalTransactions = append(resp.GlobalTransactions, found...)
	}
	if err != nil {
		// A list with a hole in it would read as "nothing is pending".
		resp.ErrorCode, resp.ErrorMessage = errorCode(err)
		resp.GlobalTransactions = nil
	}
	return resp
}

// lookedAtOnce is how many ids are looked at before the shard goes on with other
// requests.
const lookedAtOnce = 1000

func (s *Service) listShard(ctx context.Context, who Caller, sh *shard, match filter) ([]wire.ListGlobalTransactionsResponseGlobalTransaction, error) {
	var ids []string
	if err := s.query(ctx, sh, func(m *gtc.Machine, _ gtc.Time) { ids = m.IDs() }); err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !s.allows(who, RightDescribe, id) })
	ids, err := pattern.Filter(ctx, match.pattern, ids, func(id string) string { return id })
	if err != nil {
		return nil, err
	}
	slices.Sort(ids)
	var all []wire.ListGlobalTransactionsResponseGlobalTransaction
	for some := range slices.Chunk(ids, lookedAtOnce) {
		// As in describeOne, what the shard fills is read only if query says so.
		var found []wire.ListGlobalTransactionsResponseGlobalTransaction
		err := s.query(ctx, sh, func(m *gtc.Machine, now gtc.Time) {
			for _, id := range some {
				if d, ok := m.Describe(now, id); ok && match.accepts(d) {
					found = append(found, listed(d))
				}
			}
		})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// allOwned are the partitions of this node. It is an error while a partition has
// no owner that this node knows of, or is this node's and not begun here. Whoever
// asks all nodes then gets no list of its ids from any, which would read as "nothing
// is pending". Own partitions are looked at first: one that comes in between the two
// looks would be missing in both.
func (s *Service) allOwned() ([]*shard, error) {
	shards := s.owned()
	if s.o.Membership == nil {
		return shards, nil
	}
	begun := map[int32]bool{}
	for _, sh := range shards {
		begun[sh.partition] = true
	}
	for p := range s.o.Log.Partitions() {
		switch n, known := s.o.Membership.Owner(p); {
		case !known:
			return nil, errNoOwner
		case n.ID == s.o.NodeID && !begun[p]:
			return nil, errLoading
		}
	}
	return shards, nil
}

func listed(d gtc.Description) wire.ListGlobalTransactionsResponseGlobalTransaction {
	one := wire.NewListGlobalTransactionsResponseGlobalTransaction()
	one.GlobalTransactionalID, one.State = d.ID, string(d.State)
	one.GlobalEpoch, one.Sequence = d.Value.GlobalEpoch, d.Value.Sequence
	one.AgeMillis, one.Heuristic = d.AgeMillis, d.Heuristic
	for _, p := range d.Participants {
		if p.State == txnlog.ParticipantPending && d.State != gtc.NameOngoing {
			one.PendingClusterIDs = append(one.PendingClusterIDs, p.ClusterID)
		}
	}
	return one
}

type filter struct {
	states    []string
	unknown   []string
	pattern   *pattern.Pattern // of the ids
	older     int64
	heuristic bool
}

func newFilter(req *wire.ListGlobalTransactionsRequest) (filter, error) {
	f := filter{older: req.DurationFilterMillis, heuristic: req.HeuristicOnly}
	names := gtc.StateNames()
	for _, s := range req.StateFilters {
		if slices.Contains(names, gtc.StateName(s)) {
			f.states = append(f.states, s)
		} else {
			f.unknown = append(f.unknown, s)
		}
	}
	if len(req.StateFilters) > 0 && f.states == nil {
		f.states = []string{} // only unknown names: nothing matches, as in ListTransactions
	}
	if req.PatternFilter == nil || *req.PatternFilter == "" {
		return f, nil
	}
	var err error
	f.pattern, err = pattern.Compile(*req.PatternFilter)
	return f, err
}

// accepts says what is listed of the ids that match the pattern.
func (f filter) accepts(d gtc.Description) bool {
	return (f.states == nil || slices.Contains(f.states, string(d.State))) &&
		(f.older < 0 || d.AgeMillis >= f.older) &&
		(!f.heuristic || d.Heuristic)
}
