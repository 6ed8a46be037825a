package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Run is one execution of one case: its names, connections and messages.
type Run struct {
	// A is the participant that the run is about, B its companion.
	A, B *Participant

	s     *Suite
	ctx   context.Context
	name  string // prefix of all ids and topics
	trace *trace

	mu     sync.Mutex
	idle   map[string][]*conn // by principal and address
	routes map[string]string  // address of the coordinator by id
	undo   []func()
	count  int
	beside sync.WaitGroup // Go
	// wrongClient is between the library and the suite; see Prove.
	wrongClient proxy.Hooks
	once        sync.Once // for whom does something once
	skip        string    // a node that is not asked where coordinators are
	late        bool      // it has failed when its time was over
	partitions  int32     // of the log, once asked for
}

// failure and inapplicable are what ends a case's function early.
type (
	failure      struct{ text string }
	inapplicable struct{ reason string }
)

// Failf ends the case as failed. The text speaks of roles and not of ids, so
// that two runs say the same.
func (r *Run) Failf(format string, args ...any) { panic(failure{fmt.Sprintf(format, args...)}) }

// Check ends the case as failed unless ok.
func (r *Run) Check(ok bool, format string, args ...any) {
	if !ok {
		r.Failf(format, args...)
	}
}

// NotApplicable ends the case: the target cannot be asked for this.
func (r *Run) NotApplicable(reason string) { panic(inapplicable{reason}) }

// Must ends the case as failed on an error.
func (r *Run) Must(err error, doing string) {
	if err != nil {
		r.Failf("%s: %v", doing, err)
	}
}

// Note puts a remark between the messages.
func (r *Run) Note(text string) { r.trace.note(text) }

// Context ends at the deadline of the case.
func (r *Run) Context() context.Context { return r.ctx }

// ID makes a global transactional id of this case.
func (r *Run) ID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	return fmt.Sprintf("%sid-%d", r.name, r.count)
}

func (r *Run) ours(id string) bool { return strings.HasPrefix(id, r.name) }

// later is called when the case ends, last first.
func (r *Run) later(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.undo = append(r.undo, f)
}

// evenLate calls f with a time of its own: it puts something right that later
// cases would meet, and must do so when the time of this one is over, too.
func (r *Run) evenLate(f func()) {
	of := r.ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(of), time.Minute)
	defer func() { cancel(); r.ctx = of }()
	r.ctx = ctx
	f()
}

func (r *Run) end() {
	for _, f := range slices.Backward(r.undo) {
		f()
	}
	for _, cs := range r.idle {
		for _, c := range cs {
			_ = c.Close()
		}
	}
}

// Go runs f beside the case; the returned function waits for it and fails as f
// has failed. A case that has failed before has not waited.
func (r *Run) Go(f func()) (wait func()) {
	done := make(chan any, 1)
	r.beside.Go(func() {
		defer func() { done <- recover() }()
		f()
	})
	return func() {
		if p := <-done; p != nil {
			panic(p)
		}
	}
}

// Until polls until ok says true, and fails with what it last said.
func (r *Run) Until(what string, ok func() (bool, string)) {
	said := "nothing"
	for {
		done, last, cut := r.before(ok)
		switch {
		case done:
			return
		case !cut:
			said = last
		}
		if cut || !r.pause(20*time.Millisecond) {
			r.Failf("%s: not in time; last: %s", what, said)
		}
	}
}

// before calls ok, and says whether the end of the case's time has cut it short:
// then what it says is of a connection that the suite itself has ended.
func (r *Run) before(ok func() (bool, string)) (done bool, said string, cut bool) {
	defer func() {
		p := recover()
		if _, failed := p.(failure); p != nil && (!failed || r.ctx.Err() == nil) {
			panic(p)
		}
		cut = !done && r.ctx.Err() != nil
	}()
	done, said = ok()
	return done, said, false
}

// Never polls for a while, and fails as soon as seen says true.
func (r *Run) Never(what string, during time.Duration, seen func() (bool, string)) {
	end := time.Now().Add(during)
	r.NeverBefore(what, func() bool { return time.Now().After(end) }, seen)
}

// NeverBefore polls until the target has had its chance, and fails as soon as
// seen says true. What a target does not do in a second says nothing on a
// machine that gave it no second.
func (r *Run) NeverBefore(what string, chance func() bool, seen func() (bool, string)) {
	for over := false; !over; {
		over = chance()
		if bad, said := seen(); bad {
			r.Failf("%s: %s", what, said)
		}
		if !over && !r.pause(20*time.Millisecond) {
			r.Failf("%s: the case's time is over", what)
		}
	}
}

// scans says whether the coordinator has finished n scans since that saw
// something of this case open at p; or, where the suite does not listen in,
// whether it had the time for them.
func (r *Run) scans(p *Participant, n int32) (finished func() bool) {
	if p.link == nil {
		end := time.Now().Add(time.Duration(n+1) * r.s.target.ScanInterval)
		return func() bool { return time.Now().After(end) }
	}
	var lists atomic.Int32
	p.OnAnswer(r, func(x *proxy.Exchange) {
		if _, ok := x.Response.(*kmsg.ListTransactionsResponse); ok {
			lists.Add(1)
		}
	})
	return func() bool { return lists.Load() > n } // one more: that one has just begun
}

// awaits waits until something is so.
func (r *Run) awaits(what string, so func() bool) {
	r.Until(what, func() (bool, string) { return so(), "not yet" })
}

