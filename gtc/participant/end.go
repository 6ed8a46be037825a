package participant

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// End tells the cluster to end one participant transaction and says what came
// of it. It names the producer id and epoch, always (R2), and is safe to call
// again until the outcome is not gtc.EndRetry.
//
// EndDone means that the end is durable on the cluster and cannot turn out
// otherwise; readers see it once the cluster has written its markers, usually
// a few milliseconds later.
//
// InitProducerId with the expected producer id and epoch would be another way
// to end and fence in one on transaction.version 1. It is not used, because
// Kafka compares the expected epoch only when nothing is open: one that arrives
// late aborts the open transaction of a later epoch (measured on 4.4.0 at
// transaction.version 1 and 2, and on 3.9.1). EndTxn v4 leaves a dead client's
// epoch valid, but its session has ended at the coordinator, so what it still
// writes can only be aborted by the next scan.
//
// e.OnePhase says that the participant is the only one and its answer the outcome
// (R5). Its commit needs no record, so a coordinator that died may have sent one
// before an abort is asked: what does not prove the abort is not taken for it.
// Below EndTxn v5 a one-phase commit is sent only when it is fenced
// (gtc.EndUnfenced).
func (c *Clusters) End(ctx context.Context, e gtc.EndTxn) gtc.EndAnswer {
	id, p := e.ID, e.Participant
	ref := gtc.ParticipantRef{ClusterID: p.ClusterID, ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch}
	cl, err := c.lookup(ctx, p.ClusterID)
	if err != nil {
		return again(p.EndTxnVersion, "%v", err)
	}
	at := cl.attempts.begin(keyOf(id, ref))
	if at == nil {
		return again(p.EndTxnVersion, "an earlier EndTxn of this participant is still in flight")
	}
	ans := (&ender{c: cl, id: id, p: p, commit: e.Commit, sole: e.OnePhase, fenced: e.Fenced, attempt: at}).end(ctx)
	cl.attempts.finish(keyOf(id, ref), at, ans.Outcome != gtc.EndRetry && ans.Outcome != gtc.EndUnfenced)
	if ans.Outcome == gtc.EndRetry && ans.Detail != "" {
		cl.log.Debug().Str("transactional.id", id).Bool("commit", e.Commit).Bool("one.phase", e.OnePhase).Str("reason", ans.Detail).Msg("EndTxn will be repeated")
	}
	return ans
}

// ender carries one End out.
type ender struct {
	c       *cluster
	id      string
	p       txnlog.Participant
	commit  bool
	sole    bool // the only participant
	fenced  bool // see gtc.EndTxn
	attempt *attempt
	version int16 // chosen by the first step when the record names none
}

// again is the answer that proves nothing.
func again(version int16, format string, args ...any) gtc.EndAnswer {
	return gtc.EndAnswer{
		Outcome: gtc.EndRetry, NextProducerID: -1, NextProducerEpoch: -1,
		EndTxnVersion: version, Detail: fmt.Sprintf(format, args...),
	}
}

func (e *ender) again(format string, args ...any) gtc.EndAnswer {
	return again(e.version, format, args...)
}

func (e *ender) end(ctx context.Context) gtc.EndAnswer {
	e.version = e.p.EndTxnVersion
	s, err := e.c.endSession(ctx, e.id)
	if err != nil {
		return e.again("cluster %q: %v", e.c.cfg.Alias, err)
	}
	ans, fatal := e.ask(ctx, s)
	if !fatal {
		return ans
	}
	// A deposed transaction coordinator answers from its cache of before until
	// it learns. Only what is answered after a new look-up, over connections
	// that the old answer cannot have come from, is believed.
	fresh, err := e.c.dial(ctx)
	if err != nil {
		return e.again("%s; asking again: %v", ans.Detail, err)
	}
	defer fresh.close()
	if ans, fatal = e.ask(ctx, fresh); !fatal {
		return ans
	}
	seen, _, err := fresh.describe(ctx, e.id)
	if err != nil {
		return e.again("%s; looking at its state: %v", ans.Detail, err)
	}
	if got, ok := e.conclude(seen); ok {
		return got
	}
	return e.prove(ctx, fresh, seen)
}

