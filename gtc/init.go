package gtc

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// initRequest handles InitGlobalTxn: it fences the previous client instance
// and opens a session over the named clusters, once each of them has shown that
// it can take part.
func (s *step) initRequest(r InitRequest) {
	if code, msg := s.m.cfg.validateInit(r); code != CodeNone {
		s.refuse(r.Request, code, msg)
		return
	}
	if _, known := s.m.entries[r.ID]; !known && s.m.cfg.MaxIDs > 0 && len(s.m.entries) >= s.m.cfg.MaxIDs {
		s.refuse(r.Request, CodePolicyViolation, fmt.Sprintf(
			"this partition of the log holds %d ids already (global.transactional.ids.max.per.partition); idle ones expire", s.m.cfg.MaxIDs))
		return
	}
	w := s.load(r.ID)
	if v := w.value; v != nil {
		if done := w.answerKnownInstance(r); done {
			return
		}
		if code, msg := w.closedForInit(); code != CodeNone {
			s.refuse(r.Request, code, msg)
			return
		}
	}
	if k := w.volatile.check; k != nil {
		if k.request.InstanceID != r.InstanceID || !k.request.same(r) {
			s.refuse(r.Request, CodeConcurrentTransactions, "another client instance is being initialised; ask again")
			return
		}
		if len(k.requests) >= s.m.cfg.MaxWaiters {
			s.refuse(r.Request, CodeConcurrentTransactions, "too many copies of this request wait; ask again")
			return
		}
		k.requests = append(k.requests, r.Request)
		w.store()
		return
	}
	// The request id is unique for the life of this coordinator, so a late
	// answer to an earlier check cannot be taken for this one's.
	w.volatile.check = &check{attempt: uint64(r.Request), request: r, requests: []RequestID{r.Request}}
	w.store()
	s.effect(CheckParticipants{ID: r.ID, Attempt: uint64(r.Request), ClusterIDs: r.ClusterIDs})
}

func (c Config) validateInit(r InitRequest) (Code, string) {
	switch {
	case r.ID == "":
		return CodeInvalidRequest, "the global transactional id is empty"
	case len(r.ID) > math.MaxInt16:
		return CodeInvalidRequest, "the global transactional id is longer than 32767 bytes, Kafka's limit for a transactional.id"
	case r.TimeoutMillis <= 0 || r.TimeoutMillis > c.MaxTimeoutMillis:
		return CodeInvalidTimeout, fmt.Sprintf("the timeout of %d ms is outside 1 to %d ms (global.transaction.max.timeout.ms)",
			r.TimeoutMillis, c.MaxTimeoutMillis)
	case len(r.ClusterIDs) == 0:
		return CodeInvalidRequest, "no participant cluster is named"
	case len(r.ClusterIDs) > c.MaxParticipants:
		return CodeInvalidRequest, fmt.Sprintf("%d participant clusters, at most %d are allowed (global.transaction.max.participants)", len(r.ClusterIDs), c.MaxParticipants)
	case r.InstanceID == txnlog.UUID{}:
		return CodeInvalidRequest, "the instance id is the zero uuid; choose a random one for each client instance"
	}
	for i, id := range r.ClusterIDs {
		if id == "" || slices.Contains(r.ClusterIDs[:i], id) {
			return CodeInvalidRequest, fmt.Sprintf("the cluster id %s is empty or named twice", plain.Quote(id))
		}
	}
	return CodeNone, ""
}

func (r InitRequest) same(o InitRequest) bool {
	return r.TimeoutMillis == o.TimeoutMillis && sameClusters(r.ClusterIDs, o.ClusterIDs)
}

