package bench

import (
	"context"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
)

// holder stands in front of a participant and passes everything on, but for
// EndTxn while it holds: to that it answers COORDINATOR_LOAD_IN_PROGRESS in the
// participant's place. So a coordinator can take every vote and make every
// decision, and no participant hears of one.
type holder struct {
	*proxy.Proxy
	holding atomic.Bool
	passed  atomic.Int64 // EndTxn passed on
}

func newHolder(ctx context.Context, listen, upstream string) (h *holder, err error) {
	h = &holder{}
	h.Proxy, err = proxy.Listen(ctx, listen, upstream, proxy.Hooks{Request: h.request})
	return h, err
}

func (h *holder) request(x *proxy.Exchange) {
	if _, isEnd := x.Request.(*kmsg.EndTxnRequest); !isEnd {
		return
	}
	if !h.holding.Load() {
		h.passed.Add(1)
		return
	}
	refusal := kmsg.NewPtrEndTxnResponse()
	refusal.ErrorCode, refusal.ProducerID, refusal.ProducerEpoch = kerr.CoordinatorLoadInProgress.Code, -1, -1
	x.Answer(refusal)
}