func (r *Run) pause(d time.Duration) bool {
	select {
	case <-r.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// --- asking -------------------------------------------------------------------

// ask sends one request on a connection that nobody else uses meanwhile.
func (r *Run) ask(to, addr, principal string, sec *Security, req kmsg.Request) (kmsg.Response, error) {
	key := principal + "@" + addr
	r.mu.Lock()
	var c *conn
	if n := len(r.idle[key]); n > 0 {
		c, r.idle[key] = r.idle[key][n-1], r.idle[key][:n-1]
	}
	r.mu.Unlock()
	asked := time.Now()
	var err error
	if c == nil {
		c, err = dial(r.ctx, addr, sec)
	}
	var resp kmsg.Response
	if err == nil {
		resp, err = c.roundTrip(r.ctx, req)
	}
	from := "client"
	if principal != "" {
		from = principal
	}
	if err != nil {
		if c != nil {
			_ = c.Close()
		}
		r.trace.add(from, to, req, nil, asked, time.Now(), err)
		return nil, err
	}
	r.mu.Lock()
	r.idle[key] = append(r.idle[key], c)
	r.mu.Unlock()
	r.trace.add(from, to, req, resp, asked, time.Now(), nil)
	return resp, nil
}

// front asks the node at an address of the coordinator, once.
func (r *Run) front(addr, principal string, req kmsg.Request) (kmsg.Response, error) {
	sec := r.s.target.Security
	if principal != "" {
		sec = r.s.target.Principals[principal]
	}
	return r.ask("coordinator", addr, principal, sec, req)
}

// Bootstrap asks the bootstrap node, once.
func (r *Run) Bootstrap(req kmsg.Request) kmsg.Response {
	resp, err := r.front(r.s.target.first(), "", req)
	r.Must(err, wire.NameForKey(req.Key())+" at the bootstrap address")
	return resp
}

// Find asks where the coordinator of an id is.
func (r *Run) Find(id string) wire.FindCoordinatorResponseCoordinator {
	req := wire.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = wire.CoordinatorTypeGlobalTransaction, []string{id}
	resp := r.Bootstrap(req).(*wire.FindCoordinatorResponse)
	r.Check(len(resp.Coordinators) == 1, "FindCoordinator answered %d coordinators for one id", len(resp.Coordinators))
	return resp.Coordinators[0]
}

// ask again: nothing is known from this answer.
var again = []int16{
	kerr.NotCoordinator.Code, kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code,
}

// Coordinator asks the coordinator of an id, and again while it is being found
// or is loading, or the connection ends.
func (r *Run) Coordinator(id string, req kmsg.Request) kmsg.Response { return r.As("", id, req) }

// As is Coordinator in the name of another principal.
func (r *Run) As(principal, id string, req kmsg.Request) kmsg.Response {
	var last error
	for {
		addr, err := r.route(id)
		if err == nil {
			var resp kmsg.Response
			if resp, err = r.front(addr, principal, req); err == nil {
				code := codeOf(resp)
				if !slices.Contains(again, code) {
					return resp
				}
				err = wire.ErrorForCode(code)
			}
		}
		last = err
		r.mu.Lock()
		delete(r.routes, id)
		r.mu.Unlock()
		if !r.pause(50 * time.Millisecond) {
			r.Failf("%s has no answer that says something: %v", wire.NameForKey(req.Key()), last)
		}
	}
}

func (r *Run) route(id string) (string, error) {
	if len(r.s.target.Nodes) == 1 {
		return r.s.target.Bootstrap, nil
	}
	r.mu.Lock()
	addr := r.routes[id]
	r.mu.Unlock()
	if addr != "" {
		return addr, nil
	}
	req := wire.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = wire.CoordinatorTypeGlobalTransaction, []string{id}
	for _, at := range r.s.target.bootstraps() {
		if at == r.skip {
			continue
		}
		resp, err := r.front(at, "", req)
		if err != nil {
			continue
		}
		c := resp.(*wire.FindCoordinatorResponse).Coordinators
		if len(c) != 1 || c[0].ErrorCode != 0 {
			continue
		}
		addr = fmt.Sprintf("%s:%d", c[0].Host, c[0].Port)
		if addr == r.skip {
			continue
		}
		r.mu.Lock()
		r.routes[id] = addr
		r.mu.Unlock()
		return addr, nil
	}
	return "", errNobody
}

var errNobody = errors.New("no node names a coordinator of the id")

// codeOf is the code of an answer of one of the coordinator's RPCs.
func codeOf(resp kmsg.Response) int16 {
	switch resp := resp.(type) {
	case *wire.InitGlobalTxnResponse:
		return resp.ErrorCode
	case *wire.EndGlobalTxnResponse:
		return resp.ErrorCode
	case *wire.ResolveGlobalTransactionResponse:
		return resp.ErrorCode
	case *wire.ListGlobalTransactionsResponse:
		return resp.ErrorCode
	case *wire.DescribeGlobalTransactionsResponse:
		for i := range resp.GlobalTransactions {
			if c := resp.GlobalTransactions[i].ErrorCode; slices.Contains(again, c) {
				return c
			}
		}
	}
	return 0
}

// --- listening in ---------------------------------------------------------------

// OnRequest is called for each request of the coordinator to the participant
// that names an id of this case. It may change, answer, hold or cut it.
func (p *Participant) OnRequest(r *Run, f func(*proxy.Exchange)) { p.hook(r, &rule{request: f}) }

// OnAnswer is OnRequest for the answers.
func (p *Participant) OnAnswer(r *Run, f func(*proxy.Exchange)) { p.hook(r, &rule{answer: f}) }

func (p *Participant) hook(r *Run, x *rule) {
	x.ours = r.ours
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, x)
	r.later(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(y *rule) bool { return x == y })
	})
}