// ask sends EndTxn once. fatal says that the answer, which then is no outcome
// yet, needs proof.
func (e *ender) ask(ctx context.Context, s *session) (ans gtc.EndAnswer, fatal bool) {
	node, err := s.coordinator(ctx, e.id)
	if err != nil {
		return e.again("%v", err), false
	}
	info, err := s.verify(ctx, node)
	if err != nil {
		s.moved(e.id)
		return e.again("%v", err), false
	}
	if e.version == 0 {
		e.version = info.endTxnVersion()
	}
	if info.endTxnMax < e.version {
		return e.again("broker %d knows EndTxn up to version %d, and version %d is needed", node, info.endTxnMax, e.version), false
	}
	if e.version < endTxnBumps && e.sole && e.commit && !e.fenced {
		ans = e.again("EndTxn v%d does not name a single transaction", e.version)
		ans.Outcome = gtc.EndUnfenced
		return ans, false
	}
	if e.version < endTxnBumps && (e.attempt.sent || e.attempt.uncertain) {
		// An earlier end may have taken effect, and the producer may have
		// begun its next transaction under the same epoch: EndTxn v4 would
		// end that one (measured). Case: the record that says "complete" was
		// lost with the coordinator while the next transaction is open.
		if ans, ok, fatal := e.lookFirst(ctx, s); !ok {
			return ans, fatal
		}
	}
	return e.send(ctx, s, node)
}

// lookFirst makes sure that what is open is the transaction decided about. ok
// means that EndTxn may be sent.
func (e *ender) lookFirst(ctx context.Context, s *session) (ans gtc.EndAnswer, ok, fatal bool) {
	seen, _, err := s.describe(ctx, e.id)
	if err != nil {
		return e.again("looking at its state: %v", err), false, false
	}
	switch seen.outcome(e.p, e.version, e.sole) {
	case stillOpen:
		return gtc.EndAnswer{}, true, false
	case ending:
		return e.again("its end is being carried out (%v)", seen), false, false
	case committed, aborted: // final, so true even from a stale cache
		ans, _ = e.conclude(seen)
		return ans, false, false
	case movedOn, neverBegun:
		return e.again("not open (%v)", seen), false, true
	}
	return e.again("not open (%v)", seen), false, true
}

func (e *ender) send(ctx context.Context, s *session, node int32) (ans gtc.EndAnswer, fatal bool) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID = e.id
	req.ProducerID, req.ProducerEpoch = e.p.ProducerID, e.p.ProducerEpoch
	req.Commit = e.commit
	once := pin(req, e.version)
	resp, err := ask[*kmsg.EndTxnResponse](ctx, s, node, once)
	e.attempt.sent = true
	if err != nil {
		s.moved(e.id)
		ans = e.again("%v", err)
		if ans.Uncertain = once.mayHaveLeft(); ans.Uncertain {
			e.attempt.uncertain = true
		}
		return ans, false
	}
	s.c.note(nil)
	code := kerr.ErrorForCode(resp.ErrorCode)
	switch v := verdictOf(resp.ErrorCode, e.version, e.commit); v {
	case Done:
		ans = gtc.EndAnswer{Outcome: gtc.EndDone, EndTxnVersion: e.version}
		ans.NextProducerID, ans.NextProducerEpoch = e.next(resp.ProducerID, resp.ProducerEpoch)
		return ans, false
	case Prove:
		return e.again("EndTxn: %v", code), true
	case Alarm:
		return e.again("operator: cluster %q refuses EndTxn of transactional id %q: %v", e.c.cfg.Alias, e.id, code), false
	case Retry:
		if !errors.Is(code, kerr.ConcurrentTransactions) {
			s.moved(e.id)
		}
		return e.again("EndTxn: %v", code), false
	default:
		return e.again("EndTxn: %v", code), false
	}
}

