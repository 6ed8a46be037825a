package conformance

import (
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// holding keeps messages back between the coordinator and a participant.
type holding struct {
	r       *Run
	first   chan struct{}
	release chan struct{}
	once    sync.Once
}

func (r *Run) newHolding() *holding {
	h := &holding{r: r, first: make(chan struct{}, 2), release: make(chan struct{})}
	r.later(h.now)
	return h
}

// wait is where a message stands.
func (h *holding) wait(x *proxy.Exchange) {
	select {
	case h.first <- struct{}{}:
	default:
	}
	select {
	case <-h.release:
	case <-x.Context.Done():
	}
}

// over says that nothing is held any more.
func (h *holding) over() bool {
	select {
	case <-h.release:
		return true
	default:
		return false
	}
}

// reached waits for the first message, and called again for the second.
func (h *holding) reached() {
	select {
	case <-h.first:
	case <-h.r.ctx.Done():
		h.r.Failf("what was to be held never came")
	}
}

// now lets all go on.
func (h *holding) now() { h.once.Do(func() { close(h.release) }) }

// holdVotes holds the coordinator's looks at p. A look is one at many ids, so
// those of others wait too: a case that does this runs alone.
func (r *Run) holdVotes(p *Participant) *holding {
	h := r.newHolding()
	p.OnRequest(r, func(x *proxy.Exchange) {
		if _, ok := x.Request.(*kmsg.DescribeTransactionsRequest); ok && !h.over() {
			h.wait(x)
		}
	})
	return h
}

// holdEnds answers EndTxn at p with "again" until released: it holds up no other
// id.
func (r *Run) holdEnds(p *Participant) *holding {
	h := r.newHolding()
	r.Listen(p, func(_ int, x *proxy.Exchange, _ *kmsg.EndTxnRequest) {
		if h.over() {
			return
		}
		select {
		case h.first <- struct{}{}:
		default:
		}
		x.Answer(refuse(kerr.CoordinatorLoadInProgress))
	})
	return h
}

// pending is a session whose transaction is decided, and pending on B, which has
// refused a first try, until released.
func (r *Run) pending() (s *Session, release func()) {
	h := r.holdEnds(r.B)
	s = r.Open()
	s.Write("v", r.A, r.B)
	r.Answered(r.Decision(s.Request(true)), nil, wire.OutcomeCommitted)
	// It may be decided, and not yet tried; and the coordinator has heard the
	// first refusal when it tries again.
	h.reached()
	h.reached()
	return s, h.now
}

func contains(s, part string) bool { return strings.Contains(s, part) }
