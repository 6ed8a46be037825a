package participant

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
)

func TestCommitAndAbortOnKfake(t *testing.T) {
	a := fake(t, "A")
	c := drive(t, at("a", a.ListenAddrs()...))
	p := newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...)
	p.write("t")
	ref := p.ref("A")
	rec := prepared(t, c, "tid", ref)
	if rec.EndTxnVersion != verdict.EndTxnBumps || rec.AuditTopic != "t" || rec.StartMillis <= 0 {
		t.Errorf("record %+v, want EndTxn v5 and an audit in t from its start", rec)
	}
	ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: rec, Commit: true})
	if ans.Outcome != gtc.EndDone || ans.NextProducerID != ref.ProducerID || ans.NextProducerEpoch != ref.ProducerEpoch+1 {
		t.Fatalf("answer %+v, want done at the next epoch", ans)
	}
	if n := visible(t, "t", a.ListenAddrs()...); n != 1 {
		t.Errorf("%d records visible, want 1", n)
	}
	// Repeats get the same answer.
	if again := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: rec, Commit: true}); again.Outcome != gtc.EndDone || again.NextProducerEpoch != ans.NextProducerEpoch {
		t.Errorf("repeated: %+v, want the same", again)
	}
	if other := settle(t, c, "tid", rec, false); other.Outcome != gtc.EndCommitted {
		t.Errorf("abort after the commit: %+v, want committed", other)
	}
}

func TestAConnectionCutAroundEndTxn(t *testing.T) {
	for _, tc := range []struct {
		name      string
		mode      int32
		version   int16
		uncertain bool
		next      int16 // epoch handed out after the retry; -1 = initialise again
	}{
		{"refused dial, v4", refuseDials, verdict.EndTxnKeeps, false, 0},
		// kgo had the bytes when the connection broke, so it may have left.
		{"cut while writing, v5", cutBefore, verdict.EndTxnBumps, true, 1},
		{"answer lost, v5", cutAfter, verdict.EndTxnBumps, true, 1},
		{"answer lost, v4", cutAfter, verdict.EndTxnKeeps, true, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cut := &cutter{key: keyEndTxn}
			a := fake(t, "A")
			cfg := at("a", a.ListenAddrs()...)
			cfg.ClientOpts = append(cfg.ClientOpts, cut.opt(), kgo.ConnIdleTimeout(time.Second))
			c := drive(t, cfg)
			p := newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...)
			p.write("t")
			rec := prepared(t, c, "tid", p.ref("A"))
			rec.EndTxnVersion = tc.version
			cut.mode.Store(tc.mode)
			ctx := t.Context()
			if tc.mode == refuseDials {
				c.all[0].drop(nil) // its connections
				// kgo dials again and again until the request's time is up.
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				ctx = short
			}
			ans := c.End(ctx, gtc.EndTxn{ID: "tid", Participant: rec, Commit: true})
			if ans.Outcome != gtc.EndRetry || ans.Uncertain != tc.uncertain {
				t.Fatalf("%+v, want retry, uncertain=%v", ans, tc.uncertain)
			}
			cut.mode.Store(passAll)
			ans = settle(t, c, "tid", rec, true)
			if ans.Outcome != gtc.EndDone || ans.NextProducerEpoch != tc.next {
				t.Errorf("%+v, want done and next epoch %d", ans, tc.next)
			}
		})
	}
}

// Whatever can be asked again is, until the fault stops.
func TestAFaultThatStopsIsOutlived(t *testing.T) {
	for _, row := range verdict.Answers {
		if row.CommitV5 != verdict.Retry && row.CommitV5 != verdict.Alarm {
			continue
		}
		for _, version := range []int16{verdict.EndTxnBumps, verdict.EndTxnKeeps} {
			a := fake(t, "A")
			c := drive(t, at("a", a.ListenAddrs()...))
			p := newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...)
			p.write("t")
			rec := prepared(t, c, "tid", p.ref("A"))
			rec.EndTxnVersion = version
			tries := 0
			answer(a, keyEndTxn, func(req *kmsg.EndTxnRequest) kmsg.Response {
				if tries++; tries > 5 {
					return nil
				}
				resp := req.ResponseKind().(*kmsg.EndTxnResponse)
				resp.ErrorCode, resp.ThrottleMillis = row.Code, 10
				return resp
			})
			for range 5 {
				if ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: rec, Commit: true}); ans.Outcome != gtc.EndRetry || ans.Uncertain {
					t.Errorf("%s, v%d: %+v, want retry", row.Name, version, ans)
				}
			}
			ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: rec, Commit: true})
			if ans.Outcome != gtc.EndDone || ans.NextProducerEpoch < 0 || tries != 6 {
				t.Errorf("%s, v%d, after %d tries: %+v, want done after 6", row.Name, version, tries, ans)
			}
		}
	}
}

// A broker that could not be reached may have another address now.
func TestAddressesAreAskedForAgainAfterAFailure(t *testing.T) {
	cut := &cutter{key: keyEndTxn}
	a := fake(t, "A")
	cfg := at("a", a.ListenAddrs()...)
	cfg.ClientOpts = append(cfg.ClientOpts, cut.opt())
	c := drive(t, cfg)
	p := newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...)
	p.write("t")
	rec := prepared(t, c, "tid", p.ref("A"))
	cut.mode.Store(cutAfter)
	c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: rec, Commit: true})
	cut.mode.Store(passAll)
	var asked []string
	a.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		a.KeepControl()
		asked = append(asked, kmsg.NameForKey(req.Key()))
		return nil, nil, false
	})
	settle(t, c, "tid", rec, true)
	meta, find := slices.Index(asked, "Metadata"), slices.Index(asked, "FindCoordinator")
	if meta < 0 || find < meta {
		t.Errorf("asked %v, want Metadata before FindCoordinator", asked)
	}
}