// next is what the client goes on with after an end that left the cluster at
// the producer id and epoch given.
func (e *ender) next(producerID int64, epoch int16) (int64, int16) {
	switch {
	case e.version < endTxnBumps:
		// The epoch stays, so a copy of the request that is still on its way
		// would end the client's next transaction (measured). An epoch of its
		// own makes the copy harmless.
		if e.attempt.uncertain {
			return -1, -1
		}
		return e.p.ProducerID, e.p.ProducerEpoch
	case producerID < 0 || epoch < 0 || epoch > lastEpoch:
		return -1, -1
	default:
		return producerID, epoch
	}
}

// conclude turns what the state proves into an answer; ok is false when it
// proves nothing.
func (e *ender) conclude(seen view) (ans gtc.EndAnswer, ok bool) {
	switch seen.outcome(e.p, e.version, e.sole) {
	case stillOpen:
		// The broker has just said that it is not: one of the two is stale.
		return e.again("contradictory: refused, and yet open (%v)", seen), true
	case ending:
		return e.again("its end is being carried out (%v)", seen), true
	case neverBegun:
		ans = gtc.EndAnswer{Outcome: gtc.EndDone, Detail: fmt.Sprintf("nothing was written (%v)", seen)}
	case committed:
		ans = e.ended(true, seen.String())
	case aborted:
		ans = e.ended(false, seen.String())
	case movedOn:
		return gtc.EndAnswer{}, false
	}
	ans.EndTxnVersion = e.version
	ans.NextProducerID, ans.NextProducerEpoch = -1, -1
	if e.version >= endTxnBumps || seen.producerEpoch == e.p.ProducerEpoch {
		ans.NextProducerID, ans.NextProducerEpoch = e.next(seen.producerID, seen.producerEpoch)
	}
	return ans, true
}

// ended compares how it ended with what was asked.
func (e *ender) ended(commit bool, how string) gtc.EndAnswer {
	ans := gtc.EndAnswer{Outcome: gtc.EndDone, EndTxnVersion: e.version, NextProducerID: -1, NextProducerEpoch: -1}
	if commit == e.commit {
		return ans
	}
	ans.Outcome, ans.Detail = gtc.EndAborted, "aborted although commit was decided: "+how
	if commit {
		ans.Outcome, ans.Detail = gtc.EndCommitted, "committed although abort was decided: "+how
	}
	return ans
}

// prove settles, by the control markers, what the state no longer tells.
func (e *ender) prove(ctx context.Context, s *session, seen view) gtc.EndAnswer {
	if !seenOpen(e.p) {
		if !e.commit && (!e.sole || seen.state == "") {
			// Abort of what was never seen open. Nobody who keeps to the
			// protocol has sent its commit, and there is nothing to look at.
			// (Of an only participant that holds where the cluster does not
			// know the id: a commit is remembered for seven days.)
			return gtc.EndAnswer{
				Outcome: gtc.EndDone, EndTxnVersion: e.version, NextProducerID: -1, NextProducerEpoch: -1,
				Detail: fmt.Sprintf("not there any more, and never seen open (%v)", seen),
			}
		}
		return e.unknown("%v; it was never seen open, so no control marker can tell", seen)
	}
	how, err := s.audit(ctx, e.p, e.version)
	where := fmt.Sprintf("control marker in %s-%d", e.p.AuditTopic, e.p.AuditPartition)
	switch {
	case err == nil && how == committed:
		return e.ended(true, where)
	case err == nil && how == aborted:
		return e.ended(false, where)
	case err != nil && !errors.Is(err, errNoMarker):
		return e.again("%v; audit of %s-%d: %v", seen, e.p.AuditTopic, e.p.AuditPartition, err)
	}
	// A new leader may not know yet up to where its log is safe to read, and
	// new topics are not known everywhere: not found once is not found.
	if e.attempt.misses++; e.attempt.misses < auditTries {
		return e.again("%v; audit of %s-%d: %v; trying again", seen, e.p.AuditTopic, e.p.AuditPartition, err)
	}
	return e.unknown("%v; audit of %s-%d: %v", seen, e.p.AuditTopic, e.p.AuditPartition, err)
}

func (e *ender) unknown(format string, args ...any) gtc.EndAnswer {
	ans := e.again(format, args...)
	ans.Outcome = gtc.EndUnknown
	return ans
}
