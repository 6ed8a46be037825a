package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Commit makes the transaction visible on all clusters that were written to, or
// on none. It waits for every record, asks the coordinator, and asks again
// until the outcome is known or ctx ends.
//
// A nil error means committed, for good. Result.Pending names the clusters that
// have not ended it yet, because they are away; Wait waits for them, and
// WaitVisible until readers see it.
// The errors:
//
//   - *AbortedError: nothing is visible, and nothing will be.
//   - *UnknownOutcomeError: call Commit again, or Abort. It is not an abort.
//   - *HeuristicError: a cluster ended against the decision.
//   - *FencedError: another client has the id; the outcome is not known here.
//
// Called again, Commit gives the same answer. A transaction without records
// commits without a request. With Options.VerifyCommits a committed transaction
// is waited for and looked at as by WaitVisible, whose errors say that it is
// committed all the same.
func (t *Txn) Commit(ctx context.Context) (Result, error) {
	r, err := t.commit(ctx)
	if err != nil || !t.session.verifyCommits {
		return r, err
	}
	return t.WaitVisible(ctx)
}

func (t *Txn) commit(ctx context.Context) (Result, error) {
	if r, done, err := t.turn(ctx, t.commitError); done {
		return r, err
	}
	defer t.lock.release()
	if t.asked.Load() == nil {
		if err := t.prepare(ctx); err != nil {
			return t.notPrepared(ctx, err)
		}
		if len(t.parts()) == 0 {
			t.know(Result{Outcome: OutcomeCommitted})
			return t.result, nil
		}
		t.asked.Store(&question{request: t.request()})
	}
	if err := t.ask(ctx, true); err != nil {
		return t.result, err
	}
	return t.result, t.commitError()
}

// Abort undoes the transaction. If commit was not asked for before, this client
// ends it on its own producers, without the coordinator, and the outcome is
// aborted whatever happens: clusters that could not be told are pending, and
// the coordinator ends the transaction there after its timeout. If commit was
// asked for, the coordinator decides, and Abort returns ErrCommitted when
// commit has won. Other errors are as Commit's; a *HeuristicError without the
// coordinator says that somebody else has committed it on a cluster before.
func (t *Txn) Abort(ctx context.Context) (Result, error) {
	if r, done, err := t.turn(ctx, t.abortError); done {
		return r, err
	}
	defer t.lock.release()
	if t.asked.Load() == nil {
		t.abortLocally(ctx, ErrAborted)
		return t.result, t.abortError()
	}
	if err := t.ask(ctx, false); err != nil {
		return t.result, err
	}
	return t.result, t.abortError()
}

// Wait waits until every cluster has ended the transaction as decided: the
// outcome is durable there, and readers see it once the cluster has written its
// markers (WaitVisible). Its error is a
// *PendingError when ctx ends before that, and otherwise as Commit's; a
// transaction that aborted is no error.
func (t *Txn) Wait(ctx context.Context) (Result, error) {
	if err := t.lock.acquire(ctx); err != nil {
		return t.notTurn(err, Result.Pending)
	}
	defer t.lock.release()
	return t.result, t.wait(ctx)
}

func (t *Txn) wait(ctx context.Context) error {
	switch {
	case t.known:
	case t.lost != nil:
		return t.lost
	default:
		return &UnknownOutcomeError{Asked: t.asked.Load().mayHaveLeft(), Err: errors.New("call Commit or Abort first")}
	}
	backoff := t.session.coord.backoffMin
	for t.asked.Load() != nil && len(t.result.Pending()) > 0 {
		pending := &PendingError{Outcome: t.result.Outcome, Clusters: t.result.Pending()}
		err := t.lost
		if err == nil {
			err = pause(ctx, backoff)
		}
		if err == nil {
			err = t.ask(ctx, t.result.Outcome == OutcomeCommitted)
		}
		if err != nil {
			pending.Err = err
			return pending
		}
		backoff = min(2*backoff, t.session.coord.backoffMax)
	}
	return t.result.heuristicError()
}