// On transaction.version 1 the next transaction has the same epoch, and EndTxn
// would end it. Case: the record that the first is complete was lost with the
// coordinator; the new one asks again while the next transaction is open.
func TestARepeatedV4EndDoesNotTouchTheNextTransaction(t *testing.T) {
	s, c := newScripted(t)
	s.state("Ongoing", 7, 3, 2000)
	rec := branch(verdict.EndTxnKeeps)
	for range verdict.AuditTries + 1 { // this process has not voted: it may be a repeat
		if ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: rec, Commit: true}); ans.Outcome == gtc.EndDone {
			t.Fatalf("%+v", ans)
		}
	}
	if s.ends != 0 {
		t.Errorf("EndTxn was sent %d times to an open transaction of another start time", s.ends)
	}
}

func TestOneEndInFlightPerParticipant(t *testing.T) {
	a := fake(t, "A")
	c := drive(t, at("a", a.ListenAddrs()...))
	entered, release := make(chan struct{}), make(chan struct{})
	answer(a, keyEndTxn, func(*kmsg.EndTxnRequest) kmsg.Response {
		close(entered)
		<-release
		return nil
	})
	p := newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...)
	p.write("t")
	rec := prepared(t, c, "tid", p.ref("A"))
	first := make(chan gtc.EndAnswer)
	go func() { first <- c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: rec, Commit: true}) }()
	<-entered
	ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: rec, Commit: true})
	close(release)
	if ans.Outcome != gtc.EndRetry {
		t.Errorf("second End while the first is in flight: %+v, want retry", ans)
	}
	contains(t, ans.Detail, "in flight")
	if ans := <-first; ans.Outcome != gtc.EndDone {
		t.Errorf("first End: %+v, want done", ans)
	}
}

// The cluster behind the address is another one than was voted on.
func TestNothingIsEndedOnAnotherCluster(t *testing.T) {
	for _, learned := range []bool{false, true} {
		b := fake(t, "B")
		cfg := at("a", b.ListenAddrs()...)
		if !learned {
			cfg.ExpectedClusterID = "A"
		}
		c := drive(t, cfg)
		ended := false
		answer(b, keyEndTxn, func(*kmsg.EndTxnRequest) kmsg.Response { ended = true; return nil })
		ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: branch(verdict.EndTxnBumps), Commit: true})
		if ans.Outcome != gtc.EndRetry || ended {
			t.Errorf("%+v, EndTxn sent: %v; want retry and nothing sent", ans, ended)
		}
		contains(t, ans.Detail, "A")
	}
}

// A cluster whose address is taken over by another while we run.
func TestAReplacedClusterIsNoticedBeforeEndTxn(t *testing.T) {
	a := fake(t, "A")
	c := drive(t, at("a", a.ListenAddrs()...))
	p := newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...)
	p.write("t")
	rec := prepared(t, c, "tid", p.ref("A"))
	port := portOf(t, a.ListenAddrs()[0])
	a.Close()
	b := fake(t, "B", kfake.Ports(port))
	sent := false
	answer(b, keyEndTxn, func(*kmsg.EndTxnRequest) kmsg.Response { sent = true; return nil })
	answers := 0
	for range 5 {
		if ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: rec, Commit: true}); ans.Outcome != gtc.EndRetry {
			t.Fatalf("%+v, want retry", ans)
		}
		answers++
	}
	if sent || answers != 5 {
		t.Error("EndTxn was sent to a cluster of another id")
	}
}

func TestAnUnreachableClusterIsBoundedAndDelaysNobody(t *testing.T) {
	a := fake(t, "A")
	dead := expect(at("dead", blackHole(t)), "C")
	dead.RequestTimeout = 300 * time.Millisecond
	slow, back := away(t, "slow", "D")
	c := drive(t, at("a", a.ListenAddrs()...), dead, expect(slow, "D"))
	p := newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...)
	p.write("t")
	rec := prepared(t, c, "tid", p.ref("A"))

	gone := func(ctx context.Context, clusterID string, i int) {
		p := branch(verdict.EndTxnBumps)
		p.ClusterID, p.ProducerID = clusterID, int64(i)
		if ans := c.End(ctx, gtc.EndTxn{ID: "tid", Participant: p, Commit: true}); ans.Outcome != gtc.EndRetry || ans.Uncertain {
			t.Errorf("cluster %s is away: %+v, want retry, nothing sent", clusterID, ans)
		}
	}
	waiting, cancel := context.WithCancel(t.Context())
	var bounded, unbounded sync.WaitGroup
	for i := range 50 {
		bounded.Go(func() { gone(t.Context(), "C", i) })
		unbounded.Go(func() { gone(waiting, "D", i) })
	}
	if ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: rec, Commit: true}); ans.Outcome != gtc.EndDone {
		t.Errorf("beside those that wait for minutes: %+v, want done", ans)
	}
	bounded.Wait()
	for _, st := range c.Clusters() {
		if st.Alias == "slow" {
			continue // nobody knows yet
		}
		if reachable := st.Alias == "a"; st.Reachable != reachable || (st.LastError == "") != reachable {
			t.Errorf("status %+v, want reachable=%v", st, reachable)
		}
	}
	cancel()
	unbounded.Wait()
	back(c)
}

func TestACallEndsWithItsContext(t *testing.T) {
	slow, back := away(t, "slow", "C")
	c := drive(t, slow)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if v := c.Vote(ctx, "tid", []gtc.ParticipantRef{{ClusterID: "C"}})[0]; v.Code != gtc.VoteUnavailable {
		t.Errorf("%+v, want unavailable", v)
	}
	back(c)
}
