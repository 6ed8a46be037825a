package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/report"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
)

// Proof is one case against one deliberately wrong target.
type Proof struct {
	Case  *Case
	Fault wrong.Fault
	// Result is what the case said. Missed says why the fault is not caught,
	// empty when it is: the fault had something to do, and then the case failed
	// for what it saw, and not because its time was over, unless the fault is
	// one that stalls.
	Result report.Result
	Missed string
}

// stalled is how long after its fault has begun a case goes on whose wrong
// target never does what the case waits for. It does not count from the begin
// of the case, for on a busy machine it would be over before the target is
// wrong.
const stalled = 4 * time.Second

var errStalled = errors.New("conformance: nothing more will come of it")

// Prove runs each case against each of its wrong targets. The suite's target
// must be right, and have its participants behind backs, in the
// order of the participants.
func (s *Suite) Prove(ctx context.Context, cases []*Case, backs []*wrong.Back, done func(Proof)) []Proof {
	var all []*Proof
	for _, c := range cases {
		for _, w := range c.Wrong {
			all = append(all, &Proof{Case: c, Fault: w})
		}
	}
	var mu sync.Mutex
	one := func(p *Proof) {
		s.prove(ctx, p, backs)
		mu.Lock()
		defer mu.Unlock()
		done(*p)
	}
	slots := make(chan struct{}, max(1, s.Parallel))
	var running sync.WaitGroup
	for _, p := range all {
		if !p.Case.Alone {
			slots <- struct{}{}
			running.Go(func() { defer func() { <-slots }(); one(p) })
		}
	}
	running.Wait()
	out := make([]Proof, len(all))
	for i, p := range all {
		if p.Case.Alone {
			one(p)
		}
		out[i] = *p
	}
	return out
}

func (s *Suite) prove(ctx context.Context, p *Proof, backs []*wrong.Back) {
	mine, target := *s, *s.target
	mine.target = &target
	hooks, begun := wrong.Watch(p.Fault.Hooks)
	if !p.Fault.Client && !p.Fault.Back {
		stop, err := target.spoil(ctx, hooks)
		defer stop()
		if err != nil {
			p.Missed = fmt.Sprintf("no wrong target: %v", err)
			return
		}
	}
	var run *Run
	p.Result = mine.one(ctx, p.Case, func(r *Run) {
		run = r
		if p.Fault.Stalls {
			r.stallAfter(begun)
		}
		if p.Fault.Client {
			r.wrongClient = hooks
		}
		if p.Fault.Back {
			for _, b := range backs {
				r.later(b.Switch(r.name, hooks))
			}
		}
	})
	p.Missed = p.missed(begun, run != nil && run.late)
}

func (p *Proof) missed(begun <-chan struct{}, late bool) string {
	idle := true
	select {
	case <-begun:
		idle = false
	default:
	}
	switch {
	case idle && p.Result.Verdict == report.NotApplicable:
		return p.Result.Text
	case idle:
		return "the target had nothing to be wrong about; the case has " + string(p.Result.Verdict) + " " + p.Result.Text
	case p.Result.Verdict != report.Failed:
		return string(p.Result.Verdict) + " " + p.Result.Text
	case late && !p.Fault.Stalls:
		return "only because its time was over: " + p.Result.Text
	}
	return ""
}

// stallAfter ends the time of the case a while after begun.
func (r *Run) stallAfter(begun <-chan struct{}) {
	ctx, end := context.WithCancelCause(r.ctx)
	r.ctx = ctx
	go func() {
		defer end(errStalled)
		select {
		case <-begun:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(stalled):
		case <-ctx.Done():
		}
	}()
}

// spoil puts proxies before all nodes.
func (t *Target) spoil(ctx context.Context, h proxy.Hooks) (stop func(), err error) {
	var first *proxy.Proxy
	stop = func() {
		if first != nil {
			first.Close()
		}
	}
	front := func(address string) string {
		var p *proxy.Proxy
		switch {
		case address == "" || err != nil:
			return address
		case first == nil:
			p, err = proxy.Listen(ctx, "127.0.0.1:0", address, h)
			first = p
		default:
			p, err = first.Beside(ctx, "127.0.0.1:0", address)
		}
		if err != nil {
			return address
		}
		return p.Addr()
	}
	var nodes []string
	for _, at := range t.bootstraps() {
		nodes = append(nodes, front(at))
	}
	t.Bootstrap, t.Plain, t.Home = strings.Join(nodes, ","), front(t.Plain), front(t.Home)
	return stop, err
}

// Share gives each case to one of the suites whose targets have all for it, so
// that they have about as many each, and returns the rest.
func Share(suites []*Suite, cases []*Case) (shares [][]*Case, rest []*Case) {
	shares = make([][]*Case, len(suites))
	for _, c := range cases {
		to := -1
		for i, s := range suites {
			// What is wrong stands before the target, and rewrites what it says.
			if !s.target.secure() && s.lacks(c) == "" && (to < 0 || len(shares[i]) < len(shares[to])) {
				to = i
			}
		}
		if to < 0 {
			rest = append(rest, c)
		} else {
			shares[to] = append(shares[to], c)
		}
	}
	return shares, rest
}

// overdue ends the text of a case whose time is over, and is empty for others.
func (r *Run) overdue() string {
	switch cause := context.Cause(r.ctx); {
	case cause == nil:
		return ""
	case errors.Is(cause, errStalled):
		return " (" + stalled.String() + " after the target began to be wrong)"
	case errors.Is(cause, context.DeadlineExceeded):
		return " (the case had " + r.s.Deadline.String() + ")"
	}
	return " (interrupted)"
}
