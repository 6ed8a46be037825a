//go:build kafka

package participant

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	clusters "github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

func TestKafkaVotes(t *testing.T) {
	forEachKafka(t, func(t *testing.T, k *kafka) {
		v2 := k.version == verdict.EndTxnBumps
		id := unique(t, "id")
		p := k.producer(id, noTimeoutDuration)
		ref := p.ref(k.c.ID)
		vote := func(ref gtc.ParticipantRef, want gtc.VoteCode, when string) txnlog.Participant {
			t.Helper()
			var rec txnlog.Participant
			var v gtc.Vote
			eventually(t, func() bool {
				rec, v = voteFor(t, k.drive, id, ref)
				return v.Code != gtc.VoteUnavailable
			})
			if v.Code != want {
				t.Errorf("%s: vote %d (%s), want %d", when, v.Code, v.Detail, want)
			}
			return rec
		}
		vote(ref, gtc.VoteRefused, "nothing written")
		p.write(k.topic)
		rec := vote(ref, gtc.VotePrepared, "written")
		if rec.EndTxnVersion != k.version || rec.AuditTopic != k.topic || rec.StartMillis <= 0 {
			t.Errorf("record %+v: want EndTxn v%d and an audit of %s", rec, k.version, k.topic)
		}
		ans := settle(t, k.drive, id, rec, true)
		k.until(id, verdict.CompleteCommit)
		next := ref
		next.ProducerEpoch = ans.NextProducerEpoch
		if v2 {
			vote(ref, gtc.VoteRefused, "committed")
			vote(next, gtc.VoteRefused, "nothing written since")
		} else {
			vote(next, gtc.VoteRefused, "committed, or nothing written since: the same epoch")
		}
		if _, _, err := k.init(id, -1, -1); err != nil {
			t.Fatal(err)
		}
		vote(next, gtc.VoteRefused, "initialised again")

		id = unique(t, "id")
		short := k.producer(id, time.Minute)
		short.write(k.topic)
		vote(short.ref(k.c.ID), gtc.VoteRefused, "has a timeout")
		id += "-unknown"
		vote(ref, gtc.VoteRefused, "unknown id")
	})
}

// Every state a participant can be found in, and what End makes of it.
func TestKafkaEnds(t *testing.T) {
	type step = func(k *kafka, p *producer, rec txnlog.Participant)
	reinit := func(k *kafka, p *producer, _ txnlog.Participant) {
		if _, _, err := k.init(p.id, -1, -1); err != nil {
			k.t.Fatal(err)
		}
	}
	raw := func(commit bool) step {
		return func(k *kafka, p *producer, rec txnlog.Participant) {
			k.end(k.version, p.id, gtc.ParticipantRef{ProducerID: rec.ProducerID, ProducerEpoch: rec.ProducerEpoch}, commit)
			k.until(p.id, map[bool]verdict.State{true: verdict.CompleteCommit, false: verdict.CompleteAbort}[commit])
		}
	}
	nextOpen := func(k *kafka, p *producer, rec txnlog.Participant) {
		ref := gtc.ParticipantRef{ProducerID: rec.ProducerID, ProducerEpoch: rec.ProducerEpoch}
		if k.version == verdict.EndTxnBumps {
			ref.ProducerEpoch++
		}
		k.add(p.id, ref)
	}
	for _, tc := range []struct {
		name           string
		before         []step
		commit, abort  gtc.EndOutcome
		commits, opens int // visible records afterwards; open transactions
	}{
		{"open", nil, gtc.EndDone, gtc.EndDone, 1, 0},
		{"committed by an earlier copy", []step{raw(true)}, gtc.EndDone, gtc.EndCommitted, 1, 0},
		{"aborted by an outsider", []step{raw(false)}, gtc.EndAborted, gtc.EndDone, 0, 0},
		{"fenced while open", []step{reinit}, gtc.EndAborted, gtc.EndDone, 0, 0},
		{"committed, then initialised again", []step{raw(true), reinit}, gtc.EndDone, gtc.EndCommitted, 1, 0},
		{"aborted, then initialised again", []step{raw(false), reinit}, gtc.EndAborted, gtc.EndDone, 0, 0},
		{"committed, initialised twice", []step{raw(true), reinit, reinit}, gtc.EndDone, gtc.EndCommitted, 1, 0},
		{"committed, and the next is open", []step{raw(true), nextOpen}, gtc.EndDone, gtc.EndCommitted, 1, 1},
		{"aborted, and the next is open", []step{raw(false), nextOpen}, gtc.EndAborted, gtc.EndDone, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			forEachKafka(t, func(t *testing.T, shared *kafka) {
				for _, commit := range []bool{true, false} {
					seen := tc.commits
					if !commit && len(tc.before) == 0 {
						seen = 0 // it was ours to end
					}
					k := shared.newTopic(t)
					p := k.producer(unique(t, "id"), noTimeoutDuration)
					ref := p.ref(k.c.ID)
					p.write(k.topic)
					rec := prepared(t, k.drive, p.id, ref)
					for _, s := range tc.before {
						s(k, p, rec)
					}
					if len(tc.before) > 0 {
						// As after a restart: nobody knows what was sent.
						k.drive = drive(t, at(k.c.Name, k.c.Bootstrap))
					}
					want := map[bool]gtc.EndOutcome{true: tc.commit, false: tc.abort}[commit]
					ans := settle(t, k.drive, p.id, rec, commit)
					if ans.Outcome != want {
						t.Errorf("commit %v: outcome %d (%s), want %d", commit, ans.Outcome, ans.Detail, want)
					}
					if open := k.scan(func(id string) bool { return id == p.id }); len(open) != tc.opens {
						t.Errorf("open %+v, want %d", open, tc.opens)
					}
					if tc.opens == 0 { // an open one holds up the reader
						if n := visible(t, k.topic, k.c.Bootstrap); n != seen {
							t.Errorf("%d records visible, want %d", n, seen)
						}
					}
				}
			})
		})
	}
}