// turn waits for the calls before this one. done says that there is nothing to
// do, and err is what the caller gets; otherwise the lock is the caller's.
func (t *Txn) turn(ctx context.Context, verdict func() error) (r Result, done bool, err error) {
	if r, done, err = t.finished(verdict); done {
		return r, true, err
	}
	locked := t.lock.acquire(ctx)
	if r, done, err = t.finished(verdict); done && locked == nil {
		t.lock.release()
	}
	if locked != nil && !done {
		return Result{}, true, t.busy(locked)
	}
	return r, done, err
}

// notTurn is the answer to a wait that another call has held up: left says on
// which clusters the caller waits for it.
func (t *Txn) notTurn(err error, left func(Result) []string) (Result, error) {
	r, done, lost := t.finished(func() error { return nil })
	switch {
	case !done:
		return Result{}, t.busy(err)
	case lost != nil:
		return r, lost
	case len(left(r)) == 0:
		return r, r.heuristicError()
	}
	return r, &PendingError{Outcome: r.Outcome, Clusters: left(r), Err: err}
}

// busy says what was known when the context of a call ended that another one
// kept waiting.
func (t *Txn) busy(err error) error {
	return &UnknownOutcomeError{
		Asked: t.asked.Load().mayHaveLeft(),
		Err:   fmt.Errorf("another call about it is under way: %w", err),
	}
}

// finished reports whether there is nothing to do any more, with the error that
// the caller gets for it. What was told once stays, also when the coordinator
// has refused to say it again (Wait asks again, another client may have come).
func (t *Txn) finished(verdict func() error) (Result, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.known:
		return t.result, true, verdict()
	case t.lost != nil:
		return t.result, true, t.lost
	}
	return Result{}, false, nil
}

func (t *Txn) commitError() error {
	if t.cause != nil && !t.result.heuristic() {
		return &AbortedError{Cause: t.cause}
	}
	return t.result.commitError()
}

func (t *Txn) abortError() error { return t.result.abortError() }

// prepare makes every participant prepared: everything is written and nothing
// more will be. kgo's Flush is nil also when records failed, so the records'
// own results count.
func (t *Txn) prepare(ctx context.Context) error {
	t.seal()
	if err := t.flush(ctx, func(cl *kgo.Client) error { return cl.Flush(ctx) }); err != nil {
		return err
	}
	if err := t.firstFailure(); err != nil {
		return &unfitError{err}
	}
	if err := inParallel(t.parts(), func(p *participant) error { return p.verify(ctx) }); err != nil {
		return err
	}
	return t.inOrder(ctx)
}

// inOrder waits for the outcome of the transaction before. Otherwise a slow or
// repeated request would let a later transaction commit and an earlier one
// abort: of a group's offsets the later ones would then skip records.
func (t *Txn) inOrder(ctx context.Context) error {
	if t.before == nil {
		return nil
	}
	select {
	case <-t.before.decided:
	case <-ctx.Done():
		return fmt.Errorf("the transaction before has no outcome yet: %w", context.Cause(ctx))
	}
	if Outcome(t.before.outcome.Load()) != OutcomeCommitted {
		return &unfitError{ErrBefore}
	}
	t.before = nil
	return nil
}

// notPrepared aborts everywhere, or leaves the transaction open when only the
// time was too short.
func (t *Txn) notPrepared(ctx context.Context, err error) (Result, error) {
	if unfit, ok := errors.AsType[*unfitError](err); ok {
		t.abortLocally(ctx, unfit.cause)
	} else if producer, ok := errors.AsType[*ProducerError](err); ok {
		t.abortLocally(ctx, producer)
	} else {
		return Result{}, &UnknownOutcomeError{Err: err}
	}
	return t.result, t.commitError()
}

// unfitError carries what rules a commit out: a record or an offset that failed.
type unfitError struct{ cause error }

func (e *unfitError) Error() string { return e.cause.Error() }

