package client

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// question is what the coordinator is asked about one transaction, now and in
// every repeat. It knows whether it may have left: until then nothing can be
// decided, and this client alone may end the transaction (R4). A context that
// ends while the coordinator is looked for, or while its connection is opened,
// has asked nothing.
type question struct {
	request *wire.EndGlobalTxnRequest

	mu        sync.Mutex
	left      bool
	withdrawn bool
}

// mayHaveLeft reports whether a copy was handed to a connection.
func (q *question) mayHaveLeft() bool {
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.left
}

// withdraw gives the question up unless it may have left, and reports whether
// it has. From then on no copy of it can be carried out.
func (q *question) withdraw() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.withdrawn = !q.left
	return q.withdrawn
}

// with sends one copy.
func (q *question) with(ctx context.Context, node kmsg.Requestor, commit bool, timeoutMillis int32) (*wire.EndGlobalTxnResponse, error) {
	req := *q.request // kgo may still be writing the copy before
	req.Committed, req.TimeoutMillis = commit, timeoutMillis
	resp, err := node.Request(ctx, &askedCopy{&req, q})
	if err != nil {
		return nil, err
	}
	end, ok := resp.(*wire.EndGlobalTxnResponse)
	if !ok {
		return nil, errors.New("the answer to EndGlobalTxn is of another kind")
	}
	return end, nil
}

// askedCopy tells its question when kgo is about to write it.
type askedCopy struct {
	*wire.EndGlobalTxnRequest
	of *question
}

// AppendTo is called by kgo just before it writes. That may be after the caller
// was told that its context has ended, and so that nothing was asked; what
// leaves then names no participant, and is refused without any effect (C-END-7).
func (c *askedCopy) AppendTo(dst []byte) []byte {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.of.withdrawn {
		c.of.left = true
		return c.EndGlobalTxnRequest.AppendTo(dst)
	}
	empty := *c.EndGlobalTxnRequest
	empty.Participants = nil
	return empty.AppendTo(dst)
}
