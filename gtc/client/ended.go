package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// trace is one record of a transaction, behind which the control record that
// ended it is to be found.
type trace struct {
	topic     string
	partition int32
	offset    int64
}

// errEndedOtherwise: a transaction that this client aborts was committed by
// somebody else.
var errEndedOtherwise = errors.New("somebody else has committed it")

// refusedAbort reports whether an answer to EndTxn(abort) says that nothing is
// open under this producer id and epoch.
func refusedAbort(err error) bool {
	for _, refused := range []error{
		kerr.InvalidTxnState, kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping,
	} {
		if errors.Is(err, refused) {
			return true
		}
	}
	return false
}

// endedBefore finds out how a transaction ended that is no longer open when
// this client aborts it. Mostly a producer that was initialised after it has
// aborted it, or nothing was written. But whoever knows its producer id and
// epoch can have committed it, against this client's word, and that must not
// pass for an abort. The control record behind one of its records tells.
func (p *participant) endedBefore(ctx context.Context, refusal error) error {
	at := p.trace.Load()
	switch {
	case at != nil:
		committed, err := p.endAfter(ctx, *at)
		switch {
		case err != nil:
			return fmt.Errorf("it is no longer open (%w), and how it ended is not known: %w", refusal, err)
		case committed:
			return errEndedOtherwise
		}
		return nil
	case p.offsets.Load():
		return fmt.Errorf("it is no longer open (%w), and how it ended is not known: it had group offsets alone", refusal)
	}
	return nil // nothing was written
}

// auditTimeout bounds the search for a control record.
const auditTimeout = 10 * time.Second

// endAfter reads behind a record to the next control record of its producer.
func (p *participant) endAfter(ctx context.Context, at trace) (committed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	cl, err := kgo.NewClient(with(p.conf.ClientOpts, kgo.Dialer(p.dial()), kgo.WithHooks(shared(p.conf.Hooks)...),
		kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{at.topic: {at.partition: kgo.NewOffset().At(at.offset)}}),
	)...)
	if err != nil {
		return false, err
	}
	defer cl.Close()
	for {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return false, err
		}
		for _, r := range fetches.Records() {
			// A control record's key: version, type; 0 abort, 1 commit.
			if r.ProducerID == p.producerID && r.Attrs.IsControl() && len(r.Key) >= 4 {
				return binary.BigEndian.Uint16(r.Key[2:]) == 1, nil
			}
		}
	}
}