// abortLocally ends the transaction on this client's own producers. No commit
// of it can be decided any more, because only this client could ask for it, so
// the outcome does not depend on whether the clusters can be told.
func (t *Txn) abortLocally(ctx context.Context, cause error) {
	t.seal()
	parts := t.parts()
	t.knowAborted(cause, parts) // which gives up what is being prepared
	flushErr := t.flush(ctx, func(cl *kgo.Client) error { return cl.AbortBufferedRecords(ctx) })
	_ = t.session.preparing.acquire(context.Background()) // until that has ended
	t.session.preparing.release()
	errs := allErrors(parts, func(p *participant) error {
		switch {
		case p.stale.Load():
			return nil // it has not become ready, so there is nothing of it
		case flushErr != nil:
			p.stale.Store(true) // a record may still be under way
			return flushErr
		}
		return p.abort(ctx)
	})
	result := Result{Outcome: OutcomeAborted}
	for i, p := range parts {
		r := ParticipantResult{Cluster: p.name, ClusterID: p.clusterID, State: ParticipantComplete}
		switch {
		case errors.Is(errs[i], errEndedOtherwise):
			r.State, r.Message = ParticipantHeuristicCommit, errs[i].Error()
		case errs[i] != nil:
			r.State, r.Message = ParticipantPending, errs[i].Error()
		}
		result.Participants = append(result.Participants, r)
	}
	t.know(result)
}

// knowAborted keeps an abort of this client's own, before a cluster is told.
func (t *Txn) knowAborted(cause error, parts []*participant) {
	result := Result{Outcome: OutcomeAborted}
	for _, p := range parts {
		result.Participants = append(result.Participants,
			ParticipantResult{Cluster: p.name, ClusterID: p.clusterID, Message: "it is being told"})
	}
	t.mu.Lock()
	t.cause = cause
	t.mu.Unlock()
	t.know(result)
}

// request is what the coordinator is asked, now and in every repeat.
func (t *Txn) request() *wire.EndGlobalTxnRequest {
	req := wire.NewPtrEndGlobalTxnRequest()
	req.GlobalTransactionalID = t.session.id
	req.GlobalEpoch = t.session.epoch
	req.Sequence = t.session.sequence
	for _, p := range t.parts() {
		req.Participants = append(req.Participants, wire.EndGlobalTxnRequestParticipant{
			ClusterID: p.clusterID, ProducerID: p.producerID, ProducerEpoch: p.producerEpoch,
		})
	}
	return req
}

// ask asks the coordinator until it knows the outcome. Of an outcome that is
// known already the error says why nothing more is.
func (t *Txn) ask(ctx context.Context, commit bool) error {
	q := t.asked.Load()
	err := t.session.coord.ask(ctx, func(ctx context.Context, node kmsg.Requestor) error {
		hold := t.session.coord.hold(ctx)
		ctx, cancel := context.WithTimeout(ctx, hold+answerGrace)
		defer cancel()
		resp, err := q.with(ctx, node, commit, int32(hold.Milliseconds()))
		if err != nil {
			return err
		}
		return t.answered(resp)
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.ProducerFenced):
		t.session.fenced = &FencedError{Err: err}
		return t.lose(t.session.fenced)
	case errors.Is(err, kerr.TransactionalIDNotFound), errors.Is(err, wire.GlobalTransactionTooOld):
		if !t.known {
			err = &UnknownOutcomeError{Asked: true, Final: true, Err: err}
		}
		return t.lose(err)
	case t.known:
		return err
	case q.withdraw():
		t.asked.Store(nil)
		return &UnknownOutcomeError{Err: err}
	}
	return &UnknownOutcomeError{Asked: true, Err: err}
}

// hold is how long the coordinator may keep an answer back: it should say what
// it knows before the caller stops listening.
func (c *coordinator) hold(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return c.askTimeout
	}
	left := time.Until(deadline)
	return max(time.Millisecond, min(c.askTimeout, left-left/5))
}

