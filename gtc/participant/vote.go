package participant

import (
	"context"
	"fmt"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

// unlimited is the transaction timeout that both ways to opt in store, and the
// only one that never ends a prepared transaction: 2,147,483,647 ms. (Brokers
// that do not know KIP-939, seen in 3.9.1 and 4.0.0, end it after these 24.8
// days, TransactionStateManager.timedOutTransactions; there is no longer one.)
const unlimited = 1<<31 - 1

// Vote looks at every participant transaction, all clusters at once, and says
// for each, in order, whether it can be committed. It returns when all have
// answered or ctx ends; what has not answered is gtc.VoteUnavailable.
//
// Votes taken at the same time share requests (see gatherer), so what a vote
// costs is a round trip, not a request.
func (c *Clusters) Vote(ctx context.Context, id string, refs []gtc.ParticipantRef) []gtc.Vote {
	votes := make([]gtc.Vote, len(refs))
	inParallel(len(refs), func(i int) { votes[i] = c.vote(ctx, id, refs[i]) })
	return votes
}

func (c *Clusters) vote(ctx context.Context, id string, ref gtc.ParticipantRef) gtc.Vote {
	cl, err := c.lookup(ctx, ref.ClusterID)
	if err != nil {
		return gtc.Vote{Code: gtc.VoteUnavailable, Detail: err.Error()}
	}
	v, err := cl.look(ctx, id, ref)
	if err != nil {
		// Once more: the connection may have been closed by the broker, or
		// the transaction coordinator may have moved.
		v, err = cl.look(ctx, id, ref)
	} else if v.Code != gtc.VotePrepared {
		// Only "prepared" is believed at once. A broker that has lost the
		// leadership and does not know yet answers from its cache of before;
		// its "Empty" would leave a written participant out of a commit.
		v, err = cl.lookAfresh(ctx, id, ref)
	}
	if err != nil {
		return gtc.Vote{Code: gtc.VoteUnavailable, Detail: fmt.Sprintf("cluster %q: %v", cl.cfg.Alias, err)}
	}
	if v.Code == gtc.VotePrepared {
		cl.attempts.voted(keyOf(id, ref))
	}
	return v
}

func (c *cluster) look(ctx context.Context, id string, ref gtc.ParticipantRef) (gtc.Vote, error) {
	s, err := c.session(ctx)
	if err != nil {
		return gtc.Vote{}, err
	}
	return s.vote(ctx, id, ref)
}

func (c *cluster) lookAfresh(ctx context.Context, id string, ref gtc.ParticipantRef) (gtc.Vote, error) {
	s, err := c.dial(ctx)
	if err != nil {
		return gtc.Vote{}, err
	}
	defer s.close()
	return s.vote(ctx, id, ref)
}

func (s *session) vote(ctx context.Context, id string, ref gtc.ParticipantRef) (gtc.Vote, error) {
	seen, info, err := s.describe(ctx, id)
	if err != nil {
		return gtc.Vote{}, err
	}
	return seen.vote(ref, info), nil
}

// vote is what the look at one participant transaction means before the
// decision.
func (v view) vote(ref gtc.ParticipantRef, info brokerInfo) gtc.Vote {
	refused := func(format string, args ...any) gtc.Vote {
		return gtc.Vote{Code: gtc.VoteRefused, Detail: fmt.Sprintf(format, args...)}
	}
	same := v.producerID == ref.ProducerID && v.producerEpoch == ref.ProducerEpoch
	switch v.state {
	case stateOngoing:
		topic, partition, ok := v.auditPartition()
		switch {
		case !same:
			return refused("fenced: another transaction is open (%v)", v)
		case v.timeoutMillis != unlimited:
			return refused("its transaction timeout is %d ms, so the cluster may abort it by itself; the producer must ask for %d", v.timeoutMillis, unlimited)
		case !ok:
			return refused("it is open and has no partitions")
		}
		return gtc.Vote{
			Code: gtc.VotePrepared, EndTxnVersion: info.endTxnVersion(),
			AuditTopic: topic, AuditPartition: partition, StartMillis: v.startMillis,
		}
	case stateEmpty:
		if !same {
			return refused("fenced: the producer was initialised again (%v)", v)
		}
		return gtc.Vote{Code: gtc.VoteReadOnly, EndTxnVersion: info.endTxnVersion()}
	case statePrepareCommit, statePrepareAbort, stateCompleteCommit, stateCompleteAbort:
		if !same {
			return refused("it has ended (%v)", v)
		}
		if info.endTxnVersion() < endTxnBumps {
			// Either nothing was written since the last transaction, or
			// this one was ended by someone else: the epoch is the same.
			return refused("it has ended or was never begun, and on transaction.version %d these look the same (%v); leave out a participant that was not written to", info.txnVersion, v)
		}
		// The state is of the transaction before: its end began this epoch,
		// and under this epoch nothing was written.
		return gtc.Vote{Code: gtc.VoteReadOnly, EndTxnVersion: info.endTxnVersion()}
	case "":
		return refused("the cluster does not know the transactional id")
	default:
		return refused("it is in a state unknown to this coordinator (%v)", v)
	}
}

// auditPartition chooses the partition whose control markers are read if the
// outcome must be proved later: a user topic when there is one, because
// __consumer_offsets takes a permission of its own and is the busiest.
func (v view) auditPartition() (topic string, partition int32, ok bool) {
	for _, t := range v.topics {
		if len(t.Partitions) == 0 {
			continue
		}
		if !ok || strings.HasPrefix(topic, "__") && !strings.HasPrefix(t.Topic, "__") {
			topic, partition, ok = t.Topic, t.Partitions[0], true
		}
	}
	return topic, partition, ok
}
