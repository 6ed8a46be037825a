package conformance

import (
	"context"
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
	// Result is what the case said. Caught is that it failed for what it saw,
	// and not because its time was over, unless the fault is one that stalls.
	Result report.Result
	Caught bool
}

// stallDeadline is that of a case whose wrong target never does what the case
// waits for.
const stallDeadline = 4 * time.Second

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
	if p.Fault.Stalls {
		mine.Deadline = stallDeadline
	}
	var setup func(*Run)
	switch {
	case p.Fault.Client:
		setup = func(r *Run) { r.wrongClient = p.Fault.Hooks }
	case p.Fault.Back:
		setup = func(r *Run) {
			for _, b := range backs {
				r.later(b.Switch(r.name, p.Fault.Hooks))
			}
		}
	default:
		stop, err := target.spoil(ctx, p.Fault.Hooks)
		defer stop()
		if err != nil {
			p.Result = report.Result{Text: fmt.Sprintf("no wrong target: %v", err)}
			return
		}
	}
	p.Result = mine.one(ctx, p.Case, setup)
	late := strings.HasSuffix(p.Result.Text, mine.overdue())
	p.Caught = p.Result.Verdict == report.Failed && (!late || p.Fault.Stalls)
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
			if s.lacks(c) == "" && (to < 0 || len(shares[i]) < len(shares[to])) {
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

// overdue ends the text of a case whose deadline has passed.
func (s *Suite) overdue() string { return " (the case had " + s.Deadline.String() + ")" }
