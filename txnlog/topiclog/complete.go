package topiclog

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// triesOfCount is how often the bytes of a partition are counted, since compaction
// and strangers change them between the reading and the question.
const triesOfCount = 6

// complete makes sure that the leader has served every byte that it holds. A broker
// looks for an offset by the headers of its batches too. So a batch whose header has
// changed at rest may be served under no offset at all: the answer begins behind it,
// which looks like the gap that compaction leaves. Where the end of the log has
// changed, the log seems to end early.
//
// Nobody else writes any more when this is asked behind our own claim. Without one
// (shared) somebody may, and what is read must lie between two answers.
func (t *tail) complete(ctx context.Context, shared bool) error {
	read, before := t.bytes, int64(math.MaxInt64)
	for try := 1; ; try++ {
		held, err := t.p.holds(ctx)
		switch {
		case errors.Is(err, errNotTold):
			t.p.stats.blind.Do(func() {
				t.p.o.Logger.Warn().
					Msg("cannot tell whether the home cluster serves all that it holds of the log; grant DESCRIBE on the cluster to have it checked")
			})
			return nil
		case err != nil:
			return t.p.wrap(fmt.Errorf("asking how many bytes the log has: %w", err))
		case held == read, shared && before <= read && read <= held:
			return nil
		case try == triesOfCount:
			return t.p.corrupt(t.chain.next, fmt.Sprintf(
				"the leader holds %d bytes of the partition and serves %d, so there are batches below that it does not find (or somebody writes without end)", held, read), nil)
		}
		select {
		case <-ctx.Done():
			return t.p.wrap(ctx.Err())
		case <-t.p.o.Clock.After(backoffStart << try):
		}
		again, err := newTail(ctx, t.p, nil)
		if err != nil {
			return err
		}
		if err := again.readAll(ctx); err != nil {
			return err
		}
		read, before = again.bytes, held
	}
}

// holds is the size of the partition at its leader, or errNotTold.
func (p *partition) holds(ctx context.Context) (bytes int64, err error) {
	var kresp kmsg.Response
	err = p.retry(ctx, "DescribeLogDirs", 0, func(ctx context.Context) error {
		var try error
		kresp, try = p.ask(ctx, func() kmsg.Request {
			req := kmsg.NewPtrDescribeLogDirsRequest()
			topic := kmsg.NewDescribeLogDirsRequestTopic()
			topic.Topic, topic.Partitions = p.o.Topic, []int32{p.id}
			req.Topics = append(req.Topics, topic)
			return req
		})
		return try
	})
	if err != nil {
		return 0, err
	}
	resp := kresp.(*kmsg.DescribeLogDirsResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return 0, errNotTold
	}
	for _, dir := range resp.Dirs {
		for _, t := range dir.Topics {
			for _, tp := range t.Partitions {
				if t.Topic == p.o.Topic && tp.Partition == p.id && !tp.IsFuture {
					return tp.Size, nil
				}
			}
		}
	}
	return 0, errNotTold // to version 2 an answer to one who may not know is empty
}