// Nothing was written, and no vote knew of it: either decision is done.
func TestKafkaEndOfWhatNeverWas(t *testing.T) {
	forEachKafka(t, func(t *testing.T, k *kafka) {
		for _, commit := range []bool{true, false} {
			id := unique(t, "id")
			ref := k.producer(id, noTimeoutDuration).ref(k.c.ID)
			rec := txnlog.Participant{ClusterID: k.c.ID, ProducerID: ref.ProducerID, ProducerEpoch: ref.ProducerEpoch}
			ans := settle(t, k.drive, id, rec, commit)
			if ans.Outcome != gtc.EndDone || ans.EndTxnVersion != k.version {
				t.Errorf("commit %v: %+v, want done with v%d", commit, ans, k.version)
			}
		}
		unknown := txnlog.Participant{ClusterID: k.c.ID, ProducerID: 4711}
		if ans := settle(t, k.drive, unique(t, "id"), unknown, false); ans.Outcome != gtc.EndDone || ans.NextProducerID != -1 {
			t.Errorf("unknown id: %+v, want done, initialise again", ans)
		}
	})
}

// The first EndTxn's answer is lost; a copy may still come, and must
// find an epoch that is not the next transaction's.
func TestKafkaALateCopyCannotEndTheNextTransaction(t *testing.T) {
	forEachKafka(t, func(t *testing.T, k *kafka) {
		cut := &cutter{key: keyEndTxn}
		cfg := at(k.c.Name, k.c.Bootstrap)
		cfg.ClientOpts = append(cfg.ClientOpts, cut.opt())
		c := drive(t, cfg)
		id := unique(t, "id")
		p := k.producer(id, noTimeoutDuration)
		ref := p.ref(k.c.ID)
		p.write(k.topic)
		rec := prepared(t, c, id, ref)
		cut.mode.Store(cutAfter)
		if ans := c.End(t.Context(), gtc.EndTxn{ID: id, Participant: rec, Commit: true}); ans.Outcome != gtc.EndRetry || !ans.Uncertain {
			t.Fatalf("%+v, want retry, uncertain", ans)
		}
		cut.mode.Store(passAll)
		ans := settle(t, c, id, rec, true)
		next := gtc.ParticipantRef{ProducerID: ans.NextProducerID, ProducerEpoch: ans.NextProducerEpoch}
		if k.version == verdict.EndTxnKeeps {
			if ans.NextProducerEpoch != -1 {
				t.Fatalf("%+v, want -1: a copy may be on its way", ans)
			}
			var err error
			if next.ProducerID, next.ProducerEpoch, err = k.init(id, -1, -1); err != nil {
				t.Fatal(err)
			}
		}
		k.until(id, map[bool]verdict.State{true: verdict.Empty, false: verdict.CompleteCommit}[k.version == verdict.EndTxnKeeps])
		k.add(id, next)
		if code := k.end(k.version, id, ref, true); code != "PRODUCER_FENCED" {
			t.Errorf("late copy: %s, want PRODUCER_FENCED", code)
		}
		k.until(id, verdict.Ongoing)
	})
}

// scan looks until nothing is missing from the list.
func (k *kafka) scan(known func(string) bool) (open []gtc.OpenTransaction) {
	k.t.Helper()
	eventually(k.t, func() (complete bool) {
		var err error
		open, err = k.drive.Scan(k.t.Context(), k.c.ID, known)
		return err == nil
	})
	return open
}

