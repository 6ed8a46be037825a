package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/report"
)

// Suite is a target that was asked who it is, and can be tested.
type Suite struct {
	// Parallel is how many cases run at a time; Deadline is that of one.
	Parallel int
	Deadline time.Duration
	// Traces keeps the messages of cases that pass, too.
	Traces bool
	// Progress, when not nil, is called after each case.
	Progress func(done, all int, r report.Result)

	target       *Target
	participants []*Participant
	run          string // in all names
	logWrite     bool   // the log can be claimed
}

// Open asks the target and its participants, and begins to listen in.
func Open(ctx context.Context, t *Target) (*Suite, error) {
	s := &Suite{Parallel: 8, Deadline: time.Minute, target: t, run: unique(7)}
	if t.Bootstrap == "" {
		return nil, fmt.Errorf("%w: no address of a coordinator (bootstrap.servers)", errTarget)
	}
	if len(t.Nodes) == 0 {
		t.Nodes = []NodeTarget{{Name: "1"}}
	}
	for _, sec := range append(slices.Collect(maps.Values(t.Principals)), t.Security) {
		if sec != nil && sec.password != "" {
			t.Secrets = append(t.Secrets, sec.password)
		}
	}
	for _, at := range t.Participants {
		p, err := openParticipant(ctx, at)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.participants = append(s.participants, p)
		if err = s.probe(ctx, p); err != nil {
			s.Close()
			return nil, err
		}
	}
	s.logWrite = t.Home != "" && claimable(ctx, t)
	return s, nil
}

// claimable asks whether the suite may claim partitions of the log, under a name
// that is no partition's.
func claimable(ctx context.Context, t *Target) bool {
	cl, err := kgo.NewClient(append(t.HomeSecurity.opts(), kgo.SeedBrokers(t.Home))...)
	if err != nil {
		return false
	}
	defer cl.Close()
	id := "__gtc-conformance"
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 60_000, -1, -1
	resp, err := req.RequestWith(ctx, cl)
	return err == nil && resp.ErrorCode == 0
}

// probe ends a small transaction at p and looks what is told of it.
func (s *Suite) probe(ctx context.Context, p *Participant) error {
	c := &Case{ID: "PROBE", Run: func(r *Run) {
		q := r.Producer(p, r.ID(), NoTimeout)
		q.Write(r.Topic(p), "probe")
		r.Check(q.End(true) == 0, "a commit is refused")
		r.Until("the end", func() (bool, string) {
			state := r.State(p, q.ID).State
			p.History = state == "CompleteCommit"
			return state == "Empty" || p.History, state
		})
	}}
	if got := s.one(ctx, c, nil); got.Verdict != report.Passed {
		return fmt.Errorf("%w: participant %s: %s", errTarget, p.Name, got.Text)
	}
	return nil
}

// unique is a part of a name that no other run has.
func unique(n int) string { return strings.ToLower(rand.Text()[:n]) }

// Close ends all connections.
func (s *Suite) Close() {
	for _, p := range s.participants {
		p.close()
	}
}

// bootstraps are the addresses of all nodes, so far as they are known.
func (t *Target) bootstraps() []string { return list(t.Bootstrap) }

// first is the address of any node.
func (t *Target) first() string { return list(t.Bootstrap)[0] }

// Run runs cases and returns what was found, in the order of the cases.
func (s *Suite) Run(ctx context.Context, cases []*Case) *report.Run {
	out := &report.Run{Target: s.target.Name, Started: time.Now(), Results: make([]report.Result, len(cases))}
	for _, p := range s.participants {
		out.Participants = append(out.Participants, report.Participant{Name: p.Name, Version: p.Version})
	}
	var mu sync.Mutex
	done := 0
	one := func(i int) {
		out.Results[i] = s.one(ctx, cases[i], nil)
		mu.Lock()
		defer mu.Unlock()
		done++
		if s.Progress != nil {
			s.Progress(done, len(cases), out.Results[i])
		}
	}
	slots := make(chan struct{}, max(1, s.Parallel))
	var running sync.WaitGroup
	for i, c := range cases {
		if c.Alone && s.lacks(c) == "" {
			continue
		}
		slots <- struct{}{}
		running.Go(func() { defer func() { <-slots }(); one(i) })
	}
	running.Wait()
	for i, c := range cases {
		if c.Alone && s.lacks(c) == "" {
			one(i)
		}
	}
	out.Seconds = time.Since(out.Started).Seconds()
	return out
}