// answered keeps what an answer says of the outcome.
func (t *Txn) answered(resp *wire.EndGlobalTxnResponse) error {
	err := answerError(resp.ErrorCode, resp.ErrorMessage)
	outcome := Outcome(resp.Outcome)
	decided := outcome == OutcomeCommitted || outcome == OutcomeAborted
	// A heuristic outcome of this transaction lists its participants; without
	// them it is the refusal of a transaction before, which an operator has
	// not yet told the coordinator to forget. With a single participant, whose
	// answer is the outcome (R5), the decision may be unknown too.
	mixed := errors.Is(err, wire.HeuristicOutcome) && len(resp.Participants) > 0
	switch {
	case err == nil && !decided:
		return errUndecided
	case err != nil && !mixed:
		return err
	}
	result := Result{Outcome: outcome, mixed: mixed}
	if outcome == OutcomeAborted && resp.ErrorMessage != nil {
		result.Reason = *resp.ErrorMessage
	}
	for i, p := range t.session.participants {
		if !t.touched[i].Load() {
			continue
		}
		r := ParticipantResult{Cluster: p.name, ClusterID: p.clusterID}
		next := find(resp.Participants, p.clusterID)
		if next == nil {
			return &ParticipantError{Cluster: p.name, Err: errOmitted}
		}
		r.State = ParticipantState(next.State)
		if next.Message != nil {
			r.Message = *next.Message
		}
		t.next[i] = next
		result.Participants = append(result.Participants, r)
	}
	t.know(result)
	return nil
}

// settle takes the producers past the transaction, so that the next one can
// begin: kgo goes on from the coordinator's end of it, and a producer that
// cannot is to be initialised again.
func (t *Txn) settle(ctx context.Context) error {
	switch {
	case t.lost != nil:
		t.session.lost = true
		for _, p := range t.parts() {
			p.stale.Store(true)
		}
	case !t.known:
		return ErrTxnOpen
	case t.asked.Load() != nil:
		if t.result.heuristic() {
			// The coordinator takes no next transaction until an operator
			// has mended this one.
			if err := t.ask(ctx, t.result.Outcome == OutcomeCommitted); err != nil {
				return fmt.Errorf("%w; whether an operator has forgotten it is not known: %w", &HeuristicError{Result: t.result}, err)
			}
		}
		// An abort need not be waited for: a producer that is initialised
		// again aborts what is left, and InitGlobalTxn before it waits as
		// long as must be. A session that ended by its timeout answers
		// "aborted, pending" for ever, until it is initialised again.
		if t.result.Outcome != OutcomeAborted || t.result.heuristic() {
			if err := t.wait(ctx); err != nil {
				return err
			}
		}
		for i, p := range t.session.participants {
			if t.touched[i].Load() {
				p.adopt(ctx, t.result.Outcome == OutcomeCommitted, t.next[i].ProducerID, t.next[i].ProducerEpoch)
			}
		}
		t.session.sequence = t.asked.Load().request.Sequence + 1
		t.asked.Store(nil) // under another session it would be refused, and that session be taken for fenced
	}
	for _, p := range t.session.participants {
		p.leave(ctx)
	}
	return nil
}

// discard ends the transaction when the client closes.
func (t *Txn) discard(ctx context.Context) error {
	if _, done, err := t.turn(ctx, func() error { return nil }); done {
		if t.isDecided() {
			return nil
		}
		return err
	}
	defer t.lock.release()
	if t.asked.Load() != nil {
		return nil
	}
	t.abortLocally(ctx, ErrClosed)
	if pending := t.result.Pending(); len(pending) > 0 {
		return &PendingError{Outcome: OutcomeAborted, Clusters: pending, Err: errors.New(t.result.message())}
	}
	return nil
}

func find(ps []wire.EndGlobalTxnResponseParticipant, clusterID string) *wire.EndGlobalTxnResponseParticipant {
	i := slices.IndexFunc(ps, func(p wire.EndGlobalTxnResponseParticipant) bool { return p.ClusterID == clusterID })
	if i < 0 {
		return nil
	}
	return &ps[i]
}
