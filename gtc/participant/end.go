package participant

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
	"github.com/kafka-gtc/kafka-gtc/wire"
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
	ans := (&ender{c: cl, order: e, verdict: verdict.NewEnding(e, &at.Attempt)}).end(ctx)
	cl.attempts.finish(keyOf(id, ref), at, ans.Outcome != gtc.EndRetry && ans.Outcome != gtc.EndUnfenced)
	if ans.Outcome == gtc.EndRetry && ans.Detail != "" {
		cl.log.Debug().Str("transactional.id", id).Bool("commit", e.Commit).Bool("one.phase", e.OnePhase).Str("reason", ans.Detail).Msg("EndTxn will be repeated")
	}
	return ans
}

// again is the answer that proves nothing.
func again(version int16, format string, args ...any) gtc.EndAnswer {
	return gtc.EndAnswer{
		Outcome: gtc.EndRetry, NextProducerID: -1, NextProducerEpoch: -1,
		EndTxnVersion: version, Detail: fmt.Sprintf(format, args...),
	}
}

// ender carries one End out: it asks what the verdict wants to know.
type ender struct {
	c       *cluster
	order   gtc.EndTxn
	verdict *verdict.Ending
	s       *session
	own     *session // of this end alone, nil when it needs none
	node    int32    // the transaction coordinator, whom all is asked
}

func (e *ender) end(ctx context.Context) gtc.EndAnswer {
	defer func() {
		if e.own != nil {
			e.own.close()
		}
	}()
	for {
		switch ask := e.verdict.Next(); ask {
		case verdict.AskNothing:
			return e.verdict.Answer()
		case verdict.AskBroker, verdict.AskBrokerAnew:
			if err := e.connect(ctx, ask == verdict.AskBrokerAnew); err != nil {
				e.verdict.Failed(fmt.Errorf("cluster %q: %w", e.c.cfg.Alias, err))
			}
		case verdict.AskState:
			// By the broker that EndTxn goes to, on its connection. Counter-example
			// to looking it up once more: a scan has found the id listed elsewhere
			// meanwhile, a deposed coordinator shows the transaction open that has
			// ended long ago, and EndTxn v4 goes to the other one, which ends the
			// client's next.
			seen, _, err := e.s.describeBy(ctx, e.node, e.order.ID)
			if err != nil {
				e.verdict.Failed(fmt.Errorf("looking at its state: %w", err))
			} else {
				e.verdict.Seen(seen)
			}
		case verdict.AskEnd:
			e.send(ctx)
		case verdict.AskPair:
			e.keep(ctx)
		case verdict.AskMarkers:
			e.verdict.Audited(e.s.audit(ctx, e.order.Participant, e.verdict.Version()))
		}
	}
}

// connect finds the transaction coordinator and what it knows.
func (e *ender) connect(ctx context.Context, anew bool) (err error) {
	if anew {
		e.own, err = e.c.dial(ctx)
		e.s = e.own
	} else {
		e.s, err = e.c.endSession(ctx, e.order.ID)
	}
	if err != nil {
		return err
	}
	if e.node, err = e.s.coordinator(ctx, e.order.ID); err != nil {
		return err
	}
	info, err := e.s.verify(ctx, e.node)
	if err != nil {
		e.s.moved(e.order.ID)
		return err
	}
	e.verdict.Connected(e.node, info.endTxnVersion(), info.endTxnMax, info.keeps)
	return nil
}

func (e *ender) send(ctx context.Context) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID = e.order.ID
	by := e.verdict.Pair()
	req.ProducerID, req.ProducerEpoch = by.ProducerID, by.ProducerEpoch
	req.Commit = e.order.Commit
	once := pin(req, e.verdict.Version())
	resp, err := ask[*kmsg.EndTxnResponse](ctx, e.s, e.node, once)
	if err != nil {
		e.s.moved(e.order.ID)
		e.verdict.Lost(err, once.mayHaveLeft())
		return
	}
	e.s.c.note(nil)
	e.verdict.Answered(resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch)
	if resp.ErrorCode != 0 && resp.ErrorCode != kerr.ConcurrentTransactions.Code {
		e.s.moved(e.order.ID)
	}
}

// keep takes the open transaction over: it stays open, its producer is fenced, and
// the pair that comes back ends it.
func (e *ender) keep(ctx context.Context) {
	req := wire.NewPtrInitProducerIDRequestV6()
	req.TransactionalID = &e.order.ID
	req.TransactionTimeoutMillis, req.Enable2PC, req.KeepPreparedTxn = verdict.Unlimited, true, true
	resp, err := ask[*wire.InitProducerIDResponseV6](ctx, e.s, e.node, req)
	if err != nil {
		e.s.moved(e.order.ID)
		e.verdict.Failed(err)
		return
	}
	e.verdict.Kept(resp.ErrorCode,
		verdict.Pair{ProducerID: resp.ProducerID, ProducerEpoch: resp.ProducerEpoch},
		verdict.Pair{ProducerID: resp.OngoingTxnProducerID, ProducerEpoch: resp.OngoingTxnProducerEpoch})
}