func TestKafkaScan(t *testing.T) {
	forEachKafka(t, func(t *testing.T, k *kafka) {
		prefix := unique(t, "id")
		open := k.producer(prefix+"-open", noTimeoutDuration)
		open.write(k.topic)
		done := k.producer(prefix+"-done", noTimeoutDuration)
		done.write(k.topic)
		if err := done.cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		k.producer(prefix+"-empty", noTimeoutDuration).ref(k.c.ID)
		foreign := k.producer(unique(t, "foreign"), noTimeoutDuration)
		foreign.write(k.topic)

		known := func(id string) bool { return len(id) > len(prefix) && id[:len(prefix)] == prefix }
		k.until(done.id, verdict.CompleteCommit)
		found, ref := k.scan(known), open.ref(k.c.ID)
		if len(found) != 1 || found[0].ID != open.id || found[0].ProducerID != ref.ProducerID ||
			found[0].ProducerEpoch != ref.ProducerEpoch || found[0].EndTxnVersion != k.version || found[0].AuditTopic != k.topic {
			t.Fatalf("%+v, want %s alone", found, open.id)
		}
		// A leftover is ended as it was found.
		rec := txnlog.Participant{
			ClusterID: k.c.ID, ProducerID: found[0].ProducerID, ProducerEpoch: found[0].ProducerEpoch,
			EndTxnVersion: found[0].EndTxnVersion, AuditTopic: found[0].AuditTopic, StartMillis: found[0].StartMillis,
		}
		if ans := settle(t, k.drive, open.id, rec, false); ans.Outcome != gtc.EndDone {
			t.Errorf("%+v, want done", ans)
		}
		if found = k.scan(known); len(found) != 0 {
			t.Errorf("after the end: %+v, want none", found)
		}
		settle(t, k.drive, foreign.id, prepared(t, k.drive, foreign.id, foreign.ref(k.c.ID)), false)
	})
}

func TestKafkaChecks(t *testing.T) {
	forEachKafka(t, func(t *testing.T, k *kafka) {
		id := unique(t, "id")
		p := k.producer(id, noTimeoutDuration)
		p.write(k.topic)
		if got := check(t, k.drive, id, k.c.ID); got.Code != gtc.CheckOK || got.Detail != "" {
			t.Errorf("%+v, want ok", got)
		}
		rec := prepared(t, k.drive, id, p.ref(k.c.ID)) // the check changed nothing
		settle(t, k.drive, id, rec, false)
	})
	plain := clusters.Up(t, "v44plain", clusters.V44Plain)
	wrong := at("wrong", plain.Bootstrap)
	wrong.ExpectedClusterID = "something else"
	c := drive(t, at("plain", plain.Bootstrap), wrong)
	if got := check(t, c, "tid", plain.ID); got.Code != gtc.CheckNotOptedIn {
		t.Errorf("%+v, want not opted in", got)
	}
	if got := check(t, c, "tid", "something else"); got.Code != gtc.CheckClusterIDMismatch {
		t.Errorf("%+v, want cluster id mismatch", got)
	}
}

// check asks until the cluster can be asked: a new one makes its transaction log
// when first asked.
func check(t *testing.T, c *Clusters, id, clusterID string) (got gtc.CheckResult) {
	t.Helper()
	eventually(t, func() bool {
		got = c.Check(t.Context(), id, []string{clusterID})[0]
		return got.Code != gtc.CheckUnavailable
	})
	return got
}

// The cluster is killed between the decision and its end.
func TestKafkaEndOutlivesABroker(t *testing.T) {
	k := up(t, "participant-kill", clusters.V44, verdict.EndTxnBumps)
	t.Cleanup(func() { _ = k.c.Start(context.WithoutCancel(t.Context())) })
	cfg := at("k", k.c.Bootstrap)
	cfg.RequestTimeout = 2 * time.Second // of the requests to a broker that is dead
	k.drive = drive(t, cfg)
	id := unique(t, "id")
	p := k.producer(id, noTimeoutDuration)
	p.write(k.topic)
	rec := prepared(t, k.drive, id, p.ref(k.c.ID))
	if err := k.c.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if ans := k.drive.End(t.Context(), gtc.EndTxn{ID: id, Participant: rec, Commit: true}); ans.Outcome != gtc.EndRetry {
			t.Fatalf("%+v, want retry", ans)
		}
	}
	if err := k.c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ans := settle(t, k.drive, id, rec, true); ans.Outcome != gtc.EndDone {
		t.Errorf("%+v, want done", ans)
	}
	k.until(id, verdict.CompleteCommit)
	if n := visible(t, k.topic, k.c.Bootstrap); n != 1 {
		t.Errorf("%d records visible, want 1", n)
	}
}
