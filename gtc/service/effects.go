package service

import (
	"context"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// The named points at which Options.Fault is called, each with "/before" and
// "/after": every kind of append and every outgoing request. "/after" of an
// append is when it is durable and nothing that waits for it has left.
var faultPoints = []string{
	pointSession, pointPrepareCommit, pointPrepareAbort, pointComplete, pointLazy,
	"check", "vote", "end-txn", "reply", "scan",
}

// The appends: those of one forced step named for what it records, and those
// that take lazy records along by themselves.
const (
	pointSession       = "append-session"
	pointPrepareCommit = "append-prepare-commit"
	pointPrepareAbort  = "append-prepare-abort"
	pointComplete      = "append-complete"
	pointLazy          = "append-lazy"
)

// FaultPoints lists the names of the points.
func FaultPoints() []string {
	var all []string
	for _, p := range faultPoints {
		all = append(all, p+"/before", p+"/after")
	}
	return all
}

func appendPoint(forced []txnlog.Record) string {
	point := pointComplete
	for _, r := range forced {
		switch {
		case r.Value == nil:
		case r.Value.State == txnlog.StatePrepareCommit:
			return pointPrepareCommit
		case r.Value.State == txnlog.StatePrepareAbort:
			point = pointPrepareAbort
		case r.Value.State == txnlog.StateEmpty && point == pointComplete:
			point = pointSession
		}
	}
	return point
}

func effectID(e gtc.Effect) string {
	switch e := e.(type) {
	case gtc.CheckParticipants:
		return e.ID
	case gtc.TakeVotes:
		return e.ID
	case gtc.EndTxn:
		return e.ID
	case gtc.Reply:
		return e.ID
	}
	return ""
}

// effect returns what carries the effect out. It runs in the shard and returns
// at once; what takes time gets a goroutine and comes back as an event.
func (sh *shard) effect(e gtc.Effect) func() {
	t := sh.term
	switch e := e.(type) {
	case gtc.Reply:
		return func() {
			sh.s.o.Fault("reply/before")
			delete(t.requests, e.Request)
			sh.s.calls.answer(e.Request, answer{response: e.Response})
			sh.s.o.Fault("reply/after")
		}
	case gtc.CheckParticipants:
		return func() {
			sh.async(t, "check", func(ctx context.Context) gtc.Event {
				return gtc.ParticipantsChecked{
					ID: e.ID, Attempt: e.Attempt, Results: sh.s.o.Participants.Check(ctx, e.ID, e.ClusterIDs),
				}
			})
		}
	case gtc.TakeVotes:
		return func() { sh.async(t, "vote", func(ctx context.Context) gtc.Event { return sh.takeVotes(ctx, e) }) }
	case gtc.EndTxn:
		return func() {
			sh.s.ends.put(e.Participant.ClusterID, func() {
				sh.request(t, "end-txn", func(ctx context.Context) gtc.Event { return sh.endTxn(ctx, e) })
			})
		}
	}
	return func() {}
}

func (sh *shard) async(t *term, point string, do func(context.Context) gtc.Event) {
	sh.s.spawn(func() { sh.request(t, point, do) })
}

// request carries out one outgoing request and feeds its result to the term that
// asked. When the term has ended meanwhile the result is dropped, and with its
// context so is the request, if it has not left yet: a fenced coordinator acts
// on nothing more.
func (sh *shard) request(t *term, point string, do func(context.Context) gtc.Event) {
	if t.ctx.Err() != nil {
		return
	}
	sh.s.o.Fault(point + "/before")
	ev := do(t.ctx)
	sh.s.o.Fault(point + "/after")
	sh.inbox.put(task{run: func(now *term) {
		if now == t {
			sh.step(ev)
		}
	}})
}

func (sh *shard) takeVotes(ctx context.Context, e gtc.TakeVotes) gtc.Event {
	left := e.DeadlineMono - sh.s.o.Clock.Now().Mono
	// A little before the state machine stops waiting: it would know that votes
	// are missing, and only the look knows of which cluster.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(left-left/20, 0))*time.Millisecond)
	defer cancel()
	votes := sh.s.o.Participants.Vote(ctx, e.ID, e.Participants)
	return gtc.VotesTaken{ID: e.ID, GlobalEpoch: e.GlobalEpoch, Sequence: e.Sequence, Votes: votes}
}

func (sh *shard) endTxn(ctx context.Context, e gtc.EndTxn) gtc.Event {
	p, elapsed := e.Participant, stopwatch()
	answer := sh.s.o.Participants.End(ctx, e)
	sh.s.metrics.endAnswered(p.ClusterID, answer.Outcome, elapsed())
	return gtc.EndAnswered{
		ID: e.ID, Sequence: e.Sequence,
		Participant: gtc.ParticipantRef{ClusterID: p.ClusterID, ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch},
		Answer:      answer,
	}
}