// one runs a case, after a setup that may be nil.
func (s *Suite) one(ctx context.Context, c *Case, setup func(*Run)) report.Result {
	res := report.Result{ID: c.ID, Group: c.group, Title: c.Title, Means: c.Means, Clauses: c.Clauses}
	if reason := s.lacks(c); reason != "" {
		res.Verdict, res.Text = report.NotApplicable, reason
		return res
	}
	ctx, cancel := context.WithTimeout(ctx, s.Deadline)
	defer cancel()
	r := &Run{
		s: s, ctx: ctx, idle: map[string][]*conn{}, routes: map[string]string{},
		// What one run wrote does not begin as what another did.
		name: fmt.Sprintf("conformance-%s-%s-%s-", s.run, strings.ToLower(c.ID), unique(4)),
	}
	r.trace = &trace{began: time.Now()}
	if len(s.participants) >= 2 {
		r.A, r.B = s.participants[0], s.participants[1]
		for _, p := range s.participants {
			p.OnAnswer(r, func(x *proxy.Exchange) {
				if _, all := x.Request.(*kmsg.ListTransactionsRequest); !all {
					r.trace.link(p.Name, x, r.ours)
				}
			})
		}
	}
	if setup != nil {
		setup(r)
	}
	res.Verdict, res.Text = r.play(c)
	cancel()
	r.beside.Wait()
	r.end()
	res.Seconds = time.Since(r.trace.began).Seconds()
	if res.Verdict == report.Failed || s.Traces {
		res.Trace = r.trace.events()
	}
	return res
}

// play calls the case's function and reads how it ended. A panic that is none
// of ours is one of the suite, and goes on.
func (r *Run) play(c *Case) (verdict report.Verdict, text string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			verdict, text, r.late = report.Failed, r.anonymous(p.text)+r.overdue(), r.ctx.Err() != nil
		case inapplicable:
			verdict, text = report.NotApplicable, p.reason
		default:
			panic(p)
		}
	}()
	c.Run(r)
	return report.Passed, ""
}

// anonymous takes out of a text what differs from run to run.
func (r *Run) anonymous(text string) string {
	text = strings.ReplaceAll(text, r.name, "")
	return regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(text, "host:port")
}

// lacks says what the target does not have that a case needs.
func (s *Suite) lacks(c *Case) string {
	for _, n := range c.Needs {
		if reason := s.without(n); reason != "" {
			return reason
		}
	}
	return ""
}

func (s *Suite) without(n Need) string {
	t := s.target
	if n == NeedLinks || n == NeedV4 || n == NeedV5 || n == NeedParticipants || n == NeedHistory {
		return s.withoutParticipant(n)
	}
	node := func(a, b func(NodeTarget) Action) bool {
		for _, x := range t.Nodes {
			if a(x) == nil || b(x) == nil {
				return false
			}
		}
		return true
	}
	has := map[Need]struct {
		ok     bool
		reason string
	}{
		NeedUnreachable: {t.Unreachable != "", "the target names no configured cluster that is unreachable (unreachable.cluster.id)"},
		NeedMismatch:    {t.Mismatch != "", "the target names no configured cluster whose address is another's (mismatch.cluster.id)"},
		NeedClosed:      {t.Closed != "", "the target names no configured cluster that has not opted in (closed.cluster.id)"},
		NeedPrincipals: {
			t.Principals["reader"] != nil && t.Principals["stranger"] != nil && t.Principals["operator"] != nil,
			"the target names no principals reader, stranger and operator (principal.<name>)",
		},
		NeedKill: {
			node(func(x NodeTarget) Action { return x.Kill }, func(x NodeTarget) Action { return x.Start }),
			"the target has no commands that kill and start its nodes (node.<name>.kill, .start)",
		},
		NeedPause: {
			node(func(x NodeTarget) Action { return x.Pause }, func(x NodeTarget) Action { return x.Resume }),
			"the target has no commands that pause and resume its nodes (node.<name>.pause, .resume)",
		},
		NeedNodes:     {len(t.Nodes) > 1, "the target has one node"},
		NeedHome:      {t.Home != "", "the target does not say where its log is (home.bootstrap.servers)"},
		NeedLogWrite:  {s.logWrite, "the suite may not write to the topic of the log as an owner of its partitions"},
		NeedMetrics:   {t.Metrics != "", "the target does not say where its metrics are (metrics.url)"},
		NeedQuickScan: {t.ScanInterval <= time.Second, "the target's scan interval is above a second (scan.interval.ms)"},
		NeedPlainNode: {t.Plain != "", "the target names no node without the role (without.role.bootstrap.servers)"},
		NeedPlain:     {!t.secure(), "the target or a participant speaks TLS: the suite sends it no raw bytes, and cannot listen in to its clients"},
	}[n]
	if has.ok {
		return ""
	}
	return has.reason
}

func (s *Suite) withoutParticipant(n Need) string {
	if len(s.participants) < 2 {
		return "the target has fewer than two participants"
	}
	a := s.participants[0]
	switch {
	case n == NeedLinks && (a.link == nil || s.participants[1].link == nil):
		return "the suite cannot listen in between the coordinator and the participants (participant.<name>.via)"
	case n == NeedHistory && !a.History:
		return "participant " + a.Name + " does not tell how a transaction has ended (it shows Empty)"
	case n == NeedV5 && a.EndTxn < 5:
		return "participant " + a.Name + " has a transaction.version below 2"
	case n == NeedV4 && a.EndTxn >= 5:
		return "participant " + a.Name + " has transaction.version 2 or higher"
	}
	return ""
}

// Hello asks a node which APIs it has.
func (r *Run) Hello() *kmsg.ApiVersionsResponse {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "conformance", "1"
	resp, err := r.front(r.s.target.first(), "", req)
	r.Must(err, "ApiVersions")
	return resp.(*kmsg.ApiVersionsResponse)
}