func sameClusters(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// answerKnownInstance answers a copy of an InitGlobalTxn that was granted
// before. Without it a late copy would fence its own sender, and one of the
// previous instance would fence the present one.
//
// The present instance asks again before it initialises a producer once more,
// and takes the answer for the permission (R3). So it is not given while a
// decision is under way, which that would abort, and not before a record of this
// coordinator is durable: one that was paused while another took over remembers
// the instance that has been fenced since, and would let it in.
func (w *work) answerKnownInstance(r InitRequest) bool {
	v := w.value
	switch r.InstanceID {
	case v.PreviousInstanceID:
		w.s.refuse(r.Request, CodeFenced, "a newer client instance owns this global transactional id")
		return true
	case v.InstanceID:
		code, msg := w.closedForProducers()
		switch {
		case v.SessionEnded:
			w.s.refuse(r.Request, CodeFenced, "the session ended by its timeout; initialise with a new instance id")
		case v.TimeoutMillis != r.TimeoutMillis || !sameClusters(v.ClusterIDs, r.ClusterIDs):
			w.s.refuse(r.Request, CodeInvalidRequest, "this instance id was initialised with another timeout or other clusters")
		case code != CodeNone:
			w.s.refuse(r.Request, code, msg)
		case w.volatile.ending != nil:
			w.s.refuse(r.Request, CodeConcurrentTransactions, "a transaction of this session is being ended; ask again")
		default:
			w.letIn()
			w.persist(false)
			w.s.reply(r.Request, Response{GlobalEpoch: v.GlobalEpoch, Sequence: v.Sequence + 1})
		}
		return true
	}
	return false
}

// closedForInit says why no new session can begin now.
func (w *work) closedForInit() (Code, string) {
	code, msg := w.closedForProducers()
	if code == CodeNone && w.value.GlobalEpoch == math.MaxInt32 {
		return CodeInvalidRequest, "the global epochs of this id are used up; choose another global transactional id"
	}
	return code, msg
}

// closedForProducers says why no producer of the id may be initialised now.
func (w *work) closedForProducers() (Code, string) {
	v := w.value
	switch {
	case heuristic(v):
		return CodeHeuristicOutcome, heuristicMessage(v)
	case holds(v):
		return CodeConcurrentTransactions, w.pendingMessage()
	case len(v.Leftovers) >= maxLeftovers:
		return CodeConcurrentTransactions, w.leftoversMessage()
	case w.volatile.ending != nil && w.volatile.ending.onePhase:
		// Its EndTxn(commit) may be executed at any moment; a client that
		// initialised its producer now would not know what came before.
		return CodeConcurrentTransactions, "the only participant is being committed"
	}
	return CodeNone, ""
}

// participantsChecked opens the session, or says which clusters stand against
// it. Nothing has been written until then.
func (s *step) participantsChecked(ev ParticipantsChecked) {
	w := s.load(ev.ID)
	k := w.volatile.check
	if k == nil || k.attempt != ev.Attempt {
		return
	}
	w.volatile.check = nil
	defer w.store()
	refuse := func(resp Response) {
		resp.GlobalEpoch, resp.Sequence = -1, -1
		for _, r := range k.requests {
			s.reply(r, resp)
		}
	}
	if resp, ok := checkFailure(ev.Results); !ok {
		refuse(resp)
		return
	}
	if w.value != nil {
		if code, msg := w.closedForInit(); code != CodeNone {
			refuse(Response{Code: code, Message: msg})
			return
		}
	}
	w.openSession(k.request)
	for _, r := range k.requests {
		s.reply(r, Response{GlobalEpoch: w.value.GlobalEpoch, Sequence: w.value.Sequence + 1})
	}
}

func (w *work) openSession(r InitRequest) {
	if w.value == nil {
		// The numbers of a new id begin at the wall clock, so that they do
		// not repeat those of an earlier life that has expired: a client
		// that slept through the expiry is told that its transaction is too
		// old, not the fate of another one.
		w.value = &txnlog.GlobalTransaction{State: txnlog.StateEmpty, Sequence: w.s.now.Wall, DecidedMillis: -1}
	}
	v := w.value
	v.GlobalEpoch++
	v.PreviousInstanceID, v.InstanceID = v.InstanceID, r.InstanceID
	v.TimeoutMillis = r.TimeoutMillis
	v.FormerClusterIDs = formerClusters(v, r.ClusterIDs)
	v.ClusterIDs = r.ClusterIDs
	v.SessionEnded = false
	w.letIn()
	w.persist(false)

	// Votes of the fenced session are of no use any more: its transaction is
	// aborted when the new client initialises its producers (R3), or by the
	// scan.
	if e := w.volatile.ending; e != nil {
		w.volatile.ending = nil
		w.refuseWaiters(e.sequence, CodeFenced, "a newer client instance has taken the global transactional id over")
	}
	w.volatile.opened = w.s.now.Mono
	// What was seen open is of an earlier session: producers are initialised after
	// InitGlobalTxn has answered (R3). It keeps its age. Were the age to begin anew,
	// an application that crashes again and again, sooner than its timeout, would
	// hold readers for ever; and as one of the present session it would end a
	// client that is slow to initialise its producers.
	for _, c := range w.volatile.clusters {
		if c.open != nil {
			former := *c.open
			former.former = true
			w.volatile.at(c.clusterID).open = &former
		}
	}
}

// letIn notes that a client may initialise producers from now on. Where only the
// producer id and epoch name what was committed last, nobody goes on under them then,
// and what is open under that name may be another transaction (decidedAbout).
func (w *work) letIn() {
	if !committed(w.value) {
		return
	}
	for i := range w.value.Participants {
		if p := &w.value.Participants[i]; p.AuditTopic == "" {
			p.NextProducerID, p.NextProducerEpoch = -1, -1
		}
	}
}

// formerClusters are the clusters that sessions before a new one over now named.
func formerClusters(v *txnlog.GlobalTransaction, now []string) []string {
	former := slices.Clone(v.FormerClusterIDs)
	for _, id := range v.ClusterIDs {
		if !slices.Contains(former, id) {
			former = append(former, id)
		}
	}
	return slices.DeleteFunc(former, func(id string) bool { return slices.Contains(now, id) })
}

// checkFailure condenses the findings into the code that helps most: a final
// refusal before one that may pass.
func checkFailure(results []CheckResult) (Response, bool) {
	worst := CheckOK
	var failed []CheckResult
	var names []string
	for _, r := range results {
		if r.Code == CheckOK {
			continue
		}
		worst = max(worst, r.Code)
		failed = append(failed, r)
		names = append(names, plain.Name(r.ClusterID)+": "+r.Detail)
	}
	resp := Response{Checks: failed, Message: strings.Join(names, "; ")}
	switch worst {
	case CheckOK:
		return resp, true
	case CheckUnavailable:
		resp.Code = CodeParticipantUnavailable
	case CheckUnknownCluster:
		resp.Code = CodeUnknownParticipant
	case CheckClusterIDMismatch:
		resp.Code = CodeClusterIDMismatch
	case CheckNotOptedIn:
		resp.Code = CodeNotOptedIn
	case CheckUnauthorized:
		resp.Code = CodeParticipantUnauthorized
	}
	return resp, false
}
