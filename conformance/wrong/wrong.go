// Package wrong makes targets that are wrong in one way each, so that the
// conformance suite can be shown to fail. A Fault stands between the suite and a
// right coordinator, or between that coordinator and a participant, and rewrites
// what passes; to whoever is behind it, it is an implementation with that bug.
package wrong

import (
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
)

// Fault is one way to be wrong.
type Fault struct {
	// Text says what the target does wrong, as in "answers committed when it
	// has aborted".
	Text string
	// Back faults are between the coordinator and the participants; the others
	// are between the suite and the coordinator.
	Back bool
	// Client faults are those of a client: they are between the library under
	// test and where the suite listens to it.
	Client bool
	// Stalls says that the case notices it by waiting in vain.
	Stalls bool
	// Hooks do it.
	proxy.Hooks
}

// Answers changes answers of one type: f says whether it has.
func Answers[Q kmsg.Request, A kmsg.Response](text string, f func(Q, A) bool) Fault {
	return Fault{Text: text, Hooks: proxy.Hooks{Answer: func(x *proxy.Exchange) {
		req, ok := x.Request.(Q)
		if !ok {
			return
		}
		if resp, ok := x.Response.(A); ok && f(req, resp) {
			x.Changed()
		}
	}}}
}

// Requests changes requests of one type before they are carried out: f says
// whether it has.
func Requests[Q kmsg.Request](text string, f func(Q) bool) Fault {
	return Fault{Text: text, Hooks: proxy.Hooks{Request: func(x *proxy.Exchange) {
		if req, ok := x.Request.(Q); ok && f(req) {
			x.Changed()
		}
	}}}
}

// Sends changes what the coordinator sends to participants.
func Sends[Q kmsg.Request](text string, f func(Q) bool) Fault {
	w := Requests(text, f)
	w.Back = true
	return w
}

// Hears changes what the coordinator is answered by participants: it acts as
// one that takes the answer for another.
func Hears[Q kmsg.Request, A kmsg.Response](text string, f func(Q, A) bool) Fault {
	w := Answers(text, f)
	w.Back = true
	return w
}

// Does is a fault by hand, before a request goes on.
func Does(text string, back bool, f func(*proxy.Exchange)) Fault {
	return Fault{Text: text, Back: back, Hooks: proxy.Hooks{Request: f}}
}

// Client marks a fault of a client.
func Client(f Fault) Fault {
	f.Client = true
	return f
}

// Stalling marks a fault that a case notices by waiting in vain.
func Stalling(f Fault) Fault {
	f.Stalls = true
	return f
}

// Back is the proxy of one participant in which faults are switched on for ids
// that begin with a prefix: the coordinator behind it serves other cases too.
type Back struct {
	mu     sync.Mutex
	faults map[string]proxy.Hooks
}

// NewBack returns one that is right.
func NewBack() *Back { return &Back{faults: map[string]proxy.Hooks{}} }

// Switch turns a fault on for a prefix; the returned function turns it off.
func (b *Back) Switch(prefix string, h proxy.Hooks) (off func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults[prefix] = h
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.faults, prefix)
	}
}

// Hooks are for the proxy.
func (b *Back) Hooks() proxy.Hooks {
	return proxy.Hooks{
		Request: func(x *proxy.Exchange) { b.each(x, func(h proxy.Hooks) func(*proxy.Exchange) { return h.Request }) },
		Answer:  func(x *proxy.Exchange) { b.each(x, func(h proxy.Hooks) func(*proxy.Exchange) { return h.Answer }) },
	}
}

func (b *Back) each(x *proxy.Exchange, of func(proxy.Hooks) func(*proxy.Exchange)) {
	b.mu.Lock()
	var hit []func()
	for prefix, h := range b.faults {
		mine := func(id string) bool { return strings.HasPrefix(id, prefix) }
		if f := of(h); f != nil && x.Names(mine) {
			hit = append(hit, func() { x.Scope = mine; f(x) })
		}
	}
	b.mu.Unlock()
	for _, f := range hit {
		f()
	}
}
