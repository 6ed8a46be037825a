package participant

import (
	"context"
	"fmt"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
)

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
	v, by, err := cl.look(ctx, id, ref)
	if err != nil {
		// Once more: the connection may have been closed by the broker, or
		// the transaction coordinator may have moved.
		v, by, err = cl.look(ctx, id, ref)
	} else if v.Code != gtc.VotePrepared {
		// Only "prepared" is believed at once. A broker that has lost the
		// leadership and does not know yet answers from its cache of before,
		// and nothing of what it says would let the transaction commit.
		v, by, err = cl.lookAfresh(ctx, id, ref)
	}
	if err != nil {
		return gtc.Vote{Code: gtc.VoteUnavailable, Detail: fmt.Sprintf("cluster %q: %v", cl.cfg.Alias, err)}
	}
	if v.Code == gtc.VotePrepared {
		cl.attempts.voted(keyOf(id, ref), v.StartMillis, by)
	}
	return v
}

func (c *cluster) look(ctx context.Context, id string, ref gtc.ParticipantRef) (v gtc.Vote, by int32, err error) {
	s, err := c.session(ctx)
	if err != nil {
		return gtc.Vote{}, 0, err
	}
	return s.vote(ctx, id, ref)
}

func (c *cluster) lookAfresh(ctx context.Context, id string, ref gtc.ParticipantRef) (v gtc.Vote, by int32, err error) {
	s, err := c.dial(ctx)
	if err != nil {
		return gtc.Vote{}, 0, err
	}
	defer s.close()
	return s.vote(ctx, id, ref)
}

// vote also says which broker was asked.
func (s *session) vote(ctx context.Context, id string, ref gtc.ParticipantRef) (v gtc.Vote, by int32, err error) {
	node, err := s.coordinator(ctx, id)
	if err != nil {
		return gtc.Vote{}, 0, err
	}
	seen, info, err := s.describeBy(ctx, node, id)
	if err != nil {
		return gtc.Vote{}, 0, err
	}
	return verdict.Vote(seen, ref, info.endTxnVersion()), node, nil
}
